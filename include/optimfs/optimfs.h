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

/* A shared liboptimfs exports only what is declared here: everything else is
 * compiled with hidden visibility. */
#pragma GCC visibility push(default)

/* An opened checkpoint: the tree of optimfs(5), without a mount. Any thread may
 * call any function, except that optimfs_close needs all calls to have returned
 * and all files to be closed. A function that fails returns -1 (or NULL) and
 * fills err, which may be NULL; err->code is one of the errno values listed in
 * optimfs(5). Callbacks that may be NULL are marked so. */
struct optimfs;
struct optimfs_file;

/* The ranks of a job that open checkpoints together; see the end of this
 * file. */
struct optimfs_group;

/* Callbacks of work that may take long; see below. */
struct optimfs_watch;

/* How to open a checkpoint. The default of every member is zero. Strings are
 * borrowed until optimfs_open returns. */
struct optimfs_options {
	const char *type; /* name of the format; NULL: detect it */
	const char *optim_key, *model_key; /* dotted path of the root key */
	const char *ids;     /* file with names for integer IDs, or "model" */
	const char *units;   /* file that describes FSDP1's flat parameters */
	const char *subtree; /* show only this path of the tree */
	const char *fill; /* "zero": lost elements of known states read as 0 */
	/* another directory or file with a part of the same checkpoint, such as
	 * the optimizer; not with rw, except scratch */
	const char *join;
	/* of a run whose versions are changes: the state that the first one
	 * changes, version 0 */
	const char *base;
	uint64_t cache; /* bytes of memory for decoded data;
			 * 0: 1/8 of RAM, or of what the control group
			 * allows, at most 4 GiB */
	uint64_t
	    max_metadata;   /* bytes of the largest index; 0: 1 GiB, or 1/4 */
	uint64_t parse_mem; /* bytes for parsing it; 0: 4 GiB, or 1/4 of that */
	bool strict;        /* refuse a checkpoint with any defect */
	bool follow;        /* follow symbolic links inside the checkpoint */
	struct optimfs_group *group; /* that offers the path, or NULL */
	bool together; /* all readers of group open it and show the same
			 * tree, or all fail */
	/* Writing. Changes are staged beside the checkpoint until
	 * optimfs_commit. A second writer gets EBUSY. */
	bool rw;
	bool scratch;         /* with rw: changes are dropped at the end */
	bool explicit_commit; /* a mount does not commit when it ends */
	const char *upper;    /* directory for the stage; NULL: beside it */
	/* If a writer died and left changes: refuse to open (EBUSY), keep
	 * them as staged changes, or drop them. */
	enum optimfs_recover {
		OPTIMFS_RECOVER_NO,
		OPTIMFS_RECOVER_YES,
		OPTIMFS_RECOVER_DISCARD,
	} recover;
	/* While a large index is read, its progress is called: done of total
	 * bytes or tensors, total 0 if unknown, and the step instead of a file;
	 * and stop. NULL: nothing is called. */
	const struct optimfs_watch *watch;
	/* A directory of several checkpoints: refuse it (OFS681), or open it as
	 * a run (optimfs/run.h). YES: open the path as a run, even if it is a
	 * checkpoint itself, or has only one, or none yet. */
	enum optimfs_run_mode {
		OPTIMFS_RUN_NO,
		OPTIMFS_RUN_AUTO,
		OPTIMFS_RUN_YES,
	} run;
	unsigned runs_open; /* checkpoints of a run that stay open; 0: 8 */
	const char *names;  /* file with families of names for views */
	/* Seconds for which the server of an address may be silent; 0: 30. The
	 * first address that a process opens decides. */
	unsigned timeout;
	/* A directory of the user's for what was read of addresses, so that it
	 * is not fetched again, also by other processes; and how many bytes it
	 * may take, 0: 10 GiB. NULL: none. The first one that a process opens
	 * an address with is that of the process. */
	const char *cache_dir;
	uint64_t cache_disk;
	/* How many ranges of files a server is asked for at once, 0: 16, at
	 * most 64; and the bytes of one, 0: 8 MiB, at least 128 KiB, at most
	 * 64 MiB. The first address that a process opens decides. */
	unsigned requests;
	uint64_t request_size;
};
#define OPTIMFS_NO_TIMEOUT (~0u)

