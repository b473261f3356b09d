/* reshard.h - the state of a reshard */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RESHARD_H
#define OFS_RESHARD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "base/cursor.h"
#include "fs/view.h"
#include "journal/stage.h"

/* The size of a part, the unit of work of a thread; a file of compressed items
 * is one part. It is written, synced and recorded as a whole, so that a killed
 * run loses only the parts in progress. */
#define OFS_RESHARD_PART  (UINT64_C(64) << 20)
#define OFS_RESHARD_PIECE (4u << 20) /* size of a read and a write */
#define OFS_RESHARD_JOBS  64u

/* A file of the view while it is written. */
struct ofs_reshard_open {
	pthread_mutex_t lock; /* held while it is opened */
	bool tried;
	int fd;
	struct optimfs_file *from; /* NULL: opening it failed */
	unsigned users;
	/* the reshard, and its number there, for checksums */
	struct ofs_reshard *r;
	uint32_t index;
};

struct ofs_reshard_file {
	/* node number in the view, and number in the journal */
	uint32_t index;
	bool ours;  /* written by this rank */
	bool whole; /* one part, of compressed items */
	uint64_t size;
	uint32_t nparts, next;
	/* From the journal: bits of finished parts, or NULL; if whole, lengths
	 * of finished items. */
	uint8_t *done;
	uint64_t *item, nitems;
	size_t item_cap;
	struct ofs_reshard_open *open;
};

/* A checksum recorded by an earlier run. */
struct ofs_reshard_sum {
	uint32_t file;
	struct ofs_sum sum;
};

struct ofs_reshard {
	struct ofs_snapshot *snap;
	const struct optimfs_reshard *how;
	struct optimfs_group *group; /* NULL: a single process */
	/* Rank 0, or a single process: it owns the stage and publishes. */
	bool is_rank0;
	struct ofs_at view;
	struct ofs_files *made; /* of the view; NULL: not yet */
	char name[OFS_VIEW_NAME];
	uint64_t source, files;  /* hashes of the source and of the result */
	struct ofs_stage *stage; /* on rank 0 */
	bool ours;               /* it contains nothing but this reshard */
	int new;                 /* directory of the new files, or -1 */
	uint32_t nnodes;         /* nodes of the view */
	struct ofs_reshard_file *file;
	uint32_t n;
	uint32_t *of, nof; /* node of the view -> file, or OFS_NONE */
	struct ofs_reshard_sum *sum;
	size_t nsums, sums_cap;
	uint64_t total;
	_Atomic uint64_t done;
	atomic_bool failed;
	atomic_bool noted;    /* progress was recorded */
	pthread_mutex_t lock; /* protects the members below */
	pthread_cond_t more;
	uint32_t at; /* file of the next part */
	unsigned running;
	struct optimfs_error err; /* first failure */
};

/* log.c: progress across runs. */
/* Opens the stage of dir and finds the progress of an earlier run of the same
 * reshard; that of another one is dropped. earlier gets its records, for
 * ofs_reshard_log_earlier. */
int ofs_reshard_log_open(struct ofs_reshard *r, const char *dir,
    struct ofs_buf *earlier, struct optimfs_error *err);
/* On other ranks: takes the records that rank 0 has found. */
int ofs_reshard_log_earlier(struct ofs_reshard *r, struct ofs_cursor *c,
    struct optimfs_error *err);
/* On rank 0: records the progress of another rank; an ofs_task_take_fn. */
int ofs_reshard_log_take(void *r, int from, struct ofs_cursor *c,
    struct optimfs_error *err);
int ofs_reshard_log_part(struct ofs_reshard *r,
    const struct ofs_reshard_file *f, uint32_t part, struct optimfs_error *err);
int ofs_reshard_log_item(struct ofs_reshard *r,
    const struct ofs_reshard_file *f, uint64_t item, uint64_t len,
    struct optimfs_error *err);
/* Passes the recorded checksums to an opened file, and records new ones. */
void ofs_reshard_log_sums(struct ofs_reshard *r, struct ofs_reshard_file *f);
static inline bool ofs_reshard_has(const struct ofs_reshard_file *f,
    uint32_t part)
{
	return f->done != NULL && (f->done[part / 8] >> part % 8 & 1) != 0;
}

/* The size of part k in bytes. */
static inline uint64_t ofs_reshard_part_size(const struct ofs_reshard_file *f,
    uint64_t k)
{
	uint64_t off = k * OFS_RESHARD_PART;

	if (off >= f->size)
		return 0;
	return f->whole || f->size - off < OFS_RESHARD_PART ? f->size - off
							    : OFS_RESHARD_PART;
}

/* The size of its finished parts. */
static inline uint64_t ofs_reshard_written(const struct ofs_reshard_file *f)
{
	uint64_t n = 0;

	for (uint32_t k = 0; k < f->nparts; k++)
		if (ofs_reshard_has(f, k))
			n += ofs_reshard_part_size(f, k);
	return n;
}

/* ranks.c: several ranks. ret and err are the result on this rank; a single
 * process gets them back. */
/* Starts together, and assigns files to ranks. dir must be the same as on rank
 * 0: EINVAL (OFS775). */
int ofs_reshard_join(struct ofs_reshard *r, int ret, const char *dir,
    const struct ofs_buf *earlier, struct optimfs_error *err);
/* Waits for all ranks: -1 on all if one has failed. */
int ofs_reshard_barrier(struct ofs_reshard *r, int ret,
    struct optimfs_error *err);

/* work.c: writes the files of this rank with several threads. */
int ofs_reshard_work(struct ofs_reshard *r, struct optimfs_error *err);
/* Reports progress. */
void ofs_reshard_tell(struct ofs_reshard *r);
/* Reads len bytes at off into buf, unless a thread has failed. */
int ofs_reshard_read(struct ofs_reshard *r, struct optimfs_file *from,
    uint8_t *buf, uint64_t len, uint64_t off, struct optimfs_error *err);

/* items.c: writes a file of compressed items; buf has room for OFS_RESHARD_PIECE
 * bytes of each. */
int ofs_reshard_items(struct ofs_reshard *r, struct ofs_reshard_file *f,
    uint8_t *buf, struct optimfs_error *err);

#endif
