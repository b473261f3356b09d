/* members.h - the checkpoints in the directory of a run */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RUN_MEMBERS_H
#define OFS_RUN_MEMBERS_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/io.h"
#include "base/keys.h"
#include "run/examine.h"
#include "run/step.h"

/* A run is a directory, and a table of the names in it. The table follows the
 * directory: whoever asks for it lists the directory again if that has changed,
 * and examines what is new, what has changed, and what was not finished. Nothing
 * is watched, so it costs a few stat(2) where nothing happens. A name has the
 * same number for as long as the run is open, also after it was removed. */

/* One state of a file or directory; zeros: there is none. */
struct ofs_run_stamp {
	uint64_t dev, ino, size;
	int64_t mtime_ns, ctime_ns;
};

enum {
	OFS_RUN_NSHELVES =
	    2, /* directories below that of the run that have members */
};

struct ofs_run_member {
	const char *name; /* below the directory of the run */
	enum ofs_run_count count;
	uint64_t step; /* unless count is OFS_RUN_NOTHING */
	bool gone;     /* removed */
	bool told;     /* complete, and step counts what the others count */
	bool twice;    /* told, and another one has the same step */
	bool late;     /* appeared after the first listing */
	bool known;    /* stamp and found are valid */
	uint32_t mode, uid, gid;
	int64_t looked_ns; /* when, by the monotonic clock */
	struct ofs_run_stamp stamp;
	struct ofs_run_examined found;
};

struct ofs_run_members {
	struct ofs_dir dir;
	/* Reads the index of a member that looks complete: is all of it there?
	 * 1; 0: why says what is not; -1: ENOMEM. NULL: is not asked. Of what
	 * appears after the first listing it is asked before the others see
	 * it. */
	int (*whole)(void *ctx, const char *name, char *why, size_t size,
	    struct optimfs_error *err);
	void *ctx;

	pthread_mutex_t refreshing; /* taken first; held by who examines */
	pthread_mutex_t lock;       /* protects what follows */
	bool listed;
	/* of dir and its shelves when they were listed */
	struct ofs_run_stamp stamp[1 + OFS_RUN_NSHELVES];
	int64_t listed_ns; /* by the clock of files */
	struct ofs_keys names;
	struct ofs_run_member *v; /* by the numbers of names */
	uint32_t cap;
	uint32_t *order; /* those with told and not twice, by their step */
	uint32_t norder, order_cap;
};

/* Opens a directory, which may be on a server. */
int ofs_run_members_dir(const char *path, struct ofs_dir *dir,
    struct optimfs_error *err);
/* The path of a name in it, malloc'ed; NULL: no memory. */
char *ofs_run_members_path(const char *path, const char *name);
/* Opens the directory path, and lists it. On a server it stays as it was then. */
int ofs_run_members_open(struct ofs_run_members *m, const char *path,
    bool follow, struct optimfs_error *err);
void ofs_run_members_close(struct ofs_run_members *m);

/* Checks with whole what else might be in the making when the table is new: the
 * newest one, if it has changed lately. */
int ofs_run_check_newest(struct ofs_run_members *m, struct optimfs_error *err);

/* Brings the table up to date. Returns at once if another thread does it. */
int ofs_run_refresh(struct ofs_run_members *m, struct optimfs_error *err);
/* The same if the directory or member i has changed: of the others, what was
 * unfinished is not looked at. */
int ofs_run_refresh_one(struct ofs_run_members *m, uint32_t i,
    struct optimfs_error *err);

/* A copy of member i, of the n there are; false: there are no more. Its name is
 * valid as long as the run is open. */
bool ofs_run_member(struct ofs_run_members *m, uint32_t i,
    struct ofs_run_member *out);
/* The number of the member called name, also without its shelf; OFS_NONE: none
 * is. */
uint32_t ofs_run_member_find(struct ofs_run_members *m, const char *name);
/* The same of one that is shown in by-name/. ESTALE: it was removed. */
int ofs_run_shown(struct ofs_run_members *m, const char *name,
    struct ofs_run_member *out, struct optimfs_error *err);
/* The first member in steps/ with this step or a later one; OFS_NONE: none. */
uint32_t ofs_run_member_from(struct ofs_run_members *m, uint64_t step);
/* The last one with a smaller step; OFS_NONE: none. */
uint32_t ofs_run_member_before(struct ofs_run_members *m, uint64_t step);
/* The last one. */
uint32_t ofs_run_member_last(struct ofs_run_members *m);
/* Do two names tell that they are checkpoints of different steps, or are they
 * the models of one job, actor and critic? What else a directory holds side by
 * side, as files of ranks, is no run by itself. */
bool ofs_run_is_evident(struct ofs_run_members *m);
/* Is it shown in by-name/? */
static inline bool ofs_run_is_shown(const struct ofs_run_member *m)
{
	return !m->gone && m->known && m->found.kind == OFS_RUN_COMPLETE;
}

#endif