/* Is it the address of files on a server (https://, http://, s3://, hf://)? Whatever
 * names a checkpoint may be one; it is read-only. */
bool optimfs_is_address(const char *path);
/* Before threads that open path are confined: loads what reading an address
 * needs, starts the threads that talk to servers, and makes cache_dir. Does
 * nothing for a path. options: those for addresses count. ENOSYS
 * (OFS921), OFS928. */
int optimfs_connect(const char *path, const struct optimfs_options *options,
    struct optimfs_error *err);

/* Open the checkpoint in the directory or file path, which may be an address; or
 * one of a run, as RUN:latest, RUN:1000 or RUN/steps/1000. */
struct optimfs *optimfs_open(const char *path,
    const struct optimfs_options *options, struct optimfs_error *err);
void optimfs_close(struct optimfs *fs);

/* Node numbers identify files and directories. They are valid while fs is
 * open. */
#define OPTIMFS_ROOT 1

struct optimfs_attr {
	uint64_t node;
	uint64_t ino;  /* stable across remounts and layouts */
	uint64_t size; /* bytes of the file. If not exact, an estimate that few
			 * files exceed; exact once the file was opened */
	uint64_t stored;  /* bytes that it takes in the source */
	int64_t mtime_ns; /* of the newest file with a part of it, since 1970 */
	uint32_t mode;    /* S_IFDIR, S_IFREG or S_IFLNK and permission bits */
	uint32_t uid, gid;
	uint32_t nlink;
	bool exact; /* size is exact */
	/* May a writer, of fs or on another rank, change these? changes: size
	 * and time; moves: the node that the name refers to; shared: the
	 * contents, by writing to another node. */
	bool changes, moves, shared;
};

int optimfs_getattr(struct optimfs *fs, uint64_t node,
    struct optimfs_attr *attr, struct optimfs_error *err);
/* Look up name, a single component, in dir. ENOENT, ENOTDIR. */
int optimfs_lookup(struct optimfs *fs, uint64_t dir, const char *name,
    struct optimfs_attr *attr, struct optimfs_error *err);
/* Look up a path below the root; "" and "/" are the root itself. */
int optimfs_resolve(struct optimfs *fs, const char *path,
    struct optimfs_attr *attr, struct optimfs_error *err);
/* Call each for the entries of dir in sorted order, without "." and "..", until
 * it returns non-zero. start is the position of the first entry: 0, or one more
 * than the position of the last one seen. attr is NULL unless want_attr is
 * set. */
struct optimfs_dirent {
	const char *name;
	uint64_t ino;
	uint32_t mode; /* S_IFDIR, S_IFREG or S_IFLNK */
	const struct optimfs_attr *attr;
	uint64_t position;
};
typedef int optimfs_dirent_fn(void *ctx, const struct optimfs_dirent *entry);
int optimfs_readdir(struct optimfs *fs, uint64_t dir, uint64_t start,
    bool want_attr, optimfs_dirent_fn *each, void *ctx,
    struct optimfs_error *err);

/* The target of a symbolic link, relative to its directory, malloc'ed. Only runs
 * have links; optimfs_resolve follows them. EINVAL: not a link. */
int optimfs_readlink(struct optimfs *fs, uint64_t node, char **target,
    struct optimfs_error *err);

/* Open a file for reading. This reads the value of a text file, and for the
 * hashes in its text the tensors inside that value; it does not read the
 * tensor of a tensor's file. */
int optimfs_file_open(struct optimfs *fs, uint64_t node,
    struct optimfs_file **file, struct optimfs_error *err);
void optimfs_file_close(struct optimfs_file *file);
/* The exact size of an open file, in bytes. */
uint64_t optimfs_file_size(const struct optimfs_file *file);
/* Read len bytes at off into buf. Returns their number, which is smaller only
 * at the end of the file; -1 if any of them cannot be read. */
