/* group_job.h - jobs whose ranks are threads, and their directories */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_GROUP_JOB_H
#define TEST_GROUP_JOB_H

#include <stdbool.h>
#include <stddef.h>

#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "support/fakegroup.h"

#define MAX_RANKS 8

/* "/tmp/.../%r": the directory of each rank. */
extern char each_rank[40];

/* Each rank offers path, unless it is NULL, and then runs work, on its own
 * thread. */
struct job {
	struct fakegroup *f;
	int size;
	const char *path;
	bool first;
	struct optimfs_options options;
	void (*work)(struct job *j, int rank, struct optimfs_group *w);
	void *ctx;
	struct optimfs_error err[MAX_RANKS]; /* of the offer */
};

void run(struct job *j);

/* Make and remove a directory for the directories of the ranks, 0, 1, .... */
void begin_ranks(void);
void end_ranks(void);
/* A path below it, valid until the fourth call after this one. */
const char *path_of(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void put(const char *path, const void *p, size_t n);
void copy(const char *from, const char *to);
/* Appends the contents of a file to b. As above, a failure ends the test. */
void load(const char *from, struct ofs_buf *b);
void make_dirs(int n);
void clear(void);
bool is_dir(const char *path);
/* Copies each file of a checkpoint to one of n directories, in turn.
 * spread_more keeps what is in them. */
void spread(const char *from, int n);
void spread_more(const char *from, int n);

#endif
