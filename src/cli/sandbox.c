/* sandbox.c - restrict threads that parse checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <linux/capability.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "optimfs/run.h"

#include "base/cache.h"
#include "base/memory.h"
#include "base/user_cache.h"
#include "cli/syscalls.h"

/* The kernel's interface, include/uapi/linux/landlock.h of Linux 6.15:
 * installed headers may be older than the kernel. */
enum {
	CALL_CREATE_RULESET = 444,
	CALL_ADD_RULE = 445,
	CALL_RESTRICT_SELF = 446,
	CREATE_VERSION = 1,
	CREATE_ERRATA = 2,
	RULE_PATH_BENEATH = 1,
};
#define FS_WRITE_FILE  (UINT64_C(1) << 1)
#define FS_READ_FILE   (UINT64_C(1) << 2)
#define FS_READ_DIR    (UINT64_C(1) << 3)
#define FS_REMOVE_DIR  (UINT64_C(1) << 4)
#define FS_REMOVE_FILE (UINT64_C(1) << 5)
#define FS_MAKE_DIR    (UINT64_C(1) << 7)
#define FS_MAKE_REG    (UINT64_C(1) << 8)
#define FS_MAKE_SYM    (UINT64_C(1) << 12)
#define FS_REFER       (UINT64_C(1) << 13) /* since version 2 */
#define FS_TRUNCATE    (UINT64_C(1) << 14) /* 3 */
#define FS_IOCTL_DEV   (UINT64_C(1) << 15) /* 5 */
#define NET_TCP        UINT64_C(3)         /* 4 */
#define SCOPE_SOCKET   (UINT64_C(1) << 0)  /* 6; abstract ones */
#define SCOPE_SIGNAL   (UINT64_C(1) << 1)  /* 6 */
#define FIXED_SIGNAL   2                   /* of the errata */
struct ruleset_attr {
	uint64_t fs, net, scoped;
};
struct path_beneath {
	uint64_t allowed;
	int32_t parent;
} __attribute__((packed));

const char *const ofs_sandbox_policies[] = { "off", "auto", "require", NULL };

#define READ FS_READ_FILE | FS_READ_DIR
/* Rights for directories of unnamed files. */
#define SCRATCH                                                              \
 FS_READ_FILE | FS_WRITE_FILE | FS_TRUNCATE | FS_MAKE_REG | FS_REMOVE_FILE | \
     FS_READ_DIR
#define WRITE SCRATCH | FS_REMOVE_DIR | FS_MAKE_DIR | FS_MAKE_SYM | FS_REFER

struct ofs_sandbox {
	int ruleset;      /* -1: without Landlock */
	uint64_t handled; /* rights known to this kernel */
	bool write, passthrough, accept;
};

/* The version of Landlock; 0: not available. */
static int version(void)
{
	long n = syscall(CALL_CREATE_RULESET, NULL, 0, CREATE_VERSION);

	return n < 0 ? 0 : (int)n;
}

static uint64_t rights(int v)
{
	uint64_t known = FS_REFER - 1; /* all lower bits */

	if (v >= 2)
		known |= FS_REFER;
	if (v >= 3)
		known |= FS_TRUNCATE;
	if (v >= 5)
		known |= FS_IOCTL_DEV;
	return known;
}

/* Threads of a mount wake each other with signals, which the first kernels with
 * this scope refuse between threads that entered on their own. */
static uint64_t scopes(int v)
{
	long fixed;

	if (v < 6)
		return 0;
	fixed = syscall(CALL_CREATE_RULESET, NULL, 0, CREATE_ERRATA);
	return SCOPE_SOCKET |
	    (fixed > 0 && (fixed & FIXED_SIGNAL) != 0 ? SCOPE_SIGNAL : 0);
}

