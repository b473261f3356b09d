/* module.h - the interface of modules that connect ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_MODULE_H
#define OFS_CLUSTER_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

/* A module is a shared object, loaded at run time, that carries bytes between
 * the ranks of a job and knows nothing of checkpoints. It exports one struct
 * ofs_group_ops called optimfs_group_module. New members are only added at the
 * end, with a new version. */
#define OFS_GROUP_VERSION 6
#define OFS_GROUP_SYMBOL  "optimfs_group_module"

/* Limits of a request and of an answer in bytes. Larger data takes several
 * requests at once, so that no large message delays others. */
#define OFS_GROUP_REQUEST_MAX (UINT64_C(1) << 20)
#define OFS_GROUP_ANSWER_MAX  (UINT64_C(4) << 20)

struct ofs_group;

/* Answers a request of rank from: sets want bytes of out. Called in any thread,
 * several at once. On failure the error is sent to the requesting rank. */
typedef int ofs_answer_fn(void *ctx, int from, const void *request, size_t n,
    void *out, uint64_t want, struct optimfs_error *err);

struct ofs_group_config {
	unsigned timeout; /* seconds for an answer; 0: no limit */
	ofs_answer_fn *answer;
	void *ctx;
};

/* A request. The caller sets the first members. */
struct ofs_ask {
	int to;
	const void *request;
	size_t nrequest;
	uint64_t want; /* length of a successful answer */
	/* If err.code is 0: want bytes, valid until release; otherwise NULL.
	 * EHOSTDOWN (OFS911): the rank has died. ETIMEDOUT (OFS912). */
	const void *answer;
	struct optimfs_error err;
	void *priv, *batch; /* of the module */
};

struct ofs_group_ops {
	unsigned version;
	/* Joins the job; collective. NULL: err. */
	struct ofs_group *(*join)(const struct ofs_group_config *config,
	    struct optimfs_error *err);
	int (*rank)(const struct ofs_group *w);
	int (*size)(const struct ofs_group *w);
	const char *(*host)(const struct ofs_group *w, int rank);
	/* The lowest rank on the machine of rank. */
	int (*node)(const struct ofs_group *w, int rank);
	/* Sends n requests at once and waits for all answers. Thread-safe; to
	 * other ranks only. Call release afterwards in any case. */
	void (*ask)(struct ofs_group *w, struct ofs_ask *ask, size_t n);
	/* Releases n requests that were sent together. Outstanding answers are
	 * abandoned. */
	void (*release)(struct ofs_group *w, struct ofs_ask *ask, size_t n);
	/* Is rank known to be dead? */
	bool (*dead)(const struct ofs_group *w, int rank);
	/* Leaves the job and frees w; collective among living ranks. all: no rank
	 * is known to be lost; otherwise it waits for none. No request may be
	 * outstanding. */
	void (*leave)(struct ofs_group *w, bool all);
	/* ask in two steps: start returns at once; wait returns when all n
	 * answers have arrived. The requests must not move until release. */
	void (*start)(struct ofs_group *w, struct ofs_ask *ask, size_t n);
	void (*wait)(struct ofs_group *w, struct ofs_ask *ask, size_t n);
	/* rank is lost, as this one or another has found: requests to it that
	 * are under way fail soon, and until it is heard of so do later ones,
	 * even without a limit. Thread-safe; does not wait, nor answer. */
	void (*forget)(struct ofs_group *w, int rank);
};

#endif
