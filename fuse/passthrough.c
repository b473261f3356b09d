/* passthrough.c - reads that the kernel serves from a backing file */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/passthrough.h"

#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

/* The kernel's interface, include/uapi/linux/fuse.h of Linux 6.9. */
struct backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define BACKING_OPEN  _IOW(229, 1, struct backing_map)
#define BACKING_CLOSE _IOW(229, 2, uint32_t)

static _Thread_local int own_device = -1;

void ofs_passthrough_device(int fd)
{
	own_device = fd;
}

int ofs_passthrough_device_now(void)
{
	return own_device;
}

void ofs_passthrough_init(struct ofs_passthrough *pt)
{
	pt->fd = -1;
	pt->wanted = false;
	pt->devices = false;
	pt->init_unique = 0;
	pt->offered = 0;
	atomic_init(&pt->available, false);
}

/* --- the replies to INIT and OPEN ------------------------------------------ */

#ifdef FUSE_CAP_PASSTHROUGH /* since libfuse 3.17 */
void ofs_passthrough_negotiate(struct ofs_passthrough *pt,
    struct fuse_conn_info *conn)
{
	conn->want |= conn->capable & FUSE_CAP_DIRECT_IO_ALLOW_MMAP;
	if (pt->wanted && (conn->capable & FUSE_CAP_PASSTHROUGH) != 0) {
		conn->want |= FUSE_CAP_PASSTHROUGH;
		conn->max_backing_stack_depth = 0;
		atomic_store(&pt->available, true);
	}
}

int ofs_passthrough_reply_open(fuse_req_t req, struct fuse_file_info *fi,
    int id)
{
	fi->backing_id = id;
	fi->keep_cache = 0; /* the kernel refuses it with a backing file */
	return fuse_reply_open(req, fi);
}
#else
void ofs_passthrough_negotiate(struct ofs_passthrough *pt,
    struct fuse_conn_info *conn)
{
	(void)pt;
	(void)conn;
}

/* fuse_reply_open calls write_reply in the same thread, which takes the id from
 * here. */
static _Thread_local int reply_id;

int ofs_passthrough_reply_open(fuse_req_t req, struct fuse_file_info *fi,
    int id)
{
	int ret;

	reply_id = id;
	ret = fuse_reply_open(req, fi);
	reply_id = 0;
	return ret;
}
#endif

/* --- the device ------------------------------------------------------------- */

#ifdef HAVE_FUSE_SESSION_CUSTOM_IO
static int device(int session)
{
	return own_device != -1 ? own_device : session;
}

# ifdef FUSE_CAP_PASSTHROUGH
static ssize_t read_request(int fd, void *buf, size_t len, void *userdata)
{
	(void)userdata;
	return read(device(fd), buf, len);
}

static ssize_t write_reply(int fd, struct iovec *iov, int count, void *userdata)
{
	(void)userdata;
	return writev(device(fd), iov, count);
}
# else
/* Of the same interface. flags2 has the bits from 32 on of its flags. */
enum {
	OPCODE_INIT = 26,
	INIT_EXT = 1 << 30, /* flags: flags2 is valid */
	INIT2_DIRECT_MMAP = 1 << 4,
	INIT2_PASSTHROUGH = 1 << 5,
	OPEN_PASSTHROUGH = 1 << 7,
};
struct in_header {
	uint32_t len, opcode;
	uint64_t unique, nodeid;
	uint32_t uid, gid, pid, padding;
};
struct init_in {
	uint32_t major, minor, max_readahead, flags, flags2, unused[11];
};
struct out_header {
	uint32_t len;
	int32_t error;
	uint64_t unique;
};
struct init_out {
	uint32_t major, minor, max_readahead, flags;
	uint16_t max_background, congestion_threshold;
	uint32_t max_write, time_gran;
	uint16_t max_pages, map_alignment;
	uint32_t flags2, max_stack_depth, unused[6];
};
struct open_out {
	uint64_t fh;
	uint32_t open_flags;
	int32_t backing_id;
};
/* INIT comes first and alone, so init_unique needs no lock. */
static ssize_t read_request(int fd, void *buf, size_t len, void *userdata)
{
	struct ofs_passthrough *pt = userdata;
	ssize_t n = read(device(fd), buf, len);
	struct in_header h;
	struct init_in in;

	if (n < (ssize_t)(sizeof(h) + sizeof(in)))
		return n;
	memcpy(&h, buf, sizeof(h));
	if (h.opcode != OPCODE_INIT)
		return n;
	memcpy(&in, (char *)buf + sizeof(h), sizeof(in));
	if ((in.flags & INIT_EXT) != 0) {
		pt->init_unique = h.unique;
		pt->offered = in.flags2;
	}
	return n;
}

