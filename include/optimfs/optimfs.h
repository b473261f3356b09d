/* optimfs.h - a sharded training checkpoint as a tree of files */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPTIMFS_OPTIMFS_H
#define OPTIMFS_OPTIMFS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/statvfs.h>
#include <sys/types.h>

#include "optimfs/error.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a shared liboptimfs exports: everything else is compiled hidden. */
#pragma GCC visibility push(default)

/* An opened checkpoint: the tree of optimfs(5) without a mount. All functions
 * may be called from any thread, but optimfs_close only when no call and no
 * open file is left. Functions that fail return -1 (or NULL) and fill err,
 * which may be NULL; err->code is an errno value of the table in optimfs(5). */
struct optimfs;
struct optimfs_file;

/* The ranks of one job, that open checkpoints together: below. */
struct optimfs_group;

/* Zero is the default of every member. Strings are borrowed until
 * optimfs_open returns. */
struct optimfs_options {
	const char *type;                  /* format by name; NULL: detect */
	const char *optim_key, *model_key; /* dotted path of the keys' root */
	const char *ids; /* file that names integer parameter IDs, or "model" */
	const char *units;   /* file that says what FSDP1 flattened together */
	const char *subtree; /* only tree paths at or below this one */
	const char *fill;    /* "zero": known state reads so where it is lost */
	uint64_t cache;      /* bytes of memory for decoded data; 0: 1/8 of RAM,
			 * at most 4 GiB */
	uint64_t max_metadata; /* largest index to read; 0: 1 GiB */
	uint64_t parse_mem;    /* budget for parsing it; 0: 4 GiB or RAM/4 */
	bool strict;           /* refuse a checkpoint with anything wrong */
	bool follow; /* symbolic links that stay inside the checkpoint */
	struct optimfs_group *group; /* path was offered there; NULL: alone */
	bool together; /* all ranks of group open it and show the same, or it
			* fails on all */
	/* Writing. What is written is staged beside the checkpoint until
	 * optimfs_commit; one writer at a time (EBUSY). */
	bool rw;
	bool scratch; /* rw, but nothing is kept, nor can be committed */
	bool explicit_commit; /* whoever mounts does not commit at the end */
	const char *upper;    /* directory to stage in; NULL: beside it */
	/* What a writer that died has left: refuse to open (EBUSY), go on with
	 * it, or drop it. */
	enum optimfs_recover {
		OPTIMFS_RECOVER_NO,
		OPTIMFS_RECOVER_YES,
		OPTIMFS_RECOVER_DISCARD,
	} recover;
};

/* path is the checkpoint's directory or file. */
struct optimfs *optimfs_open(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err);
void optimfs_close(struct optimfs *fs);

/* Files and directories are named by node numbers that mean something only
 * while fs is open. */
#define OPTIMFS_ROOT 1

struct optimfs_attr {
	uint64_t node;
	uint64_t ino;     /* stable across remounts and layouts */
	uint64_t size;    /* bytes of the file; when not exact: a bound that few
			* files pass, exact once the file has been opened */
	uint64_t stored;  /* bytes the source spends on it */
	int64_t mtime_ns; /* of the newest contributing file, since 1970 */
	uint32_t mode;    /* S_IFDIR or S_IFREG and permission bits */
	uint32_t uid, gid;
	uint32_t nlink;
	bool exact; /* size is exact */
	/* What a writer, of fs or of another rank, may change: the size and
	 * time; that the name leads here; what it says, by writing to another
	 * node. */
	bool changes, moves, shared;
};

int optimfs_getattr(struct optimfs *fs, uint64_t node,
    struct optimfs_attr *attr, struct optimfs_error *err);
/* ENOENT, ENOTDIR. name is one component. */
int optimfs_lookup(struct optimfs *fs, uint64_t dir, const char *name,
    struct optimfs_attr *attr, struct optimfs_error *err);
/* path below the root, "" or "/" for the root itself. */
int optimfs_resolve(struct optimfs *fs, const char *path,
    struct optimfs_attr *attr, struct optimfs_error *err);