/* 1: err says why there is none. */
static int make_ruleset(struct ofs_sandbox *s, struct optimfs_error *err)
{
	int v = version();
	struct ruleset_attr attr = { .fs = rights(v),
		.net = v >= 4 ? NET_TCP : 0,
		.scoped = scopes(v) };

	if (v == 0) {
		optimfs_fail(err, EOPNOTSUPP,
		    "this kernel has no Landlock: %m");
		return 1;
	}
	/* without REFER files cannot be moved between directories */
	if (v < 2 && s->write) {
		optimfs_fail(err, EOPNOTSUPP,
		    "Landlock of this kernel forbids commits (Linux 5.19 "
		    "allows them)");
		return 1;
	}
	s->handled = attr.fs;
	s->ruleset = (int)syscall(CALL_CREATE_RULESET, &attr, sizeof(attr), 0);
	if (s->ruleset == -1)
		return optimfs_fail(err, errno, "Landlock: %m");
	return 0;
}

/* EBADFD: a pipe or the like, which is not in a file system. */
static int allow_fd(const struct ofs_sandbox *s, int fd, uint64_t allowed,
    struct optimfs_error *err)
{
	struct path_beneath rule = { .allowed = allowed & s->handled,
		.parent = fd };

	if (syscall(CALL_ADD_RULE, s->ruleset, RULE_PATH_BENEATH, &rule, 0) ==
		-1 &&
	    errno != EBADFD)
		return optimfs_fail(err, errno, "Landlock: %m");
	return 0;
}

static int allow(const struct ofs_sandbox *s, const char *path,
    uint64_t allowed, struct optimfs_error *err)
{
	int fd = path == NULL ? -1 : open(path, O_PATH | O_CLOEXEC), ret;
	struct stat st;

	if (fd == -1)
		return 0;
	if (fstat(fd, &st) == 0 && !S_ISDIR(st.st_mode))
		allowed &= FS_READ_FILE;
	ret = allow_fd(s, fd, allowed, err);
	close(fd);
	return ret;
}

/* Is it an index, which names files beside it? */
static bool is_index(const char *path)
{
	size_t n = strlen(path);

	return n > 5 && strcmp(path + n - 5, ".json") == 0;
}

/* A path without links, malloc'ed; of one that does not exist yet, only its
 * directory is. *exists may be NULL. NULL: no memory. */
static char *real_path(const char *path, bool *exists)
{
	char *real = realpath(path, NULL);

	if (exists != NULL)
		*exists = real != NULL;
	return real != NULL ? real : strdup(path);
}

/* The directory that a path is in. */
static int allow_beside(const struct ofs_sandbox *s, const char *path,
    uint64_t allowed, struct optimfs_error *err)
{
	char *real = real_path(path, NULL);
	int ret;

	if (real == NULL)
		return ofs_no_memory(err);
	ret = allow(s, dirname(real), allowed, err);
	free(real);
	return ret;
}

/* In a cache of Hugging Face: the blobs that its links lead to. */
static int allow_blobs(const struct ofs_sandbox *s, const char *path,
    struct optimfs_error *err)
{
	struct stat st;
	bool is_dir = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
	char *copy = strdup(path);
	char *real =
	    copy == NULL ? NULL : realpath(is_dir ? copy : dirname(copy), NULL);
	size_t n = real == NULL ? 0 : ofs_cache_root(real);
	int ret = copy == NULL ? ofs_no_memory(err) : 0;

	if (n > 0) {
		real[n] = '\0';
		ret = allow(s, real, READ, err);
	}
	free(real);
	free(copy);
	return ret;
}

/* For a directory: everything in it. For a file: the file and the listing of
 * its directory; for an index, the whole directory. */
static int allow_source(const struct ofs_sandbox *s, const char *path,
    struct optimfs_error *err)
{
	uint64_t beside = 0;
	struct stat st;
	bool exists;
	char *real = real_path(path, &exists);
	int ret;

	if (real == NULL)
		return ofs_no_memory(err);
	if (exists && is_index(real))
		beside = READ;
	else if (exists && stat(real, &st) == 0 && !S_ISDIR(st.st_mode))
		beside = FS_READ_DIR;
	ret = allow(s, real, READ, err);
	if (ret == 0 && beside != 0)
		ret = allow_beside(s, path, beside, err);
	if (ret == 0)
		ret = allow_blobs(s, path, err);
	free(real);
	return ret;
}

