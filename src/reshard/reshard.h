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
#include "engine/engine.h"
#include "fs/view.h"
#include "journal/stage.h"

/* A checksum recorded by an earlier run. */
struct ofs_reshard_sum {
	uint32_t file;
	struct ofs_sum sum;
};

struct ofs_reshard {
	struct ofs_engine engine; /* writes the files; its lock is used here */
	struct ofs_snapshot *snap;
	const struct optimfs_reshard *how;
	struct optimfs_group *group; /* NULL: a single process */
	/* Rank 0, or a single process: it owns the stage and publishes. */
	bool is_rank0;
	struct ofs_at view;
	struct ofs_files *made; /* of the view; NULL: not yet */
	char name[OFS_FILE_NAME];
	uint64_t source, files;  /* hashes of the source and of the result */
	struct ofs_stage *stage; /* on rank 0 */
	bool ours;               /* it contains nothing but this reshard */
	uint32_t *of, nof;       /* node of the view -> file, or OFS_NONE */
	struct ofs_reshard_sum *sum;
	size_t nsums, sums_cap;
	atomic_bool noted; /* progress was recorded */
};

/* A file of the view while it is read. */
struct ofs_reshard_open {
	struct optimfs_file *from;
	/* the reshard, and its node there, for checksums */
	struct ofs_reshard *r;
	uint32_t index;
};

/* As optimfs_reshard, after some of it was written. early may be NULL. */
int ofs_reshard_after(struct optimfs *fs, const char *dir,
    const struct optimfs_reshard *how, const struct ofs_engine_early *early,
    struct optimfs_error *err);

/* log.c: progress across runs. */
/* What an earlier run did that cannot be continued, as words behind "the run that
 * left it"; NULL: it can be. */
const char *ofs_reshard_differs(const struct ofs_reshard *r, uint64_t source,
    const char *layout, uint64_t files, uint64_t part);
/* Says that what is at path is continued, if there is anything. */
void ofs_reshard_say_resumed(const struct ofs_reshard *r, const char *path);
/* Says that it is not. */
void ofs_reshard_say_dropped(const struct ofs_reshard *r, const char *path,
    const char *why);
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
int ofs_reshard_log_part(struct ofs_reshard *r, const struct ofs_engine_file *f,
    uint32_t part, struct optimfs_error *err);
int ofs_reshard_log_item(struct ofs_reshard *r, const struct ofs_engine_file *f,
    uint64_t item, uint64_t len, struct optimfs_error *err);
/* Passes the recorded checksums to an opened file, and records new ones. */
void ofs_reshard_log_sums(struct ofs_reshard_open *open);

/* ranks.c: several ranks. ret and err are the result on this rank; a single
 * process gets them back. */
/* Starts together, and assigns files to ranks. dir must be the same as on rank
 * 0: EINVAL (OFS775). */
int ofs_reshard_join(struct ofs_reshard *r, int ret, const char *dir,
    const struct ofs_buf *earlier, struct optimfs_error *err);
/* Waits for all ranks: -1 on all if one has failed. */
int ofs_reshard_barrier(struct ofs_reshard *r, int ret,
    struct optimfs_error *err);

#endif