ssize_t optimfs_file_read(struct optimfs_file *file, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err);

/* Give all bytes of the file to sink, from the first on, in pieces that are valid
 * during the call, in this thread. What lies on a server is asked for while sink
 * has what came before. -1: they cannot be read, or sink returns -1, which ends
 * it. */
typedef int optimfs_sink_fn(void *ctx, const void *p, size_t n,
    struct optimfs_error *err);
int optimfs_file_stream(struct optimfs_file *file, optimfs_sink_fn *sink,
    void *ctx, struct optimfs_error *err);

/* A range of a file of the tree, and where its bytes go: len bytes from to on,
 * in this process or on the device. */
struct optimfs_part {
	uint64_t node;
	uint64_t off, len; /* must lie in the file, else EINVAL */
	void *to;
};
#define OPTIMFS_HOST (-1)
/* Read the parts, with several threads and in their order as far as possible.
 * For a device the bytes go through pinned buffers, of 16 MiB for each thread
 * at most, while the next ones are read. When it returns, all bytes are there.
 * -1: what is in any of the parts is undefined. OFS904 (ENODEV, ENOMEM, EIO):
 * the GPU or its driver. */
struct optimfs_load {
	/* 0: as many as processors, 16 at most. 64 at most. */
	unsigned threads;
	/* OPTIMFS_HOST, or the number of a CUDA device, as this process counts
	 * them. */
	int device;
	/* A cudaStream_t of the device: its work may still use the memory that
	 * the parts go to, so it is waited for first. NULL: the default
	 * stream. */
	void *stream;
	/* Called for each piece, with its length, from any of the threads but
	 * from one at a time. May be NULL. */
	void (*did)(void *ctx, uint64_t bytes);
	/* Called before each piece, from any thread: true ends the call with
	 * ECANCELED. May be NULL. */
	bool (*stop)(void *ctx);
	void *ctx;
};
int optimfs_load(struct optimfs *fs, const struct optimfs_part *part, size_t n,
    const struct optimfs_load *how, struct optimfs_error *err);

/* Get an extended attribute; name includes the prefix "user.optimfs.". *value
 * is malloc'ed, NUL-terminated and the caller's. ENODATA: no such attribute. */
int optimfs_getxattr(struct optimfs *fs, uint64_t node, const char *name,
    char **value, size_t *len, struct optimfs_error *err);
/* The names of the attributes, each NUL-terminated, in one malloc'ed block. */
int optimfs_listxattr(struct optimfs *fs, uint64_t node, char **names,
    size_t *len, struct optimfs_error *err);

/* Writing needs a checkpoint opened with rw, else EROFS. dir and node must be
 * in the tree itself or in .optimfs/npy, else EPERM. All readers of fs see a
 * change at once. */

/* Open a file for reading and writing; truncate empties it first. What is
 * written to .optimfs/control is passed to optimfs_control. */
int optimfs_file_open_write(struct optimfs *fs, uint64_t node, bool truncate,
    struct optimfs_file **file, struct optimfs_error *err);
/* Write all of buf at off, or nothing (-1). EFBIG: beyond the end of a tensor.
 * A text becomes the new value when it is flushed; EINVAL and ERANGE, then or
 * when a line is complete: it is not a valid value. */
int optimfs_file_write(struct optimfs_file *file, const void *buf, size_t len,
    uint64_t off, struct optimfs_error *err);
int optimfs_file_truncate(struct optimfs_file *file, uint64_t size,
    struct optimfs_error *err);
/* The result for close(2): the first error of a write to this file, or that its
 * text is not a valid value. Further calls return the same. */
int optimfs_file_flush(struct optimfs_file *file, struct optimfs_error *err);
/* As above, and sync the staged changes to the disk. */
int optimfs_file_sync(struct optimfs_file *file, struct optimfs_error *err);

/* Create a file or directory. EEXIST, ENAMETOOLONG, EPERM. */
int optimfs_create(struct optimfs *fs, uint64_t dir, const char *name,
    bool is_dir, struct optimfs_attr *attr, struct optimfs_error *err);