/* What is computed from checkpoints of a run needs all of it. */
static int allow_named(const struct ofs_sandbox *s, const char *name,
    struct optimfs_error *err)
{
	char *run;
	int ret;

	if (optimfs_is_address(name))
		return 0;
	run = optimfs_run_of(name);
	ret = allow_source(s, run != NULL ? run : name, err);
	free(run);
	return ret;
}

/* A new checkpoint is made like another one, which its mount reads. */
static int each_read(const struct ofs_sandbox_config *config,
    int (*each)(const void *ctx, const char *path, struct optimfs_error *err),
    const void *ctx, struct optimfs_error *err)
{
	char *paths =
	    config->write ? optimfs_mkfs_reads(config->source[0]) : NULL;
	int ret = 0;

	for (const char *p = paths; p != NULL && *p != '\0' && ret == 0;
	     p += strlen(p) + 1)
		ret = each(ctx, p, err);
	free(paths);
	return ret;
}

static int allow_read(const void *s, const char *path,
    struct optimfs_error *err)
{
	return allow_named(s, path, err);
}

static int connect_read(const void *config, const char *path,
    struct optimfs_error *err)
{
	return optimfs_connect(path,
	    ((const struct ofs_sandbox_config *)config)->open, err);
}

static int connect_addresses(const struct ofs_sandbox_config *config,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < 2; i++)
		if (config->source[i] != NULL &&
		    optimfs_connect(config->source[i], config->open, err) == -1)
			return -1;
	if (config->output != NULL &&
	    optimfs_connect(config->output, config->open, err) == -1)
		return -1;
	return each_read(config, connect_read, config, err);
}

/* What is written appears beside its place first, and is renamed. */
static int allow_places(const struct ofs_sandbox *s,
    const struct ofs_sandbox_config *config, struct optimfs_error *err)
{
	for (size_t i = 0; i < 2; i++)
		if (config->source[i] != NULL &&
		    allow_named(s, config->source[i], err) == -1)
			return -1;
	for (size_t i = 0; i < 2; i++)
		if (config->join[i] != NULL &&
		    allow_source(s, config->join[i], err) == -1)
			return -1;
	for (size_t i = 0; i < 2; i++)
		if (config->base[i] != NULL &&
		    allow_named(s, config->base[i], err) == -1)
			return -1;
	if (each_read(config, allow_read, s, err) == -1)
		return -1;
	if (config->write &&
	    allow_beside(s, config->source[0],
		config->temporary ? SCRATCH : WRITE, err) == -1)
		return -1;
	return config->output == NULL || optimfs_is_address(config->output)
	    ? 0
	    : allow_beside(s, config->output, WRITE, err);
}

/* Work that was done when a checkpoint was opened before, and what was read of
 * addresses. */
static int allow_cache(const struct ofs_sandbox *s,
    const struct ofs_sandbox_config *config, struct optimfs_error *err)
{
	char *dir = ofs_user_cache_make();
	int ret = dir == NULL ? 0 : allow(s, dir, SCRATCH, err);

	free(dir);
	return ret == 0 && config->open != NULL
	    ? allow(s, config->open->cache_dir, SCRATCH, err)
	    : ret;
}

/* A directory for decoded data that exceeds memory, and for temporary
 * changes. */
static int allow_temporary(const struct ofs_sandbox *s,
    const struct ofs_sandbox_config *config, struct optimfs_error *err)
{
	const char *dir = getenv("TMPDIR");

	if (dir != NULL && dir[0] != '\0')
		return allow(s, dir, SCRATCH, err);
	if (config->temporary && allow(s, "/tmp", SCRATCH, err) == -1)
		return -1;
	return allow(s, "/var/tmp", SCRATCH, err);
}

