/* source.c - a checkpoint by its path, on one rank or several */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/source.h"

#include <errno.h>

#include "cluster/manifest.h"

static const struct optimfs_options *or_none(const struct optimfs_options *opt)
{
	static const struct optimfs_options none;

	return opt == NULL ? &none : opt;
}

static int open_input(struct ofs_checkpoint *in, const char *path,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	const struct ofs_manifest *s;

	if (opt->group == NULL)
		return ofs_checkpoint_open(in, path, opt, err);
	if (opt->join != NULL)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS690 join=%.200s: not with several ranks", opt->join);
	in->other = NULL;
	s = ofs_group_manifest(opt->group, path, err);
	return s == NULL ? -1 : ofs_manifest_dir(s, &in->dir, &in->rel, err);
}

struct ofs_catalog *ofs_read_over(const char *path, int upper,
    const char *const *gone, size_t n, const struct optimfs_options *opt,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat;
	struct ofs_checkpoint in;

	opt = or_none(opt);
	if (open_input(&in, path, opt, err) == -1)
		return NULL;
	cat = ofs_checkpoint_read(&in, upper, gone, n, opt, err);
	ofs_checkpoint_close(&in);
	return cat;
}

struct ofs_catalog *ofs_read_checkpoint(const char *path,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	return ofs_read_over(path, -1, NULL, 0, opt, err);
}

int ofs_find_parts(const char *path, const struct optimfs_options *opt,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	struct ofs_checkpoint in;
	int ret;

	if (open_input(&in, path, or_none(opt), err) == -1)
		return -1;
	ret = ofs_checkpoint_parts(&in, or_none(opt), parts, err);
	ofs_checkpoint_close(&in);
	return ret;
}