/* Remove a file or an empty directory; open files stay readable. ENOENT,
 * EISDIR, ENOTDIR, ENOTEMPTY. */
int optimfs_remove(struct optimfs *fs, uint64_t dir, const char *name,
    bool is_dir, struct optimfs_error *err);
/* Rename. replace: an existing newname is replaced, else EEXIST. */
int optimfs_rename(struct optimfs *fs, uint64_t dir, const char *name,
    uint64_t newdir, const char *newname, bool replace,
    struct optimfs_error *err);
/* Set the size or the time of the last change, of a file that need not be
 * open. */
int optimfs_truncate(struct optimfs *fs, uint64_t node, uint64_t size,
    struct optimfs_error *err);
int optimfs_set_mtime(struct optimfs *fs, uint64_t node, int64_t mtime_ns,
    struct optimfs_error *err);
/* Set an extended attribute. user.optimfs.shape and user.optimfs.dtype define a
 * new tensor. Other listed names are accepted and ignored, because they follow
 * from these. EOPNOTSUPP: any other name. */
int optimfs_setxattr(struct optimfs *fs, uint64_t node, const char *name,
    const char *value, size_t len, struct optimfs_error *err);

/* Publish the staged changes. 0: the checkpoint has them, and they are on the
 * disk. 1: it has them, but the last sync failed (err). -1: the checkpoint is
 * unchanged, and the changes stay staged; EBUSY: a file is open for writing.
 * stop, which may be NULL, is called regularly until the changes are published;
 * if it returns true, the commit fails with ECANCELED. Writers wait for the end
 * of the commit, readers while files are replaced. fs then shows the new state;
 * node numbers may have become ESTALE. */
int optimfs_commit(struct optimfs *fs, bool (*stop)(void *ctx), void *ctx,
    struct optimfs_error *err);
/* Drop all staged changes. */
int optimfs_abort(struct optimfs *fs, struct optimfs_error *err);
/* Execute a command: "commit"; "abort"; or "keep", after which only "commit"
 * commits, and changes that are staged at the end are kept for the next writer.
 * EINVAL (OFS818): any other text. */
int optimfs_control(struct optimfs *fs, const char *text, size_t len,
    bool (*stop)(void *ctx), void *ctx, struct optimfs_error *err);
/* If a process of this machine has path open for writing: a descriptor for
 * optimfs_lock_busy, to be closed by the caller. -1: no process has. */
int optimfs_lock_watch(const char *path);
/* Does that process still have the checkpoint open for writing? */
bool optimfs_lock_busy(int fd);
/* Fail if a writer of path died and left changes beside it (EBUSY), or if that
 * is unknown. */
int optimfs_left(const char *path, struct optimfs_error *err);
/* Wait, as optimfs_open does, if a mount of path was unmounted and its daemon
 * is still committing: EBUSY (OFS847) if that takes more than two minutes. say,
 * which may be NULL, gets messages for the user: after a second of waiting, and
 * if the directory of changes beside path belongs to somebody else (OFS846), who
 * is not waited for. */
int optimfs_await(const char *path, void (*say)(void *ctx, const char *text),
    void *ctx, struct optimfs_error *err);
/* Record that fs, opened for writing, is mounted as device dev. Other processes
 * then notice when it is unmounted, at the latest when this is called with 0, and
 * wait for its commit. */
int optimfs_set_mounted(struct optimfs *fs, dev_t dev,
    struct optimfs_error *err);
/* Is file .optimfs/control, opened for writing? */
bool optimfs_file_is_control(const struct optimfs_file *file);
/* Sync all staged changes to the disk. -1: some of them may not survive a power
 * failure. Texts that are being written are not staged before they are
 * closed. */
int optimfs_sync(struct optimfs *fs, struct optimfs_error *err);
/* Signs of life: how many calls that read or change files have returned in this
 * process, and answers of other ranks. Any thread may ask, at any time: if it no
 * longer grows, what runs does not move. */
uint64_t optimfs_moves(void);
/* What was recovered of the changes of an earlier mount, and what was not: lines
 * of text, malloc'ed; NULL: there were none. */