/* Call each for the entries of dir in sorted order, without "." and "..", from
 * position start (0 is the first; an entry's own position plus one continues
 * after it) until it returns non-zero or they end. attr is NULL unless
 * want_attr; ino and type come with it always. */
struct optimfs_dirent {
	const char *name;
	uint64_t ino;
	uint32_t mode; /* S_IFDIR or S_IFREG */
	const struct optimfs_attr *attr;
	uint64_t position;
};
typedef int optimfs_dirent_fn(void *ctx, const struct optimfs_dirent *entry);
int optimfs_readdir(struct optimfs *fs, uint64_t dir, uint64_t start,
    bool want_attr, optimfs_dirent_fn *each, void *ctx,
    struct optimfs_error *err);

/* Open a file for reading. Looks at what a text file says; reads no tensor. */
int optimfs_file_open(struct optimfs *fs, uint64_t node,
    struct optimfs_file **file, struct optimfs_error *err);
void optimfs_file_close(struct optimfs_file *file);
/* Its exact size. */
uint64_t optimfs_file_size(const struct optimfs_file *file);
/* len bytes at off into buf, fewer only at the end of the file; -1 when one
 * of them cannot be had. */
ssize_t optimfs_file_read(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err);

/* Extended attributes, with their "user.optimfs." prefix. value is malloc'ed,
 * NUL-terminated and the caller's; ENODATA for a name there is not. */
int optimfs_getxattr(struct optimfs *fs, uint64_t node, const char *name,
    char **value, size_t *len, struct optimfs_error *err);
/* The names that are listed, each NUL-terminated, in one malloc'ed block. */
int optimfs_listxattr(struct optimfs *fs, uint64_t node, char **names,
    size_t *len, struct optimfs_error *err);

/* Writing, to what was opened with rw; EROFS otherwise. dir and node are below
 * the root of the tree, or of .optimfs/npy; elsewhere EPERM. What is written is
 * seen at once by whoever reads from fs. */

/* Open a file for reading and writing; truncate: make it empty first.
 * .optimfs/control takes the orders of optimfs_control. */
int optimfs_file_open_write(struct optimfs *fs, uint64_t node, bool truncate,
    struct optimfs_file **file, struct optimfs_error *err);
/* All of buf at off, or nothing: -1. EFBIG: behind the end of a tensor. A text
 * is taken over when it is flushed, and checked then or when its line is
 * complete: EINVAL, ERANGE. */
int optimfs_file_write(struct optimfs_file *file, const void *buf, size_t len,
    uint64_t off, struct optimfs_error *err);
int optimfs_file_truncate(struct optimfs_file *file, uint64_t size,
    struct optimfs_error *err);
/* What close(2) says: the first failure of what was written to file, or that a
 * text does not fit. Says it each time. */
int optimfs_file_flush(struct optimfs_file *file, struct optimfs_error *err);
/* The same, and what is staged has reached the disk. */
int optimfs_file_sync(struct optimfs_file *file, struct optimfs_error *err);

/* A new file or directory. EEXIST, ENAMETOOLONG, EPERM. */
int optimfs_create(struct optimfs *fs, uint64_t dir, const char *name,
    bool is_dir, struct optimfs_attr *attr, struct optimfs_error *err);
/* ENOENT, EISDIR, ENOTDIR, ENOTEMPTY. Files that are open stay readable. */
int optimfs_remove(struct optimfs *fs, uint64_t dir, const char *name,
    bool is_dir, struct optimfs_error *err);
/* replace: what has the name makes way, else EEXIST. */
int optimfs_rename(struct optimfs *fs, uint64_t dir, const char *name,
    uint64_t newdir, const char *newname, bool replace,
    struct optimfs_error *err);
/* Without opening it: its size, when it was changed. */
int optimfs_truncate(struct optimfs *fs, uint64_t node, uint64_t size,
    struct optimfs_error *err);
int optimfs_set_mtime(struct optimfs *fs, uint64_t node, int64_t mtime_ns,
    struct optimfs_error *err);
/* user.optimfs.shape and .dtype say what a new file is; the others that are
 * listed are taken and follow anyway. EOPNOTSUPP: any other name. */
