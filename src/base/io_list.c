/* io_list.c - the names in a directory, merged from all places of its files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "base/memory.h"
#include "base/search.h"

int ofs_names_add(struct ofs_names *names, const char *name, size_t n,
    struct optimfs_error *err)
{
	if (ofs_grow(names->name, names->n, names->cap, err) == -1)
		return -1;
	names->name[names->n] = strndup(name, n);
	if (names->name[names->n] == NULL)
		return ofs_no_memory(err);
	names->n++;
	return 0;
}

static int add_name(void *ctx, const char *name, size_t n)
{
	return ofs_names_add(ctx, name, n, NULL);
}

/* Sort the names and drop duplicates. */
static void sort_names(struct ofs_names *names)
{
	size_t kept = 0;

	if (names->n > 0)
		qsort(names->name, names->n, sizeof(*names->name),
		    ofs_compare_text);
	for (size_t i = 0; i < names->n; i++) {
		if (kept > 0 &&
		    strcmp(names->name[kept - 1], names->name[i]) == 0)
			free(names->name[i]);
		else
			names->name[kept++] = names->name[i];
	}
	names->n = kept;
}

static int list_stream(DIR *stream, struct ofs_names *names)
{
	struct dirent *e;

	while (errno = 0, (e = readdir(stream)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (ofs_names_add(names, e->d_name, strlen(e->d_name), NULL) ==
		    -1)
			return ENOMEM;
	}
	return errno;
}

static int list_into(int at, const char *path, struct ofs_names *names,
    struct optimfs_error *err)
{
	DIR *stream = NULL;
	int fd, error;

	/* a new descriptor: threads would share the position of at */
	fd = openat(at, ".", O_RDONLY | O_CLOEXEC | O_DIRECTORY);
	if (fd != -1)
		stream = fdopendir(fd);
	if (stream == NULL) {
		optimfs_fail(err, errno == EACCES ? EACCES : EIO,
		    "OFS755 %s: cannot be listed: %m", path);
		if (fd != -1)
			close(fd);
		return -1;
	}
	error = list_stream(stream, names);
	closedir(stream);
	if (error == 0)
		return 0;
	errno = error;
	return optimfs_fail(err, error == ENOMEM ? ENOMEM : EIO,
	    "OFS755 %s: cannot be listed: %m", path);
}

static bool is_gone(const struct ofs_dir *dir, const char *name)
{
	const char *sub = dir->path + dir->gone->root;
	size_t n;

	sub += *sub == '/';
	n = strlen(sub);
	for (size_t i = 0; i < dir->gone->n; i++) {
		const char *rel = dir->gone->rel[i];

		if (strncmp(rel, sub, n) != 0 || (n > 0 && rel[n] != '/'))
			continue;
		if (strcmp(rel + n + (n > 0), name) == 0)
			return true;
	}
	return false;
}

static void leave_out(struct ofs_names *names,
    bool (*out)(const struct ofs_dir *dir, const char *name),
    const struct ofs_dir *dir)
{
	size_t kept = 0;

	for (size_t i = 0; i < names->n; i++)
		if (out(dir, names->name[i]))
			free(names->name[i]);
		else
			names->name[kept++] = names->name[i];
	names->n = kept;
}

/* Files whose names begin or are so belong to macOS (which writes ._NAME beside
 * each file that it copies), Windows, or NFS (a removed file that is open). */
static bool is_stray(const struct ofs_dir *dir, const char *name)
{
	(void)dir;
	return strncmp(name, "._", 2) == 0 || strncmp(name, ".nfs", 4) == 0 ||
	    strcmp(name, ".DS_Store") == 0 || strcmp(name, "Thumbs.db") == 0 ||
	    strcmp(name, "desktop.ini") == 0;
}

int ofs_dir_list(const struct ofs_dir *dir, struct ofs_names *names,
    struct optimfs_error *err)
{
	if (ofs_dir_list_all(dir, names, err) == -1)
		return -1;
	leave_out(names, is_stray, dir);
	return 0;
}

int ofs_dir_list_all(const struct ofs_dir *dir, struct ofs_names *names,
    struct optimfs_error *err)
{
	const char *below = dir->below == NULL ? "" : dir->below;
	struct ofs_names got = { 0 };
	int ret;

	ret = dir->names == NULL
	    ? list_into(dir->fd, dir->path, &got, err)
	    : dir->names->ops->list(dir->names, below, add_name, &got, err);
	if (ret == -1 ||
	    (dir->over && list_into(dir->upper, dir->path, &got, err) == -1)) {
		ofs_names_free(&got);
		return -1;
	}
	sort_names(&got);
	if (dir->gone != NULL)
		leave_out(&got, is_gone, dir);
	*names = got;
	return 0;
}

int ofs_dir_list_sub(const struct ofs_dir *dir, const char *rel,
    struct ofs_names *names, struct optimfs_error *err)
{
	struct ofs_dir sub;
	int ret;

	if (rel[0] == '\0')
		return ofs_dir_list(dir, names, err);
	if (ofs_dir_open_sub(dir, rel, &sub, err) == -1)
		return -1;
	ret = ofs_dir_list(&sub, names, err);
	ofs_dir_close(&sub);
	return ret;
}

void ofs_names_free(struct ofs_names *names)
{
	for (size_t i = 0; i < names->n; i++)
		free(names->name[i]);
	free(names->name);
	*names = (struct ofs_names){ 0 };
}
