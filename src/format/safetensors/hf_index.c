/* hf_index.c - the index of a model in several files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/json.h"
#include "base/keys.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/step.h"
#include "base/str.h"
#include "format/part.h"
#include "format/safetensors/safetensors.h"

/* docs/formats/safetensors.md: {"metadata": {...}, "weight_map": {NAME: FILE}}.
 * The headers of the files describe the tensors; the index gives the ones that
 * must exist, and which of two with the same name is meant. */

#define INDEX_MAX (UINT64_C(256) << 20)

bool ofs_hf_index_name(const char *name)
{
	/* in ColossalAI's index the optimizer state is keyed by number */
	return strcmp(name, "pytorch_optim.bin.index.json") != 0 &&
	    (ofs_str_ends(ofs_str_of(name), ".safetensors.index.json") ||
		ofs_str_ends(ofs_str_of(name), ".bin.index.json"));
}

/* The entry of a tensor, linked to others with the same name. The name of one
 * with a path in the note is its components joined by dots. */
struct tensor {
	uint32_t entry, name, object;
	bool nested;
	uint32_t next, last; /* only the first has last, others OFS_NONE */
};

struct index {
	struct ofs_catalog *cat;
	const struct ofs_part *part;
	struct tensor *t;
	uint32_t n;
	struct ofs_map by_name; /* the first tensor of each name */
	struct ofs_keys seen;   /* names in the index */
	uint32_t prefix[OFS_PART_PREFIX];
	size_t nprefix;
	struct optimfs_error *err;
};

static bool same_tensor(const void *ctx, uint32_t i, const void *key, size_t n)
{
	(void)n;
	return ((const struct index *)ctx)->t[i].name == *(const uint32_t *)key;
}

static uint32_t find_tensor(const struct index *x, uint32_t name)
{
	return ofs_map_find(&x->by_name, ofs_map_hash(&name, sizeof(name)),
	    same_tensor, x, &name, sizeof(name));
}

/* The name of a path in its file: without the prefix of the part. */
static uint32_t name_of(struct index *x, const uint32_t *c, uint32_t n)
{
	struct ofs_buf b = { 0 };
	uint32_t name = OFS_NONE;

	if (n <= 2)
		return OFS_PATH_STR(c[n - 1]);
	ofs_catalog_join(x->cat, c + 1, n - 1, &b);
	if (b.bad)
		ofs_no_memory(x->err);
	else
		name = ofs_catalog_str(x->cat, (char *)b.data, b.len, x->err);
	ofs_buf_fini(&b);
	return name;
}

static int collect_tensor(struct index *x, uint32_t entry)
{
	const struct ofs_catalog *cat = x->cat;
	const struct ofs_entry *e = &cat->entries[entry];
	struct tensor *me = &x->t[x->n];
	uint32_t n, first;
	const uint32_t *c = ofs_catalog_components(cat, e->path, &n);

	if (e->kind != OFS_ENTRY_TENSOR || n == 0 ||
	    cat->tensors[e->ref].nshards == 0)
		return 0;
	*me = (struct tensor){ .entry = entry,
		.name = name_of(x, c, n),
		.object = cat->shards[cat->tensors[e->ref].shard].at.object,
		.nested = n > 2,
		.next = OFS_NONE,
		.last = x->n };
	if (me->name == OFS_NONE)
		return -1;
	first = find_tensor(x, me->name);
	if (first == UINT32_MAX) {
		if (!ofs_map_add(&x->by_name,
			ofs_map_hash(&me->name, sizeof(me->name)), x->n))
			return ofs_no_memory(x->err);
	} else {
		me->last = OFS_NONE;
		x->t[x->t[first].last].next = x->n;
		x->t[first].last = x->n;
	}
	x->n++;
	return 0;
}

static int collect(struct index *x)
{
	x->t = calloc((size_t)x->cat->nentries + 1, sizeof(*x->t));
	if (x->t == NULL)
		return ofs_no_memory(x->err);
	for (uint32_t i = 0; i < x->cat->nentries; i++)
		if (collect_tensor(x, i) == -1)
			return -1;
	return 0;
}

/* Warn about a row of the index. */

