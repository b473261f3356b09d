/* group.h - the ranks of a job and their shared state */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GROUP_H
#define OFS_CLUSTER_GROUP_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

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

/* A function that is called regularly while a rank waits; fn may be NULL. */
struct ofs_tick {
	void (*fn)(void *ctx);
	void *ctx;
};

/* A request of another rank. */
struct ofs_request {
	struct optimfs_group *group;
	struct ofs_manifest *manifest; /* manifest of the request; NULL: none */
	int from;
	struct ofs_cursor c; /* after the kind and the manifest's number */
	/* For an answer: want bytes, all of which must be set. For a call
	 * (call.h) out is NULL, and the result goes to result. */
	uint8_t *out;
	uint64_t want;
	struct ofs_buf *result;
};
/* Called in any thread, several at once. An error is sent to the requesting
 * rank. */
typedef int ofs_handler_fn(struct ofs_request *q, struct optimfs_error *err);
struct ofs_handler {
	enum ofs_wire_kind kind;
	ofs_handler_fn *fn;
	bool of_manifest; /* the request begins with the number of a manifest */
};

/* Requests that a group answers, apart from those for files. */
struct ofs_group_service {
	const struct ofs_handler *handler;
	size_t nhandlers;
	/* Frees the data it has attached to a manifest when no more requests
	 * can come. NULL: nothing. */
	void (*detach)(struct ofs_manifest *s);
};

/* An alternative way to fetch bytes of other ranks' files. */
struct ofs_gather_ops {
	/* False: everything goes the usual way at the moment. */
	bool (*is_used)(const struct optimfs_group *w);
	/* Fetches segments whose objects are files of s. False: not suitable,
	 * or failed; buf is then undefined. */
	bool (*fetch)(const struct ofs_manifest *s,
	    const struct ofs_segment *segs, size_t n, uint8_t *buf);
	/* Ends what other ranks were asked for, before this one leaves. */
	void (*stop)(struct optimfs_group *w);
	void (*free)(struct optimfs_group *w);
};

struct optimfs_group {
	const struct ofs_group_ops *ops;
	struct ofs_group *w; /* of the module */
	const struct ofs_group_service *const *services;
	struct ofs_handler handler[OFS_WIRE_KINDS]; /* by kind */
	int rank, size;
	unsigned timeout;
	const struct ofs_gather_ops *gather; /* NULL: none */
	struct ofs_gpu_gather *gpu_gather;   /* state of gather */
	struct ofs_task *task;               /* the shared task: task.h */
	struct ofs_calls *calls;
	struct ofs_mail *mail;
	/* Ranks that open checkpoints, by machine; those of machine i begin at
	 * machine[i], and end at machine[i + 1]. */
	int *reader, *machine, nmachines;
	bool together;    /* they alone make collective calls from now on */
	uint32_t gathers; /* number of collective calls made: allgather.h */
	pthread_mutex_t post_lock; /* protects posts and posts_ended */
	SLIST_HEAD(, ofs_post) posts;
	bool posts_ended;     /* this rank leaves */
	pthread_mutex_t lock; /* protects the members below */
	pthread_cond_t changed;
	/* In the order of offering, which is the same on all ranks: the newest
	 * generation of each, linked to the one agreed upon first. */
	struct ofs_manifest *manifest[OFS_MAX_MANIFESTS];
	uint32_t nmanifests;
	uint32_t refreshed; /* number of refreshes */
	bool *done; /* rank i sends no more requests, as far as known here */
	bool *gone; /* rank i has died or is silent, and nobody waits for it */
	bool over;  /* no rank sends more requests */
	bool lost;  /* some ranks are gone */
	struct optimfs_error why; /* of the first that is */
	bool ready; /* everything is set up, requests are answered */
};

/* Joins through a loaded module; services ends with NULL. */
struct optimfs_group *ofs_group_new(const struct ofs_group_ops *ops,
    unsigned timeout, const struct ofs_group_service *const *services,
    struct optimfs_error *err);
/* As above, loads the module of that name. */
struct optimfs_group *ofs_group_join(const char *transport, unsigned timeout,
    const struct ofs_group_service *const *services, struct optimfs_error *err);
/* Answers a request; its cursor is at the kind. */
int ofs_group_handle(struct optimfs_group *w, struct ofs_request *q,
    struct optimfs_error *err);
/* The manifest offered as path, borrowed; ENOENT. On rank 0 it is the newest
 * generation, on other ranks the one that was offered. */
struct ofs_manifest *ofs_group_manifest(struct optimfs_group *w,
    const char *path, struct optimfs_error *err);
/* The number of a manifest is its index and its generation: a request for an
 * old generation finds nothing. */
#define OFS_MANIFEST_PLACE(number) ((number)&0xff)
#define OFS_MANIFEST_NEXT          0x100
/* Adds a manifest. ENFILE. */
int ofs_group_add(struct optimfs_group *w, struct ofs_manifest *s,
    struct optimfs_error *err);
/* Replaces the newest generation; the group takes it over. The offered one
 * stays. */
void ofs_group_put(struct optimfs_group *w, struct ofs_manifest *s);
/* Sends n requests to other ranks at once and waits for the answers: valid until
 * ops->release, which the caller calls in any case. Errors name their ranks; err
 * gets the first. */
int ofs_group_ask_all(const struct optimfs_group *w, struct ofs_ask *ask,
    size_t n, struct optimfs_error *err);
/* As above, one request; its answer of want bytes goes to out. */
int ofs_group_ask(const struct optimfs_group *w, int rank,
    const struct ofs_buf *request, void *out, uint64_t want,
    struct optimfs_error *err);
/* Sends a request of one or two bytes to all other ranks that are not lost, and
 * does not wait for them, but when this rank leaves. Thread-safe. */
void ofs_group_post(struct optimfs_group *w, const uint8_t *text, size_t len);
/* Does this error of a request say that its rank is lost? It is EHOSTDOWN or
 * ETIMEDOUT. */
bool ofs_group_says_lost(const struct optimfs_error *why);
/* To be called if what all ranks do together fails because of the answer of this
 * one. If why says that it is lost, the job ends: nobody waits for the rank,
 * and if it is silent, for its machine. All others are told. */
void ofs_group_set_lost(struct optimfs_group *w, int rank,
    const struct optimfs_error *why);
/* To be called now and then while this rank waits: if one on its machine has died,
 * all are told, as ranks on other machines would have to wait for the timeout. */
void ofs_group_tell_dead(struct optimfs_group *w);
/* True: err says why. */
bool ofs_group_is_lost(struct optimfs_group *w, int rank,
    struct optimfs_error *err);
/* Notes that a rank sends no more requests. */
void ofs_group_set_done(struct optimfs_group *w, int rank);
/* Puts "rank 2 (host)" before the text of an error of that rank; -1. */
int ofs_group_error_in(const struct optimfs_group *w, int rank,
    struct optimfs_error *err);

#endif
