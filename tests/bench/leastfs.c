/* leastfs.c - a file system that does as little as any daemon could: the limit */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "fuse/gather.h"
#include "fuse/loop.h"
#include "fuse/ops.h"

static const char usage[] =
    "usage: leastfs [options] MOUNTPOINT SHARD...\n"
    "       leastfs -w DIRECTORY MOUNTPOINT\n"
    "Show the bytes of the shards as files of equal length in one directory, "
    "named as\n"
    "ckbench's touch names them, until it is unmounted. It talks to the kernel "
    "as\n"
    "optimfs does, and knows nothing of checkpoints.\n"
    "  -n N  files [1]\n"
    "  -b N  bytes of each [an equal share of all]\n"
    "  -s N  the files take N bytes of each shard in turn [all of it]\n"
    "  -d    direct: around the kernel's cache\n"
    "  -a    assemble each file in memory when it is opened, if permitted\n"
    "  -w D  show an empty directory; what is created in it is created in D\n";

/* Files have nodes 2 to files + 1, and directory offsets are nodes. */
#define ROOT        FUSE_ROOT_ID
#define FIRST       2
#define FOREVER     1e9
#define MAX_THREADS 8
#define MOST_MADE   65536

static struct {
	struct ofs_passthrough pt; /* first, as passthrough.h demands */
	struct fuse_session *se;
	int *shard;
	uint64_t nshards, nfiles, size, stripe;
	bool direct, assemble;
	unsigned threads;
	int memory;           /* directory of assembled files */
	char *room;           /* of all buffers */
	_Atomic bool *stored; /* files that the kernel has */
	/* -w: of the root, and of node FIRST + i */
	int into, made[MOST_MADE];
	ino_t ino[MOST_MADE];
	atomic_uint nmade;
} fs = { .nfiles = 1, .into = -1 };

static _Thread_local char *buffer; /* of OFS_MAX_READ bytes */

static void die(const char *fmt, ...)
    __attribute__((format(printf, 1, 2), noreturn));
