/* opts.h - the options of a mount */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_OPTS_H
#define OFS_FUSE_OPTS_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/optimfs.h"

#include "base/json_write.h"
#include "cli/job.h"
#include "cli/options.h"
#include "cli/sandbox.h"

enum ofs_assemble_policy {
	OFS_ASSEMBLE_OFF,
	OFS_ASSEMBLE_AUTO,
	OFS_ASSEMBLE_ALWAYS,
};

struct ofs_mount_options {
	struct optimfs_options open;
	struct ofs_job_options job;
	const char *mount_ranks; /* as for ofs_job_join; NULL: nodes */
	const char *offered;     /* name of the checkpoint in open.group */
	/* called after opening and before mounting, and after mounting and
	 * before serving; -1 ends the mount; may be NULL */
	int (*opened)(void *ctx, struct optimfs *fs, struct optimfs_error *err);
	int (*mounted)(void *ctx, struct optimfs_error *err);
	void *ctx;       /* of both */
	bool keep_going; /* if another rank cannot mount */
	int assemble;    /* enum ofs_assemble_policy */
	uint64_t assemble_max;
	int sandbox; /* enum ofs_sandbox_policy */
	uint64_t readahead;
	unsigned timeout;    /* seconds; 0: none */
	unsigned threads;    /* 0: by the number of processors */
	const char *log;     /* "stderr", "syslog" or a file; NULL: by mode */
	int commit, recover; /* indexes of the choices; -1: not given */
	bool ro, remount;
	bool direct;
	bool allow_other, default_permissions;
	bool auto_unmount;
	bool nonempty;
	/* from the command line, not from -o */
	bool foreground, debug, single, quiet, progress;
	const char *ready_file; /* exists while the mount answers; NULL: none */
};

/* Sets the defaults, and prepares o for parsing into m. */
void ofs_mount_options_init(struct ofs_mount_options *m, struct ofs_options *o);
/* mount(8) adds rw by itself. It is dropped unless commit=, recover=, upper= or
 * scratch shows that it was intended. */
void ofs_mount_options_doubt_rw(struct ofs_mount_options *m);
/* Checks for unavailable options (EOPNOTSUPP) and contradictions (EINVAL), and
 * sets options that follow from others. */
int ofs_mount_options_check(struct ofs_mount_options *m,
    struct optimfs_error *err);
/* Writes them as members of a JSON object, for .optimfs/info.json. */
void ofs_mount_options_json(const struct ofs_mount_options *m,
    struct ofs_json_writer *w);

#endif