int optimfs_setxattr(struct optimfs *fs, uint64_t node, const char *name,
    const char *value, size_t len, struct optimfs_error *err);

/* Make the checkpoint what fs shows. 0: it is, and safe. 1: it is, but the last
 * sync failed (err). -1: the checkpoint is as it was, and everything still
 * staged; EBUSY while a file is open for writing. stop, which may be NULL, is
 * asked now and then until the point of no return (ECANCELED). Meanwhile
 * writers wait; readers do while files are replaced. fs then shows the new one;
 * numbers of nodes may have become ESTALE. */
int optimfs_commit(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err);
/* Drop all that is staged. */
int optimfs_abort(struct optimfs *fs, struct optimfs_error *err);
/* "commit", "abort", or "keep": from now on only an order commits, and what is
 * staged at the end is kept. EINVAL (OFS818): anything else. */
int optimfs_control(struct optimfs *fs, const char *text, size_t len,
    bool (*stop)(void *ctx), void *ctx, struct optimfs_error *err);
/* Of a checkpoint that a process of this machine has opened for writing: a
 * descriptor by which to ask whether it is not done with it yet. -1: none has. */
int optimfs_lock_watch(const char *path);
bool optimfs_lock_busy(int fd);
/* Wait for the commit of a mount of path for writing that is unmounted already,
 * as optimfs_open does. tell (or NULL) is called once, after a second. */
void optimfs_await(const char *path, void (*tell)(void *ctx), void *ctx);
/* fs, opened for writing, is mounted as device dev: so others see when it is
 * not any more, and wait for its commit. */
int optimfs_set_mounted(struct optimfs *fs, dev_t dev,
    struct optimfs_error *err);
/* Is it .optimfs/control, opened for writing? */
bool optimfs_file_is_control(const struct optimfs_file *file);
/* All that is staged has reached the disk; files that are being written only
 * by optimfs_file_sync. */
int optimfs_sync(struct optimfs *fs, struct optimfs_error *err);
/* How often anything was changed since fs was opened. */
uint64_t optimfs_changes(struct optimfs *fs);
struct optimfs_status {
	bool explicit_commit;  /* unmounting commits nothing, it keeps */
	bool scratch;          /* or drops */
	uint64_t files, bytes; /* that differ from the checkpoint; staged */
	int percent;           /* of a commit under way; -1: there is none */
	uint64_t done, total;  /* bytes that it writes; 0: not known yet */
	char doing[80];        /* a file's name, or words; "" */
};
void optimfs_status(struct optimfs *fs, struct optimfs_status *status);

/* statvfs of the source's file system. */
int optimfs_statvfs(struct optimfs *fs, struct statvfs *st,
    struct optimfs_error *err);

/* Who watches work that may take long. */
struct optimfs_watch {
	/* Told now and then by the thread that called: how many bytes of how
	 * many are done, and in which file; file may be NULL. NULL. */
	void (*progress)(void *ctx, uint64_t done, uint64_t total,
	    const char *file);
	/* Asked now and then, on any thread: true ends the work with
	 * ECANCELED. NULL. */
	bool (*stop)(void *ctx);
	/* Told what a person should know: that an earlier run continues, that
	 * a value was copied as it is pickled, or left out. NULL. */
	void (*say)(void *ctx, const char *text);
	/* Told by rank 0 when several ranks have shared the work: what each
	 * did. NULL. */
	void (*did)(void *ctx, int rank, uint64_t files, uint64_t bytes);
	void *ctx;
};
/* Watch optimfs_fsck with data, and optimfs_mkfs; and be told by optimfs_copy
 * what each rank did. how is copied. */
void optimfs_watch(struct optimfs *fs, const struct optimfs_watch *how);

/* Check a checkpoint: structure, and with data every byte and every stored
 * checksum. report is called for each finding, in the order of the tree, and
 * may be NULL. *problems gets how many were errors. -1 only when the check
 * itself could not be done.
 * Of what was opened with a group, each rank checks files that it has: all
 * ranks call it with one data, it fails on all alike, and rank 0 gets the
 * findings. */