static void die(const char *fmt, ...)
{
	va_list ap;

	fputs("leastfs: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

/* --- bytes ----------------------------------------------------------------- */

/* The place of byte pos of all files; returns how many follow it there. */
static uint64_t place(uint64_t pos, int *fd, off_t *off)
{
	uint64_t block = pos / fs.stripe, in = pos % fs.stripe;

	*fd = fs.shard[block % fs.nshards];
	*off = (off_t)(block / fs.nshards * fs.stripe + in);
	return fs.stripe - in;
}

/* Reads len bytes of file node; false if not all can be read. */
static bool get(fuse_ino_t node, void *buf, size_t len, uint64_t off)
{
	uint64_t pos = (node - FIRST) * fs.size + off, n;
	char *to = buf;
	ssize_t got;
	off_t at;
	int fd;

	for (; len > 0; len -= (size_t)got, to += got, pos += (uint64_t)got) {
		n = place(pos, &fd, &at);
		got = pread(fd, to, n < len ? n : len, at);
		if (got <= 0)
			return false;
	}
	return true;
}

/* --- files ----------------------------------------------------------------- */

/* What fuse/gather.c reads. */
struct optimfs_file {
	fuse_ino_t node;
};

ssize_t optimfs_file_read(struct optimfs_file *f, void *buf, size_t len,
    uint64_t off, struct optimfs_error *err)
{
	return get(f->node, buf, len, off) ? (ssize_t)len
					   : optimfs_fail(err, EIO, "a shard");
}

/* The id of an assembled file, 0: failed. */
static int assemble(fuse_ino_t node)
{
	struct optimfs_file file = { node };
	struct ofs_gather g = {
		.file = &file,
		.size = fs.size,
		.threads = fs.threads - 1,
		.scratch = buffer,
	};
	int fd = ofs_gather_file(fs.memory, &g, NULL), id;

	if (fd == -1)
		return 0;
	id = ofs_passthrough_register(&fs.pt, fd, NULL);
	close(fd);
	return id > 0 ? id : 0;
}

/* As fuse/ahead.c: a small file comes with its open. */
static void store(fuse_ino_t node)
{
	struct fuse_bufvec v = FUSE_BUFVEC_INIT(fs.size);

	v.buf[0].mem = buffer;
	if (!atomic_exchange(&fs.stored[node - FIRST], true) &&
	    get(node, buffer, fs.size, 0))
		fuse_lowlevel_notify_store(fs.se, node, 0, &v, 0);
}

static void op_open(fuse_req_t req, fuse_ino_t node, struct fuse_file_info *fi)
{
	int id;

	if (fs.assemble && fs.memory != -1 &&
	    ofs_passthrough_available(&fs.pt) && fs.size > OFS_AHEAD_MAX) {
		id = assemble(node);
		if (id != 0)
			ofs_passthrough_reply_open(req, fi, id);
		else
			fuse_reply_err(req, EIO);
		return;
	}
	fi->direct_io = fs.direct;
	fi->keep_cache = !fs.direct;
	if (!fs.direct && fs.size <= OFS_AHEAD_MAX)
		store(node);
	fuse_reply_open(req, fi);
}

static void op_read(fuse_req_t req, fuse_ino_t node, size_t len, off_t off,
    struct fuse_file_info *fi)
{
	uint64_t rest = (uint64_t)off < fs.size ? fs.size - (uint64_t)off : 0;

	(void)fi;
	if (len > rest)
		len = rest;
	if (get(node, buffer, len, (uint64_t)off))
		fuse_reply_buf(req, buffer, len);
	else
		fuse_reply_err(req, EIO);
}

static void op_release(fuse_req_t req, fuse_ino_t node,
    struct fuse_file_info *fi)
{
	(void)node, (void)fi;
	fuse_reply_err(req, 0);
}

/* --- names ----------------------------------------------------------------- */

static struct fuse_entry_param entry_of(fuse_ino_t node)
{
	struct fuse_entry_param e = {
		.ino = node,
		.attr_timeout = FOREVER,
		.entry_timeout = FOREVER,
	};

	e.attr.st_ino = node;
	e.attr.st_mode = node == ROOT ? S_IFDIR | 0555 : S_IFREG | 0444;
	e.attr.st_nlink = 1;
	e.attr.st_size = node == ROOT ? 0 : (off_t)fs.size;
	e.attr.st_blksize = OFS_MAX_READ;
	return e;
}

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { .entry_timeout = FOREVER };
	uint64_t i, k;

	(void)parent;
	if (sscanf(name, "layers.%" SCNu64 ".attention.w%" SCNu64 ".weight", &i,
		&k) == 2 &&
	    i * 8 + k < fs.nfiles)
		e = entry_of(i * 8 + k + FIRST);
	fuse_reply_entry(req, &e);
}

static void op_getattr(fuse_req_t req, fuse_ino_t node,
    struct fuse_file_info *fi)
{
	struct fuse_entry_param e = entry_of(node);

	(void)fi;
	fuse_reply_attr(req, &e.attr, FOREVER);
}

static void op_opendir(fuse_req_t req, fuse_ino_t node,
    struct fuse_file_info *fi)
{
	(void)node;
	fi->cache_readdir = fi->keep_cache = 1;
	fuse_reply_open(req, fi);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t node, size_t size,
    off_t off, struct fuse_file_info *fi)
{
	struct fuse_entry_param e;
	size_t len = 0, n;
	char name[64];

	(void)fi;
	if (size > OFS_MAX_READ)
		size = OFS_MAX_READ;
	for (node = off == 0 ? FIRST : (fuse_ino_t)off;
	     node < fs.nfiles + FIRST; node++) {
		uint64_t i = node - FIRST;

		snprintf(name, sizeof(name),
		    "layers.%" PRIu64 ".attention.w%" PRIu64 ".weight", i / 8,
		    i % 8);
		e = entry_of(node);
		n = fuse_add_direntry_plus(req, buffer + len, size - len, name,
		    &e, (off_t)node + 1);
		if (n > size - len)
			break;
		len += n;
	}
	fuse_reply_buf(req, buffer, len);
}

/* --- what is created -------------------------------------------------------- */

static int descriptor(fuse_ino_t node)
{
	return node == ROOT ? fs.into : fs.made[node - FIRST];
}

static void make_getattr(fuse_req_t req, fuse_ino_t node,
    struct fuse_file_info *fi)
{
	struct stat st;

	(void)fi;
	if (fstat(descriptor(node), &st) == -1) {
		fuse_reply_err(req, errno);
		return;
	}
	st.st_ino = node;
	st.st_blksize = OFS_MAX_READ;
	fuse_reply_attr(req, &st, FOREVER);
}

static void make_setattr(fuse_req_t req, fuse_ino_t node, struct stat *attr,
    int which, struct fuse_file_info *fi)
{
	if ((which & FUSE_SET_ATTR_MODE) != 0)
		(void)fchmod(descriptor(node), attr->st_mode & 07777);
	make_getattr(req, node, fi);
}

static void fill_entry(struct fuse_entry_param *e, unsigned i)
{
	e->ino = e->attr.st_ino = FIRST + i;
	e->attr.st_blksize = OFS_MAX_READ;
	e->attr_timeout = e->entry_timeout = FOREVER;
}

static void make_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fuse_entry_param e = { 0 };
	unsigned n = atomic_load(&fs.nmade), i = 0;

	if (fstatat(descriptor(parent), name, &e.attr, 0) == -1) {
		fuse_reply_err(req, errno);
		return;
	}
	while (i < n && fs.ino[i] != e.attr.st_ino)
		i++;
	fill_entry(&e, i);
	if (i == n)
		fuse_reply_err(req, ENOENT);
	else
		fuse_reply_entry(req, &e);
}

