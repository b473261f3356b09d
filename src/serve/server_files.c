/* server_files.c - the files of a directory as they are, over HTTP */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "serve/server_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/human.h"
#include "base/io.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "serve/server.h"

struct ofs_server_files {
	struct ofs_dir dir;
	char *real; /* its path, without links */
};

struct ofs_server_files *ofs_server_files_open(const char *path,
    struct optimfs_error *err)
{
	struct ofs_server_files *f = ofs_alloc(1, sizeof(*f), err);

	if (f == NULL)
		return NULL;
	f->real = realpath(path, NULL);
	if (f->real == NULL)
		optimfs_fail(err, errno, "OFS019 %s: %m", path);
	else if (ofs_dir_open(path, &f->dir, err) == 0)
		return f;
	free(f->real);
	free(f);
	return NULL;
}

void ofs_server_files_close(struct ofs_server_files *f)
{
	if (f == NULL)
		return;
	ofs_dir_close(&f->dir);
	free(f->real);
	free(f);
}

/* Who may read. */

/* An ACL may give a user less than others have. */
static bool has_acl(const char *path)
{
	return getxattr(path, "system.posix_acl_access", NULL, 0) >= 0 ||
	    (errno != ENODATA && errno != EOPNOTSUPP);
}

static bool lets(const char *path, mode_t bit)
{
	struct stat st;

	return lstat(path, &st) == 0 && (st.st_mode & bit) != 0 &&
	    !has_acl(path);
}

/* Each directory above it has to be open for everybody, too. */
static bool is_public(const struct ofs_server_files *f, const char *rel,
    mode_t bit)
{
	char *path = ofs_path_join(f->real, rel);
	bool is = path != NULL;
	size_t n = path == NULL ? 0 : strlen(path);

	while (n > 1 && path[n - 1] == '/')
		path[--n] = '\0';
	is = is && lets(path, bit);
	while (is && n > 1) {
		while (n > 1 && path[--n] != '/')
			;
		path[n == 0 ? 1 : n] = '\0';
		is = lets(n == 0 ? "/" : path, S_IXOTH);
	}
	free(path);
	return is;
}

bool ofs_server_files_public(const struct ofs_server_files *f)
{
	return is_public(f, "", S_IXOTH);
}

/* As servers do, but for the index of PyTorch's distributed checkpoints. */
static bool is_hidden(const char *name, size_t n)
{
	return name[0] == '.' &&
	    (n != strlen(".metadata") || memcmp(name, ".metadata", n) != 0);
}

static bool is_name(const char *rel)
{
	size_t n;

	if (!ofs_path_stays(rel, strlen(rel)))
		return false;
	for (; *rel != '\0'; rel += n + (rel[n] == '/')) {
		n = strcspn(rel, "/");
		if (is_hidden(rel, n))
			return false;
	}
	return true;
}

int ofs_server_files_find(const struct ofs_server_files *f, const char *rel,
    struct ofs_server_file *file, struct optimfs_error *err)
{
	*file = (struct ofs_server_file){ .fd = -1 };
	if (rel[0] == '\0')
		file->is_dir = true;
	else if (!is_name(rel) || !ofs_dir_stat(&f->dir, rel, &file->st))
		return optimfs_fail(err, ENOENT, "OFS019 %s: no such file",
		    rel);
	else
		file->is_dir = S_ISDIR(file->st.st_mode);
	if (!file->is_dir) {
		file->fd = ofs_dir_open_file(&f->dir, rel, &file->st, err);
		if (file->fd == -1)
			return -1;
	}
	/* of what was opened, whatever has the name by now */
	file->is_public = is_public(f, rel, S_IROTH) &&
	    (file->is_dir || (file->st.st_mode & S_IROTH) != 0);
	return 0;
}

void ofs_server_files_tag(const struct stat *st, char tag[OFS_SERVER_TAG])
{
	snprintf(tag, OFS_SERVER_TAG,
	    "\"f%" PRIx64 "-%" PRIx64 "-%" PRIx64 "\"", (uint64_t)st->st_ino,
	    (uint64_t)st->st_mtim.tv_sec * 1000000000 +
		(uint64_t)st->st_mtim.tv_nsec,
	    (uint64_t)st->st_size);
}

/* Listings, in the forms of server_dir.c. */

static void put_json(struct ofs_json_writer *w, const char *name,
    const struct stat *st)
{
	char date[OFS_SERVER_DATE], tag[OFS_SERVER_TAG];

	ofs_server_date((int64_t)st->st_mtim.tv_sec * 1000000000, date);
	ofs_json_open(w, NULL, '{');
	ofs_json_put_string(w, "name", name);
	ofs_json_put_string(w, "type",
	    S_ISDIR(st->st_mode) ? "directory" : "file");
	ofs_json_put_string(w, "mtime", date);
	if (!S_ISDIR(st->st_mode)) {
		ofs_server_files_tag(st, tag);
		ofs_json_put_u64(w, "size", (uint64_t)st->st_size);
		ofs_json_put_string(w, "etag", tag);
	}
	ofs_json_close(w, '}');
}

static void put_html(struct ofs_buf *b, const char *name, const struct stat *st)
{
	const char *slash = S_ISDIR(st->st_mode) ? "/" : "";
	char size[OFS_HUMAN_SIZE];

	ofs_buf_puts(b, "<tr><td><a href=\"");
	ofs_server_encode(b, name);
	ofs_buf_printf(b, "%s\">", slash);
	ofs_server_escape(b, name);
	ofs_buf_printf(b, "%s</a>", slash);
	if (!S_ISDIR(st->st_mode))
		ofs_buf_printf(b, "<td>%s",
		    ofs_human_bytes((uint64_t)st->st_size, size));
	ofs_buf_puts(b, "</tr>\n");
}

/* Links are not listed, as they are not followed. */
static bool is_listed(const struct ofs_server_files *f, const char *rel,
    const char *name, struct stat *st)
{
	char *path = ofs_path_join(rel, name);
	bool is = path != NULL && !is_hidden(name, strlen(name)) &&
	    ofs_dir_stat(&f->dir, path, st) &&
	    (S_ISREG(st->st_mode) || S_ISDIR(st->st_mode));

	free(path);
	return is;
}

int ofs_server_files_list(const struct ofs_server_files *f, const char *rel,
    bool json, struct ofs_buf *b, struct optimfs_error *err)
{
	struct ofs_json_writer w = { .b = b, .gap = " " };
	struct ofs_names names;
	struct stat st;
	int ret = 0;

	if (ofs_dir_list_sub(&f->dir, rel, &names, err) == -1)
		return -1;
	if (json)
		ofs_json_open(&w, NULL, '[');
	else
		ofs_server_dir_begin(b, rel[0] == '\0' ? "/" : rel);
	for (size_t i = 0; i < names.n && !b->bad; i++) {
		if (!is_listed(f, rel, names.name[i], &st))
			continue;
		if (json)
			put_json(&w, names.name[i], &st);
		else
			put_html(b, names.name[i], &st);
	}
	if (json)
		ofs_json_close(&w, ']');
	ofs_buf_puts(b, json ? "\n" : "</table>\n");
	if (b->bad)
		ret = optimfs_fail(err, E2BIG,
		    "OFS440 %s: %zu names are too many for one listing", rel,
		    names.n);
	ofs_names_free(&names);
	return ret;
}
