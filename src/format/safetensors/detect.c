/* detect.c - detection of safetensors files and directories */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/safetensors/safetensors.h"

#include <errno.h>
#include <string.h>

#include "archive/safetensors.h"
#include "base/cursor.h"
#include "format/part.h"
#include "format/probe.h"
#include "layout/option.h"

static const char *const extensions[] = { ".safetensors", NULL };

/* Does it begin with a header length that fits, then "{"? */
static bool has_magic(const struct ofs_file_head *h)
{
	uint64_t header;

	if (h->n < 9)
		return false;
	header = ofs_le64(h->p);
	return h->p[8] == '{' && header >= 2 && header <= h->size - 8 &&
	    header <= OFS_SAFETENSORS_HEADER_MAX;
}

/* A file with the right name gets a low bid, so that its faults are
 * reported. */
static int bid_file(const struct ofs_file_head *h, struct optimfs_error *err)
{
	if (!has_magic(h))
		return ofs_probe_extension(h->name, extensions) != NULL ? 5 : 0;
	if (!h->zip_end && memcmp(h->p, "PK\3\4", 4) != 0)
		return 100;
	return optimfs_fail(err, EUCLEAN,
	    "OFS662 %s: ambiguous type: a zip archive and safetensors at once "
	    "(-o type=)",
	    h->name);
}

/* Shards of a model, written by DCP's HuggingFaceStorageWriter. */
static int bid(const struct ofs_dir *dir, const struct ofs_names *names,
    struct optimfs_error *err)
{
	int rank, part, nparts;

	(void)dir;
	(void)err;
	for (size_t i = 0; i < names->n; i++)
		if (ofs_hf_shard_name(names->name[i], &rank, &part, &nparts))
			return 80;
	return 0;
}

/* Add the index that maps tensors of a model to files. */
static int add_index(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	for (size_t i = 0; i < names->n; i++) {
		struct ofs_part_spec spec = { .rel = names->name[i],
			.format = &ofs_format_hf_index,
			.prefix = { "model" },
			.rank = -1 };

		if (ofs_hf_index_name(spec.rel) &&
		    ofs_probe_is_file(dir, spec.rel) &&
		    ofs_parts_add(parts, &spec, err) == -1)
			return -1;
	}
	return 0;
}

static bool option(const char *s, size_t n, struct ofs_layout *l)
{
	if (!ofs_option_is(s, n, "hf"))
		return ofs_option_narrow(s, n, l);
	l->hf = true;
	return true;
}

static const char *const listed[] = { "safetensors", "safetensors,hf", NULL };

static const struct ofs_view_kind views[] = {
	{ .name = "safetensors", .listed = listed },
	{ .name = NULL },
};

const struct ofs_format ofs_format_safetensors = {
	.name = "safetensors",
	.extensions = extensions,
	.bid_file = bid_file,
	.bid = bid,
	.prefix = "model",
	.is_index = ofs_hf_index_name,
	.add_index = add_index,
	.read = ofs_safetensors_read,
	.views = views,
	.option = option,
	.render = &ofs_safetensors_render,
};