static void complete_init(struct ofs_passthrough *pt, struct iovec *body)
{
	struct init_out out;

	pt->init_unique = 0;
	if (body->iov_len < sizeof(out))
		return;
	memcpy(&out, body->iov_base, sizeof(out));
	out.flags |= INIT_EXT;
	out.flags2 |= pt->offered & INIT2_DIRECT_MMAP;
	if (pt->wanted && (pt->offered & INIT2_PASSTHROUGH) != 0) {
		out.flags2 |= INIT2_PASSTHROUGH;
		out.max_stack_depth = 1;
		atomic_store(&pt->available, true);
	}
	memcpy(body->iov_base, &out, sizeof(out));
}

static void complete_open(struct iovec *body)
{
	struct open_out out;

	memcpy(&out, body->iov_base, sizeof(out));
	out.open_flags = OPEN_PASSTHROUGH;
	out.backing_id = reply_id;
	memcpy(body->iov_base, &out, sizeof(out));
}

static ssize_t write_reply(int fd, struct iovec *iov, int count, void *userdata)
{
	struct ofs_passthrough *pt = userdata;
	struct out_header h;

	if ((pt->init_unique != 0 || reply_id != 0) && count == 2 &&
	    iov[0].iov_len == sizeof(h)) {
		memcpy(&h, iov[0].iov_base, sizeof(h));
		if (h.error == 0 && pt->init_unique != 0 &&
		    h.unique == pt->init_unique)
			complete_init(pt, &iov[1]);
		else if (h.error == 0 && reply_id != 0 &&
		    iov[1].iov_len == sizeof(struct open_out))
			complete_open(&iov[1]);
	}
	return writev(device(fd), iov, count);
}

# endif

static int take_device(struct fuse_session *se)
{
	static const struct fuse_custom_io io = {
		.read = read_request,
		.writev = write_reply,
	};

	return fuse_session_custom_io(se, &io, fuse_session_fd(se));
}
#else
static int take_device(struct fuse_session *se)
{
	(void)se;
	return -EOPNOTSUPP;
}
#endif

int ofs_passthrough_attach(struct ofs_passthrough *pt, struct fuse_session *se,
    bool wanted, struct optimfs_error *err)
{
	int ret = take_device(se);

	/* libfuse 3.18.3 and later can be built without */
	if (ret < 0 && ret != -EOPNOTSUPP)
		return optimfs_fail(err, -ret, "libfuse: custom I/O: %s",
		    strerror(-ret));
	pt->devices = ret == 0;
	pt->fd = fuse_session_fd(se);
	pt->wanted = wanted;
	return 0;
}

bool ofs_passthrough_devices(const struct ofs_passthrough *pt)
{
	return pt->devices;
}

bool ofs_passthrough_available(struct ofs_passthrough *pt)
{
	return atomic_load(&pt->available);
}

int ofs_passthrough_register(struct ofs_passthrough *pt, int fd,
    struct optimfs_error *err)
{
	struct backing_map map = { .fd = fd };
	int id = ioctl(pt->fd, BACKING_OPEN, &map);

	if (id > 0)
		return id;
	return optimfs_fail(err, id == 0 ? EIO : errno,
	    "registering a backing file: %m");
}

void ofs_passthrough_unregister(struct ofs_passthrough *pt, int id)
{
	uint32_t arg = (uint32_t)id;

	/* fails only if the connection is gone, and with it every id */
	(void)ioctl(pt->fd, BACKING_CLOSE, &arg);
}
