/* listing.c - files of an open checkpoint: all of them, or one by its path */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "support/listing.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "tap.h"

uint8_t *listing_content(struct optimfs *fs, uint64_t node, size_t *len)
{
	struct optimfs_file *f;
	uint8_t *bytes;

	*len = 0;
	if (optimfs_file_open(fs, node, &f, NULL) == -1)
		return NULL;
	*len = (size_t)optimfs_file_size(f);
	bytes = malloc(*len + 1);
	if (optimfs_file_read(f, bytes, *len, 0, NULL) != (ssize_t)*len) {
		free(bytes);
		bytes = NULL;
		*len = 0;
	} else {
		bytes[*len] = '\0';
	}
	optimfs_file_close(f);
	return bytes;
}

struct walk {
	struct optimfs *fs;
	struct listing *l;
	const char *dir; /* being listed */
};

static void read_dir(struct walk *w, uint64_t node, const char *path);

static int each(void *ctx, const struct optimfs_dirent *e)
{
	struct walk *w = ctx;
	struct listing *l = w->l;
	const char *dir = w->dir;
	struct ofs_buf path = { 0 };
	struct listing_file *f;

	if (strcmp(e->name, ".optimfs") == 0)
		return 0;
	ofs_buf_printf(&path, "%s%s%s", dir, *dir == '\0' ? "" : "/", e->name);
	ofs_buf_putc(&path, '\0');
	if (S_ISDIR(e->mode)) {
		read_dir(w, e->attr->node, (char *)path.data);
		w->dir = dir;
		ofs_buf_fini(&path);
		return 0;
	}
	if (l->n == l->cap) {
		l->cap = l->cap == 0 ? 64 : l->cap * 2;
		l->v = reallocarray(l->v, l->cap, sizeof(*l->v));
	}
	f = &l->v[l->n++];
	f->path = (char *)path.data;
	f->node = e->attr->node;
	f->bytes = listing_content(w->fs, f->node, &f->len);
	return 0;
}

static void read_dir(struct walk *w, uint64_t node, const char *path)
{
	struct optimfs_error err = { 0 };

	w->dir = path;
	if (optimfs_readdir(w->fs, node, 0, true, each, w, &err) == -1)
		bail_out("%s: %s", path, err.text);
}

static int by_path(const void *a, const void *b)
{
	const struct listing_file *x = a, *y = b;

	return strcmp(x->path, y->path);
}

uint64_t listing_node(struct optimfs *fs, const char *path)
{
	struct optimfs_error err = { 0 };
	struct optimfs_attr attr;

	if (optimfs_resolve(fs, path, &attr, &err) == -1)
		bail_out("%s: %s", path, err.text);
	return attr.node;
}

bool listing_has(struct optimfs *fs, const char *path)
{
	struct optimfs_attr attr;

	return optimfs_resolve(fs, path, &attr, NULL) == 0;
}

ssize_t listing_read_at(struct optimfs *fs, const char *path, void *buf,
    size_t n, uint64_t off, struct optimfs_error *err)
{
	struct optimfs_file *file;
	struct optimfs_attr attr;
	ssize_t got;

	if (err != NULL)
		*err = (struct optimfs_error){ 0 };
	if (optimfs_resolve(fs, path, &attr, err) == -1 ||
	    optimfs_file_open(fs, attr.node, &file, err) == -1)
		return -1;
	got = optimfs_file_read(file, buf, n, off, err);
	optimfs_file_close(file);
	return got;
}

void listing_read(struct listing *l, struct optimfs *fs, const char *path)
{
	struct walk w = { .fs = fs, .l = l };

	*l = (struct listing){ 0 };
	read_dir(&w, listing_node(fs, path), path);
	if (l->n > 1)
		qsort(l->v, l->n, sizeof(*l->v), by_path);
}

void listing_fini(struct listing *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->v[i].path);
		free(l->v[i].bytes);
	}
	free(l->v);
	*l = (struct listing){ 0 };
}

static bool same(const struct listing_file *a, const struct listing_file *b)
{
	return a->len == b->len && (a->bytes == NULL) == (b->bytes == NULL) &&
	    (a->len == 0 || memcmp(a->bytes, b->bytes, a->len) == 0);
}

static void say(unsigned n, const char *path, const char *what)
{
	if (n < 6)
		diag("%s %s", path, what);
}

unsigned listing_differs(const struct listing *was, const struct listing *is)
{
	unsigned wrong = 0;
	size_t i = 0, j = 0;

	while (i < was->n || j < is->n) {
		int c = i == was->n ? 1
		    : j == is->n    ? -1
				    : strcmp(was->v[i].path, is->v[j].path);

		if (c < 0)
			say(wrong++, was->v[i].path, "is not there");
		else if (c > 0)
			say(wrong++, is->v[j].path, "is new");
		else if (!same(&was->v[i], &is->v[j]))
			say(wrong++, is->v[j].path, "has other bytes");
		i += c <= 0;
		j += c >= 0;
	}
	return wrong;
}
