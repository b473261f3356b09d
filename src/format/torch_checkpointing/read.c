/* read.c - the index of torch_checkpointing, and the files that it names */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/step.h"
#include "base/str.h"
#include "catalog/budget.h"
#include "format/globals.h"
#include "format/part.h"
#include "format/probe.h"
#include "format/torch_checkpointing/torch_checkpointing.h"

/* See docs/formats/torch_checkpointing.md. A program saves items, each in its
 * own form. The default is a file of torch.save for each rank, ITEM_RANK.pt,
 * which says by itself how its tensors are divided; detection finds those by
 * their names. This reader adds items in other files, which the index names. */

/* More items than a program has, and more ranks. */
#define ITEMS_MAX 4096
#define RANKS_MAX (1 << 20)
/* A larger index is read, but detection does not look into it. */
#define INDEX_MAX (UINT64_C(64) << 20)

/* Detection. */

/* Files of torch.save beside the index are parts of their own, so that no
 * directory is of this format only: src/detect/torch_checkpointing.c asks. */
static int bid(const struct ofs_dir *dir, const struct ofs_names *names,
    struct optimfs_error *err)
{
	static const char word[] = "nested_path_to_metadata";
	uint8_t head[4096];
	size_t n;
	int ret;

	if (!ofs_probe_has(names, OFS_TC_INDEX))
		return 0;
	/* the first item is at its start */
	ret = ofs_probe_start(dir, OFS_TC_INDEX, head, sizeof(head), &n, err);
	if (ret != 1)
		return ret;
	return memmem(head, n, word, sizeof(word) - 1) != NULL ? OFS_BID_ASKED
							       : 0;
}

/* Items. */

char *ofs_tc_path(const struct ofs_tc_item *item, struct ofs_str path,
    struct optimfs_error *err)
{
	char *rel;

	if (asprintf(&rel, "%s%.*s", item->dir, (int)path.len, path.p) != -1)
		return rel;
	ofs_no_memory(err);
	return NULL;
}

int ofs_tc_lost(const struct ofs_tc_item *item, const char *rel, int rank,
    const struct optimfs_error *why, struct optimfs_error *err)
{
	struct ofs_catalog *cat = item->cat;
	struct optimfs_error e = *why;
	uint32_t object = ofs_catalog_object(cat, rel, rank, err);

	if (object == OFS_NONE)
		return -1;
	cat->objects[object].damaged = !cat->objects[object].missing;
	optimfs_fail_in(&e, "%.*s of rank %d", OFS_STR_ARGS(item->name, 100),
	    rank);
	return ofs_catalog_note_as(cat, OFS_NOTE_MISSING, &e, err);
}

/* The form of a rank's file, and its path; "": the default. */
static struct ofs_str form_of(const struct ofs_tc_item *item, uint32_t rank,
    struct ofs_str *path)
{
	const struct ofs_pickle *doc = item->doc;
	uint32_t layout = ofs_pk_val(doc, item->layouts, rank);

	*path = (struct ofs_str){ "", 0 };
	if (ofs_pk_kind(doc, layout) != OFS_PK_DICT)
		return *path;
	*path = ofs_pk_str(doc, ofs_pk_get(doc, layout, "file_path"));
	return ofs_pk_str(doc,
	    ofs_pk_get(doc, ofs_pk_get(doc, layout, "serialization_format"),
		"type"));
}

static int note_unread(const struct ofs_tc_item *item, struct ofs_str form,
    struct ofs_str path, struct optimfs_error *err)
{
	return ofs_catalog_note(item->cat, OFS_NOTE_MISSING, EOPNOTSUPP, err,
	    "OFS766 %.*s is not read: %s names %.*s for it, of the form %.*s",
	    OFS_STR_ARGS(item->name, 100), OFS_TC_INDEX,
	    OFS_STR_ARGS(path, 200), OFS_STR_ARGS(form, 60));
}

