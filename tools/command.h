/* command.h - command lines with a checkpoint and paths in it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_COMMAND_H
#define OFS_COMMAND_H

#include <stdbool.h>
#include <stddef.h>

#include "optimfs/analyze.h"
#include "optimfs/run.h"

#include "base/json_write.h"
#include "cli/job.h"
#include "cli/options.h"
#include "cli/progress.h"
#include "serve/listener.h"
#include "tools/source.h"
#include "tools/verbs.h"

/* Flags of commands. A command accepts those in its mask. */
enum ofs_command_flag {
	OFS_LONG = 1,      /* -l */
	OFS_RECURSIVE = 2, /* -r, -R */
	OFS_JSON = 4,      /* --json */
	OFS_DATA = 8,      /* --data */
	OFS_TO = 16,       /* --to LAYOUT */
	OFS_RTOL = 32,     /* --rtol NUMBER */
	OFS_JOBS = 64,     /* -j NUMBER */
	/* not a flag: the first operand is a second checkpoint */
	OFS_SECOND = 256,
	/* not a flag: all ranks continue and share the work */
	OFS_TOGETHER = 2048,
	OFS_LIKE = 512,     /* --like CHECKPOINT instead of an operand */
	OFS_LAYOUT = 1024,  /* --layout LAYOUT */
	OFS_VERBOSE = 4096, /* -v */
	/* not flags: operands are paths in the checkpoint; except the last */
	OFS_PATHS = 8192,
	OFS_DEST = 16384,
	OFS_SORT = 1 << 16,    /* --sort KEY */
	OFS_ONLY = 1 << 17,    /* --only CONDITION */
	OFS_BY = 1 << 18,      /* --by rank */
	OFS_ATOL = 1 << 19,    /* --atol NUMBER */
	OFS_SUMMARY = 1 << 20, /* --summary */
	OFS_SWEEP = 1 << 21,   /* --sweep FIRST..LAST */
	OFS_OUTPUT = 1 << 22,  /* -o FILE: options only as --name=value */
	OFS_NO_DATA = 1 << 23, /* --no-data */
	/* not a flag: the checkpoint may be a run */
	OFS_RUNS = 1 << 24,
	OFS_ALL = 1 << 25,    /* --all */
	OFS_SHA256 = 1 << 26, /* --sha256 */
	OFS_STAT = 1 << 27,   /* --stat VALUE,... */
	OFS_CSV = 1 << 28,    /* --csv */
	/* --keep-last NUMBER, --keep-every NUMBER; the checkpoint is changed */
	OFS_THIN = 1 << 29,
	OFS_YES = 1 << 30,  /* --yes */
	OFS_HUMAN = 128,    /* -h */
	OFS_ONE = 1u << 31, /* -1 */
	/* not flags: a path may have a slice; paths are in each step of a run */
	OFS_SLICES = 1 << 15,
	OFS_EACH_STEP = 1ll << 32,
	OFS_DRY = 1ll << 33, /* -n */
	OFS_VERIFY = 1ll << 34, /* --verify CHECKPOINT */
	OFS_DROP = 1ll << 36, /* --drop PART */
	OFS_SERVE = 1ll << 35, /* --listen ADDRESS, --token-file FILE */
};

/* A parsed command line and the opened checkpoint. */
struct ofs_command {
	uint64_t flags; /* enum ofs_command_flag, or'ed */
	const char *checkpoint;
	const char *to, *rtol, *jobs, *layout; /* NULL: not given */
	const char *sort, *only, *by, *atol, *sweep, *output, *stat;
	const char *keep_last, *keep_every, *drop, *verify, *listen, *token_file;
	char *to_made, *to_names; /* of a layout with names=FILE */
	char *base;     /* that of a layout which is a change (delta.h) */
	char **operand; /* after the checkpoint; in argv */
	int noperands;
	/* Was a path a pattern? Then it has so many bytes before its first
	 * component that is one. */
	bool pattern;
	size_t fixed;
	struct optimfs *fs;
	struct ofs_listener listener; /* of OFS_SERVE */
	struct ofs_job job;
	struct optimfs_options open;
	struct ofs_job_options how;
	int work_ranks;   /* of OFS_TOGETHER: who opens and works */
	unsigned timeout; /* seconds to wait for another rank */
	int sandbox;      /* enum ofs_sandbox_policy */
	struct ofs_options options;
	struct ofs_tool_source source[2]; /* for operands in mounts */
	char *within[2], *named[2];       /* for operands in runs */
	char **joined;                    /* paths in them, ending with NULL */
	char **expanded;                  /* paths that match, the same */
	struct ofs_progress progress;
	const char *reading; /* file name for progress, or NULL */
};

/* Parses argv and opens the checkpoint, its first operand; min to max operands
 * must follow. -1: the command is done, with the exit status in *status; errors
 * have been printed. Under mpirun, rank 0 continues; the others serve their
 * files to it and return -1 after it has called _fini. With OFS_TOGETHER one
 * of each machine continues (all, with work_ranks=all), or none. */
int ofs_command_init(struct ofs_command *c, const struct ofs_verb *verb,
    int argc, char **argv, uint64_t allowed, int min, int max, int *status);
void ofs_command_fini(struct ofs_command *c);
/* Replaces the operands that are patterns (fs/pattern.h) below a path, by
 * ofs_command_init the root, by the paths that match. ENOENT: none does. */
