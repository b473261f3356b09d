/* gather_impl.h - declarations shared by the files of gather.h */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLUSTER_GPU_GATHER_IMPL_H
#define OFS_CLUSTER_GPU_GATHER_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "cluster/gpu/blocks.h"
#include "cluster/gpu/gather.h"
#include "cluster/gpu/module.h"
#include "cluster/group.h"

/* Number of blocks without gpu_cache=: enough for two windows, the maximum in
 * progress. */
enum { ROUND_BLOCKS = 8, MIN_BLOCKS = OFS_GPU_WINDOWS * ROUND_BLOCKS };

/* Pinned memory with bytes for another rank, until it requests them. */
struct stage {
	uint64_t token; /* 0: free; else the number of the stage is a part of it */
	uint64_t len;
	int to;
	int64_t since; /* ms */
	bool going;    /* the module owns it */
};

/* How a read that GPUs suit goes; open: not decided yet. */
enum ofs_way { OFS_WAY_OPEN, OFS_WAY_NCCL, OFS_WAY_MPI, OFS_WAYS };

/* Reads that went one way, of which the first does not count for the others. */
struct ofs_trial {
	uint64_t reads, bytes;
	int64_t ns;
};

struct ofs_gpu_gather {
	const struct ofs_gpu_ops *ops;
	struct ofs_gpu *gpu;
	struct optimfs_group *group;
	char *name; /* "rank 2 (host)": the module works on when w is gone */
	struct optimfs_gather how;
	struct ofs_blocks *blocks;
	/* Connections are numbered from 1: the last one that was made here, and
	 * the last one that is known to be over, or OFS_NEVER. While these are
	 * the same, everything uses the other transport. Changed with lock. */
	atomic_uint connection, over;
	/* A call of the module does not return; its memory stays in use. */
	atomic_bool stuck;
	_Atomic uint64_t rounds, bytes, sent, refused;
	atomic_int decided; /* enum ofs_way; changed with lock */

	pthread_mutex_t connecting; /* held while this rank connects */
	pthread_t keeper;           /* rank 0: gather_connect.c */
	bool keeps;                 /* it has been started */

	pthread_mutex_t lock; /* protects the members below */
	pthread_cond_t freed, changed;
	bool stopped;                 /* this rank leaves */
	bool window[OFS_GPU_WINDOWS]; /* in use */
	struct stage stage[OFS_GPU_STAGES];
	uint64_t token; /* those that were given */
	struct ofs_trial trial[OFS_WAYS];
	/* Rank 0: the next sequence number of each rank, of which the high bits
	 * are those of the connection. Numbers are drawn for all participants of
	 * a transfer at once, so that any two ranks do their common transfers in
	 * the same order and no ranks wait in a circle. */
	uint64_t *sequence;
};

/* gather_connect.c: connections, one after the other. */

/* The first sequence number of a connection; the connection of a number. */
#define OFS_FIRST_OF(connection)    ((uint64_t)(connection) << 48)
#define OFS_CONNECTION_OF(sequence) ((unsigned)((sequence) >> 48))
/* Later than any connection: for a GPU that is not used again. */
#define OFS_NEVER 255

static inline bool ofs_gpu_gather_is_on(const struct ofs_gpu_gather *b)
{
	return atomic_load(&b->connection) > atomic_load(&b->over);
}
/* Connects the ranks that can be: n of them. Called by rank 0. */
int ofs_gpu_gather_connect(struct ofs_gpu_gather *b, int *n,
    struct optimfs_error *err);
/* Starts to replace lost connections, on rank 0; ends it, on all ranks. */
int ofs_gpu_gather_keep(struct ofs_gpu_gather *b, struct optimfs_error *err);
void ofs_gpu_gather_stop(struct ofs_gpu_gather *b);
/* Ends a connection, here and on all ranks, and says so; does nothing if it is
 * over. All abort at the same time: NCCL's abort on one rank may wait for that of
 * another. If the error is not ENOTCONN, the GPU has failed and is not used again. */
void ofs_gpu_gather_lost(struct ofs_gpu_gather *b, unsigned connection,
    const struct optimfs_error *err);
/* As above, for a failure outside the module. */
void ofs_gpu_gather_hang_up(struct ofs_gpu_gather *b, unsigned connection,
    const struct optimfs_error *err);
/* Has the module's thread shown no sign of life for the timeout? */
bool ofs_gpu_gather_is_stuck(struct ofs_gpu_gather *b);
/* Passes a message to the user: what has happened, what comes next. */
void ofs_gpu_gather_say(const struct ofs_gpu_gather *b, const char *what,
    const char *next);
ofs_handler_fn ofs_gpu_gather_answer_connect, ofs_gpu_gather_answer_hang_up;

/* gather_auto.c: which way the next read goes; how long one took; for
 * .optimfs/stats. */
enum ofs_way ofs_gpu_gather_way(struct ofs_gpu_gather *b);
void ofs_gpu_gather_took(struct ofs_gpu_gather *b, enum ofs_way way,
    uint64_t bytes, int64_t ns);
void ofs_gpu_gather_trial_stats(struct ofs_gpu_gather *b, struct ofs_buf *out);

/* gather_answer.c */

/* Draws sequence numbers for rank from and for those that send to it. */
int ofs_gpu_gather_draw(struct ofs_gpu_gather *b, int from, const int *owner,
    uint32_t n, uint64_t *sequence, struct optimfs_error *err);
/* Takes the stage of a token for rank to; -1: there is none. */
int ofs_gpu_gather_take_stage(struct ofs_gpu_gather *b, uint64_t token, int to,
    uint64_t *len);
void ofs_gpu_gather_free_stage(struct ofs_gpu_gather *b, uint32_t i);
/* Frees the stage of a token that will not be sent. */
void ofs_gpu_gather_drop(struct ofs_gpu_gather *b, uint64_t token, int to);

/* A SEND with this sequence number only returns tokens. */
#define OFS_NO_SEQUENCE UINT64_MAX

/* gather_round.c: fill a window of a reader's buffer. */

/* A requested block of a file. */
struct ofs_want {
	uint32_t file;
	uint64_t index;  /* index of the block in the file */
	uint64_t lo, hi; /* requested range in the file */
	uint32_t block;  /* OFS_NO_BLOCK */
	bool hit;
	const struct ofs_owner *owner;
	uint64_t token;
};

/* Up to ROUND_BLOCKS blocks, and the runs from them to the window. */
struct ofs_round {
	struct ofs_gpu_gather *b;
	const struct ofs_manifest *s;
	uint8_t *buf;
	uint64_t base; /* offset of the window in buf */
	struct ofs_want want[ROUND_BLOCKS];
	uint32_t nwants, nruns, cap;
	struct ofs_gpu_run *run; /* src: index of the want << 32 | offset */
	uint64_t start, end, ncopied; /* range of the window */
	uint32_t window;
	struct optimfs_error err;
	struct ofs_gpu_work work;
	struct ofs_gpu_receive receive[ROUND_BLOCKS];
	struct ofs_gpu_send send[ROUND_BLOCKS];
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool done;
	bool left; /* never returned by the module */
};

/* Fetches the added runs to the reader's buffer, and resets the round. */
int ofs_round_run(struct ofs_round *r);

#endif