/* Files of one object each, which are shown as they are. */
static int add_raw(const struct ofs_tc_item *item, struct optimfs_error *err)
{
	uint32_t n = ofs_pk_len(item->doc, item->layouts);
	char name[256], number[24];
	struct ofs_part part = { .format = &ofs_format_raw,
		.prefix = { name, n > 1 ? number : NULL } };
	int ret = 0;

	snprintf(name, sizeof(name), "%.*s", OFS_STR_ARGS(item->name, 255));
	for (uint32_t i = 0; i < n && ret == 0; i++) {
		struct optimfs_error why = { 0 };
		struct ofs_str path;

		(void)form_of(item, i, &path);
		snprintf(number, sizeof(number), "rank%" PRIu32, i);
		part.rank = (int)i;
		part.rel = ofs_tc_path(item, path, err);
		if (part.rel == NULL)
			return -1;
		ret = ofs_format_raw.read(item->cat, &part, item->opt, &why);
		if (ret == -1)
			ret = ofs_must_fail(&why)
			    ? optimfs_fail_with(err, &why)
			    : ofs_tc_lost(item, part.rel, (int)i, &why, err);
		free(part.rel);
	}
	return ret;
}

/* Have the files of all ranks one form? If not, form and path become those of one
 * that differs. */
static bool is_one_form(const struct ofs_tc_item *item, struct ofs_str *form,
    struct ofs_str *path)
{
	uint32_t n = ofs_pk_len(item->doc, item->layouts);
	struct ofs_str other, at;

	for (uint32_t i = 1; i < n; i++) {
		other = form_of(item, i, &at);
		if (ofs_str_equal(other, *form))
			continue;
		*form = other.len > 0 ? other : *form;
		*path = other.len > 0 ? at : *path;
		return false;
	}
	return true;
}

static int read_item(const struct ofs_tc_item *item, struct optimfs_error *err)
{
	struct ofs_str path, form = form_of(item, 0, &path);

	if (!is_one_form(item, &form, &path))
		return note_unread(item, form, path, err);
	if (ofs_str_is(form, "SafetensorsSerialization"))
		return ofs_tc_safetensors(item, err);
	if (ofs_str_is(form, "JsonSerialization") ||
	    ofs_str_is(form, "RawSerialization"))
		return add_raw(item, err);
	/* found by its name, in the directory itself */
	if (path.len == 0 ||
	    (ofs_str_is(form, "TorchSerialization") &&
		memchr(path.p, '/', path.len) == NULL))
		return 0;
	return note_unread(item, form, path, err);
}

static int read_items(struct ofs_tc_item *item, struct optimfs_error *err)
{
	const struct ofs_pickle *doc = item->doc;
	uint32_t root = ofs_pickle_root(doc);
	uint32_t items = ofs_pk_get(doc, root, "metadata");
	int64_t world;

	if (ofs_pk_kind(doc, items) != OFS_PK_DICT ||
	    ofs_pk_len(doc, items) > ITEMS_MAX)
		return ofs_pk_unexpected(doc, items, err, "OFS767", "a dict",
		    "metadata");
	if (ofs_pk_int(doc, ofs_pk_get(doc, root, "world_size"), &world) &&
	    world > 0 && world <= RANKS_MAX)
		item->cat->world_size = (int)world;
	for (uint32_t i = 0; i < ofs_pk_len(doc, items); i++) {
		uint32_t value = ofs_pk_val(doc, items, i);

		item->name = ofs_pk_str(doc, ofs_pk_key(doc, items, i));
		item->layouts = ofs_pk_get(doc, value, "rank_to_layout_info");
		item->tensors =
		    ofs_pk_get(doc, value, "nested_path_to_metadata");
		if (item->name.len == 0 ||
		    ofs_pk_kind(doc, item->layouts) != OFS_PK_DICT ||
		    ofs_pk_kind(doc, item->tensors) != OFS_PK_DICT ||
		    ofs_pk_len(doc, item->layouts) > RANKS_MAX)
			return ofs_pk_unexpected(doc, value, err, "OFS767",
			    "an item", "metadata[%u]", i);
		if (read_item(item, err) == -1)
			return -1;
	}
	return 0;
}

/* Detection: the files. */

struct files {
	struct ofs_part_file *file;
	size_t n, cap;
	struct optimfs_error *err;
};

static int add_file(struct files *f, const char *p, size_t len, int rank)
{
	char *rel;

	if (ofs_grow(f->file, f->n, f->cap, f->err) == -1)
		return -1;
	rel = strndup(p, len);
	if (rel == NULL)
		return ofs_no_memory(f->err);
	f->file[f->n++] = (struct ofs_part_file){ rel, rank };
	return 0;
}