int ofs_command_expand(struct ofs_command *c, const char *below,
    uint64_t allowed, struct optimfs_error *err);
/* Opens another checkpoint, with progress. An interrupt ends the process. */
struct optimfs *ofs_command_open(struct ofs_command *c, const char *path,
    struct optimfs_error *err);
/* Print the first warning of a checkpoint with this code ("OFS631 "), on the
 * first rank. */
void ofs_command_say_warning(const struct ofs_command *c, struct optimfs *fs,
    const char *code);

/* As ofs_job_fail, for commands with a layout: an unknown layout is a usage
 * error. */
int ofs_command_fail_layout(const struct ofs_command *c,
    const struct optimfs_error *err);
/* Lists the run. The directory is opened again as one, if it was opened as the one
 * checkpoint that a tracker in it names. each returns 1 if it is out of memory; *n
 * is what it has listed. OFS852: nothing. */
int ofs_command_list_run(struct ofs_command *c, optimfs_run_entry_fn *each,
    void *ctx, const size_t *n, struct optimfs_error *err);
/* Shows the progress of a long task in c->progress under the name of the verb,
 * interruptible in a single process. */
struct optimfs_watch ofs_command_watch(struct ofs_command *c);
/* Lets a task that ranks share print what each did. */
void ofs_command_watch_ranks(struct ofs_command *c);
/* How the functions of analyze.h read for a command. */
struct optimfs_scan ofs_command_scan(struct ofs_command *c);
/* Reports why a command failed, and returns the exit status. If it was
 * interrupted, prints how much was done and what remains. */
int ofs_command_stopped(const struct ofs_command *c,
    const struct optimfs_error *err, const char *left);
/* Announces that everything at and below a node will be read once by
 * ofs_command_read. With several ranks no progress is shown. */
int ofs_command_measure(struct ofs_command *c, const struct optimfs_attr *attr,
    struct optimfs_error *err);

/* Looks up path; errors start with the path. */
int ofs_command_resolve(struct ofs_command *c, const char *path,
    struct optimfs_attr *attr, struct optimfs_error *err);

/* Replaces the error of a checkpoint that does not exist: its name is
 * misspelled, or comes after a path, or is followed by a path in it. */
void ofs_command_suggest_checkpoint(struct ofs_command *c, const char *path,
    struct optimfs_error *err);
/* The same for a path in a checkpoint. */
void ofs_command_suggest(const struct ofs_command *c, const char *path,
    struct optimfs_error *err);
/* Completes the error of a file or directory that cannot be made because there
 * is no directory above it. */
void ofs_command_explain_place(const char *dest, struct optimfs_error *err);

/* Passes a whole file to sink, in pieces. -1 when a read fails, sink returns -1
 * (it fills err), or a caught interrupt came (ECANCELED). */
typedef int ofs_sink_fn(void *ctx, const void *p, size_t n,
    struct optimfs_error *err);
int ofs_command_read(struct ofs_command *c, uint64_t node, ofs_sink_fn *sink,
    void *ctx, struct optimfs_error *err);
/* A sink for standard output. */
int ofs_sink_stdout(void *ctx, const void *p, size_t n,
    struct optimfs_error *err);

/* The same for a terminal: of lines of text, what must not be shown is escaped. */
int ofs_sink_terminal(void *ctx, const void *p, size_t n,
    struct optimfs_error *err);
/* Is it a file of bytes: a tensor with dimensions, a value of bytes, or what is
 * in a view? */
bool ofs_command_is_binary(struct ofs_command *c, uint64_t node);

/* The argument of -j, 0 without it; -1 with *status set if it is not a number
 * from 1 to max. */
#define OFS_JOBS_MAX 1024
int ofs_command_jobs(const struct ofs_command *c, const struct ofs_verb *verb,
    unsigned max, unsigned *jobs, int *status);

/* A number from 1 to max, given with option. -1: it is none, with *status set. */
int ofs_command_number(const struct ofs_verb *verb, const char *option,
    const char *given, uint64_t max, uint64_t *n, int *status);

/* Reports that option is missing, and lists the layouts. */
int ofs_command_which_layout(const struct ofs_verb *verb, const char *option);
/* Prints the layouts as a line of --help. */
void ofs_command_print_layouts(void);

/* Reports what is wrong with the argument of an option that begins with the name
 * of a statistic, and lists these. */
int ofs_command_which_value(const struct ofs_verb *verb, const char *option,
    const char *given, const char *what);

/* Prints b to standard output and frees it. */
void ofs_print_buf(struct ofs_buf *b);
/* Begins an object of --json, which is one line, with its schema and "v": 1. */
void ofs_json_begin(struct ofs_json_writer *w, struct ofs_buf *b,
    const char *schema);
/* Ends the object, prints it and frees the buffer. */
void ofs_json_print(struct ofs_json_writer *w);
/* Prints --json for a verb that made a directory in a layout. */
void ofs_print_made(const char *dir, const char *layout, bool synced);

/* Replaces mounts by the checkpoints they show, and names in runs by paths. min:
 * the number of operands that the verb needs. Returns an exit status.
 * tools/command_look.c */
int ofs_command_look(struct ofs_command *c, uint64_t allowed, int min);
/* Says it. Returns the exit status. */
int ofs_command_no_memory(void);

/* Is there an attribute that is not empty? Of files, only tensors have a "shape". */
bool ofs_has_xattr(struct optimfs *fs, uint64_t node, const char *name);

#endif
