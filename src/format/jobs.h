/* jobs.h - files of two jobs in one directory */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_JOBS_H
#define OFS_FORMAT_JOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/io.h"

/* A file of one rank, or one of several files, and the number of them: as its
 * name, or what is in it, says. */
struct ofs_job_file {
	const char *rel;
	int rank;  /* from 0 */
	int world; /* the number of ranks; 0: unknown */
	int64_t mtime_ns;
	bool left;  /* not of the job that is read */
	bool later; /* left, and newer than all files of that job */
};
/* For the end of a message about a file that is left. */
#define OFS_JOB_LATER ", and newer: a later save that has not finished"

/* A save by another number of ranks does not remove the files of the one before
 * it. Chooses the job that is read, and sets left of the files of others: the
 * only one that is complete; of several the one of told ranks (0: nothing tells),
 * or else the one whose files are all newer than those of the others. *world
 * gets its number of ranks; 0: no file says it, and none is left out. EPROTO
 * (OFS674): none can be chosen; both are named. */
int ofs_jobs_judge(struct ofs_job_file *file, size_t n, int told, int *world,
    struct optimfs_error *err);
/* The time at which rel was last changed; 0: unknown. */
int64_t ofs_jobs_mtime(const struct ofs_dir *dir, const char *rel);

#endif