struct optimfs_finding {
	bool error; /* false: a warning */
	int code;
	int number;       /* of its OFSnnn; 0: none */
	const char *path; /* tree path, or a file of the checkpoint */
	const char *text;
};
typedef void optimfs_report_fn(void *ctx, const struct optimfs_finding *f);
int optimfs_fsck(struct optimfs *fs, bool data, optimfs_report_fn *report,
    void *ctx, uint64_t *problems, struct optimfs_error *err);

/* Write the checkpoint in another format or layout: what a view of that name
 * holds, with checksums. */
struct optimfs_reshard {
	const char *to; /* FORMAT[@LAYOUT][,option]... */
	unsigned jobs;  /* files, and parts of large ones, that are written at
			 * once; 0: 8 */
	/* Told and asked some times a second; the first time, done is what an
	 * earlier run had written. What was done when it was stopped stays, as
	 * after any failure. */
	struct optimfs_watch watch;
	void *ctx; /* of kept */
	/* It fails, and what is done is kept in stage. NULL. */
	void (*kept)(void *ctx, const char *stage);
};
/* dir must not be there (EEXIST): it appears complete and synced, or not at
 * all. Until then all is in .NAME.optimfs beside it, which stays after a
 * failure or a kill, and from which the next call with the same checkpoint and
 * layout goes on. 0; 1 when dir is there, but may not survive a crash of the
 * machine, as the last sync failed; -1.
 * Of what was opened with a group, all ranks call it, with one dir; those that
 * see rank 0's .NAME.optimfs write a part of the files each. It fails on all
 * alike; rank 0 is told how far it is, and alone returns 1. */
int optimfs_reshard(struct optimfs *fs, const char *dir,
    const struct optimfs_reshard *how, struct optimfs_error *err);

/* Copy what is at path in the tree out, as cp(1) does: into dest if that is a
 * directory, else as dest. A file appears complete or not at all. */
struct optimfs_copy {
	bool recursive; /* path may be a directory */
	/* Told of each file below a directory that cannot be read: the others
	 * are copied all the same. NULL. */
	void (*unread)(void *ctx, const struct optimfs_error *err);
	/* Told of what this rank copies, a piece at a time: so many more bytes,
	 * and the name of their file. NULL. */
	void (*copied)(void *ctx, uint64_t bytes, const char *name);
	/* Asked before each piece: true ends the copy with ECANCELED, and
	 * leaves no file that is not complete. NULL. */
	bool (*stop)(void *ctx);
	void *ctx;
};
/* 0; 1: all but the files that could not be read; -1.
 * Of what was opened with a group, all ranks call it, with one path and one
 * dest, which means what it does on rank 0: the ranks that see that directory
 * copy some of the files each, and are told of those that they cannot read. It
 * fails on all alike. */
int optimfs_copy(struct optimfs *fs, const char *path, const char *dest,
    const struct optimfs_copy *how, struct optimfs_error *err);

/* Prepare dir, which is empty or not there, for a checkpoint with the names,
 * shapes and types of like in another format or layout: dir, mounted for
 * writing, takes their bytes. All of it is in .NAME.optimfs beside dir until
 * the commit; dir itself stays empty. EEXIST (OFS830). Of several ranks all
 * call it, with one path, in which %r and %h stand for rank and host: rank 0
 * prepares its directory, and those of the others, which get their parts with
 * the commit, are made; all or none. */
int optimfs_mkfs(struct optimfs *like, const char *layout, const char *dir,
    struct optimfs_error *err);

/* What a person wants to know first, malloc'ed: of a checkpoint (path ""), of
 * what is below a directory of the tree, of a file. Reads the index and a few
 * values. */
enum optimfs_summary_form {
	OPTIMFS_SUMMARY_TEXT, /* some twenty lines */
	OPTIMFS_SUMMARY_JSON, /* docs/json.md */
	/* of a whole checkpoint: one line without its end */
	OPTIMFS_SUMMARY_LINE,
	OPTIMFS_SUMMARY_PROBLEMS, /* only what is damaged; "": nothing */
};
char *optimfs_summary(struct optimfs *fs, const char *path,
    enum optimfs_summary_form form, struct optimfs_error *err);

