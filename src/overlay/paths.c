/* paths.c - the path of a node, and the node of a path */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "naming/file_name.h"
#include "overlay/overlay_impl.h"
#include "tree/tree_impl.h"

/* The node, if it is not where the checkpoint has it. */
static const struct ofs_overlay_node *moved(const struct ofs_overlay *o,
    uint32_t index)
{
	const struct ofs_overlay_node *v = ofs_overlay_node(o, index);

	return v != NULL && (v->gone || ofs_overlay_is_made(o, index)) ? v
								       : NULL;
}

const char *ofs_overlay_name(const struct ofs_overlay *o, uint32_t index)
{
	const struct ofs_overlay_node *v = moved(o, index);

	return v != NULL ? v->name : o->tree->node[index].name;
}

uint32_t ofs_overlay_parent(const struct ofs_overlay *o, uint32_t index)
{
	const struct ofs_overlay_node *v = moved(o, index);

	return v != NULL ? v->parent : o->tree->node[index].parent;
}

bool ofs_overlay_in_place(const struct ofs_overlay *o, uint32_t index)
{
	for (; index != 0; index = o->tree->node[index].parent)
		if (moved(o, index) != NULL)
			return false;
	return true;
}

char *ofs_overlay_path(const struct ofs_overlay *o, uint32_t index,
    const char *name, struct optimfs_error *err)
{
	size_t n = name == NULL ? 0 : strlen(name) + 1, at;
	char *path;

	for (uint32_t i = index; i != 0; i = ofs_overlay_parent(o, i)) {
		if (i == OFS_NONE || ofs_overlay_name(o, i) == NULL) {
			optimfs_fail(err, ENOENT, "it was removed");
			return NULL;
		}
		n += strlen(ofs_overlay_name(o, i)) + 1;
	}
	path = malloc(n + 1);
	if (path == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	at = n > 0 ? n - 1 : 0;
	path[at] = '\0';
	if (name != NULL) {
		at -= strlen(name);
		memcpy(path + at, name, strlen(name));
		if (at > 0)
			path[--at] = '/';
	}
	for (uint32_t i = index; i != 0; i = ofs_overlay_parent(o, i)) {
		const char *own = ofs_overlay_name(o, i);

		at -= strlen(own);
		memcpy(path + at, own, strlen(own));
		if (at > 0)
			path[--at] = '/';
	}
	return path;
}

/* Calls step for each component. */
static uint32_t walk(const struct ofs_overlay *o, const char *path,
    uint32_t (*step)(const struct ofs_overlay *o, uint32_t dir,
	const char *name))
{
	char name[OFS_NAME_MAX + 1];
	uint32_t at = 0;

	while (*path != '\0' && at != OFS_NONE) {
		size_t n = strcspn(path, "/");

		if (n >= sizeof(name))
			return OFS_NONE;
		memcpy(name, path, n);
		name[n] = '\0';
		path += n + (path[n] == '/');
		at = step(o, at, name);
	}
	return at;
}

static uint32_t step_now(const struct ofs_overlay *o, uint32_t dir,
    const char *name)
{
	return ofs_overlay_is_dir(o, dir) ? ofs_overlay_find(o, dir, name)
					  : OFS_NONE;
}

static uint32_t step_base(const struct ofs_overlay *o, uint32_t dir,
    const char *name)
{
	if (o->tree->node[dir].entry != OFS_NONE)
		return OFS_NONE;
	return ofs_tree_child(o->tree, dir, name);
}

uint32_t ofs_overlay_resolve(const struct ofs_overlay *o, const char *path)
{
	return walk(o, path, step_now);
}

uint32_t ofs_overlay_base_at(const struct ofs_overlay *o, const char *path)
{
	return walk(o, path, step_base);
}

uint32_t ofs_overlay_base_place(const struct ofs_overlay *o, uint32_t index)
{
	char *path = ofs_overlay_path(o, index, NULL, NULL);
	uint32_t base = path == NULL ? OFS_NONE : ofs_overlay_base_at(o, path);

	free(path);
	return base;
}

uint32_t ofs_overlay_stands_for(const struct ofs_overlay *o, uint32_t index)
{
	uint32_t base = ofs_overlay_base_place(o, index);

	if (base == OFS_NONE || base == index ||
	    o->tree->node[base].entry == OFS_NONE)
		return OFS_NONE;
	return base;
}
