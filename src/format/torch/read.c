/* read.c - the files of one part, read together */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/step.h"
#include "format/fsdp/fsdp.h"
#include "format/globals.h"
#include "format/ranks/ranks.h"
#include "format/torch/torch.h"

static int read_files(struct ofs_ranks *set, const struct ofs_part *part,
    struct optimfs_error *err)
{
	struct ofs_part_file alone = { part->rel, part->rank };
	const struct ofs_part_file *file =
	    part->nfiles == 0 ? &alone : part->file;
	size_t n = part->nfiles == 0 ? 1 : part->nfiles, npref;
	bool bare = part->format->bare;
	uint32_t prefix[OFS_PART_PREFIX];

	if (ofs_ranks_begin(set, set->cat, n, err) == -1 ||
	    ofs_part_prefix(set->cat, part, prefix, &npref, err) == -1)
		return -1;
	for (size_t i = 0; i < n; i++) {
		uint32_t at = set->nfiles;

		if (ofs_ranks_try(set, file[i].rel, file[i].rank, bare, err) ==
			-1 ||
		    (at < set->nfiles &&
			ofs_ranks_collect(set, at,
			    ofs_pickle_root(set->file[at].doc), prefix, npref,
			    err) == -1))
			return -1;
	}
	return set->nfiles > 0 ? 0 : optimfs_fail_with(err, &set->why);
}

/* 1: *rank and *world are those of the sharded tensors of a file; 0: it does not
 * have both; -1: failed. */
static int ask_file(struct ofs_catalog *cat, const char *rel, int *rank,
    int *world, struct optimfs_error *err)
{
	struct ofs_ranks set = { 0 };
	int ret = ofs_ranks_begin(&set, cat, 1, err);

	if (ret == 0)
		ret = ofs_ranks_open(&set, rel, -1, false, err);
	if (ret == 0)
		ret = ofs_ranks_collect(&set, 0,
		    ofs_pickle_root(set.file[0].doc), NULL, 0, err);
	if (ret == 0) {
		*rank = set.file[0].said_rank;
		*world = set.file[0].said_world;
		ret = *rank != -1 && *world != 0;
	}
	ofs_ranks_fini(&set);
	return ret;
}

int ofs_torch_writer(const struct ofs_dir *dir, const char *rel, int *rank,
    int *world, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	struct ofs_catalog *cat;
	struct ofs_dir copy;
	int ret = -1;

	if (ofs_dir_copy(dir, &copy, err) == -1)
		return -1;
	cat = ofs_catalog_new(&copy, &why);
	ofs_dir_close(&copy);
	if (cat != NULL)
		ret = ask_file(cat, rel, rank, world, &why);
	ofs_catalog_free(cat);
	if (ret != -1)
		return ret;
	return ofs_must_stop(&why) ? optimfs_fail_with(err, &why) : 2;
}

int ofs_torch_read(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	struct ofs_ranks set = { .cat = cat };
	uint32_t notes = cat->nnotes, tensors = cat->ntensors;
	int ret = read_files(&set, part, err);

	if (ret == 0)
		ret = ofs_ranks_check(&set, err);
	if (ret == 0)
		ret = ofs_ranks_group(&set, err);
	if (ret == 0)
		ret = ofs_fsdp_claim(&set, opt, err);
	if (ret == 0)
		ret = ofs_ranks_merge(&set, err);
	if (ret == 0)
		ret = ofs_ranks_lost(&set, tensors, err);
	if (ret == 0)
		ret = ofs_ranks_end(&set, err);
	ofs_ranks_fini(&set);
	if (ret == -1)
		return -1;
	if (cat->format == NULL)
		cat->format = part->format->name;
	return opt != NULL && opt->strict ? ofs_refuse_calls(cat, notes, err)
					  : 0;
}