/* False: failed, and answered. */
static bool made(fuse_req_t req, int fd, struct fuse_entry_param *e)
{
	unsigned i = atomic_load(&fs.nmade);

	*e = (struct fuse_entry_param){ 0 };
	if (fd == -1 || i == MOST_MADE || fstat(fd, &e->attr) == -1) {
		fuse_reply_err(req, fd == -1 ? errno : ENFILE);
		return false;
	}
	fs.made[i] = fd;
	fs.ino[i] = e->attr.st_ino;
	atomic_store(&fs.nmade, i + 1); /* nobody else creates anything */
	fill_entry(e, i);
	return true;
}

static void make_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name,
    mode_t mode)
{
	struct fuse_entry_param e;
	int dir = descriptor(parent), fd = -1;

	if (mkdirat(dir, name, mode) == 0)
		fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (made(req, fd, &e))
		fuse_reply_entry(req, &e);
}

static void make_create(fuse_req_t req, fuse_ino_t parent, const char *name,
    mode_t mode, struct fuse_file_info *fi)
{
	struct fuse_entry_param e;
	int fd = openat(descriptor(parent), name,
	    O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);

	if (!made(req, fd, &e))
		return;
	fi->direct_io = 1; /* as optimfs, for who only writes */
	fuse_reply_create(req, &e, fi);
}

static void make_write(fuse_req_t req, fuse_ino_t node, const char *buf,
    size_t len, off_t off, struct fuse_file_info *fi)
{
	ssize_t n = pwrite(descriptor(node), buf, len, off);

	(void)fi;
	if (n == -1)
		fuse_reply_err(req, errno);
	else
		fuse_reply_write(req, (size_t)n);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
	(void)userdata;
	ofs_passthrough_negotiate(&fs.pt, conn);
	conn->max_read = OFS_MAX_READ;
	conn->max_background = OFS_MAX_THREADS;
	conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE |
	    FUSE_CAP_SPLICE_MOVE | FUSE_CAP_READDIRPLUS_AUTO);
}

static const struct fuse_lowlevel_ops ops = {
	.init = op_init,
	.lookup = op_lookup,
	.getattr = op_getattr,
	.open = op_open,
	.release = op_release,
	.read = op_read,
	.opendir = op_opendir,
	.releasedir = op_release,
	.readdirplus = op_readdirplus,
};

static const struct fuse_lowlevel_ops make_ops = {
	.init = op_init,
	.lookup = make_lookup,
	.getattr = make_getattr,
	.setattr = make_setattr,
	.mkdir = make_mkdir,
	.create = make_create,
	.write = make_write,
	.release = op_release,
};

/* --- the session ----------------------------------------------------------- */

/* Called when the session ends. */
static void ended(void *unused)
{
	(void)unused;
}

