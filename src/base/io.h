/* io.h - directories of a checkpoint, opened once, never left */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_IO_H
#define OFS_BASE_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#include "optimfs/error.h"

/* Files that lie on other machines as if they were in a directory of this one
 * (cluster/manifest.h). Paths are relative to the root of what is shared; "" is it.
 * All may be called from any thread. */
struct ofs_elsewhere;
struct ofs_catalog;
struct ofs_transport;
enum ofs_where {
	OFS_NOWHERE,
	OFS_HERE,      /* in the directory itself: look there */
	OFS_THERE,     /* a file, known by its number */
	OFS_DIRECTORY, /* at least one of the above is below it */
};
struct ofs_elsewhere_ops {
	/* file: of what is HERE, too. st, if not NULL, gets what its owner's
	 * fstat said of what is THERE. */
	enum ofs_where (*find)(const struct ofs_elsewhere *e, const char *path,
	    uint32_t *file, struct stat *st);
	/* Add the names of a directory, in any order, each once or more. */
	int (*list)(const struct ofs_elsewhere *e, const char *path,
	    int (*add)(void *ctx, const char *name, size_t n), void *ctx,
	    struct optimfs_error *err);
	int (*read)(const struct ofs_elsewhere *e, uint32_t file, void *buf,
	    uint64_t n, uint64_t off, struct optimfs_error *err);
	/* Like ofs_transport_local (store/local.h), for the objects that cat
	 * has now, wherever they are. */
	struct ofs_transport *(*transport)(const struct ofs_elsewhere *e,
	    const struct ofs_catalog *cat, uint64_t cache,
	    struct optimfs_error *err);
};
struct ofs_elsewhere {
	const struct ofs_elsewhere_ops *ops;
};

/* A directory that a checkpoint lies in. Every file of the checkpoint is
 * opened beneath fd, so that a name from an index can never leave it. */
struct ofs_dir {
	int fd; /* -1 with elsewhere, when there is no such directory here */
	char *path;  /* as the user gave it, for messages */
	bool follow; /* symbolic links that stay inside are allowed */
	/* Says which files there are; borrowed. NULL: those that are here. */
	const struct ofs_elsewhere *elsewhere;
	char *below; /* this directory's path there; NULL: its root */
	/* With over, a file of directory upper is there instead of the one
	 * with its name: a checkpoint as it will be once upper's files are
	 * moved into it. */
	bool over;
	int upper;
	/* Files that will not be there then, by their paths from where root
	 * bytes of path end: they are not listed. Borrowed. */
	const struct ofs_gone {
		const char *const *rel;
		size_t n, root;
	} * gone;
};

/* EIO when path cannot be opened as a directory. */
int ofs_dir_open(const char *path, struct ofs_dir *dir,
    struct optimfs_error *err);
void ofs_dir_close(struct ofs_dir *dir);
/* The same directory again. */
int ofs_dir_copy(const struct ofs_dir *dir, struct ofs_dir *copy,
    struct optimfs_error *err);

/* Open rel, beneath dir and without following links (docs/security.md), for
 * reading. Only a regular file: a FIFO neither blocks nor opens. st gets its
 * fstat. EPERM (OFS620, OFS621) for a name that leaves dir or crosses a link,
 * ENOENT for one that is not there, EACCES (OFS756), EMFILE, ENFILE, ESTALE,
 * EIO (OFS755) for all else, EUCLEAN (OFS602) for what is not a regular file.
 * The descriptor, -1 on failure, is the caller's. */
int ofs_dir_open_file(const struct ofs_dir *dir, const char *rel,
    struct stat *st, struct optimfs_error *err);
/* The same for a file that may lie elsewhere. st may be NULL. */
struct ofs_input {
	int fd; /* -1: elsewhere */
	const struct ofs_elsewhere *elsewhere;
	uint32_t file;
};
int ofs_dir_open_input(const struct ofs_dir *dir, const char *rel,
    struct ofs_input *in, struct stat *st, struct optimfs_error *err);
/* Read n bytes at off; fewer is EIO that says how many there were. */
int ofs_input_read(const struct ofs_input *in, void *buf, uint64_t n,
    uint64_t off, struct optimfs_error *err);
void ofs_input_close(struct ofs_input *in);
/* Does rel lie elsewhere? *file gets its number there. */
bool ofs_dir_elsewhere(const struct ofs_dir *dir, const char *rel,
    uint32_t *file);
/* The same of a file that is here, if it has a number. */
bool ofs_dir_shared(const struct ofs_dir *dir, const char *rel, uint32_t *file);
/* A sub-directory of dir. */
int ofs_dir_open_sub(const struct ofs_dir *dir, const char *rel,
    struct ofs_dir *sub, struct optimfs_error *err);
/* fstat of rel without opening it for reading; false when it is not there. */
bool ofs_dir_stat(const struct ofs_dir *dir, const char *rel, struct stat *st);
/* Is rel a name that may be looked up: relative, not empty, no empty, "." or
 * ".." component, no NUL, at most 4096 bytes? n is its length. */
bool ofs_path_stays(const char *rel, size_t n);

/* Names in dir, sorted bytewise, without "." and "..". names and what it
 * points to are the caller's: ofs_names_free. */
struct ofs_names {
	char **name;
	size_t n;
};
int ofs_dir_list(const struct ofs_dir *dir, struct ofs_names *names,
    struct optimfs_error *err);
void ofs_names_free(struct ofs_names *names);

/* Is path a directory with nothing in it? -1: errno says why that is not known.
 */
int ofs_dir_empty(const char *path);
/* fsync of the directory that path's last component is in; -1: errno. */
int ofs_sync_parent(const char *path);

/* Read n bytes at off; fewer is EIO that says how many there were. */
int ofs_pread_all(int fd, void *buf, uint64_t n, uint64_t off,
    struct optimfs_error *err);
/* The whole of rel, at most max bytes (E2BIG above), as malloc'ed bytes that
 * are the caller's; one NUL stands behind them. */
int ofs_dir_read_file(const struct ofs_dir *dir, const char *rel, uint64_t max,
    uint8_t **bytes, uint64_t *len, struct optimfs_error *err);

#endif
