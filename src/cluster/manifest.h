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

/* Who has a file: index is its number in what that rank offered. */
struct ofs_owner {
	int rank;
	uint32_t index;
};

/* A file that at least one rank has, described as its first owner sees it. */
struct ofs_manifest_file {
	const char *path; /* below what is shared */
	struct ofs_object o;
	uint32_t owner, nowners; /* a run of the owners, in order of rank */
	bool here;               /* this rank is among them */
};

struct ofs_manifest {
	struct ofs_elsewhere elsewhere; /* what readers of indexes ask */
	struct optimfs_group *group;
	uint32_t number; /* of the group's manifests, this generation of it */
	char *path;      /* as it was offered */
	/* The generation that was offered, which all ranks but rank 0 show;
	 * itself. older: the same, where this is the newest; NULL. */
	struct ofs_manifest *offered, *older;
	unsigned refs;  /* with the group's lock */
	bool first;     /* only rank 0 has it */
	bool written;   /* by rank 0 */
	uint64_t cache; /* for what is decoded for others */
	/* What this rank has: the directory (fd -1: none), its files as the
	 * objects of a catalog, and a transport for those. */
	struct ofs_dir dir;
	struct ofs_catalog *files;
	struct ofs_transport *transport;
	/* Of all ranks. A path that is a file on some rank is one on all: rel
	 * is its name in the directory, otherwise "". */
	const char *rel;
	struct ofs_manifest_file *file; /* in order of path */
	uint32_t nfiles;
	struct ofs_owner *owner;
	struct ofs_arena arena; /* strings */
	/* Of what is to be written (cluster/commit/), in the offered
	 * generation: whose directory it is; on the rank that writes what it
	 * has begun. NULL: nothing is. */
	struct ofs_participant *participant;
	struct ofs_writing *writing;
};

/* Find out what path is on this rank; first: only rank 0 looks. */
struct ofs_manifest *ofs_manifest_new(struct optimfs_group *w, const char *path,
    bool first, const struct optimfs_options *options,
    struct optimfs_error *err);
/* Hold one more reference; let one go, and free s with the last. NULL is
 * well. */
struct ofs_manifest *ofs_manifest_hold(struct ofs_manifest *s);
void ofs_manifest_let(struct ofs_manifest *s);
/* Look at what is here, for this rank's part in the offer. What cannot be
 * looked at is told to all by ofs_manifest_agree. */
int ofs_manifest_scan(struct ofs_manifest *s, struct optimfs_error *err);
/* What lies now where s lies: looked at. */
struct ofs_manifest *ofs_manifest_again(const struct ofs_manifest *s,
    struct optimfs_error *err);
/* Exchange it, and fill in what all ranks have. own: why we could not look, or
 * code 0; s is then NULL. Fails on all ranks alike. */
int ofs_manifest_agree(struct ofs_manifest *s, struct optimfs_group *w,
    const char *path, const struct optimfs_error *own,
    struct optimfs_error *err);
/* Of rank 0, after a commit: ask all ranks that live for what they have now,
 * and let that be what is offered as path. The other ranks go on with what was
 * offered at first. -1: nothing has changed here. */
int ofs_manifest_refresh(struct optimfs_group *w, const char *path,
    struct optimfs_error *err);

/* The shared directory, and the file in it that was meant or "". Both are the
 * caller's. */
int ofs_manifest_dir(const struct ofs_manifest *s, struct ofs_dir *dir,
    char **rel, struct optimfs_error *err);
/* The directory, or the file in it, as this rank sees it; malloc'ed. */
char *ofs_manifest_here(const struct ofs_manifest *s,
    struct optimfs_error *err);
/* The number of the file of that path; OFS_NONE. */
uint32_t ofs_manifest_find(const struct ofs_manifest *s, const char *path);
static inline struct ofs_manifest *ofs_manifest_of(const struct ofs_elsewhere
	*e)
{
	return (struct ofs_manifest *)(uintptr_t)e;
}

/* Answer FETCH and LENGTH: manifest_answer.c. */
ofs_handler_fn ofs_manifest_fetch, ofs_manifest_length;
/* Answer RESCAN: manifest_refresh.c. */
ofs_handler_fn ofs_manifest_rescan;

/* Segments whose objects are files of s that are not here, from those who have
 * them: manifest_remote.c. Large ones go in pieces, spread over owners; an
 * owner that fails is replaced by another. */
int ofs_remote_fetch(const struct ofs_manifest *s,
    const struct ofs_segment *segs, size_t n, uint8_t *buf,
    struct optimfs_error *err);
/* The same in two steps, for what will be wanted soon: ask for it, and lay out
 * what has come, waiting for it. NULL, and -1: fetch it. What is not wanted any
 * more is dropped. s must outlive it. */
struct ofs_remote_ahead;
struct ofs_remote_ahead *ofs_remote_ahead(const struct ofs_manifest *s,
    const struct ofs_segment *segs, size_t n);
int ofs_remote_arrived(struct ofs_remote_ahead *a, uint8_t *buf);
void ofs_remote_drop(struct ofs_remote_ahead *a);
/* What an encoded extent decodes to: at->object is a file of s. As above,
 * another owner is asked for one that fails. */
int ofs_remote_length(const struct ofs_manifest *s, const struct ofs_extent *at,
    uint64_t max, uint64_t *len, struct optimfs_error *err);

#endif