static int make_rules(const struct ofs_sandbox *s,
    const struct ofs_sandbox_config *config, struct optimfs_error *err)
{
	if (allow_places(s, config, err) == -1 ||
	    (config->memory != -1 &&
		allow_fd(s, config->memory, SCRATCH, err) == -1))
		return -1;
	for (size_t i = 0; i < sizeof(config->file) / sizeof(*config->file);
	     i++)
		if (allow(s, config->file[i], FS_READ_FILE, err) == -1)
			return -1;
	if (allow(s, config->upper, WRITE, err) == -1 ||
	    allow_temporary(s, config, err) == -1 ||
	    allow_cache(s, config, err) == -1)
		return -1;
	/* memory statistics, its limits and the boot id */
	if (allow(s, "/sys/fs/cgroup", FS_READ_FILE, err) == -1)
		return -1;
	return allow(s, "/proc", FS_READ_FILE, err);
}

int ofs_sandbox_new(const struct ofs_sandbox_config *config,
    struct ofs_sandbox **sandbox, struct optimfs_error *err)
{
	struct ofs_sandbox *s = calloc(1, sizeof(*s));
	int ret;

	if (s == NULL)
		return ofs_no_memory(err);
	if (connect_addresses(config, err) == -1) {
		free(s);
		return -1;
	}
	s->ruleset = -1;
	s->accept = config->accept;
	s->write =
	    config->write || config->output != NULL || config->upper != NULL;
	s->passthrough = config->passthrough;
	tzset(); /* reads a file that the sandbox hides */
	ret = make_ruleset(s, err);
	if (ret == 0)
		ret = make_rules(s, config, err);
	if (ret == -1)
		ofs_sandbox_free(s);
	else
		*sandbox = s;
	return ret;
}

void ofs_sandbox_free(struct ofs_sandbox *s)
{
	if (s == NULL)
		return;
	if (s->ruleset != -1)
		close(s->ruleset);
	free(s);
}

#define CAP(n) (UINT32_C(1) << (n))

/* Capabilities kept by root: to read files of others; to write, also to give
 * new files the owner and mode of those that they replace, and to see that
 * a user has a file open that a commit would replace (a lease). */
static uint32_t kept(const struct ofs_sandbox *s)
{
	uint32_t keep = CAP(CAP_DAC_READ_SEARCH);

	if (s->write)
		keep |= CAP(CAP_CHOWN) | CAP(CAP_DAC_OVERRIDE) |
		    CAP(CAP_FOWNER) | CAP(CAP_FSETID) | CAP(CAP_LEASE);
	if (s->passthrough)
		keep |= CAP(CAP_SYS_ADMIN);
	return keep;
}

static int drop_capabilities(uint32_t keep, struct optimfs_error *err)
{
	struct __user_cap_header_struct head = {
		.version = _LINUX_CAPABILITY_VERSION_3
	};
	struct __user_cap_data_struct caps[_LINUX_CAPABILITY_U32S_3];

	if (syscall(SYS_capget, &head, caps) == -1)
		return optimfs_fail(err, errno, "capabilities: %m");
	for (size_t i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
		uint32_t left = i == 0 ? keep : 0;

		caps[i].effective &= left;
		caps[i].permitted &= left;
		caps[i].inheritable &= left;
	}
	if (syscall(SYS_capset, &head, caps) == -1)
		return optimfs_fail(err, errno, "capabilities: %m");
	return 0;
}

int ofs_sandbox_serve(const struct ofs_sandbox *s, struct optimfs_error *err)
{
	return drop_capabilities(kept(s) | CAP(CAP_SYS_ADMIN), err);
}

int ofs_sandbox_enter(const struct ofs_sandbox *s, struct optimfs_error *err)
{
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == -1)
		return optimfs_fail(err, errno, "no_new_privs: %m");
	if (drop_capabilities(kept(s), err) == -1)
		return -1;
	if (s->ruleset != -1 &&
	    syscall(CALL_RESTRICT_SELF, s->ruleset, 0) == -1)
		return optimfs_fail(err, errno, "Landlock: %m");
	return ofs_syscalls_limit(s->write, s->accept, err);
}
