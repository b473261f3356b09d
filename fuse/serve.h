/* serve.h - serve a mounted checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_SERVE_H
#define OFS_FUSE_SERVE_H

#include <stdbool.h>

#include "optimfs/error.h"

#include "fuse/opts.h"

struct ofs_serve {
	const char *source;
	const char
	    *point; /* a real path, or /dev/fd/N of an open FUSE device */
	const struct ofs_mount_options *options;
	/* called once, from any thread, when the mount answers; may be NULL */
	void (*ready)(void *ctx);
	void *ctx;
};

/* Opens and mounts the checkpoint, and serves it until the unmount or SIGINT,
 * SIGTERM or SIGHUP. -1: it could not be mounted, or the loop failed. A second
 * signal ends the process. */
int ofs_serve(const struct ofs_serve *v, struct optimfs_error *err);

/* Is the mount point /dev/fd/N? */
bool ofs_is_descriptor(const char *point);

/* The version of libfuse: "3.14.0". */
const char *ofs_fuse_version(void);

#endif
