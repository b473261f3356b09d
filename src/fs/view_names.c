/* view_names.c - the files and directories of a view */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "fs/view_impl.h"

/* Paths are sorted, so that those of a directory are adjacent, and split into
 * nodes level by level: the children of each node are adjacent. */

struct sorted {
	const char *path;
	uint32_t file;
};

/* The range of sorted paths below a node, and the length of the node's own
 * path. */
struct range {
	uint32_t lo, hi;
	size_t skip;
};

struct builder {
	struct ofs_view_names *names;
	struct sorted *path;
	struct range *range;
	uint32_t cap, range_cap;
};

/* '/' sorts before all other bytes: paths are ordered by components. */
static int by_path(const void *va, const void *vb)
{
	const char *a = ((const struct sorted *)va)->path;
	const char *b = ((const struct sorted *)vb)->path;

	while (*a == *b && *a != '\0')
		a++, b++;
	if (*a == '\0' || *b == '\0')
		return (*a != '\0') - (*b != '\0');
	if (*a == '/' || *b == '/')
		return (*a != '/') - (*b != '/');
	return (uint8_t)*a < (uint8_t)*b ? -1 : (uint8_t)*a > (uint8_t)*b;
}

static int sort_paths(struct builder *b, const struct ofs_files *files,
    struct optimfs_error *err)
{
	char name[OFS_FILE_NAME];

	b->path = calloc(files->n + 1ull, sizeof(*b->path));
	if (b->path == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < files->n; i++) {
		files->ops->name(files, i, name);
		b->path[i].file = i;
		b->path[i].path =
		    ofs_arena_strndup(&b->names->arena, name, strlen(name));
		if (b->path[i].path == NULL)
			return ofs_no_memory(err);
	}
	qsort(b->path, files->n, sizeof(*b->path), by_path);
	return 0;
}

static int add_node(struct builder *b, uint32_t parent, const char *name,
    uint32_t file, const struct range *range, struct optimfs_error *err)
{
	struct ofs_view_names *names = b->names;

	if (ofs_grow(names->v, names->n, b->cap, err) == -1 ||
	    ofs_grow(b->range, names->n, b->range_cap, err) == -1)
		return -1;
	names->v[names->n] = (struct ofs_view_node){
		.name = name, .parent = parent, .file = file
	};
	b->range[names->n++] = *range;
	return 0;
}

/* Appends the children of a directory to the nodes. */
static int add_children(struct builder *b, uint32_t dir,
    struct optimfs_error *err)
{
	struct range r = b->range[dir];
	uint32_t first = b->names->n;

	for (uint32_t lo = r.lo, hi; lo < r.hi; lo = hi) {
		const char *name = b->path[lo].path + r.skip;
		size_t n = strcspn(name, "/");
		bool leaf = name[n] == '\0';
		struct range below = { lo, lo + 1, r.skip + n + 1 };
		char *own;

		for (hi = lo + 1; !leaf && hi < r.hi; hi++)
			if (strncmp(b->path[hi].path + r.skip, name, n + 1) !=
			    0)
				break;
		below.hi = hi;
		own = ofs_arena_strndup(&b->names->arena, name, n);
		if (own == NULL)
			return ofs_no_memory(err);
		if (add_node(b, dir, own, leaf ? b->path[lo].file : OFS_NONE,
			&below, err) == -1)
			return -1;
	}
	b->names->v[dir].child = first;
	b->names->v[dir].nchild = b->names->n - first;
	return 0;
}

static int build(struct builder *b, const struct ofs_files *files,
    struct optimfs_error *err)
{
	struct range all = { 0, files->n, 0 };

	if (sort_paths(b, files, err) == -1 ||
	    add_node(b, 0, "", OFS_NONE, &all, err) == -1)
		return -1;
	for (uint32_t i = 0; i < b->names->n; i++)
		if (b->names->v[i].file == OFS_NONE &&
		    add_children(b, i, err) == -1)
			return -1;
	return 0;
}

void ofs_view_names_free(struct ofs_view_names *names)
{
	if (names == NULL)
		return;
	free(names->v);
	ofs_arena_fini(&names->arena);
	free(names);
}

struct ofs_view_names *ofs_view_names_new(const struct ofs_files *files,
    struct optimfs_error *err)
{
	struct builder b = { .names = calloc(1, sizeof(*b.names)) };
	int ret;

	if (b.names == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	ret = build(&b, files, err);
	free(b.path);
	free(b.range);
	if (ret == 0)
		return b.names;
	ofs_view_names_free(b.names);
	return NULL;
}

static int compare_name(const void *key, const void *item)
{
	const struct ofs_view_node *v = item;

	return strcmp(key, v->name);
}

uint32_t ofs_view_names_find(const struct ofs_view_names *names, uint32_t dir,
    const char *name)
{
	const struct ofs_view_node *d = &names->v[dir];
	const struct ofs_view_node *v = ofs_search(name, names->v + d->child,
	    d->nchild, sizeof(*v), compare_name);

	return v == NULL ? OFS_NONE : (uint32_t)(v - names->v);
}

void ofs_view_names_path(const struct ofs_view_names *names, uint32_t index,
    char path[OFS_FILE_NAME])
{
	char *p = path + OFS_FILE_NAME - 1;
	size_t n;

	*p = '\0';
	for (; index != 0; index = names->v[index].parent) {
		n = strlen(names->v[index].name);
		if (*p != '\0')
			*--p = '/';
		p -= n;
		memcpy(p, names->v[index].name, n);
	}
	memmove(path, p, strlen(p) + 1);
}
