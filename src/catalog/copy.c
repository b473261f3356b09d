/* copy.c - a catalog that starts as a copy of another one */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "base/memory.h"
#include "catalog/catalog_impl.h"

static bool learn_strings(struct ofs_catalog *cat)
{
	for (uint32_t i = 0; i < cat->nstrs; i++) {
		struct ofs_str s = ofs_catalog_string(cat, i);

		if (!ofs_map_add(&cat->build->strs, ofs_map_hash(s.p, s.len),
			i))
			return false;
	}
	return true;
}

static bool learn_objects(struct ofs_catalog *cat)
{
	for (uint32_t i = 0; i < cat->nobjects; i++) {
		const char *path = cat->objects[i].path;

		if (!ofs_map_add(&cat->by_path,
			ofs_map_hash(path, strlen(path)), i))
			return false;
	}
	return true;
}

/* A path is its length, then its components. */
static bool learn_paths(struct ofs_catalog *cat)
{
	uint32_t i = 0;

	while (i < cat->npaths) {
		uint32_t n = cat->paths[i];

		if (!ofs_map_add(&cat->build->paths,
			ofs_map_hash(cat->paths + i + 1,
			    n * sizeof(*cat->paths)),
			i))
			return false;
		i += n + 1;
	}
	return true;
}

/* Copy the members that are not arrays: format, owner, options. */
static void describe(struct ofs_catalog *cat, const struct ofs_catalog *base)
{
	const size_t first = offsetof(struct ofs_catalog, objects);
	const size_t last = offsetof(struct ofs_catalog, id_names);
	struct ofs_catalog own = *cat;

	*cat = *base;
	cat->arena = own.arena;
	cat->dir = own.dir;
	cat->build = own.build;
	memcpy((char *)cat + first, (char *)&own + first, last - first);
}

struct ofs_catalog *ofs_catalog_copy(const struct ofs_catalog *base,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat;
	struct ofs_dir dir;

	if (ofs_dir_copy(&base->dir, &dir, err) == -1)
		return NULL;
	cat = ofs_catalog_new(&dir, err);
	ofs_dir_close(&dir);
	if (cat == NULL)
		return NULL;
	describe(cat, base);
	if (!ofs_catalog_append_all(cat, base, err)) {
		ofs_catalog_free(cat);
		return NULL;
	}
	if (!learn_strings(cat) || !learn_objects(cat) || !learn_paths(cat)) {
		ofs_catalog_free(cat);
		ofs_no_memory(err);
		return NULL;
	}
	return cat;
}
