/* group.h - the ranks of a job, and what they share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GROUP_H
#define OFS_CLUSTER_GROUP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "base/cursor.h"
#include "cluster/module.h"
#include "cluster/wire.h"
#include "plan/plan.h"

struct ofs_gpu_gather;
struct ofs_calls;
struct ofs_mail;
struct ofs_manifest;
struct ofs_task;

#define OFS_MAX_MANIFESTS 16

/* What is called now and then while a rank waits; fn may be NULL. */
struct ofs_tick {
	void (*fn)(void *ctx);
	void *ctx;
};

/* A request of another rank. */
struct ofs_request {
	struct optimfs_group *group;
	struct ofs_manifest *manifest; /* that it is about; NULL: of none */
	int from;
	struct ofs_cursor c; /* behind the kind and the manifest's number */
	/* Of an answer: want bytes, all of which are to be filled. Of a call
	 * (call.h) out is NULL, and what comes back is put into result. */
	uint8_t *out;
	uint64_t want;
	struct ofs_buf *result;
};
/* On any thread, several at once. What fails is the failure of who asks. */
typedef int ofs_handler_fn(struct ofs_request *q, struct optimfs_error *err);
struct ofs_handler {
	enum ofs_wire_kind kind;
	ofs_handler_fn *fn;
	bool of_manifest; /* the request begins with the number of one */
};

/* What a group answers beyond the files that its ranks have. */
struct ofs_group_service {
	const struct ofs_handler *handler;
	size_t nhandlers;
	/* Frees what it has attached to what was offered, when nobody asks any
	 * more. NULL: nothing. */
	void (*detach)(struct ofs_manifest *s);
};

/* Another way for the bytes of other ranks' files. */
struct ofs_gather_ops {
	/* Segments whose objects are files of s. False: not this way, be it
	 * that they are none for it or that it failed; buf is then
	 * undefined. */
	bool (*fetch)(const struct ofs_manifest *s,
	    const struct ofs_segment *segs, size_t n, uint8_t *buf);
	void (*free)(struct optimfs_group *w);
};

struct optimfs_group {
	const struct ofs_group_ops *ops;
	struct ofs_group *w; /* the module's */
	const struct ofs_group_service *const *services;
	struct ofs_handler handler[OFS_WIRE_KINDS]; /* by kind */
	int rank, size;
	unsigned timeout;
	const struct ofs_gather_ops *gather; /* NULL: there is none */
	struct ofs_gpu_gather *gpu_gather;   /* of gather */
	struct ofs_task *task;               /* a task that all share: task.h */
	struct ofs_calls *calls;
	struct ofs_mail *mail;
	uint32_t gathers;     /* that this rank has come to: allgather.h */
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	/* In the order in which they were offered, which is the same on all
	 * ranks: the newest of each, and behind it the one that was agreed upon
	 * at first. */
	struct ofs_manifest *manifest[OFS_MAX_MANIFESTS];
	uint32_t nmanifests;
	uint32_t refreshed; /* how often any was */
	bool *done;         /* rank i asks no more */
	bool ready;         /* all of this is there: requests are answered */
};

/* The symbol of optimfs-NAME.so, which stays loaded: libraries of MPI and CUDA
 * do not bear to go. flags of dlopen. NULL: why says why. */
void *ofs_group_load(const char *name, const char *symbol, int flags,
    char why[256]);
/* Join by a module that has been loaded; services ends with NULL. */
struct optimfs_group *ofs_group_new(const struct ofs_group_ops *ops,
    unsigned timeout, const struct ofs_group_service *const *services,
    struct optimfs_error *err);
/* The same by the module of that name, which is loaded. */
struct optimfs_group *ofs_group_join(const char *transport, unsigned timeout,
    const struct ofs_group_service *const *services, struct optimfs_error *err);
/* Answer a request, whose cursor is at its kind. */
int ofs_group_handle(struct optimfs_group *w, struct ofs_request *q,
    struct optimfs_error *err);
/* What was offered as path, which is borrowed; ENOENT. On rank 0 that is the
 * newest generation, on others the one that was offered. */
struct ofs_manifest *ofs_group_manifest(struct optimfs_group *w,
    const char *path, struct optimfs_error *err);
/* The number of a manifest is its place among those offered, and which
 * generation it is: a request about one that is no more so finds nothing. */
#define OFS_MANIFEST_PLACE(number) ((number)&0xff)
#define OFS_MANIFEST_NEXT          0x100
/* Add what is offered. ENFILE. */
int ofs_group_add(struct optimfs_group *w, struct ofs_manifest *s,
    struct optimfs_error *err);
/* Put another generation in the place of the newest: the group's from now on.
 * The one that was offered stays. */
void ofs_group_put(struct optimfs_group *w, struct ofs_manifest *s);
/* One question, and its answer of want bytes in out. What fails is said with
 * the rank's name. */
int ofs_group_ask(const struct optimfs_group *w, int rank,
    const struct ofs_buf *request, void *out, uint64_t want,
    struct optimfs_error *err);
/* Put "rank 2 (host)" before the text of what that rank answered; -1. */
int ofs_group_error_in(const struct optimfs_group *w, int rank,
    struct optimfs_error *err);

#endif
