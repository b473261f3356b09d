/* intern.c - strings, paths, shapes and notes, each kept once */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "catalog/catalog_impl.h"

/* Beyond this number of distinct notes, only their number is of interest. */
#define MAX_NOTES (1u << 17)

static bool same_str(const void *ctx, uint32_t index, const void *key, size_t n)
{
	struct ofs_str s = ofs_catalog_string(ctx, index);

	return s.len == n && memcmp(s.p, key, n) == 0;
}

void ofs_catalog_prefetch(const struct ofs_catalog *cat, const char *p,
    size_t n)
{
	ofs_map_prefetch(&cat->build->strs, ofs_map_hash(p, n));
}

uint32_t ofs_catalog_str(struct ofs_catalog *cat, const char *p, size_t n,
    struct optimfs_error *err)
{
	uint32_t hash = ofs_map_hash(p, n), index;
	const char *copy;

	index = ofs_map_find(&cat->build->strs, hash, same_str, cat, p, n);
	if (index != OFS_NONE)
		return index;
	if (n > UINT32_MAX) {
		optimfs_fail(err, E2BIG, "OFS624 a string of %zu bytes", n);
		return ofs_catalog_stop(cat, err);
	}
	copy =
	    ofs_arena_counted(&cat->arena, (struct ofs_str){ p, (uint32_t)n });
	if (copy == NULL)
		return ofs_catalog_no_memory(cat, err);
	index = ofs_catalog_append(cat, OFS_STRS, &copy, 1, err);
	if (index == OFS_NONE)
		return OFS_NONE;
	if (!ofs_map_add(&cat->build->strs, hash, index))
		return ofs_catalog_no_memory(cat, err);
	return index;
}

/* The map has only the first index of a run, so any n words at index that are
 * equal will do, also parts of longer runs. */
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
	index = ofs_catalog_append(cat, OFS_DIMS, v, n, err);
	if (index == OFS_NONE)
		return OFS_NONE;
	if (!ofs_map_add(&cat->build->dims, hash, index))
		return ofs_catalog_no_memory(cat, err);
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
	/* both together, so that a failure leaves no incomplete path */
	if (n < OFS_NONE - 1 &&
	    !ofs_catalog_reserve(cat, OFS_PATHS, cat->npaths + (n + 1)))
		return ofs_catalog_no_memory(cat, err);
	index = ofs_catalog_append(cat, OFS_PATHS, &count, 1, err);
	if (index == OFS_NONE ||
	    ofs_catalog_append(cat, OFS_PATHS, component, n, err) == OFS_NONE)
		return OFS_NONE;
	if (!ofs_map_add(&cat->build->paths, hash, index))
		return ofs_catalog_no_memory(cat, err);
	return index;
}

void ofs_catalog_path_prefetch(const struct ofs_catalog *cat,
    const uint32_t *component, size_t n)
{
	ofs_map_prefetch(&cat->build->paths,
	    ofs_map_hash(component, n * sizeof(*component)));
}

uint32_t ofs_catalog_below(struct ofs_catalog *cat, const uint32_t *parent,
    size_t n, struct ofs_str key, struct optimfs_error *err)
{
	uint32_t *path = ofs_alloc(n + 1, sizeof(*path), err), at;

	if (path == NULL)
		return ofs_catalog_stop(cat, err);
	memcpy(path, parent, n * sizeof(*path));
	path[n] = ofs_catalog_str(cat, key.p, key.len, err);
	at = ofs_catalog_path(cat, path, n + 1, err);
	free(path);
	return at;
}

/* Equal notes are merged: a fault of a million tensors is one line. */

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
	    note->text == cat->strs[k->text];
}

static uint32_t add_note(struct ofs_catalog *cat, enum ofs_note_kind kind,
    const struct optimfs_error *e, struct optimfs_error *err)
{
	struct note_key key = { kind, 0, e->code };
	struct ofs_note note = { kind, e->code, e->number, e->how, e->lost,
		e->nlost, NULL };
	uint32_t hash, index;

	key.text = ofs_catalog_str(cat, e->text, strlen(e->text), err);
	if (key.text == OFS_NONE)
		return OFS_NONE;
	note.text = cat->strs[key.text];
	hash = ofs_map_hash(&key, sizeof(key));
	index = ofs_map_find(&cat->build->notes, hash, same_note, cat, &key,
	    sizeof(key));
	if (index != OFS_NONE)
		return index;
	index = ofs_catalog_append(cat, OFS_NOTES, &note, 1, err);
	if (index != OFS_NONE && !ofs_map_add(&cat->build->notes, hash, index))
		return ofs_catalog_no_memory(cat, err);
	return index;
}

/* Beyond the limit one note says so. */
static bool is_full(const struct ofs_catalog *cat, int code,
    struct optimfs_error *e)
{
	if (cat->nnotes < MAX_NOTES)
		return false;
	optimfs_fail(e, code,
	    "OFS629 there are more problems than can be listed");
	return true;
}

int ofs_catalog_note(struct ofs_catalog *cat, enum ofs_note_kind kind, int code,
    struct optimfs_error *err, const char *fmt, ...)
{
	struct optimfs_error e = { .code = code };
	va_list ap;

	va_start(ap, fmt);
	if (is_full(cat, code, &e))
		;
	else if (kind == OFS_NOTE_GLOBAL) /* keep its tabs */
		vsnprintf(e.text, sizeof(e.text), fmt, ap);
	else
		optimfs_vfail(&e, code, fmt, ap);
	va_end(ap);
	return add_note(cat, kind, &e, err) == OFS_NONE ? -1 : 0;
}

static uint32_t add_failure(struct ofs_catalog *cat, enum ofs_note_kind kind,
    const struct optimfs_error *why, struct optimfs_error *err)
{
	struct optimfs_error e;

	return add_note(cat, kind, is_full(cat, why->code, &e) ? &e : why, err);
}

int ofs_catalog_note_as(struct ofs_catalog *cat, enum ofs_note_kind kind,
    const struct optimfs_error *why, struct optimfs_error *err)
{
	return add_failure(cat, kind, why, err) == OFS_NONE ? -1 : 0;
}

uint32_t ofs_catalog_error(struct ofs_catalog *cat,
    const struct optimfs_error *why, struct optimfs_error *err)
{
	return add_failure(cat, OFS_NOTE_ERROR, why, err);
}
