/* manifest.h - the files of a checkpoint that is spread over ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_MANIFEST_H
#define OFS_CLUSTER_MANIFEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "base/arena.h"
#include "base/cursor.h"
#include "base/io.h"
#include "catalog/catalog.h"
#include "cluster/group.h"
#include "store/transport.h"

/* A rank that has a file; index is its number in the offer of that rank. */
struct ofs_owner {
	int rank;
	uint32_t index;
};

/* A file that at least one rank has, as described by its first owner. */
struct ofs_manifest_file {
	const char *path; /* below the shared directory */
	struct ofs_object o;
	uint32_t owner, nowners; /* its owners, sorted by rank */
	bool here;               /* this rank is an owner */
};

struct ofs_manifest {
	struct ofs_namespace names; /* for readers of indexes */
	struct optimfs_group *group;
	uint32_t number; /* number in the group, with generation */
	char *path;      /* as offered */
	/* offered: the generation shown by all ranks except rank 0; may be
	 * itself. older: the offered one if this is the newest; else NULL. */
	struct ofs_manifest *offered, *older;
	unsigned refs;           /* protected by the group's lock */
	bool first;              /* only rank 0 has files */
	bool written;            /* written by rank 0 */
	struct ofs_relay *relay; /* of the offered one; else NULL: relay.h */
	uint64_t cache;          /* cache for data decoded for other ranks */
	/* The files of this rank: the directory (fd -1: none), the files as
	 * objects of a catalog, and a transport for them. */
	struct ofs_dir dir;
	struct ofs_catalog *files;
	struct ofs_transport *transport;
	/* Of all ranks. If path is a file on one rank, it is a file on all: rel
	 * is its name in the directory; otherwise "". */
	const char *rel;
	struct ofs_manifest_file *file; /* sorted by path */
	uint32_t nfiles;
	struct ofs_owner *owner;
	struct ofs_arena arena; /* strings */
	/* For writing (cluster/commit/), in the offered generation: the
	 * participant of this rank's directory; on the writer, the state of
	 * writing. NULL: none. */
	struct ofs_participant *participant;
	struct ofs_writing *writing;
};

/* Examines path on this rank; first: only rank 0 has files. */
struct ofs_manifest *ofs_manifest_new(struct optimfs_group *w, const char *path,
    bool first, const struct optimfs_options *options,
    struct optimfs_error *err);
/* Takes a reference; drops a reference (NULL is allowed). */
struct ofs_manifest *ofs_manifest_hold(struct ofs_manifest *s);
void ofs_manifest_let(struct ofs_manifest *s);
/* Lists the files of this rank for its offer. Errors reach all ranks through
 * ofs_manifest_agree. */
int ofs_manifest_scan(struct ofs_manifest *s, struct optimfs_error *err);
/* A new manifest with the current files at the place of s. */
struct ofs_manifest *ofs_manifest_again(const struct ofs_manifest *s,
    struct optimfs_error *err);
/* Exchanges the offers and fills in the files of all ranks. own: the error of
 * this rank, or code 0; with an error s is NULL. Fails on all ranks alike. */
int ofs_manifest_agree(struct ofs_manifest *s, struct optimfs_group *w,
    const char *path, const struct optimfs_error *own,
    struct optimfs_error *err);
/* On rank 0, after a commit: lists the files of all living ranks again and
 * makes them the newest generation of path. The other ranks keep the offered
 * one. -1: nothing has changed here. */
int ofs_manifest_refresh(struct optimfs_group *w, const char *path,
    struct optimfs_error *err);

/* The shared directory, and the file in it that path named, or "". Both are
 * owned by the caller. */
int ofs_manifest_dir(const struct ofs_manifest *s, struct ofs_dir *dir,
    char **rel, struct optimfs_error *err);
/* The path of the directory or file on this rank; malloc'ed. */
char *ofs_manifest_here(const struct ofs_manifest *s,
    struct optimfs_error *err);
/* The index of the file at path, or OFS_NONE. */
uint32_t ofs_manifest_find(const struct ofs_manifest *s, const char *path);
/* Ranks that did not answer. */
#define OFS_AVOID_MAX 16
struct ofs_avoid {
	int rank[OFS_AVOID_MAX];
	size_t n;
};
/* Is the rank one of avoid (NULL: none), or dead? */
bool ofs_manifest_avoids(const struct ofs_manifest *s,
    const struct ofs_avoid *avoid, int rank);
/* The owner to read a stripe of a file from. Each rank starts with another one,
 * and neighbouring stripes come from different ones. If all are to be avoided,
 * the first, whose failure is then reported. */
const struct ofs_owner *ofs_manifest_choose(const struct ofs_manifest *s,
    uint32_t file, uint64_t stripe, const struct ofs_avoid *avoid);
static inline struct ofs_manifest *ofs_manifest_of(const struct ofs_namespace
	*e)
{
	return (struct ofs_manifest *)(uintptr_t)e;
}

/* Handlers of FETCH and LENGTH: manifest_remote.c. */
ofs_handler_fn ofs_manifest_fetch, ofs_manifest_length;
/* Handler of RESCAN: manifest_agree.c. */
ofs_handler_fn ofs_manifest_rescan;

/* Fetches segments of files of s that are not on this rank from their owners:
 * manifest_remote.c. Large segments are split over owners; a failing owner is
 * replaced by another. */
int ofs_remote_fetch(const struct ofs_manifest *s,
    const struct ofs_segment *segs, size_t n, uint8_t *buf,
    struct optimfs_error *err);
/* As above, by requests only, even if the group has another way (ofs_gather_ops,
 * group.h). */
int ofs_remote_ask(const struct ofs_manifest *s, const struct ofs_segment *segs,
    size_t n, uint8_t *buf, struct optimfs_error *err);
/* As above in two steps, for reading ahead: request the segments; wait for them
 * and lay them out. NULL, or -1: fetch them instead. _drop cancels. s must
 * outlive it. */
struct ofs_remote_ahead;
struct ofs_remote_ahead *ofs_remote_ahead(const struct ofs_manifest *s,
    const struct ofs_segment *segs, size_t n);
int ofs_remote_arrived(struct ofs_remote_ahead *a, uint8_t *buf);
void ofs_remote_drop(struct ofs_remote_ahead *a);
/* The decoded length of an encoded extent; at->object is a file of s. A failing
 * owner is replaced by another. */
int ofs_remote_length(const struct ofs_manifest *s, const struct ofs_extent *at,
    uint64_t max, uint64_t *len, struct optimfs_error *err);

#endif
