/* passthrough.h - reads that the kernel serves from a file of ours */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FUSE_PASSTHROUGH_H
#define OFS_FUSE_PASSTHROUGH_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define FUSE_USE_VERSION 312
#include <fuse_lowlevel.h>

#include "optimfs/error.h"

/* FUSE_PASSTHROUGH (Linux 6.9), and mappings of files that bypass the page
 * cache (6.6), for a libfuse that does not know them: its replies to INIT and
 * OPEN are completed on their way to the kernel. This must be the first member
 * of the session's userdata. A libfuse before 3.12 gives no hold on the way:
 * with it, none of this is available. */
struct ofs_passthrough {
	int fd; /* the session's, once attached; else -1 */
	bool wanted;
	uint64_t init_unique;  /* the INIT request, while it is answered */
	uint32_t offered;      /* its flags2 */
	atomic_bool available; /* the kernel has agreed */
};

void ofs_passthrough_init(struct ofs_passthrough *pt);
/* After fuse_session_mount, before the loop. */
int ofs_passthrough_attach(struct ofs_passthrough *pt, struct fuse_session *se,
    bool wanted, struct optimfs_error *err);
bool ofs_passthrough_available(struct ofs_passthrough *pt);

/* Register file fd, which may then be closed; a positive id, or -1. */
int ofs_passthrough_register(struct ofs_passthrough *pt, int fd,
    struct optimfs_error *err);
/* Open files go on reading what was registered. */
void ofs_passthrough_unregister(struct ofs_passthrough *pt, int id);

/* fuse_reply_open that hands reads over to the registered id. */
int ofs_passthrough_reply_open(fuse_req_t req, const struct fuse_file_info *fi,
    int id);

/* The device that this thread takes requests from and answers them on: -1 for
 * the session's, which is where a thread begins. A request must be answered on
 * the device it came from. */
void ofs_passthrough_device(int fd);
/* Can threads have devices of their own? libfuse before 3.12 knows one. */
bool ofs_passthrough_devices(void);
int ofs_passthrough_device_now(void);

#endif