static int warn(struct index *x, const char *text, uint32_t name,
    uint32_t object)
{
	struct ofs_str s = ofs_catalog_string(x->cat, name);

	return ofs_catalog_note(x->cat, OFS_NOTE_WARNING, EUCLEAN, x->err,
	    "OFS661 %s: '%.*s' %s %.200s", x->part->rel, OFS_STR_ARGS(s, 200),
	    text, x->cat->objects[object].path);
}

/* Set the path of a tensor: the prefix, or the path of its file if that is given,
 * then its name. */
static int set_path(struct index *x, const struct tensor *t, const char *file)
{
	uint32_t c[OFS_PART_PREFIX + 1], path;
	size_t n = 0;

	if (t->nested)
		return 0;
	if (file == NULL)
		for (; n < x->nprefix; n++)
			c[n] = x->prefix[n];
	else
		c[n++] = ofs_catalog_str(x->cat, file, strlen(file), x->err);
	c[n] = t->name;
	path = ofs_catalog_path(x->cat, c, n + 1, x->err);
	if (path == OFS_NONE)
		return -1;
	x->cat->entries[t->entry].path = path;
	return 0;
}

/* Of the tensors with one name, the one in object gets that name; the others
 * get the name of their file before it. */
static int settle(struct index *x, uint32_t first, uint32_t object)
{
	for (uint32_t i = first; i != OFS_NONE; i = x->t[i].next) {
		const struct tensor *t = &x->t[i];

		if (t->object == object) {
			if (set_path(x, t, NULL) == -1)
				return -1;
		} else if (set_path(x, t, x->cat->objects[t->object].path) ==
			-1 ||
		    warn(x, "is in another file, too:", t->name, t->object) ==
			-1) {
			return -1;
		}
	}
	return 0;
}

/* Add an entry for a tensor that does not exist. All that a file should have
 * fails with the same words, and is one note. */
static int add_lost(struct index *x, uint32_t name, uint32_t object)
{
	struct ofs_item item = { .at.object = object };
	struct ofs_str s = ofs_catalog_string(x->cat, name);
	const struct ofs_object *o = &x->cat->objects[object];
	const char *why_not = o->missing ? "is missing"
	    : o->refused                 ? "may not be opened"
					 : "lacks tensors";
	enum optimfs_lost how = o->missing ? OPTIMFS_LOST_MISSING
	    : o->refused                   ? OPTIMFS_LOST_CLOSED
					   : OPTIMFS_LOST_WRONG;
	struct optimfs_error why;

	ofs_fail_lost(&why, EIO, how, "OFS661", o->path,
	    " %s: the index places this tensor in it", why_not);
	item.error = ofs_catalog_error(x->cat, &why, x->err);
	ofs_fail_lost(&why, EIO, how, "OFS661", o->path,
	    " %s: reading its tensors fails (EIO)", why_not);
	ofs_catalog_note_as(x->cat, OFS_NOTE_MISSING, &why, x->err);
	return ofs_catalog_add(x->cat,
	    ofs_catalog_below(x->cat, x->prefix, x->nprefix, s, x->err),
	    OFS_ENTRY_ITEM, ofs_catalog_item(x->cat, &item, x->err),
	    OFS_KEY_FREE, x->err);
}

static int row(struct index *x, uint32_t name, uint32_t object)
{
	uint32_t first = find_tensor(x, name), known = x->seen.n, i;

	i = ofs_keys_add(&x->seen, ofs_catalog_string(x->cat, name), x->err);
	if (i == OFS_NONE)
		return -1;
	if (i < known)
		return warn(x, "stands twice in it, then for", name, object);
	if (first == UINT32_MAX)
		return add_lost(x, name, object);
	for (i = first; i != OFS_NONE && x->t[i].object != object;)
		i = x->t[i].next;
	if (i != OFS_NONE)
		return settle(x, first, object);
	/* it is in another file */
	if (warn(x, "is not in the file that it names, but in", name,
		x->t[first].object) == -1)
		return -1;
	return settle(x, first, x->t[first].object);
}