char *optimfs_recovered(struct optimfs *fs);
/* Looks again at who may read the source: attributes are what its files and
 * directories say now. True: that is not what it was when the checkpoint was
 * read, or was not at an earlier look. */
bool optimfs_access_changed(struct optimfs *fs, uint64_t node);
/* The number of changes since fs was opened. */
uint64_t optimfs_changes(struct optimfs *fs);
struct optimfs_status {
	bool explicit_commit;  /* unmounting keeps changes staged */
	bool scratch;          /* unmounting drops changes */
	uint64_t files, bytes; /* changed files; staged bytes */
	int percent;           /* of the running commit; -1: none runs */
	uint64_t done, total;  /* bytes of that commit; 0: not known yet */
	char doing[80];        /* name of a file, or what is done; "" */
};
void optimfs_status(struct optimfs *fs, struct optimfs_status *status);

/* statvfs(3) of the file system of the source. */
int optimfs_statvfs(struct optimfs *fs, struct statvfs *st,
    struct optimfs_error *err);

/* Callbacks of work that may take long. Each may be NULL. */
struct optimfs_watch {
	/* Called regularly by the calling thread: done of total bytes are
	 * processed. file is the current file, or NULL. */
	void (*progress)(void *ctx, uint64_t done, uint64_t total,
	    const char *file);
	/* Called regularly, from any thread: true ends the work with
	 * ECANCELED. */
	bool (*stop)(void *ctx);
	/* A message for the user: an earlier run is continued, or a value was
	 * copied as it is pickled, or left out. */
	void (*say)(void *ctx, const char *text);
	/* Called on rank 0 at the end of work that several ranks shared: how
	 * much each rank did. */
	void (*did)(void *ctx, int rank, uint64_t files, uint64_t bytes);
	void *ctx;
};
/* Set the callbacks of optimfs_fsck with data and of optimfs_mkfs; optimfs_copy
 * uses did. *how is copied. */
void optimfs_watch(struct optimfs *fs, const struct optimfs_watch *how);

/* Check a checkpoint: its structure, and with data every byte and every stored
 * checksum. report, which may be NULL, is called for each finding, in the order
 * of the tree. *problems gets the number of errors. -1: the check could not be
 * completed.
 * If all ranks of a group opened it together, all must call it with the same
 * data: each checks files that it has, rank 0 gets the findings, and it fails on
 * all ranks. */
struct optimfs_finding {
	bool error; /* false: a warning */
	int code;
	int number;       /* 603 for OFS603; 0: none */
	const char *path; /* tree path, or a file of the checkpoint */
	const char *text;
	const struct optimfs_error *why; /* code, number and text as one */
};
typedef void optimfs_report_fn(void *ctx, const struct optimfs_finding *f);
int optimfs_fsck(struct optimfs *fs, bool data, optimfs_report_fn *report,
    void *ctx, uint64_t *problems, struct optimfs_error *err);

/* Write the checkpoint in another format or layout, as the view of that name
 * shows it, with checksums. */
struct optimfs_reshard {
	const char *to; /* FORMAT[@LAYOUT][,option]... */
	unsigned jobs;  /* files, or parts of large ones, written at the same
			 * time; 0: 8 */
	/* Called several times a second. At first, done is what an earlier run
	 * has written. After a stop or a failure, finished parts are kept. */
	struct optimfs_watch watch;
	void *ctx; /* of kept */
	/* Called on failure: finished parts are in the directory stage. May be
	 * NULL. */
	void (*kept)(void *ctx, const char *stage);
};
/* dir must not exist (EEXIST); it may be an address of S3 (docs/urls.md), without
 * a group. It appears complete and synced, or not at all.
 * Until then everything is in .NAME.optimfs beside it, which is kept after a
 * failure or a kill; the next call with the same checkpoint and layout
 * continues from it. Returns 0; 1: dir is complete, but the last sync failed,
 * so it may not survive a crash of the machine; -1.
 * With a group, all ranks must call it with the same dir. Ranks that see rank
 * 0's .NAME.optimfs write some of the files each. It fails on all
 * ranks; only rank 0 gets progress and returns 1. */
