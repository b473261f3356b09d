/* io.h - opening and reading beneath the directory of a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_IO_H
#define OFS_BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "optimfs/error.h"

#include "base/buf.h"

/* Files that are not, or not all, in a directory of this machine: those of other
 * ranks (cluster/manifest.h), those of a server (store/http/site.h). Paths are
 * relative to its root, which is "". All functions are thread-safe. */
struct ofs_namespace;
struct ofs_catalog;
struct ofs_transport;
struct optimfs_watch;
enum ofs_where {
	OFS_UNKNOWN, /* it could not be found out */
	OFS_NOWHERE,
	OFS_HERE,      /* in the local directory */
	OFS_THERE,     /* a remote file, known by its number */
	OFS_DIRECTORY, /* there is such a file below it */
};
struct ofs_namespace_ops {
	/* file gets its number, with OFS_HERE too. st, if not NULL, gets the
	 * result of its owner's fstat, with OFS_THERE only. OFS_UNKNOWN: err is
	 * filled. */
	enum ofs_where (*find)(const struct ofs_namespace *names,
	    const char *path, uint32_t *file, struct stat *st,
	    struct optimfs_error *err);
	/* Call add for each name in a directory, in any order, at least
	 * once. */
	int (*list)(const struct ofs_namespace *names, const char *path,
	    int (*add)(void *ctx, const char *name, size_t n), void *ctx,
	    struct optimfs_error *err);
	int (*read)(const struct ofs_namespace *names, uint32_t file, void *buf,
	    uint64_t n, uint64_t off, struct optimfs_error *err);
	/* Like ofs_transport_local (store/local.h), for the objects that cat
	 * has now, local or remote. */
	struct ofs_transport *(*transport)(const struct ofs_namespace *names,
	    const struct ofs_catalog *cat, uint64_t cache,
	    struct optimfs_error *err);
	/* Takes and drops a reference of a directory that is counted. */
	void (*hold)(const struct ofs_namespace *names);
	void (*let)(const struct ofs_namespace *names);
};
struct ofs_namespace {
	const struct ofs_namespace_ops *ops;
};

/* A directory of a checkpoint. Every file of the checkpoint is opened beneath
 * fd, so that a name from an index can never leave it. */
struct ofs_dir {
	int fd;      /* -1: names is set and there is no local directory */
	char *path;  /* as the user gave it, for messages */
	bool follow; /* symbolic links that stay inside are allowed */
	/* Gets the progress of opening the checkpoint; borrowed, or NULL */
	const struct optimfs_watch *watch;
	/* Decides which files exist. NULL: the local directory does. */
	const struct ofs_namespace *names;
	/* It has a reference of names. Else names may be freed first: then only
	 * closing it is allowed. */
	bool counted;
	char *below; /* path in names; NULL: its root */
	/* over: the files of directory upper hide those with the same names. So
	 * a checkpoint is read as it will be once the files of upper have been
	 * moved into it. */
	bool over;
	int upper;
	/* rooted: links may lead to what is beneath directory root, of which
	 * this one is at path within ("": root itself). */
	bool rooted;
	int root;
	char *within;
	/* Files that will have been removed by then, which are not listed.
	 * Their paths begin at byte root of path. Borrowed. */
	const struct ofs_gone {
		const char *const *rel;
		size_t n, root;
	} * gone;
};

/* EIO when path cannot be opened as a directory. ofs_dir_close frees dir. */
int ofs_dir_open(const char *path, struct ofs_dir *dir,
    struct optimfs_error *err);
void ofs_dir_close(struct ofs_dir *dir);
/* As ofs_dir_open, for a directory that is not listed: it need not be
 * readable. */
int ofs_dir_open_top(const char *path, struct ofs_dir *dir,
    struct optimfs_error *err);
/* A directory of names, whose reference dir takes over, called path in
 * messages. On failure it is dropped. */
int ofs_dir_open_names(const struct ofs_namespace *names, const char *path,
    struct ofs_dir *dir, struct optimfs_error *err);
/* A second handle of the same directory. */
int ofs_dir_copy(const struct ofs_dir *dir, struct ofs_dir *copy,
    struct optimfs_error *err);

/* Lets links of dir, just opened, lead to all that is beneath the first n bytes
 * of its path. */
int ofs_dir_set_root(struct ofs_dir *dir, size_t n, struct optimfs_error *err);

