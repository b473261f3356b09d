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
 * "1000", or a path of its tree such as "steps/1000" or "avg/last5". The caller
 * closes it. It is shared with run and its other callers. ENOENT (OFS851,
 * OFS853, OFS863): no such checkpoint. */
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

/* Making room: a checkpoint is removed whole, or not at all. It is renamed into a
 * hidden directory beside it, looked at once more, and deleted there. What a
 * program has open stays; the kernel tells that by refusing a lease, so it is not
 * known on NFS and CIFS, nor of files of another user without CAP_LEASE. */

/* The path of what is called name in the directory of a run, malloc'ed. */
char *optimfs_run_path(struct optimfs *run, const char *name,
    struct optimfs_error *err);
/* What a checkpoint in that directory consists of. */
struct optimfs_run_weight {
	uint64_t files;
	uint64_t bytes;    /* on the disk, of files without other names */
	int64_t newest_ns; /* the last change of any of its files, since 1970 */
};
/* Measures the one called name in the directory. EBUSY (OFS871: a program has
 * one of its files open; OFS811: it has changes that are not committed), EINVAL
 * (OFS871: it is a link). */
int optimfs_run_weigh(struct optimfs *run, const char *name,
    struct optimfs_run_weight *weight, struct optimfs_error *err);
/* Removes it, if it still is what was measured. EBUSY (OFS871: it is in use or
 * has changed; OFS259, OFS811: it is open for writing). */
int optimfs_run_remove(struct optimfs *run, const char *name,
    const struct optimfs_run_weight *weight, struct optimfs_error *err);
/* Replaces it, if it still is what was measured, by the same without optim/. It is
 * the old one or the new one at any time. The new one has the same files, but for
 * those that held only the optimizer; where an index says where data is, the
 * optimizer becomes holes in them. What the weights or their names are in stays:
 * the fp32 of DeepSpeed's stage 3 and universal checkpoints. Errors as
 * optimfs_run_remove, and those of a commit: files that cannot be edited. */
int optimfs_run_drop(struct optimfs *run, const char *name,
    const struct optimfs_run_weight *weight, struct optimfs_error *err);
/* Has the one that is open as fs an optimizer that optimfs_run_drop would take, and
 * how many bytes by its index? 1; 0; -1. */
int optimfs_run_droppable(struct optimfs *fs, uint64_t *bytes,
    struct optimfs_error *err);
/* Deletes what optimfs_run_remove had begun to delete when it was interrupted,
 * and sets *n to the number of these checkpoints; with count, only counts
 * them. */
int optimfs_run_sweep(struct optimfs *run, bool count, unsigned *n,
    struct optimfs_error *err);
/* Does a file of the trainer (latest, latest_checkpointed_iteration.txt) say that
 * the one called name is loaded next (1), or does a link in the directory of the
 * run, as "best", lead to it or to one of its files (2)? Else 0; -1. */
int optimfs_run_tracked(struct optimfs *run, const char *name,
    struct optimfs_error *err);

/* Writes what the model of fs has other than that of base as one version of
 * changes, in the form of slime: a directory, which a run of base and it shows as
 * the state. */
struct optimfs_delta {
	bool overwrite;  /* positions and values; else xor */
	bool only_model; /* leaves out what is not of the model; else OFS874 */
	unsigned level;  /* of zstd; 0: the default */
	struct optimfs_watch watch; /* progress and stop */
	/* What was written: tensors, those that change, their bytes, and the
	 * bytes of the changes. */
	uint64_t tensors, changed, bytes, stored;
};
/* dir must not exist, and its name must tell a later version than that of base,
 * which is 0 if its name tells none (EINVAL, OFS872). It appears complete and
 * synced, or not at all. Returns as optimfs_reshard. Both must have the same
 * tensors (EINVAL, OFS873). */
int optimfs_delta(struct optimfs *fs, struct optimfs *base, const char *dir,
    struct optimfs_delta *how, struct optimfs_error *err);

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
