/* run.h - the checkpoints of a training run */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPTIMFS_RUN_H
#define OPTIMFS_RUN_H

#include "optimfs/optimfs.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* A run is a directory of checkpoints, of any formats. Opened with the option
 * run, its tree is that of optimfs(5): steps/<step>/ is what each checkpoint
 * shows alone, latest and first are links, by-name/ has the names of the
 * directory. A checkpoint is read when something in it is used. The tree follows
 * the directory: what is complete appears, what is removed disappears. */
bool optimfs_is_run(const struct optimfs *fs);

/* A checkpoint of a run, or what may become one. */
struct optimfs_run_entry {
	const char *name; /* in the directory */
	const char *path; /* in the tree; NULL: it is not shown */
	int64_t step;     /* -1: its name does not tell it */
	bool complete;
	const char *format; /* NULL: not known */
	int64_t mtime_ns;   /* of the newest of its first files, since 1970 */
	/* Why it is not in steps/, else "". */
	const char *why;
};
/* Calls each for every checkpoint, until it returns non-zero: those in steps/ in
 * ascending order, then the others. Reads names and a few bytes of files that
 * are new. Returns 0, the result of each that stopped it, or -1. */
typedef int optimfs_run_entry_fn(void *ctx,
    const struct optimfs_run_entry *entry);
int optimfs_run_list(struct optimfs *run, optimfs_run_entry_fn *each, void *ctx,
    struct optimfs_error *err);

/* Opens what a name in a run means, read-only: "latest", "first", a step such as
 * "1000", or a path of its tree such as "steps/1000" or "avg/last5". The caller closes it. It
 * is shared with run and its other callers. ENOENT (OFS851): no such
 * checkpoint. */
struct optimfs *optimfs_run_open(struct optimfs *run, const char *name,
    struct optimfs_error *err);

/* What the index of a checkpoint says. */
struct optimfs_run_facts {
	const char *format;
	uint32_t ranks; /* 0: not known */
	uint64_t bytes; /* of its files */
	bool damaged;   /* something is lost or damaged */
	char *problems; /* all that is, in words; "": nothing; malloc'ed */
};
/* Those of what a name in a run means. It stays open for some time, so that
 * optimfs_run_open of the same name reads nothing again. */
int optimfs_run_facts(struct optimfs *run, const char *name,
    struct optimfs_run_facts *facts, struct optimfs_error *err);

/* Is path the name of a checkpoint in a run, RUN:NAME or RUN/PATH, rather than
 * of a file? *real gets the path of that checkpoint, malloc'ed, or NULL if no
 * file has it (it is computed); *rest the path in the checkpoint that follows,
 * in path, else "". Returns 1; 0: no; -1: there is no such checkpoint in the
 * run (OFS851). */
int optimfs_run_find(const char *path, char **real, const char **rest,
    struct optimfs_error *err);

/* The path of the run in which path names a checkpoint, malloc'ed; NULL: it is
 * the name of a file, or of none. Reads no checkpoint. */
char *optimfs_run_of(const char *path);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
