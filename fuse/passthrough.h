/* passthrough.h - reads that the kernel serves from a backing file */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_PASSTHROUGH_H
#define OFS_FUSE_PASSTHROUGH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "optimfs/error.h"

/* FUSE_PASSTHROUGH (Linux 6.9), and mappings that bypass the page cache (6.6),
 * for a libfuse without support: its replies to INIT and OPEN are completed on
 * the way to the kernel. Must be the first member of the session's userdata.
 * libfuse before 3.12 does not allow this; then nothing is available. */
struct ofs_passthrough {
	int fd; /* of the session once attached, else -1 */
	bool wanted;
	uint64_t init_unique;  /* the INIT request while it is answered */
	uint32_t offered;      /* its flags2 */
	atomic_bool available; /* the kernel has agreed */
};

void ofs_passthrough_init(struct ofs_passthrough *pt);
/* After fuse_session_mount, before the loop. */
int ofs_passthrough_attach(struct ofs_passthrough *pt, struct fuse_session *se,
    bool wanted, struct optimfs_error *err);
bool ofs_passthrough_available(struct ofs_passthrough *pt);

/* Registers file fd, which may then be closed. Returns a positive id, or -1. */
int ofs_passthrough_register(struct ofs_passthrough *pt, int fd,
    struct optimfs_error *err);
/* Open files continue to read the registered file. */
void ofs_passthrough_unregister(struct ofs_passthrough *pt, int id);

/* As fuse_reply_open, with reads from the registered id. */
int ofs_passthrough_reply_open(fuse_req_t req, const struct fuse_file_info *fi,
    int id);

/* Sets the device from which this thread takes requests and to which it
 * replies: -1, the default, for that of the session. A reply must go to the
 * device of its request. */
void ofs_passthrough_device(int fd);
/* Can threads have their own devices? Not with libfuse before 3.12. */
bool ofs_passthrough_devices(void);
int ofs_passthrough_device_now(void);

#endif
