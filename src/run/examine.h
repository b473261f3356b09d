/* examine.h - what a name in the directory of a run is */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_RUN_EXAMINE_H
#define OFS_RUN_EXAMINE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "optimfs/error.h"

#include "base/io.h"

enum ofs_run_kind {
	OFS_RUN_OTHER, /* no checkpoint, and not about to become one */
	OFS_RUN_UNFINISHED,
	OFS_RUN_COMPLETE, /* what its index needs may still be lost */
};

struct ofs_run_examined {
	enum ofs_run_kind kind;
	const char *format; /* NULL: unknown */
	bool changes;       /* no state, but changes of one */
	bool roles;         /* it holds one for each role, and is none itself */
	char why[200];      /* it is not complete; else "" */
	uint32_t mode;      /* 0444, less what readers of it may not */
	int64_t mtime_ns;   /* of the newest file that was looked at */
};

/* Examines name in dir, a file or directory with this lstat, by names and a few
 * bytes of files; told: its name tells a step. Nothing that concerns only this
 * name is an error. */
int ofs_run_examine(const struct ofs_dir *dir, const char *name,
    const struct stat *st, bool told, struct ofs_run_examined *out,
    struct optimfs_error *err);

#endif
