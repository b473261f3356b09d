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

/* FUSE_PASSTHROUGH (Linux 6.9), and mappings that bypass the page cache (6.6).
 * libfuse 3.17 and later support them. With 3.12 to 3.16 the replies to INIT and
 * OPEN are completed on the way to the kernel, before 3.12 nothing is available.
 * Must be the first member of the session's userdata. */
struct ofs_passthrough {
	int fd; /* of the session once attached, else -1 */
	bool wanted;
	bool devices;          /* libfuse lets us read and write the device */
	uint64_t init_unique;  /* the INIT request while it is answered */
	uint32_t offered;      /* its flags2 */
	atomic_bool available; /* the kernel has agreed */
};

void ofs_passthrough_init(struct ofs_passthrough *pt);
/* After fuse_session_mount, before the loop. */
int ofs_passthrough_attach(struct ofs_passthrough *pt, struct fuse_session *se,
    bool wanted, struct optimfs_error *err);
/* When the session starts. */
void ofs_passthrough_negotiate(struct ofs_passthrough *pt,
    struct fuse_conn_info *conn);
bool ofs_passthrough_available(struct ofs_passthrough *pt);

/* Registers file fd, which may then be closed. Returns a positive id, or -1. */
int ofs_passthrough_register(struct ofs_passthrough *pt, int fd,
    struct optimfs_error *err);
/* Open files continue to read the registered file. */
void ofs_passthrough_unregister(struct ofs_passthrough *pt, int id);

/* As fuse_reply_open, with reads from the registered id. */
int ofs_passthrough_reply_open(fuse_req_t req, struct fuse_file_info *fi,
    int id);

/* Sets the device from which this thread takes requests and to which it
 * replies: -1, the default, for that of the session. A reply must go to the
 * device of its request. */
void ofs_passthrough_device(int fd);
/* Can threads have their own devices? Not with libfuse before 3.12, and from
 * 3.18.3 on only if it was built with custom I/O. */
bool ofs_passthrough_devices(const struct ofs_passthrough *pt);
int ofs_passthrough_device_now(void);

#endif
