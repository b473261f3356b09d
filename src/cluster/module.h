/* module.h - what a module that connects ranks provides */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_MODULE_H
#define OFS_CLUSTER_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

/* A module is a shared object, loaded at run time, that carries bytes between
 * the ranks of a job and knows nothing of checkpoints. It exports one struct
 * ofs_group_ops called optimfs_group_module. Members are only ever added at
 * the end, with a new version. */
#define OFS_GROUP_VERSION 3
#define OFS_GROUP_SYMBOL  "optimfs_group_module"

/* Most bytes of a request, and of an answer: whoever wants more asks several
 * times at once, so that no message is large and none holds up another. */
#define OFS_GROUP_REQUEST_MAX (UINT64_C(1) << 20)
#define OFS_GROUP_ANSWER_MAX  (UINT64_C(4) << 20)

struct ofs_group;

/* Answer a request of rank from: fill want bytes of out. On any thread, several
 * at once. The error, where it fails, is what the rank that asks gets. */
typedef int ofs_answer_fn(void *ctx, int from, const void *request, size_t n,
    void *out, uint64_t want, struct optimfs_error *err);

struct ofs_group_config {
	unsigned timeout; /* seconds until a rank that is asked must answer; 0:
			   * as long as it takes */
	ofs_answer_fn *answer;
	void *ctx;
};

/* One question. The first block is the caller's. */
struct ofs_ask {
	int to;
	const void *request;
	size_t nrequest;
	uint64_t want; /* length of a good answer */
	/* When err.code is 0: want bytes, until release. Otherwise NULL.
	 * EHOSTDOWN (OFS911): the rank has died. ETIMEDOUT (OFS912). */
	const void *answer;
	struct optimfs_error err;
	void *priv, *batch; /* the module's */
};

struct ofs_group_ops {
	unsigned version;
	const char *name;
	/* Join the job; all its ranks do. NULL: err. */
	struct ofs_group *(*join)(const struct ofs_group_config *config,
	    struct optimfs_error *err);
	int (*rank)(const struct ofs_group *w);
	int (*size)(const struct ofs_group *w);
	const char *(*host)(const struct ofs_group *w, int rank);
	/* The lowest rank of the machine that rank runs on. */
	int (*node)(const struct ofs_group *w, int rank);
	/* Ask n questions at once and wait for all answers. Any thread, any
	 * number of them, to other ranks. Follow it with release, whatever came
	 * of them. */
	void (*ask)(struct ofs_group *w, struct ofs_ask *ask, size_t n);
	/* Those n that were asked together. An answer that has not come is
	 * given up. */
	void (*release)(struct ofs_group *w, struct ofs_ask *ask, size_t n);
	/* Is rank known to have died? */
	bool (*dead)(const struct ofs_group *w, int rank);
	/* Leave the job and free w; every rank that lives does. No question is
	 * open. */
	void (*leave)(struct ofs_group *w);
	/* ask in two steps: start returns at once, wait when all n answers
	 * are there. The questions stay where they are until release. */
	void (*start)(struct ofs_group *w, struct ofs_ask *ask, size_t n);
	void (*wait)(struct ofs_group *w, struct ofs_ask *ask, size_t n);
};

#endif
