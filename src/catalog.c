/* catalog.c - flat arrays of tensors, shards and names, built by appending */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "catalog.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "catalog_check.h"
#include "checked.h"
#include "format/pickle.h"
#include "map.h"

/* Indexes are 32 bits and OFS_NONE is not one; strings share their word with
 * OFS_PATH_INDEX. */
#define MAX_INDEX   (OFS_NONE - 1)
#define MAX_STRS    (OFS_PATH_INDEX - 1)
#define MAX_OBJECTS (1u << 20)
#define MAX_SHARDS  (1u << 26)
#define MAX_TENSORS (1u << 24)
#define MAX_ENTRIES (1u << 25)
/* Beyond so many distinct notes their number says more than their words. */
#define MAX_NOTES (1u << 17)

enum array {
	OBJECTS,
	SHARDS,
	REPLICAS,
	VIEWS,
	TENSORS,
	VALUES,
	ITEMS,
	ENTRIES,
	ALIASES,
	NOTES,
	STRS,
	PATHS,
	DIMS,
	BOUNDS,
	DOCS,
	NARRAYS
};

/* Where an array and its length are in struct ofs_catalog. */
#define ARRAY(field, max)                                                      \
 {                                                                             \
  offsetof(struct ofs_catalog, field), offsetof(struct ofs_catalog, n##field), \
      sizeof(*((struct ofs_catalog *)NULL)->field), max, #field                \
 }
static const struct {
	size_t ptr, len, size;
	uint32_t max;
	const char *name;
} arrays[NARRAYS] = {
	[OBJECTS] = ARRAY(objects, MAX_OBJECTS),
	[SHARDS] = ARRAY(shards, MAX_SHARDS),
	[REPLICAS] = ARRAY(replicas, MAX_SHARDS),
	[VIEWS] = ARRAY(views, MAX_SHARDS),
	[TENSORS] = ARRAY(tensors, MAX_TENSORS),
	[VALUES] = ARRAY(values, MAX_ENTRIES),
	[ITEMS] = ARRAY(items, MAX_ENTRIES),
	[ENTRIES] = ARRAY(entries, MAX_ENTRIES),
	[ALIASES] = ARRAY(aliases, MAX_ENTRIES),
	[NOTES] = ARRAY(notes, MAX_INDEX),
	[STRS] = ARRAY(strs, MAX_STRS),
	[PATHS] = ARRAY(paths, MAX_INDEX),
	[DIMS] = ARRAY(dims, MAX_INDEX),
	[BOUNDS] = ARRAY(bounds, MAX_INDEX),
	[DOCS] = ARRAY(docs, MAX_OBJECTS),
};

struct ofs_catalog_build {
	uint32_t cap[NARRAYS];
	struct ofs_map strs, paths, dims, objects, notes;
};

static void *get_array(const struct ofs_catalog *cat, enum array a)
{
	void *p;

	memcpy(&p, (const char *)cat + arrays[a].ptr, sizeof(p));
	return p;
}

static void set_array(struct ofs_catalog *cat, enum array a, void *p)
{
	memcpy((char *)cat + arrays[a].ptr, &p, sizeof(p));
}

static uint32_t *length(struct ofs_catalog *cat, enum array a)
{
	return (uint32_t *)(void *)((char *)cat + arrays[a].len);
}

static uint32_t no_memory(struct optimfs_error *err)
{
	optimfs_fail(err, ENOMEM, "OFS443 out of memory for the catalog");
	return OFS_NONE;
}

static bool reserve(struct ofs_catalog *cat, enum array a, uint64_t want)
{
	uint64_t cap = cat->build->cap[a];
	void *p;

	if (want <= cap)
		return true;
	cap = cap == 0 ? 16 : cap + cap / 2;
	if (cap < want)
		cap = want;
	if (cap > arrays[a].max)
		cap = arrays[a].max;
	p = reallocarray(get_array(cat, a), cap, arrays[a].size);
	if (p == NULL)
		return false;
	set_array(cat, a, p);
	cat->build->cap[a] = (uint32_t)cap;
	return true;
}

/* Add n items; the index of the first. */
static uint32_t append(struct ofs_catalog *cat, enum array a, const void *items,
    size_t n, struct optimfs_error *err)
{
	uint32_t *len = length(cat, a), index = *len;

	if (n > arrays[a].max - index) {
		optimfs_fail(err, E2BIG,
		    "OFS624 more than %" PRIu32 " %s (limit)", arrays[a].max,
		    arrays[a].name);
		return OFS_NONE;
	}
	if (!reserve(cat, a, (uint64_t)index + n))
		return no_memory(err);
	if (n > 0)
		memcpy((char *)get_array(cat, a) + index * arrays[a].size,
		    items, n * arrays[a].size);
	*len += (uint32_t)n;
	return index;
}

static void release_build(struct ofs_catalog *cat)
{
	struct ofs_catalog_build *b = cat->build;

	if (b == NULL)
		return;
	ofs_map_fini(&b->strs);
	ofs_map_fini(&b->paths);
	ofs_map_fini(&b->dims);
	ofs_map_fini(&b->objects);
	ofs_map_fini(&b->notes);
	free(b);
	cat->build = NULL;
}

void ofs_catalog_free(struct ofs_catalog *cat)
{
	if (cat == NULL)
		return;
	release_build(cat);
	for (uint32_t i = 0; i < cat->ndocs; i++)
		ofs_pickle_free(cat->docs[i]);
	for (enum array a = 0; a < NARRAYS; a++)
		free(get_array(cat, a));
	ofs_arena_fini(&cat->arena);
	ofs_dir_close(&cat->dir);
	free(cat);
}

/* No array is NULL, so that an empty one needs no care. */
static bool init_arrays(struct ofs_catalog *cat)
{
	for (enum array a = 0; a < NARRAYS; a++)
		if (!reserve(cat, a, 1))
			return false;
	return true;
}

struct ofs_catalog *ofs_catalog_new(struct ofs_dir *dir,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat = calloc(1, sizeof(*cat));
	struct stat st;

	if (cat == NULL ||
	    (cat->build = calloc(1, sizeof(*cat->build))) == NULL)
		goto fail;
	ofs_arena_init(&cat->arena, 0);
	cat->dir.fd = -1;
	if (!init_arrays(cat))
		goto fail;
	cat->dir = *dir;
	*dir = (struct ofs_dir){ .fd = -1 };
	cat->mode = 0777;
	if (fstat(cat->dir.fd, &st) == 0) {
		cat->uid = st.st_uid;
		cat->gid = st.st_gid;
	}
	return cat;
fail:
	ofs_catalog_free(cat);
	no_memory(err);
	return NULL;
}

/* Names. */

static bool same_str(const void *ctx, uint32_t index, const void *key, size_t n)
{
	const struct ofs_catalog *cat = ctx;
	const struct ofs_str *s = &cat->strs[index];

	return s->len == n && memcmp(s->p, key, n) == 0;
}

uint32_t ofs_catalog_str(struct ofs_catalog *cat, const char *p, size_t n,
    struct optimfs_error *err)
{
	uint32_t hash = ofs_map_hash(p, n), index;
	struct ofs_str s;

	index = ofs_map_find(&cat->build->strs, hash, same_str, cat, p, n);
	if (index != OFS_NONE)
		return index;
	if (n > UINT32_MAX) {
		optimfs_fail(err, E2BIG, "OFS624 a string of %zu bytes", n);
		return OFS_NONE;
	}
	s.p = ofs_arena_strndup(&cat->arena, p, n);
	s.len = (uint32_t)n;
	if (s.p == NULL)
		return no_memory(err);
	index = append(cat, STRS, &s, 1, err);
	if (index == OFS_NONE)
		return OFS_NONE;
	if (!ofs_map_add(&cat->build->strs, hash, index))
		return no_memory(err);
	return index;
}

/* A run of an array is its first index alone: where the n words at index are
 * the ones looked for, it serves, whoever put them there. */
static bool same_dims(const void *ctx, uint32_t index, const void *key,
    size_t n)
{
	const struct ofs_catalog *cat = ctx;

	return n / sizeof(*cat->dims) <= cat->ndims - index &&
	    memcmp(cat->dims + index, key, n) == 0;
}

uint32_t ofs_catalog_dims(struct ofs_catalog *cat, const uint64_t *v, size_t n,
    struct optimfs_error *err)
{
	uint32_t hash, index;

	if (n == 0)
		return 0;
	hash = ofs_map_hash(v, n * sizeof(*v));
	index = ofs_map_find(&cat->build->dims, hash, same_dims, cat, v,
	    n * sizeof(*v));
	if (index != OFS_NONE)
		return index;
	index = append(cat, DIMS, v, n, err);
	if (index == OFS_NONE)
		return OFS_NONE;
	if (!ofs_map_add(&cat->build->dims, hash, index))
		return no_memory(err);
	return index;
}

static bool same_path(const void *ctx, uint32_t index, const void *key,
    size_t n)
{
	const struct ofs_catalog *cat = ctx;

	return cat->paths[index] == n / sizeof(*cat->paths) &&
	    memcmp(cat->paths + index + 1, key, n) == 0;
}

uint32_t ofs_catalog_path(struct ofs_catalog *cat, const uint32_t *component,
    size_t n, struct optimfs_error *err)
{
	uint32_t hash = ofs_map_hash(component, n * sizeof(*component));
	uint32_t count = (uint32_t)n, index;

	index = ofs_map_find(&cat->build->paths, hash, same_path, cat,
	    component, n * sizeof(*component));
	if (index != OFS_NONE)
		return index;
	/* both at once, so that a failure leaves no half of it */
	if (n < MAX_INDEX && !reserve(cat, PATHS, cat->npaths + (n + 1)))
		return no_memory(err);
	index = append(cat, PATHS, &count, 1, err);
	if (index == OFS_NONE ||
	    append(cat, PATHS, component, n, err) == OFS_NONE)
		return OFS_NONE;
	if (!ofs_map_add(&cat->build->paths, hash, index))
		return no_memory(err);
	return index;
}

const uint32_t *ofs_catalog_components(const struct ofs_catalog *cat,
    uint32_t path, uint32_t *n)
{
	*n = cat->paths[path];
	return cat->paths + path + 1;
}

/* Objects. */

static bool same_object(const void *ctx, uint32_t index, const void *key,
    size_t n)
{
	const struct ofs_catalog *cat = ctx;
	const char *path = cat->objects[index].path;

	return strlen(path) == n && memcmp(path, key, n) == 0;
}

static int64_t nanoseconds(struct timespec t)
{
	int64_t ns;

	if (__builtin_mul_overflow((int64_t)t.tv_sec, 1000000000, &ns) ||
	    __builtin_add_overflow(ns, t.tv_nsec, &ns))
		return t.tv_sec < 0 ? INT64_MIN : INT64_MAX;
	return ns;
}

static void describe_object(struct ofs_catalog *cat, struct ofs_object *o)
{
	struct stat st;
	int fd;

	if (!ofs_dir_stat(&cat->dir, o->path, &st)) {
		struct optimfs_error why = { 0 };

		fd = ofs_dir_open_file(&cat->dir, o->path, &st, &why);
		if (fd == -1) {
			o->missing = why.code == ENOENT;
			o->refused = !o->missing;
			return;
		}
		close(fd); /* it appeared just now */
	}
	if (!S_ISREG(st.st_mode)) {
		o->refused = true;
		return;
	}
	o->size = (uint64_t)st.st_size;
	o->mtime_ns = nanoseconds(st.st_mtim);
	o->ctime_ns = nanoseconds(st.st_ctim);
	o->ino = st.st_ino;
	o->blocks = (uint64_t)st.st_blocks * 512;
	cat->mode &= st.st_mode & 0777;
	cat->uid = st.st_uid;
	cat->gid = st.st_gid;
}

uint32_t ofs_catalog_object(struct ofs_catalog *cat, const char *path, int rank,
    struct optimfs_error *err)
{
	size_t n = strlen(path);
	uint32_t hash = ofs_map_hash(path, n), index;
	struct ofs_object o = { .rank = rank };

	index =
	    ofs_map_find(&cat->build->objects, hash, same_object, cat, path, n);
	if (index != OFS_NONE) {
		if (cat->objects[index].rank == -1)
			cat->objects[index].rank = rank;
		return index;
	}
	if (!ofs_path_stays(path, n)) {
		optimfs_fail(err, EPERM,
		    "OFS620 path '%.300s' leaves the checkpoint", path);
		return OFS_NONE;
	}
	o.path = ofs_arena_strndup(&cat->arena, path, n);
	if (o.path == NULL)
		return no_memory(err);
	describe_object(cat, &o);
	index = append(cat, OBJECTS, &o, 1, err);
	if (index == OFS_NONE)
		return OFS_NONE;
	if (!ofs_map_add(&cat->build->objects, hash, index))
		return no_memory(err);
	return index;
}

/* Everything else is appended as it is. */

uint32_t ofs_catalog_shard(struct ofs_catalog *cat, const struct ofs_shard *s,
    struct optimfs_error *err)
{
	return append(cat, SHARDS, s, 1, err);
}

uint32_t ofs_catalog_replica(struct ofs_catalog *cat,
    const struct ofs_replica *r, struct optimfs_error *err)
{
	return append(cat, REPLICAS, r, 1, err);
}

uint32_t ofs_catalog_bounds(struct ofs_catalog *cat, const uint64_t *v,
    size_t n, struct optimfs_error *err)
{
	return append(cat, BOUNDS, v, n, err);
}

uint32_t ofs_catalog_view(struct ofs_catalog *cat, const struct ofs_view *v,
    struct optimfs_error *err)
{
	return append(cat, VIEWS, v, 1, err);
}

uint32_t ofs_catalog_tensor(struct ofs_catalog *cat, const struct ofs_tensor *t,
    struct optimfs_error *err)
{
	return append(cat, TENSORS, t, 1, err);
}

uint32_t ofs_catalog_value(struct ofs_catalog *cat,
    const struct ofs_pickle *doc, uint32_t node, struct optimfs_error *err)
{
	struct ofs_value v = { doc, node };

	return append(cat, VALUES, &v, 1, err);
}

uint32_t ofs_catalog_item(struct ofs_catalog *cat, const struct ofs_item *item,
    struct optimfs_error *err)
{
	return append(cat, ITEMS, item, 1, err);
}

uint32_t ofs_catalog_entry(struct ofs_catalog *cat,
    const struct ofs_entry *entry, struct optimfs_error *err)
{
	return append(cat, ENTRIES, entry, 1, err);
}

uint32_t ofs_catalog_alias(struct ofs_catalog *cat, uint32_t path,
    uint32_t target, struct optimfs_error *err)
{
	struct ofs_alias a = { path, target };

	return append(cat, ALIASES, &a, 1, err);
}

uint32_t ofs_catalog_doc(struct ofs_catalog *cat, struct ofs_pickle *doc,
    struct optimfs_error *err)
{
	return append(cat, DOCS, &doc, 1, err);
}

/* Notes. Equal ones are one: a fault of a million tensors is one line. */

struct note_key {
	uint32_t kind, text;
	int code;
};

static bool same_note(const void *ctx, uint32_t index, const void *key,
    size_t n)
{
	const struct ofs_catalog *cat = ctx;
	const struct ofs_note *note = &cat->notes[index];
	const struct note_key *k = key;

	(void)n;
	return note->kind == k->kind && note->code == k->code &&
	    note->text == cat->strs[k->text].p;
}

static uint32_t add_note(struct ofs_catalog *cat, enum ofs_note_kind kind,
    int code, const char *text)
{
	struct note_key key = { kind, 0, code };
	struct ofs_note note = { kind, code, NULL };
	uint32_t hash, index;

	key.text = ofs_catalog_str(cat, text, strlen(text), NULL);
	if (key.text == OFS_NONE)
		return OFS_NONE;
	note.text = cat->strs[key.text].p;
	hash = ofs_map_hash(&key, sizeof(key));
	index = ofs_map_find(&cat->build->notes, hash, same_note, cat, &key,
	    sizeof(key));
	if (index != OFS_NONE)
		return index;
	index = append(cat, NOTES, &note, 1, NULL);
	if (index == OFS_NONE || !ofs_map_add(&cat->build->notes, hash, index))
		return OFS_NONE;
	return index;
}

uint32_t ofs_catalog_note(struct ofs_catalog *cat, enum ofs_note_kind kind,
    int code, const char *fmt, ...)
{
	struct optimfs_error e = { 0 };
	char text[sizeof(e.text)];
	va_list ap;

	if (cat->nnotes >= MAX_NOTES)
		return add_note(cat, kind, code,
		    "OFS629 there are more problems than are written here");
	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (kind ==
	    OFS_NOTE_GLOBAL) /* a line with tabs, made of escaped text */
		return add_note(cat, kind, code, text);
	optimfs_fail(&e, code, "%s", text); /* disarms control bytes */
	return add_note(cat, kind, code, e.text);
}

/* Done. */

static void shrink(struct ofs_catalog *cat, enum array a)
{
	uint32_t n = *length(cat, a);
	void *p;

	if (n == 0)
		n = 1;
	p = reallocarray(get_array(cat, a), n, arrays[a].size);
	if (p != NULL)
		set_array(cat, a, p);
}

int ofs_catalog_finish(struct ofs_catalog *cat, struct optimfs_error *err)
{
	if (ofs_catalog_check(cat, err) == -1)
		return -1;
	for (enum array a = 0; a < NARRAYS; a++)
		shrink(cat, a);
	release_build(cat);
	return 0;
}

/* Reading. */

int ofs_catalog_fail(const struct ofs_catalog *cat, uint32_t note,
    struct optimfs_error *err)
{
	return optimfs_fail(err, cat->notes[note].code, "%s",
	    cat->notes[note].text);
}

uint64_t ofs_tensor_numel(const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	uint64_t n, bytes;

	/* off_t is signed; and an element has at least a byte */
	if (!ofs_numel(ofs_tensor_shape(cat, t), t->ndim, &n) ||
	    !ofs_mul_u64(n, ofs_dtype_size(t->dtype), &bytes) ||
	    bytes > INT64_MAX || n > INT64_MAX)
		return 0;
	return n;
}

uint64_t ofs_tensor_bytes(const struct ofs_catalog *cat,
    const struct ofs_tensor *t)
{
	return ofs_tensor_numel(cat, t) * ofs_dtype_size(t->dtype);
}

void ofs_shard_box(const struct ofs_catalog *cat, const struct ofs_tensor *t,
    const struct ofs_shard *s, uint64_t *offsets, uint64_t *sizes)
{
	size_t n = t->grid_ndim;

	if (n == 0)
		return;
	if (s->box == OFS_NONE) {
		memset(offsets, 0, n * sizeof(*offsets));
		memcpy(sizes, cat->dims + t->grid, n * sizeof(*sizes));
		return;
	}
	memcpy(offsets, cat->dims + s->box, n * sizeof(*offsets));
	memcpy(sizes, cat->dims + s->box + n, n * sizeof(*sizes));
}
