/* array.c - the arrays of a catalog, grown by half */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "catalog/catalog_impl.h"

/* Indexes have 32 bits without OFS_NONE; those of strings share a word with
 * the flags of a component. */
#define MAX_INDEX   (OFS_NONE - 1)
#define MAX_STRS    (OFS_PATH_PLAIN - 1)
#define MAX_OBJECTS (1u << 20)
#define MAX_SHARDS  (1u << 26)
#define MAX_TENSORS (1u << 24)
#define MAX_ENTRIES (1u << 25)
/* The offsets of an array and its length in struct ofs_catalog. */
#define ARRAY(field, max)                                                      \
 {                                                                             \
  offsetof(struct ofs_catalog, field), offsetof(struct ofs_catalog, n##field), \
      sizeof(*((struct ofs_catalog *)NULL)->field), max, #field                \
 }
static const struct {
	size_t ptr, len, size;
	uint32_t max;
	const char *name;
} arrays[OFS_NARRAYS] = {
	[OFS_OBJECTS] = ARRAY(objects, MAX_OBJECTS),
	[OFS_SHARDS] = ARRAY(shards, MAX_SHARDS),
	[OFS_REPLICAS] = ARRAY(replicas, MAX_SHARDS),
	[OFS_VIEWS] = ARRAY(views, MAX_SHARDS),
	[OFS_TENSORS] = ARRAY(tensors, MAX_TENSORS),
	[OFS_VALUES] = ARRAY(values, MAX_ENTRIES),
	[OFS_ITEMS] = ARRAY(items, MAX_ENTRIES),
	[OFS_ENTRIES] = ARRAY(entries, MAX_ENTRIES),
	[OFS_VARIANTS] = ARRAY(variants, MAX_ENTRIES),
	[OFS_ALIASES] = ARRAY(aliases, MAX_ENTRIES),
	[OFS_SCALES] = ARRAY(scales, MAX_INDEX),
	[OFS_INNER] = ARRAY(inner, MAX_TENSORS),
	[OFS_PICKLED] = ARRAY(pickled, MAX_TENSORS),
	[OFS_LOW_BITS] = ARRAY(low_bits, MAX_ENTRIES),
	[OFS_DERIVATIONS] = ARRAY(derived, MAX_SHARDS),
	[OFS_KEPT] = ARRAY(kept, MAX_OBJECTS),
	[OFS_NOTES] = ARRAY(notes, MAX_INDEX),
	[OFS_LEFTS] = ARRAY(lefts, MAX_INDEX),
	[OFS_STRS] = ARRAY(strs, MAX_STRS),
	[OFS_PATHS] = ARRAY(paths, MAX_INDEX),
	[OFS_DIMS] = ARRAY(dims, MAX_INDEX),
	[OFS_BOUNDS] = ARRAY(bounds, MAX_INDEX),
	[OFS_DOCS] = ARRAY(docs, MAX_OBJECTS),
};

static void *get_array(const struct ofs_catalog *cat, enum ofs_catalog_array a)
{
	void *p;

	memcpy(&p, (const char *)cat + arrays[a].ptr, sizeof(p));
	return p;
}

static void set_array(struct ofs_catalog *cat, enum ofs_catalog_array a,
    void *p)
{
	memcpy((char *)cat + arrays[a].ptr, &p, sizeof(p));
}

static uint32_t *length(struct ofs_catalog *cat, enum ofs_catalog_array a)
{
	return (uint32_t *)(void *)((char *)cat + arrays[a].len);
}

uint32_t ofs_catalog_stop(struct ofs_catalog *cat,
    const struct optimfs_error *err)
{
	cat->build->failure = *err;
	return OFS_NONE;
}

uint32_t ofs_catalog_no_memory(struct ofs_catalog *cat,
    struct optimfs_error *err)
{
	ofs_no_memory(err);
	return ofs_catalog_stop(cat, err);
}

bool ofs_catalog_failed(const struct ofs_catalog *cat,
    struct optimfs_error *err)
{
	if (cat->build->failure.code == 0)
		return false;
	*err = cat->build->failure;
	return true;
}

bool ofs_catalog_reserve(struct ofs_catalog *cat, enum ofs_catalog_array a,
    uint64_t want)
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
	p = cap > PTRDIFF_MAX / arrays[a].size
	    ? NULL
	    : ofs_realloc_huge(get_array(cat, a),
		  cat->build->cap[a] * arrays[a].size, cap * arrays[a].size);
	if (p == NULL)
		return false;
	set_array(cat, a, p);
	cat->build->cap[a] = (uint32_t)cap;
	return true;
}

uint32_t ofs_catalog_append(struct ofs_catalog *cat, enum ofs_catalog_array a,
    const void *items, size_t n, struct optimfs_error *err)
{
	uint32_t *len = length(cat, a), index = *len;

	if (ofs_catalog_failed(cat, err))
		return OFS_NONE;
	if (n > arrays[a].max - index) {
		optimfs_fail(err, E2BIG,
		    "OFS624 more than %" PRIu32 " %s (limit)", arrays[a].max,
		    arrays[a].name);
		return ofs_catalog_stop(cat, err);
	}
	if (!ofs_catalog_reserve(cat, a, (uint64_t)index + n))
		return ofs_catalog_no_memory(cat, err);
	if (n > 0)
		memcpy((char *)get_array(cat, a) + index * arrays[a].size,
		    items, n * arrays[a].size);
	*len += (uint32_t)n;
	return index;
}

bool ofs_catalog_append_all(struct ofs_catalog *cat,
    const struct ofs_catalog *base, struct optimfs_error *err)
{
	uint32_t n;

	for (enum ofs_catalog_array a = 0; a < OFS_NARRAYS; a++) {
		if (a == OFS_ENTRIES || a == OFS_VARIANTS || a == OFS_DOCS ||
		    a == OFS_KEPT)
			continue;
		memcpy(&n, (const char *)base + arrays[a].len, sizeof(n));
		if (ofs_catalog_append(cat, a, get_array(base, a), n, err) ==
		    OFS_NONE)
			return false;
	}
	return true;
}

static void shrink_one(struct ofs_catalog *cat, enum ofs_catalog_array a)
{
	uint32_t n = *length(cat, a);
	void *p;

	if (n == 0)
		n = 1;
	p = reallocarray(get_array(cat, a), n, arrays[a].size);
	if (p != NULL)
		set_array(cat, a, p);
}

void ofs_catalog_shrink(struct ofs_catalog *cat)
{
	for (enum ofs_catalog_array a = 0; a < OFS_NARRAYS; a++)
		shrink_one(cat, a);
}

void ofs_catalog_drop(struct ofs_catalog *cat)
{
	for (enum ofs_catalog_array a = 0; a < OFS_NARRAYS; a++)
		free(get_array(cat, a));
}
