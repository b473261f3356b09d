/* read.c - checkpoints of torch.distributed.checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "catalog/budget.h"
#include "format/dcp/dcp.h"
#include "format/fsdp/fsdp.h"
#include "format/fsdp_dtensor/fsdp_dtensor.h"
#include "format/globals.h"
#include "format/part.h"

/* See docs/formats/dcp.md. A directory has data files and one index, .metadata;
 * saves without collectives have an index for each rank, __R.metadata,
 * instead.
 *
 * The index says where everything is. index.c takes from it the file, offset
 * and length of each item, keys.c makes entries of its keys, tensor.c shards of
 * its chunks, location.c the extents of both. No data file is read for that,
 * except where the index does not say enough: for headers of safetensors blobs
 * (blobs.c) and for values that are directories of the tree (items.c). An item
 * is an archive; where in it the elements are is found when they are first read
 * (src/read/locate.c). */

/* The files of a DCP checkpoint in a directory. */
struct found {
	struct ofs_names names;
	struct found_index {
		const char *name;
		int rank;
	} * index;
	uint32_t nindex;
	bool whole, tmp; /* .metadata, .metadata.tmp exist */
	size_t ndata;    /* number of data files */
};

static void found_fini(struct found *f)
{
	ofs_names_free(&f->names);
	free(f->index);
}

OFS_COMPARE_BY(by_rank, struct found_index, rank)

static int look(const struct ofs_dir *dir, struct found *f,
    struct optimfs_error *err)
{
	*f = (struct found){ 0 };
	if (ofs_dir_list(dir, &f->names, err) == -1)
		return -1;
	f->index = calloc(f->names.n + 1, sizeof(*f->index));
	if (f->index == NULL) {
		found_fini(f);
		return ofs_no_memory(err);
	}
	for (size_t i = 0; i < f->names.n; i++) {
		const char *name = f->names.name[i];
		int rank = ofs_dcp_index_rank(name);

		f->whole = f->whole || strcmp(name, OFS_DCP_INDEX) == 0;
		f->tmp = f->tmp || strcmp(name, OFS_DCP_TMP) == 0;
		f->ndata += ofs_dcp_is_data(name);
		if (rank != -1)
			f->index[f->nindex++] =
			    (struct found_index){ name, rank };
	}
	if (f->whole) { /* the others are of an earlier save */
		f->index[0] = (struct found_index){ OFS_DCP_INDEX, -1 };
		f->nindex = 1;
	}
	qsort(f->index, f->nindex, sizeof(*f->index), by_rank);
	return 0;
}

/* Reading the index. */

static int refuse_incomplete(const struct found *f, const char *path,
    struct optimfs_error *err)
{
	if (f->ndata > 0)
		return optimfs_fail(err, EUCLEAN,
		    "OFS601 %s: incomplete save: %zu .distcp files but no "
		    ".metadata%s",
		    path, f->ndata,
		    f->tmp ? " (only .metadata.tmp: the writer died, or is "
			     "still running)"
			   : "");
	if (f->tmp)
		return optimfs_fail(err, EBUSY,
		    "OFS258 %s: only .metadata.tmp exists: a save is in "
		    "progress, or was interrupted",
		    path);
	return optimfs_fail(err, EUCLEAN,
	    "OFS601 %s: no .metadata and no .distcp files", path);
}