/* Open rel for reading, beneath dir and without following links
 * (docs/security.md). It must be a regular file; opening a FIFO does not block.
 * st gets its fstat. EPERM (OFS620, OFS621): the name leaves dir or crosses a
 * link; ENOENT: there is no such file; EUCLEAN (OFS602): it is not a regular
 * file; EACCES (OFS756), EMFILE, ENFILE, ESTALE; EIO (OFS755) for all other
 * failures. The descriptor, -1 on failure, is the caller's. */
int ofs_dir_open_file(const struct ofs_dir *dir, const char *rel,
    struct stat *st, struct optimfs_error *err);
/* As above, for a file that may be remote. st may be NULL. */
struct ofs_input {
	int fd; /* -1: the file is remote */
	const struct ofs_namespace *names;
	uint32_t file;
};
int ofs_dir_open_input(const struct ofs_dir *dir, const char *rel,
    struct ofs_input *in, struct stat *st, struct optimfs_error *err);
/* Read n bytes at off. When there are fewer, EIO, and the message has their
 * number. */
int ofs_input_read(const struct ofs_input *in, void *buf, uint64_t n,
    uint64_t off, struct optimfs_error *err);
void ofs_input_close(struct ofs_input *in);
/* Is rel remote? *file gets its number. */
bool ofs_dir_remote(const struct ofs_dir *dir, const char *rel, uint32_t *file);
/* Is rel local and numbered? *file gets its number. */
bool ofs_dir_shared(const struct ofs_dir *dir, const char *rel, uint32_t *file);
/* Open a sub-directory of dir. */
int ofs_dir_open_sub(const struct ofs_dir *dir, const char *rel,
    struct ofs_dir *sub, struct optimfs_error *err);
/* The fstat of rel, which is not opened for reading; false when it does not
 * exist. */
bool ofs_dir_stat(const struct ofs_dir *dir, const char *rel, struct stat *st);
/* May rel be looked up? It must be relative, not empty, at most 4096 bytes,
 * without NUL, and without an empty, "." or ".." component. n is its length. */
bool ofs_path_stays(const char *rel, size_t n);
/* The path of name in the directory rel, "" for the top; malloc'ed. NULL: no
 * memory. */
char *ofs_path_join(const char *rel, const char *name);
/* The last component of path; all of path when that is empty. */
const char *ofs_path_last(const char *path);
/* Does one of the patterns of fnmatch(3) match the path, or a directory that it is
 * in? "*" is one component. patterns ends with NULL; NULL: none. */
bool ofs_path_matches(const char *const *patterns, const char *path);

/* A list of names or paths; starts as zeros. */
struct ofs_names {
	char **name;
	size_t n, cap;
};
/* Appends a copy of the n bytes at name. */
int ofs_names_add(struct ofs_names *names, const char *name, size_t n,
    struct optimfs_error *err);
void ofs_names_free(struct ofs_names *names);
/* The names in dir, sorted bytewise, without "." and "..", for
 * ofs_names_free. Files that the operating system or a network file system left
 * there are nobody's: only _all lists them, too. */
int ofs_dir_list(const struct ofs_dir *dir, struct ofs_names *names,
    struct optimfs_error *err);
int ofs_dir_list_all(const struct ofs_dir *dir, struct ofs_names *names,
    struct optimfs_error *err);
/* The same for the directory rel below dir; "" is dir. */
int ofs_dir_list_sub(const struct ofs_dir *dir, const char *rel,
    struct ofs_names *names, struct optimfs_error *err);

/* Are these the first n bytes of a pointer of Git LFS, a text of at most 1024
 * bytes in place of a file? */
#define OFS_LFS_MAX 1024
bool ofs_is_lfs_pointer(const uint8_t *p, size_t n);

/* Is path an empty directory? 1, 0, or -1 with errno. */
int ofs_dir_empty(const char *path);
/* fsync the directory that holds the last component of path; -1 with errno. */
int ofs_sync_parent(const char *path);

/* Read n bytes at off. When there are fewer, EIO, and the message has their
 * number. */
int ofs_pread_all(int fd, void *buf, uint64_t n, uint64_t off,
    struct optimfs_error *err);
/* Append the contents of path, which a user named with an option, to out, whose
 * limit is the most that may be read. option, such as "OFS162 units", begins
 * the message: ENOENT, EINVAL, ENOMEM. */
int ofs_read_named(const char *option, const char *path, struct ofs_buf *out,
    struct optimfs_error *err);
/* Read all of rel, at most max bytes (above: E2BIG). *bytes is malloc'ed,
 * NUL-terminated and the caller's. */
int ofs_dir_read_file(const struct ofs_dir *dir, const char *rel, uint64_t max,
    uint8_t **bytes, uint64_t *len, struct optimfs_error *err);

#endif
