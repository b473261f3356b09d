/* tensors.c - the tensors below a directory of the tree */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "analyze/tensors.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/memory.h"

/* The longest text that is asked for: a list of parameters. */
#define TEXT_MAX (64u << 20)

char *ofs_text_of(struct optimfs *fs, uint64_t node, size_t *len,
    struct optimfs_error *err)
{
	struct optimfs_file *f;
	char *text = NULL;
	uint64_t size;
	ssize_t n;

	if (optimfs_file_open(fs, node, &f, err) == -1)
		return NULL;
	size = optimfs_file_size(f);
	if (size > TEXT_MAX)
		optimfs_fail(err, E2BIG, "text of %llu bytes",
		    (unsigned long long)size);
	else if ((text = malloc(size + 1)) == NULL)
		ofs_no_memory(err);
	if (text != NULL) {
		n = optimfs_file_read(f, text, size, 0, err);
		if (n >= 0) {
			n -= n > 0 && text[n - 1] == '\n';
			text[n] = '\0';
			if (len != NULL)
				*len = (size_t)n;
		} else {
			free(text);
			text = NULL;
		}
	}
	optimfs_file_close(f);
	return text;
}

struct ofs_file_info *ofs_file_list_add(struct ofs_file_list *l,
    const struct ofs_file_info *f, struct optimfs_error *err)
{
	struct ofs_file_info *file;

	if (ofs_grow(l->file, l->n, l->cap, err) == -1)
		return NULL;
	file = &l->file[l->n];
	*file = *f;
	file->path = ofs_arena_strndup(&l->texts, f->path, strlen(f->path));
	if (f->shape != NULL)
		file->shape =
		    ofs_arena_strndup(&l->texts, f->shape, strlen(f->shape));
	if (file->path == NULL || (f->shape != NULL && file->shape == NULL)) {
		ofs_no_memory(err);
		return NULL;
	}
	l->n++;
	return file;
}

void ofs_file_list_fini(struct ofs_file_list *l)
{
	ofs_arena_fini(&l->texts);
	free(l->file);
	*l = (struct ofs_file_list){ 0 };
}

static int add_file(struct optimfs *fs, char *path,
    const struct optimfs_attr *attr, struct ofs_file_list *l,
    struct optimfs_error *err)
{
	bool no_memory = false;
	char *dtype = ofs_attribute(fs, attr->node, "dtype", &no_memory);
	char *shape = ofs_attribute(fs, attr->node, "shape", &no_memory);
	struct ofs_file_info f = { .path = path,
		.node = attr->node,
		.bytes = attr->size,
		.rank = -1 };
	int ret;

	if (dtype != NULL)
		f.shape = shape;
	if (f.shape != NULL && *shape != '\0')
		f.dtype = ofs_dtype_of_name(dtype, strlen(dtype));
	f.unknown = dtype != NULL && f.dtype == OFS_DTYPE_NONE &&
	    (shape == NULL || *shape != '\0' || strcmp(dtype, "unknown") == 0);
	if (f.dtype != OFS_DTYPE_NONE)
		f.elements = f.bytes / ofs_dtype_size(f.dtype);
	if (no_memory)
		ret = ofs_no_memory(err);
	else
		ret = ofs_file_list_add(l, &f, err) == NULL ? -1 : 0;
	free(dtype);
	free(shape);
	return ret;
}

struct below {
	struct optimfs *fs;
	const char *path;
	struct ofs_file_list *l;
};

static int add_entry(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	const struct below *b = ctx;
	char *path;
	int ret;

	if (S_ISDIR(e->attr.mode))
		return 0;
	if (asprintf(&path, "%s%s%s", b->path, *b->path == '\0' ? "" : "/",
		e->path) == -1)
		return ofs_no_memory(err);
	ret = add_file(b->fs, path, &e->attr, b->l, err);
	free(path);
	return ret;
}

int ofs_files_below(struct optimfs *fs, const char *path,
    struct ofs_file_list *l, struct optimfs_error *err)
{
	struct optimfs_attr attr;
	size_t n;
	char *own;
	int ret;

	while (*path == '/')
		path++;
	for (n = strlen(path); n > 0 && path[n - 1] == '/'; n--)
		;
	own = strndup(path, n);
	if (own == NULL)
		return ofs_no_memory(err);
	ret = optimfs_resolve(fs, own, &attr, err);
	if (ret == 0)
		ret = S_ISDIR(attr.mode)
		    ? ofs_walk(fs, attr.node, 0, add_entry,
			  &(struct below){ fs, own, l }, err)
		    : add_file(fs, own, &attr, l, err);
	free(own);
	return ret;
}
