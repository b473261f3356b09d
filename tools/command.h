/* command.h - a command line that names a checkpoint and paths in it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_COMMAND_H
#define OFS_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "optimfs/optimfs.h"

#include "base/json_write.h"
#include "cli/job.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "tools/source.h"
#include "tools/verbs.h"

/* Flags of these commands. A command takes those its mask has. */
enum ofs_command_flag {
	OFS_LONG = 1,       /* -l */
	OFS_RECURSIVE = 2,  /* -r, -R */
	OFS_JSON = 4,       /* --json */
	OFS_DATA = 8,       /* --data */
	OFS_TO = 16,        /* --to LAYOUT */
	OFS_RTOL = 32,      /* --rtol NUMBER */
	OFS_JOBS = 64,      /* -j NUMBER */
	OFS_PROGRESS = 128, /* --progress */
	/* not a flag: the first operand is a checkpoint, too */
	OFS_SECOND = 256,
	/* not a flag: all ranks go on, and share what there is to do */
	OFS_TOGETHER = 2048,
	OFS_LIKE = 512,     /* --like CHECKPOINT: it is no operand */
	OFS_LAYOUT = 1024,  /* --layout LAYOUT */
	OFS_VERBOSE = 4096, /* -v */
	/* not flags: operands are paths in the checkpoint; but the last one */
	OFS_PATHS = 8192,
	OFS_DEST = 16384,
	OFS_SORT = 1 << 16,    /* --sort KEY */
	OFS_ONLY = 1 << 17,    /* --only CONDITION */
	OFS_BY = 1 << 18,      /* --by rank */
	OFS_ATOL = 1 << 19,    /* --atol NUMBER */
	OFS_SUMMARY = 1 << 20, /* --summary */
	OFS_SWEEP = 1 << 21,   /* --sweep FIRST..LAST */
	OFS_OUTPUT = 1 << 22,  /* -o FILE: options have long names only */
	OFS_NO_DATA = 1 << 23, /* --no-data */
	OFS_QUIET = 32768,     /* -q */
};

/* What was said, and the checkpoint, opened. */
struct ofs_command {
	unsigned flags; /* enum ofs_command_flag, or'ed */
	const char *checkpoint;
	const char *to, *rtol, *jobs, *layout; /* NULL: not given */
	const char *sort, *only, *by, *atol, *sweep, *output;
	char **operand; /* those after the checkpoint; argv's */
	int noperands;
	struct optimfs *fs;
	struct ofs_job job;
	struct optimfs_options open;
	struct ofs_job_options how;
	unsigned timeout; /* seconds that another rank has to answer */
	struct ofs_options options;
	struct ofs_source source[2]; /* of mounts that were named */
	char **joined;               /* paths in them, ends with NULL */
	struct ofs_progress progress;
	const char *reading; /* the file, for that; NULL */
};

/* Parse argv and open the checkpoint, its first operand; min to max operands
 * must follow it. 0, or -1 with the exit status in *status when there is
 * nothing to do but return it; what went wrong has been printed. Of several
 * ranks that mpirun started the first one goes on; the others serve it what
 * they have, and come back with -1 when it has called _fini. With OFS_TOGETHER
 * all go on, or none. */
int ofs_command_init(struct ofs_command *c, const struct ofs_verb *verb,
    int argc, char **argv, unsigned allowed, int min, int max, int *status);
void ofs_command_fini(struct ofs_command *c);

/* Print what all ranks know, once; the status for it. */
int ofs_command_fail(const struct ofs_command *c,
    const struct optimfs_error *err);
/* The same where a layout was given: one that there is not is a wrong word of
 * the command line. */
int ofs_command_fail_layout(const struct ofs_command *c,
    const struct optimfs_error *err);
/* With -v, after a task that ranks shared: who did how much of it. */
void ofs_command_tell(const struct ofs_command *c);

/* How far a long task is: c->progress, which has the verb's name. ctx is the
 * command. */
void ofs_command_progress(void *ctx, uint64_t bytes, uint64_t total);
/* The same, which a process on its own may interrupt. */
struct optimfs_watch ofs_command_watch(struct ofs_command *c);
/* All of what is at and below a node is about to be read by ofs_command_read,
 * once. Of several ranks none shows how far that is. */
int ofs_command_measure(struct ofs_command *c, const struct optimfs_attr *attr,
    struct optimfs_error *err);
/* The task was done, or not. */
void ofs_command_end(struct ofs_command *c, bool well);

/* The node that path names; fails with the path in front of the text. */
int ofs_command_resolve(struct ofs_command *c, const char *path,
    struct optimfs_attr *attr, struct optimfs_error *err);

/* Hand all of a file to sink, a piece at a time. -1 when a read fails or sink
 * returns -1 (it fills err). */
typedef int ofs_sink_fn(void *ctx, const void *p, size_t n,
    struct optimfs_error *err);
int ofs_command_read(struct ofs_command *c, uint64_t node, ofs_sink_fn *sink,
    void *ctx, struct optimfs_error *err);
/* A sink for standard output. */
int ofs_sink_stdout(void *ctx, const void *p, size_t n,
    struct optimfs_error *err);

/* What -j says, 0 without it; -1 with *status set where it is no number. */
int ofs_command_jobs(const struct ofs_command *c, const struct ofs_verb *verb,
    unsigned *jobs, int *status);

/* A layout is wanted, and option was not given: which ones there are. */
int ofs_command_which_layout(const struct ofs_verb *verb, const char *option);
/* The same as a line of --help. */
void ofs_command_print_layouts(void);

/* Print b on standard output, and free it. */
void ofs_print_buf(struct ofs_buf *b);
/* An object of --json, which is a line: its schema, where it has a name, and
 * "v": 1. */
void ofs_json_begin(struct ofs_json_writer *w, struct ofs_buf *b,
    const char *schema);
/* Close the object, print it, and free the buffer. */
void ofs_json_print(struct ofs_json_writer *w);
/* --json of a verb that made a directory in a layout. */
void ofs_print_made(const char *dir, const char *layout, bool synced);

/* An extended attribute's text without its "user.optimfs." prefix, malloc'ed;
 * NULL when there is none. */
char *ofs_command_xattr(struct ofs_command *c, uint64_t node, const char *name);

#endif