static int load_index(struct ofs_dcp *d, const struct found_index *f,
    uint64_t *memory, struct optimfs_error *err)
{
	struct ofs_dcp_index *index = &d->index[d->nindex];
	const struct ofs_pickle_limits limits = { .memory = *memory,
		.watch = d->cat->dir.watch };
	uint64_t len, used;
	char *path = ofs_path_join(d->part->rel, f->name);
	uint8_t *bytes;
	int ret = -1;

	if (path == NULL)
		return ofs_no_memory(err);
	if (ofs_dir_read_file(&d->cat->dir, path, ofs_metadata_max(d->cat),
		&bytes, &len, err) == -1)
		goto out;
	if (len <= OFS_LFS_MAX && ofs_is_lfs_pointer(bytes, len)) {
		free(bytes);
		optimfs_fail(err, EIO,
		    "OFS666 %s: a pointer of Git LFS, not the file itself",
		    path);
		goto out;
	}
	if (ofs_dcp_index_open(index, bytes, len, &limits, err) == -1) {
		optimfs_fail_in(err, "%s", path);
		goto out;
	}
	d->nindex++;
	index->rank = f->rank;
	used = ofs_pickle_memory(index->doc);
	if (*memory != 0) /* 1, because 0 means the default */
		*memory = *memory > used + 1 ? *memory - used : 1;
	index->object = ofs_catalog_object(d->cat, path, -1, err);
	if (index->object == OFS_NONE ||
	    ofs_note_globals(d->cat, index->doc, path, err) == -1)
		goto out;
	ret = 0;
out:
	free(path);
	return ret;
}

static int load_indexes(struct ofs_dcp *d, const struct found *f,
    struct optimfs_error *err)
{
	uint64_t memory = d->cat->parse_mem;

	d->index = calloc(f->nindex, sizeof(*d->index));
	if (d->index == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < f->nindex; i++)
		if (load_index(d, &f->index[i], &memory, err) == -1)
			return -1;
	return 0;
}

static void free_indexes(struct ofs_dcp *d)
{
	for (uint32_t i = 0; i < d->nindex; i++)
		ofs_dcp_index_fini(&d->index[i]);
	free(d->index);
	d->index = NULL;
	d->nindex = 0;
	ofs_map_fini(&d->by_name);
	free(d->key);
	d->key = NULL;
	d->nkeys = d->key_cap = 0;
	memset(d->objects, 0, sizeof(d->objects));
	memset(d->strs, 0, sizeof(d->strs));
}

/* Build all entries. */

static int build(struct ofs_dcp *d, const struct found *f,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	uint32_t first = d->cat->nobjects, entries = d->cat->nentries, index;
	bool ascend;

	if (ofs_part_prefix(d->cat, d->part, d->prefix, &d->nprefix, err) ==
		-1 ||
	    load_indexes(d, f, err) == -1 || ofs_dcp_add_keys(d, err) == -1 ||
	    ofs_dcp_check_unused(d, err) == -1 ||
	    ofs_dcp_check_planner(d, err) == -1 ||
	    ofs_dcp_check_files(d, &f->names, first, err) == -1)
		return -1;
	if (d->cat->writer == NULL)
		d->cat->writer = d->index[0].writer;
	index = d->index[0].object;
	ascend = ofs_dcp_items_ascend(d);
	free_indexes(d); /* the checks need memory, too */
	if ((!ascend && ofs_dcp_check_overlap(d, err) == -1) ||
	    ofs_dcp_resolve_blobs(d, err) == -1 ||
	    ofs_dcp_expand_items(d, err) == -1)
		return -1;
	if (ofs_fsdp_entries(d->cat, entries, d->cat->objects[index].path, opt,
		err) == -1)
		return -1;
	return ofs_fsdp_dtensor_entries(d->cat, entries, err);
}

int ofs_dcp_read(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	struct ofs_dcp d = {
		.cat = cat,
		.part = part,
		.first_shard = cat->nshards,
		.first_item = cat->nitems,
		.tensor.name = { "chunks", "properties", "size" },
		.chunk.name = { "offsets", "sizes" },
	};
	const struct ofs_dir *at = &cat->dir;
	struct ofs_dir sub = { .fd = -1 };
	struct found f = { 0 };
	int ret = -1;

	if (part->rel[0] != '\0') {
		if (ofs_dir_open_sub(&cat->dir, part->rel, &sub, err) == -1)
			return -1;
		at = &sub;
	}
	if (look(at, &f, err) == -1)
		goto out;
	if (f.nindex == 0)
		refuse_incomplete(&f, at->path, err);
	else
		ret = build(&d, &f, opt, err);
	found_fini(&f);
out:
	free_indexes(&d);
	free(d.blob);
	free(d.pending);
	if (at == &sub)
		ofs_dir_close(&sub);
	return ret;
}