/* Called by each thread before it takes requests. */
static int begin(void *unused, struct optimfs_error *err)
{
	static atomic_uint next;

	(void)unused, (void)err;
	buffer = fs.room + atomic_fetch_add(&next, 1) * (size_t)OFS_MAX_READ;
	return 0;
}

static void mount_on(const char *point)
{
	char name[] = "leastfs", flag[] = "-o";
	char options[] = "ro,nosuid,nodev,noexec,max_read=1048576";
	bool rw = fs.into != -1;
	char *argv[] = { name, flag, options, NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	struct optimfs_error err;

	ofs_passthrough_init(&fs.pt);
	if (rw)
		options[1] = 'w';
	fs.se =
	    fuse_session_new(&args, rw ? &make_ops : &ops, sizeof(ops), &fs);
	if (fs.se == NULL || fuse_session_mount(fs.se, point) != 0 ||
	    ofs_passthrough_attach(&fs.pt, fs.se, fs.assemble, &err) == -1)
		die("cannot mount on %s", point);
	fs.memory = ofs_gather_dir(UINT64_C(4) << 30, NULL);
}

static void open_shards(char **path)
{
	uint64_t least = UINT64_MAX, all = 0;
	struct stat st;

	fs.shard = calloc(fs.nshards, sizeof(*fs.shard));
	fs.stored = calloc(fs.nfiles, sizeof(*fs.stored));
	if (fs.shard == NULL || fs.stored == NULL)
		die("out of memory");
	for (uint64_t i = 0; i < fs.nshards; i++) {
		fs.shard[i] = open(path[i], O_RDONLY | O_CLOEXEC);
		if (fs.shard[i] == -1 || fstat(fs.shard[i], &st) == -1)
			die("%s: %s", path[i], strerror(errno));
		if ((uint64_t)st.st_size < least)
			least = (uint64_t)st.st_size;
	}
	if (fs.stripe == 0)
		fs.stripe = least;
	if (fs.stripe == 0)
		die("an empty shard");
	all = least / fs.stripe * fs.stripe * fs.nshards;
	if (fs.size == 0)
		fs.size = all / fs.nfiles;
	if (fs.size == 0 || all / fs.size < fs.nfiles)
		die("the shards have %" PRIu64 " bytes", all);
}

/* With as many threads as optimfs has: fuse/serve.c. */
static void serve(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN) + 1;
	struct ofs_loop_config config = {
		.threads = n < MAX_THREADS ? (unsigned)n : MAX_THREADS,
		.devices = ofs_passthrough_devices(&fs.pt),
		.begin = begin,
		.ended = ended,
	};
	struct ofs_loop *loop;
	struct optimfs_error err;

	fs.threads = config.threads;
	fs.room = ofs_alloc_huge((size_t)MAX_THREADS * OFS_MAX_READ);
	if (fs.room == NULL)
		die("out of memory");
	loop = ofs_loop_new(fs.se, &config, &err);
	if (loop == NULL || ofs_loop_run(loop, &err) == -1)
		die("%s", err.text);
	ofs_loop_free(loop);
}

int main(int argc, char **argv)
{
	int opt;

	while ((opt = getopt(argc, argv, "n:b:s:daw:")) != -1)
		switch (opt) {
		case 'n':
			fs.nfiles = strtoull(optarg, NULL, 10);
			break;
		case 'b':
			fs.size = strtoull(optarg, NULL, 10);
			break;
		case 's':
			fs.stripe = strtoull(optarg, NULL, 10);
			break;
		case 'd':
			fs.direct = true;
			break;
		case 'a':
			fs.assemble = true;
			break;
		case 'w':
			fs.into = open(optarg, O_RDONLY | O_DIRECTORY);
			if (fs.into == -1)
				die("%s: %s", optarg, strerror(errno));
			break;
		default:
			fputs(usage, stderr);
			return 2;
		}
	if ((fs.into == -1 ? argc - optind < 2 : argc - optind != 1) ||
	    fs.nfiles == 0) {
		fputs(usage, stderr);
		return 2;
	}
	fs.nshards = (uint64_t)(argc - optind - 1);
	if (fs.into == -1)
		open_shards(argv + optind + 1);
	mount_on(argv[optind]);
	serve();
	fuse_session_destroy(fs.se);
	return 0;
}