/* What the mount adds to .optimfs/info.json ("mount": {...}): one JSON object's
 * text, malloc'ed by fn and freed here; called at each open of that file. */
void optimfs_set_mount_info(struct optimfs *fs, char *(*fn)(void *ctx),
    void *ctx);
/* Further lines for .optimfs/stats, "name value\n" each, malloc'ed by fn and
 * freed here; called at each open of that file. */
void optimfs_set_stats(struct optimfs *fs, char *(*fn)(void *ctx), void *ctx);
/* Put a failure into .optimfs/errors. */
void optimfs_log_error(struct optimfs *fs, const struct optimfs_error *err);

/* Several processes, the ranks of a job that mpirun started, may each hold a
 * part of a checkpoint. Each joins the group and offers what it has; after
 * that each of them can open all of it. A group outlives what was opened in
 * it. */

/* Was this process started as one of several ranks? */
bool optimfs_group_launched(void);
/* Load the module of a transport ("mpi") and join; every rank must. timeout:
 * seconds that a rank has for an answer, 0 for any time. The process must not
 * fork afterwards. */
struct optimfs_group *optimfs_group_join(const char *transport,
    unsigned timeout, struct optimfs_error *err);
int optimfs_group_rank(const struct optimfs_group *w);
int optimfs_group_size(const struct optimfs_group *w);
/* The lowest rank on rank's machine. */
int optimfs_group_node(const struct optimfs_group *w, int rank);
const char *optimfs_group_host(const struct optimfs_group *w, int rank);
/* path with %r as this rank, %h as its host and %% as %; malloc'ed. */
char *optimfs_group_expand(const struct optimfs_group *w, const char *path,
    struct optimfs_error *err);
/* Offer the files of a checkpoint that this rank can see to all. Every rank
 * calls it with one path, in which %r and %h stand for rank and host; a rank
 * that has no such file or directory offers nothing. first: only rank 0 offers
 * what it sees. It fails on all ranks or on none, with the same error: EPROTO
 * (OFS914) when two ranks have different files of one name. */
int optimfs_group_offer(struct optimfs_group *w, const char *path, bool first,
    const struct optimfs_options *options, struct optimfs_error *err);
/* Do all ranks that opened it show the same files, shapes, types and values?
 * Every rank calls it, with fs NULL where it shows none. It fails on all ranks
 * or on none: EPROTO (OFS916) when two differ. */
int optimfs_group_compare(struct optimfs_group *w, struct optimfs *fs,
    struct optimfs_error *err);
/* How bytes come from rank to rank: over the group's own transport, or through
 * GPUs. Every rank calls it before anything is offered; what rank 0 wants
 * holds. */
enum optimfs_gather_how {
	OPTIMFS_GATHER_MPI,
	/* Through GPUs if every rank has one of its own that works; otherwise
	 * say says why not. */
	OPTIMFS_GATHER_AUTO,
	OPTIMFS_GATHER_NCCL, /* the same, or ENODEV (OFS903) on all ranks */
};
struct optimfs_gather {
	enum optimfs_gather_how how;
	uint64_t gpu_cache; /* bytes of GPU memory for what was gathered */
	/* What a person should know, once each, on any thread: that GPUs are
	 * used no more, and why. NULL. */
	void (*say)(void *ctx, const char *text);
	void *ctx;
};
int optimfs_group_gather(struct optimfs_group *w,
    const struct optimfs_gather *how, struct optimfs_error *err);
/* This rank reads no more. Answer others until none of those that worker, an
 * array of one a rank, names reads any more, then leave; w is freed. */
void optimfs_group_leave(struct optimfs_group *w, const bool *worker);

/* "0.1.0"; and what this build has, "zstd 1.5.4, ..." */
const char *optimfs_version(void);
/* Formats: names that type= takes; NULL behind the last one. */
const char *optimfs_type(unsigned i);
/* Formats that a checkpoint can be written in; NULL behind the last one.
 * *ranked: a number of ranks follows, FORMAT@16. */
const char *optimfs_layout(unsigned i, bool *ranked);
const char *optimfs_features(void);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