/* The object of a row, a file beside the index. */
static uint32_t object_of(struct index *x, struct ofs_str file)
{
	const char *slash = strrchr(x->part->rel, '/');
	int dir = slash == NULL ? 0 : (int)(slash - x->part->rel + 1);
	uint32_t object;
	char *path;

	if (!ofs_path_stays(file.p, file.len)) {
		optimfs_fail(x->err, EPERM,
		    "OFS620 path '%.*s' leaves the checkpoint",
		    OFS_STR_ARGS(file, 200));
		return OFS_NONE;
	}
	if (asprintf(&path, "%.*s%.*s", dir, x->part->rel, (int)file.len,
		file.p) == -1) {
		ofs_no_memory(x->err);
		return OFS_NONE;
	}
	object = ofs_catalog_object(x->cat, path, -1, x->err);
	free(path);
	return object;
}

static int read_map(struct index *x, struct ofs_json *j,
    struct optimfs_error *why)
{
	enum ofs_json_token token = ofs_json_next(j, why);
	uint32_t name, object;

	if (token != OFS_JSON_OBJECT)
		return ofs_json_fail(j, why, "weight_map is not an object");
	while ((token = ofs_json_next(j, why)) == OFS_JSON_KEY) {
		name = ofs_catalog_str(x->cat, j->str.p, j->str.len, x->err);
		if (name == OFS_NONE)
			return -1;
		if (ofs_json_next(j, why) != OFS_JSON_STRING)
			return ofs_json_fail(j, why, "not a file name");
		object = object_of(x, j->str);
		if (object == OFS_NONE || row(x, name, object) == -1)
			return -1;
	}
	return token == OFS_JSON_ERROR ? -1 : 0;
}

/* Faults of the text go to why, those of the checkpoint to x->err. */
static int read_text(struct index *x, const uint8_t *bytes, uint64_t n,
    struct optimfs_error *why)
{
	static const char map[] = "weight_map";
	enum ofs_json_token token;
	struct ofs_json j;
	bool found = false;
	int ret = 0;

	ofs_json_init(&j, bytes, (uint32_t)n);
	token = ofs_json_next(&j, why);
	if (token != OFS_JSON_OBJECT && token != OFS_JSON_ERROR)
		ofs_json_fail(&j, why, "an index is an object");
	while (ret == 0 && why->code == 0 &&
	    (token = ofs_json_next(&j, why)) == OFS_JSON_KEY) {
		if (!found && ofs_str_is(j.str, map)) {
			found = true;
			ret = read_map(x, &j, why);
		} else {
			ret = ofs_json_skip(&j, ofs_json_next(&j, why), why);
		}
	}
	if (ret == 0 && why->code == 0 && token == OFS_JSON_OBJECT_END)
		ofs_json_next(&j, why); /* there must be nothing more */
	if (ret == 0 && why->code == 0 && !found)
		ofs_json_fail(&j, why, "no weight_map");
	ofs_json_fini(&j);
	return why->code == 0 ? ret : -1;
}

/* Without the index, names are lost but no tensors: warn only. */
static int complain(struct index *x, const struct optimfs_error *why)
{
	struct optimfs_error e;

	if (ofs_must_stop(why))
		return optimfs_fail_with(x->err, why);
	optimfs_fail_as(&e, why->code,
	    "%.200s: not used: the files are read as they are", why->text);
	return ofs_catalog_note_as(x->cat, OFS_NOTE_WARNING, &e, x->err);
}

static int read_index(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	struct index x = { .cat = cat, .part = part, .err = err };
	struct optimfs_error why = { 0 };
	uint8_t *bytes;
	uint64_t n;
	int ret;

	(void)opt;
	if (ofs_part_prefix(cat, part, x.prefix, &x.nprefix, err) == -1)
		return -1;
	if (ofs_dir_read_file(&cat->dir, part->rel, INDEX_MAX, &bytes, &n,
		&why) == -1)
		return complain(&x, &why);
	ret = collect(&x);
	if (ret == 0)
		ret = read_text(&x, bytes, n, &why);
	if (why.code != 0) {
		optimfs_fail_in(&why, "%s", part->rel);
		ret = complain(&x, &why);
	}
	free(bytes);
	free(x.t);
	ofs_map_fini(&x.by_name);
	ofs_keys_fini(&x.seen);
	return ret;
}

const struct ofs_format ofs_format_hf_index = {
	.name = "safetensors",
	.read = read_index,
};
