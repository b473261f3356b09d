/* reshard.h - a view that is being written */
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

/* A thread takes this much of a file at a time, or one of compressed items
 * whole: what is written, synced and noted at once. A run that was killed has
 * lost what its threads had in hand. */
#define OFS_RESHARD_PART  (UINT64_C(64) << 20)
#define OFS_RESHARD_PIECE (4u << 20) /* that is read and written at once */
#define OFS_RESHARD_JOBS  64u

/* A file of the view that somebody writes to. */
struct ofs_reshard_open {
	pthread_mutex_t lock; /* while it is opened */
	bool tried;
	int fd;
	struct optimfs_file *from; /* NULL: opening it failed */
	unsigned users;
	struct ofs_reshard *r; /* of which this is file index: for its sums */
	uint32_t index;
};

struct ofs_reshard_file {
	uint32_t index; /* in the view: node, and number in the journal */
	bool ours;      /* to write here, of several ranks */
	bool whole;     /* one part, of compressed items */
	uint64_t size;
	uint32_t nparts, next;
	uint8_t *done;          /* bits, from the journal; NULL: none */
	uint64_t *item, nitems; /* of a whole one: lengths, likewise */
	size_t item_cap;
	struct ofs_reshard_open *open;
};

/* A sum that an earlier run noted. */
struct ofs_reshard_sum {
	uint32_t file;
	struct ofs_sum sum;
};

struct ofs_reshard {
	struct ofs_snapshot *snap;
	const struct optimfs_reshard *how;
	struct optimfs_group *world; /* NULL: alone */
	bool lead; /* alone, or rank 0: has the stage, and puts it in place */
	struct ofs_at view;
	struct ofs_files *made; /* the view's; NULL: not yet */
	char name[OFS_VIEW_NAME];
	uint64_t source, files; /* hashes of what is read and what is written */
	struct ofs_stage *stage; /* the lead's */
	bool ours;               /* nothing but this reshard is in it */
	int new;                 /* the directory that the files lie in; -1 */
	uint32_t nnodes;         /* of the view */
	struct ofs_reshard_file *file;
	uint32_t n;
	uint32_t *of, nof; /* index in the view -> file; OFS_NONE */
	struct ofs_reshard_sum *sum;
	size_t nsums, sums_cap;
	uint64_t total;
	_Atomic uint64_t done;
	atomic_bool failed;
	atomic_bool noted;    /* there is something to go on from */
	pthread_mutex_t lock; /* what follows */
	pthread_cond_t more;
	uint32_t at; /* the file that parts are taken from */
	unsigned running;
	struct optimfs_error err; /* of the first that failed */
};

/* log.c: what was done, across runs. */
/* Open the stage of dir, and find what an earlier run of the same has done; one
 * of another is dropped. told gets its records, for ofs_reshard_log_told. */
int ofs_reshard_log_open(struct ofs_reshard *r, const char *dir,
    struct ofs_buf *told, struct optimfs_error *err);
/* On other ranks: what the lead has found. */
int ofs_reshard_log_told(struct ofs_reshard *r, struct ofs_cursor *c,
    struct optimfs_error *err);
/* On the lead: what another rank has done; an ofs_task_take_fn. */
int ofs_reshard_log_take(void *r, int from, struct ofs_cursor *c,
    struct optimfs_error *err);
int ofs_reshard_log_part(struct ofs_reshard *r,
    const struct ofs_reshard_file *f, uint32_t part, struct optimfs_error *err);
int ofs_reshard_log_item(struct ofs_reshard *r,
    const struct ofs_reshard_file *f, uint64_t item, uint64_t len,
    struct optimfs_error *err);
/* Give an opened file the sums that were noted, and note what comes. */
void ofs_reshard_log_sums(struct ofs_reshard *r, struct ofs_reshard_file *f);
static inline bool ofs_reshard_has(const struct ofs_reshard_file *f,
    uint32_t part)
{
	return f->done != NULL && (f->done[part / 8] >> part % 8 & 1) != 0;
}

/* Bytes of part k. */
static inline uint64_t ofs_reshard_part_size(const struct ofs_reshard_file *f,
    uint64_t k)
{
	uint64_t off = k * OFS_RESHARD_PART;

	if (off >= f->size)
		return 0;
	return f->whole || f->size - off < OFS_RESHARD_PART ? f->size - off
							    : OFS_RESHARD_PART;
}

/* ranks.c: ranks that write together. ret is how this rank fares, and
 * err why; alone, that is what comes back. */
/* Begin, and find out which files are ours. dir: as rank 0 has it, or EINVAL
 * (OFS775). */
int ofs_reshard_join(struct ofs_reshard *r, int ret, const char *dir,
    const struct ofs_buf *told, struct optimfs_error *err);
/* Wait for all: -1 on all when one has failed. */
int ofs_reshard_meet(struct ofs_reshard *r, int ret, struct optimfs_error *err);

/* work.c: write all files that are ours, on several threads. */
int ofs_reshard_work(struct ofs_reshard *r, struct optimfs_error *err);
/* Say how far it is. */
void ofs_reshard_tell(struct ofs_reshard *r);
/* [off, end) of a file into buf, all of it, unless somebody has failed. */
int ofs_reshard_read(struct ofs_reshard *r, struct optimfs_file *from,
    uint8_t *buf, uint64_t len, uint64_t off, struct optimfs_error *err);

/* dirs.c: directories of the view in new: make, sync, and remove them
 * with what is in them. */
int ofs_reshard_dirs_make(struct ofs_reshard *r, struct optimfs_error *err);
int ofs_reshard_dirs_sync(struct ofs_reshard *r, struct optimfs_error *err);
void ofs_reshard_dirs_remove(struct ofs_reshard *r);
/* Remove whatever is in a directory; false: something stays. Is there nothing?
 */
bool ofs_reshard_clear(int dir);
bool ofs_reshard_is_empty(int dir);

/* zstd.c: a file of compressed items; at most OFS_RESHARD_PIECE bytes
 * of each fit into buf. */
int ofs_reshard_zstd(struct ofs_reshard *r, struct ofs_reshard_file *f,
    uint8_t *buf, struct optimfs_error *err);

#endif