int optimfs_reshard(struct optimfs *fs, const char *dir,
    const struct optimfs_reshard *how, struct optimfs_error *err);

/* Copy a file or directory out of the tree, as cp(1) does: into dest if that is
 * a directory, otherwise as dest. A file appears complete or not at all. Files of a
 * directory that are not on a server are copied by one thread for each processor, at
 * most 16. Those call unread and copied, one at a time, and stop. */
struct optimfs_copy {
	bool recursive; /* path may be a directory */
	/* Called for each file below a directory that cannot be read; the
	 * others are copied. May be NULL. */
	void (*unread)(void *ctx, const struct optimfs_error *err);
	/* Called for each piece that this rank has copied, with its length and
	 * the name of the file. May be NULL. */
	void (*copied)(void *ctx, uint64_t bytes, const char *name);
	/* Called before each piece: true ends the copy with ECANCELED, without
	 * incomplete files. May be NULL. */
	bool (*stop)(void *ctx);
	void *ctx;
};
/* Returns 0; 1: some files could not be read, all others are copied; -1. With a
 * group, all ranks must call it with the same path and dest. dest is resolved
 * on rank 0; the ranks that see that directory copy some of the files each, and
 * report those that they cannot read. It fails on all ranks. */
int optimfs_copy(struct optimfs *fs, const char *path, const char *dest,
    const struct optimfs_copy *how, struct optimfs_error *err);

/* Prepare dir, which is empty or does not exist (else EEXIST, OFS830), for a checkpoint
 * with the names, shapes and types of like in another format or layout. Its bytes are
 * then written to a mount of dir with rw, which reads the names, and values that cannot
 * be written, from like. Until the commit everything is in .NAME.optimfs beside dir,
 * and dir stays empty. With a group, all ranks must call it with the same dir, in which
 * %r and %h stand for rank and host; like is then read by rank 0 alone. Rank 0 prepares
 * its directory; those of the others are created, and get their files with the commit.
 * It succeeds on all ranks or on none. */
int optimfs_mkfs(struct optimfs *like, const char *layout, const char *dir,
    struct optimfs_error *err);
/* If dir was made by optimfs_mkfs and waits for its first commit: the paths that a
 * mount of it reads, which are like and files of its options, each NUL-terminated,
 * with an empty one at the end; malloc'ed. NULL: it does not wait, or no memory. */
char *optimfs_mkfs_reads(const char *dir);

/* A summary, malloc'ed: of the checkpoint (path ""), of a directory of the
 * tree, or of a file. Reads the index and a few values. */
enum optimfs_summary_form {
	OPTIMFS_SUMMARY_TEXT, /* some twenty lines */
	OPTIMFS_SUMMARY_JSON, /* docs/json.md */
	/* the whole checkpoint in one line, without a newline */
	OPTIMFS_SUMMARY_LINE,
	OPTIMFS_SUMMARY_PROBLEMS, /* damage only; "": none */
	OPTIMFS_SUMMARY_BOTH,     /* the JSON, which is one line; the text */
};
char *optimfs_summary(struct optimfs *fs, const char *path,
    enum optimfs_summary_form form, struct optimfs_error *err);

/* Set a function that is called at each open of .optimfs/info.json: it returns
 * the member "mount", a JSON object as malloc'ed text, which is freed here. */
void optimfs_set_mount_info(struct optimfs *fs, char *(*fn)(void *ctx),
    void *ctx);
/* Set a function that is called at each open of .optimfs/stats: it returns more
 * lines "name value\n" as malloc'ed text, which is freed here. */
void optimfs_set_stats(struct optimfs *fs, char *(*fn)(void *ctx), void *ctx);
/* Add an error to .optimfs/errors. */
void optimfs_log_error(struct optimfs *fs, const struct optimfs_error *err);

/* Several ranks of a job, started by mpirun, may each have a part of the files
 * of a checkpoint. Each rank joins the group and offers its files; then every
 * rank can open the whole checkpoint. Close what was opened with a group before
 * the rank leaves it. */