static int add_files(struct files *f, const struct ofs_pickle *doc)
{
	uint32_t items = ofs_pk_get(doc, ofs_pickle_root(doc), "metadata");
	struct ofs_tc_item item = { .doc = doc };

	for (uint32_t i = 0; ofs_pk_kind(doc, items) == OFS_PK_DICT &&
	     i < ofs_pk_len(doc, items) && i < ITEMS_MAX;
	     i++) {
		item.layouts = ofs_pk_get(doc, ofs_pk_val(doc, items, i),
		    "rank_to_layout_info");
		for (uint32_t k = 0;
		     ofs_pk_kind(doc, item.layouts) == OFS_PK_DICT &&
		     k < ofs_pk_len(doc, item.layouts) && f->n < OFS_PARTS_MAX;
		     k++) {
			struct ofs_str path, form = form_of(&item, k, &path);

			if (path.len > 0 &&
			    !ofs_str_is(form, "TorchSerialization") &&
			    add_file(f, path.p, path.len, (int)k) == -1)
				return -1;
		}
	}
	return 0;
}

int ofs_tc_files(const struct ofs_dir *dir, struct ofs_part_file **file,
    size_t *n, struct optimfs_error *err)
{
	struct files f = { .err = err };
	struct optimfs_error why = { 0 };
	struct ofs_pickle *doc = NULL;
	uint8_t *bytes;
	uint64_t len;
	int ret = add_file(&f, OFS_TC_INDEX, strlen(OFS_TC_INDEX), -1);

	if (ret == 0 &&
	    ofs_dir_read_file(dir, OFS_TC_INDEX, INDEX_MAX, &bytes, &len,
		&why) == 0)
		doc = ofs_pickle_parse(bytes, len, true, NULL, NULL, &why);
	if (doc != NULL) {
		ret = add_files(&f, doc);
	} else if (ofs_must_stop(&why) || ofs_probe_failed(&why)) {
		optimfs_fail_with(err, &why);
		ret = optimfs_fail_in(err, "%s", OFS_TC_INDEX);
	}
	ofs_pickle_free(doc);
	*file = f.file;
	*n = f.n;
	return ret;
}

/* Reading. */

static int read_doc(struct ofs_tc_item *item, const char *rel,
    struct optimfs_error *err)
{
	const struct ofs_pickle_limits limits = ofs_pickle_budget(item->cat);
	struct ofs_pickle *doc;
	uint8_t *bytes;
	uint64_t n;
	int ret;

	if (ofs_dir_read_file(&item->cat->dir, rel, ofs_metadata_max(item->cat),
		&bytes, &n, err) == -1)
		return -1;
	doc = ofs_pickle_parse(bytes, n, true, &limits, NULL, err);
	if (doc == NULL)
		return -1;
	item->doc = doc;
	ret = ofs_catalog_object(item->cat, rel, -1, err) == OFS_NONE
	    ? -1
	    : ofs_note_globals(item->cat, doc, rel, err);
	if (ret == 0)
		ret = read_items(item, err);
	ofs_pickle_free(doc);
	return ret == -1 ? optimfs_fail_in(err, "%s", rel) : 0;
}

/* The part is the index, or with type= its directory. */
static int read_index(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	struct ofs_tc_item item = { .cat = cat, .opt = opt };
	const char *name = ofs_path_last(part->rel);
	char *rel = strcmp(name, OFS_TC_INDEX) == 0
	    ? strdup(part->rel)
	    : ofs_path_join(part->rel, OFS_TC_INDEX);
	char *dir = rel == NULL
	    ? NULL
	    : strndup(rel, (size_t)(ofs_path_last(rel) - rel));
	int ret;

	item.dir = dir;
	ret = dir == NULL ? ofs_no_memory(err) : read_doc(&item, rel, err);
	free(dir);
	free(rel);
	return ret;
}

const struct ofs_format ofs_format_torch_checkpointing = {
	.name = "torch_checkpointing",
	.title = "PyTorch's torch_checkpointing (torch_checkpointing)",
	.bid = bid,
	.trainer = "torch_checkpointing",
	.read = read_index,
	.fixed_names = true,
};
