/* read.c - a safetensors file, or a directory of shards */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/safetensors/safetensors.h"

#include <errno.h>
#include <stdlib.h>

#include "archive/safetensors.h"
#include "base/memory.h"
#include "base/search.h"
#include "format/part.h"
#include "format/probe.h"

static int read_input(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	return ofs_input_read(ctx, buf, len, off, err);
}

int ofs_safetensors_open_file(const struct ofs_dir *dir, const char *rel,
    uint64_t max, struct ofs_safetensors *st, struct optimfs_error *err)
{
	struct stat stat;
	struct ofs_input in;
	int ret;

	if (ofs_dir_open_input(dir, rel, &in, &stat, err) == -1)
		return -1;
	ret = ofs_safetensors_open(st, (uint64_t)stat.st_size, max, true,
	    read_input, &in, err);
	ofs_input_close(&in);
	return ret == -1 ? optimfs_fail_in(err, "%s", rel) : 0;
}

int ofs_safetensors_add(struct ofs_catalog *cat, uint32_t object,
    const struct ofs_safetensors_tensor *from, uint32_t path,
    struct optimfs_error *err)
{
	struct ofs_shard shard = {
		.at = { .off = from->off, .len = from->len, .object = object },
		.box = OFS_NONE,
		.view = OFS_NONE,
	};
	struct ofs_tensor t = {
		.ndim = from->ndim,
		.grid_ndim = from->ndim,
		.dtype = from->dtype,
		.nshards = 1,
		.error = OFS_NONE,
	};

	t.shape = ofs_catalog_dims(cat, from->shape, from->ndim, err);
	t.grid = t.shape;
	t.shard = ofs_catalog_shard(cat, &shard, err);
	return ofs_catalog_add(cat, path, OFS_ENTRY_TENSOR,
	    ofs_catalog_tensor(cat, &t, err), OFS_KEY_FREE, err);
}

/* The place of a tensor in the note, which has the order of the program that
 * saved them; in the header they are sorted. */
struct noted {
	uint32_t at; /* OFS_NONE: it is not in the note */
	size_t index;
};

OFS_COMPARE_BY2(by_note, struct noted, at, index)

static struct noted *in_order(const struct ofs_safetensors *st,
    const struct ofs_safetensors_note *note, struct optimfs_error *err)
{
	struct noted *v = ofs_alloc(st->n + 1, sizeof(*v), err);

	if (v == NULL)
		return NULL;
	for (size_t i = 0; i < st->n; i++)
		v[i] = (struct noted){ ofs_keys_find(&note->keys,
					   st->tensor[i].name.p,
					   st->tensor[i].name.len),
			i };
	qsort(v, st->n, sizeof(*v), by_note);
	return v;
}

/* Say in which file the note is that cannot be read. Another program may have
 * an entry of this name. */
static int in_file(const struct ofs_part *part, const struct optimfs_error *why,
    struct optimfs_error *err)
{
	if (why->number != 653 && why->number != 663)
		return optimfs_fail_with(err, why);
	return optimfs_fail(err, EUCLEAN,
	    "OFS663 %.150s: \"%s\" of __metadata__, the note of optimfs: %.250s",
	    part->rel, OFS_SAFETENSORS_NOTE,
	    why->text + sizeof("OFSnnn ") - 1);
}

static int add_tensors(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct ofs_safetensors *st, struct optimfs_error *err)
{
	struct ofs_safetensors_note note = { 0 };
	uint32_t c[OFS_PART_PREFIX + 1], object, path;
	struct noted *order = NULL;
	struct optimfs_error why;
	size_t n;
	int ret;

	object = ofs_catalog_object(cat, part->rel, part->rank, err);
	if (object == OFS_NONE || ofs_part_prefix(cat, part, c, &n, err) == -1)
		return -1;
	ret = ofs_safetensors_note_read(&note, cat, st, c, n, &why);
	if (ret == -1)
		in_file(part, &why, err);
	if (ret == 0)
		order = in_order(st, &note, err);
	if (order == NULL)
		ret = -1;
	for (size_t i = 0; i < st->n && ret == 0; i++) {
		const struct ofs_safetensors_tensor *t =
		    &st->tensor[order[i].index];

		path =
		    ofs_safetensors_note_path(&note, cat, t->name, c, n, err);
		ret = path == OFS_NONE
		    ? -1
		    : ofs_safetensors_add(cat, object, t, path, err);
	}
	if (ret == 0)
		ret = ofs_safetensors_note_values(&note, cat, st, c, n, &why) ==
			-1
		    ? in_file(part, &why, err)
		    : 0;
	free(order);
	ofs_safetensors_note_fini(&note);
	return ret;
}

static int warn_of_metadata(struct ofs_catalog *cat,
    const struct ofs_part *part, const struct ofs_safetensors *st,
    struct optimfs_error *err)
{
	if (st->nodd == 0)
		return 0;
	return ofs_catalog_note(cat, OFS_NOTE_WARNING, EUCLEAN, err,
	    "OFS660 %.200s: %zu members of __metadata__ are not strings, and "
	    "are ignored",
	    part->rel, st->nodd);
}

int ofs_safetensors_read(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	struct ofs_safetensors st;
	int ret;

	(void)opt;
	if (part->rel[0] == '\0' || !ofs_probe_is_file(&cat->dir, part->rel))
		return ofs_hf_shards_read(cat, part, err);
	if (ofs_safetensors_open_file(&cat->dir, part->rel, cat->max_metadata,
		&st, err) == -1)
		return -1;
	ret = add_tensors(cat, part, &st, err);
	if (ret == 0)
		ret = warn_of_metadata(cat, part, &st, err);
	ofs_safetensors_fini(&st);
	return ret;
}