/* Was this process started as one of several ranks? */
bool optimfs_group_launched(void);
/* Load the module of a transport ("mpi") and join; all ranks must call it.
 * timeout: seconds in which a rank must answer; 0: no limit. The process must
 * not fork afterwards. */
struct optimfs_group *optimfs_group_join(const char *transport,
    unsigned timeout, struct optimfs_error *err);
int optimfs_group_rank(const struct optimfs_group *w);
int optimfs_group_size(const struct optimfs_group *w);
/* The lowest rank on the machine of rank. */
int optimfs_group_node(const struct optimfs_group *w, int rank);
const char *optimfs_group_host(const struct optimfs_group *w, int rank);
/* path with %r replaced by this rank, %h by its host and %% by %; malloc'ed. */
char *optimfs_group_expand(const struct optimfs_group *w, const char *path,
    struct optimfs_error *err);
/* Before files are offered: which ranks will open the checkpoints, the same on all
 * ranks. Until optimfs_group_compare they hand each other what they all read, and
 * keep up to 256 MiB of a checkpoint for that. Without this call, each reads for
 * itself. ENOMEM. */
int optimfs_group_readers(struct optimfs_group *w, const bool *reader,
    struct optimfs_error *err);
/* Offer the files of a checkpoint that this rank sees to the others. All ranks
 * must call it with the same path, in which %r and %h stand for rank and host;
 * a rank without such a file or directory offers nothing. first: only rank 0
 * offers files. It succeeds on all ranks, or fails on all with the same error.
 * EPROTO (OFS914): two ranks have different files of the same name. */
int optimfs_group_offer(struct optimfs_group *w, const char *path, bool first,
    const struct optimfs_options *options, struct optimfs_error *err);
/* Check that all ranks show the same files, shapes, types and values. All ranks
 * must call it; fs is NULL on a rank that shows no tree. It succeeds or fails
 * on all ranks. EPROTO (OFS916): two ranks differ. */
int optimfs_group_compare(struct optimfs_group *w, struct optimfs *fs,
    struct optimfs_error *err);
/* Check that no rank has failed: own is the error of this one, or NULL. All ranks
 * must call it. It succeeds on all, or fails on all with the error of the lowest
 * rank that has one, which is named. */
int optimfs_group_agree(struct optimfs_group *w,
    const struct optimfs_error *own, struct optimfs_error *err);
/* How ranks send bytes: over the transport of the group, or between GPUs. All
 * ranks must call optimfs_group_gather before files are offered; the arguments
 * of rank 0 are used. */
enum optimfs_gather_how {
	OPTIMFS_GATHER_MPI,
	/* between GPUs if every rank has its own working GPU; otherwise the
	 * reason is passed to say */
	OPTIMFS_GATHER_AUTO,
	OPTIMFS_GATHER_NCCL, /* the same, otherwise ENODEV (OFS903) */
};
struct optimfs_gather {
	enum optimfs_gather_how how;
	uint64_t gpu_cache; /* bytes of GPU memory for gathered data */
	/* A message for the user, from any thread: GPUs are no longer used, and
	 * why, or they are used again. May be NULL. */
	void (*say)(void *ctx, const char *text);
	void *ctx;
};
int optimfs_group_gather(struct optimfs_group *w,
    const struct optimfs_gather *how, struct optimfs_error *err);
/* Leave the group; this rank must not read afterwards. First answers requests
 * until all ranks with worker[rank] set have called it, too. Frees w. */
void optimfs_group_leave(struct optimfs_group *w, const bool *worker);

/* The version, "0.1.0". */
const char *optimfs_version(void);
/* The name of format i, for type=; NULL after the last one. */
const char *optimfs_type(unsigned i);
/* The name of format i of those that can be written; NULL after the last one.
 * *ranked: it takes a number of ranks, as in NAME@16. */
const char *optimfs_layout(unsigned i, bool *ranked);
/* The optional parts of this build, "zstd 1.5.4, ...". */
const char *optimfs_features(void);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
