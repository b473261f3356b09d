/* cmd_cp.c - optimfs cp: copy files of the tree out */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/command.h"
#include "tools/walk.h"

struct copy {
	struct ofs_command *c;
	const char *dest; /* the directory that the tree's becomes */
	int status;       /* of the first file that could not be read */
	/* Of several ranks: who copies which file, in the order of the walk;
	 * who is NULL for a process that copies all. */
	int *who;
	uint64_t *size;
	size_t nfiles, cap, at;
};

struct sink {
	int fd;
	bool failed; /* a write did, not the checkpoint */
};

static int sink_fd(void *ctx, const void *p, size_t n,
    struct optimfs_error *err)
{
	struct sink *sink = ctx;
	const char *at = p;

	while (n > 0) {
		ssize_t k = write(sink->fd, at, n);

		if (k == -1 && errno == EINTR)
			continue;
		if (k == -1) {
			sink->failed = true;
			return optimfs_fail(err, errno, "%m");
		}
		at += k;
		n -= (size_t)k;
	}
	return 0;
}

/* mkstemp makes 0600; what is copied gets what open(2) would have given. */
static mode_t new_file_mode(void)
{
	mode_t mask = umask(0);

	umask(mask);
	return 0666 & ~mask;
}

/* A new file beside dest, whose name may be as long as names can be. */
static int make_temp(const char *dest, char **temp, struct optimfs_error *err)
{
	const char *slash = strrchr(dest, '/');
	int n = slash == NULL ? 0 : (int)(slash + 1 - dest), fd;

	if (asprintf(temp, "%.*s.optimfs.XXXXXX", n, dest) == -1)
		return optimfs_fail(err, ENOMEM, "out of memory");
	fd = mkostemp(*temp, O_CLOEXEC);
	if (fd != -1)
		return fd;
	optimfs_fail(err, errno, "%s: %m", dest);
	free(*temp);
	return -1;
}

/* 0; 1: the checkpoint has not all of it; -1: it cannot be written. */
static int fill(struct ofs_command *c, uint64_t node, int fd,
    struct optimfs_error *err)
{
	struct sink sink = { .fd = fd };

	if (ofs_command_read(c, node, sink_fd, &sink, err) == -1)
		return sink.failed || err->code == ENOMEM ? -1 : 1;
	return fchmod(fd, new_file_mode()) == 0
	    ? 0
	    : optimfs_fail(err, errno, "%m");
}

/* The file appears under its name complete or not at all: as fill. */
static int copy_file(struct ofs_command *c, uint64_t node, const char *dest,
    struct optimfs_error *err)
{
	char *temp;
	int fd = make_temp(dest, &temp, err), ret = -1;

	if (fd == -1)
		return -1;
	ret = fill(c, node, fd, err);
	if (ret != 0) {
		optimfs_fail_in(err, "%s", dest);
		close(fd);
		goto out;
	}
	if (close(fd) == -1 || rename(temp, dest) == -1)
		ret = optimfs_fail(err, errno, "%s: %m", dest);
out:
	if (ret != 0)
		unlink(temp);
	free(temp);
	return ret;
}

static int make_directory(const char *path, struct optimfs_error *err)
{
	struct stat st;

	if (mkdir(path, 0777) == 0)
		return 0;
	if (errno == EEXIST && stat(path, &st) == 0 && S_ISDIR(st.st_mode))
		return 0;
	return optimfs_fail(err, errno, "%s: %m", path);
}

/* The next file: is it ours to copy? */
static int is_ours(struct copy *copy, bool *ours, struct optimfs_error *err)
{
	struct optimfs_group *w = copy->c->job.world;

	*ours = true;
	if (copy->who == NULL)
		return 0;
	if (copy->at == copy->nfiles)
		return optimfs_fail(err, ESTALE,
		    "there are more files than rank 0 has found");
	*ours = copy->who[copy->at++] == optimfs_group_rank(w);
	return optimfs_group_look(w, err);
}

static int copy_entry(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct copy *copy = ctx;
	bool is_dir = S_ISDIR(e->attr.mode), ours = true;
	char *dest = NULL;
	int ret;

	if (!is_dir && is_ours(copy, &ours, err) == -1)
		return -1;
	if (!ours)
		return 0;
	if (asprintf(&dest, "%s/%s", copy->dest, e->path) == -1)
		return optimfs_fail(err, ENOMEM, "out of memory");
	if (is_dir)
		ret = make_directory(dest, err);
	else
		ret = copy_file(copy->c, e->attr.node, dest, err);
	if (ret == 0 && !is_dir && copy->who != NULL)
		optimfs_group_did(copy->c->job.world, e->attr.size);
	free(dest);
	if (ret == 1) {
		int status = ofs_tool_fail(err);

		/* as cp(1): the others are copied all the same */
		copy->status = copy->status == 0 ? status : copy->status;
		ret = 0;
	}
	return ret;
}

static int count_entry(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct copy *copy = ctx;

	if (S_ISDIR(e->attr.mode))
		return 0;
	if (copy->nfiles == copy->cap) {
		size_t cap = copy->cap == 0 ? 256 : 2 * copy->cap;
		uint64_t *size = reallocarray(copy->size, cap, sizeof(*size));

		if (size == NULL)
			return optimfs_fail(err, ENOMEM, "out of memory");
		copy->size = size;
		copy->cap = cap;
	}
	copy->size[copy->nfiles++] = e->attr.size;
	return 0;
}

/* As cp(1) does: into dest when it is a directory, else as dest. */
static char *target(const char *path, const char *dest)
{
	char *copy, *full = NULL, *base;
	struct stat st;

	if (stat(dest, &st) == -1 || !S_ISDIR(st.st_mode))
		return strdup(dest);
	copy = strdup(path);
	if (copy == NULL)
		return NULL;
	base = basename(copy);
	if (strcmp(base, "/") == 0 || strcmp(base, ".") == 0)
		full = strdup(dest);
	else if (asprintf(&full, "%s/%s", dest, base) == -1)
		full = NULL;
	free(copy);
	return full;
}

/* Rank 0 says where to, and who copies what, so that all mean the same. Those
 * who do not see that directory only serve the others. */
static int divide(struct copy *copy, uint64_t dir, char **to, bool *sees,
    struct optimfs_error *err)
{
	struct optimfs_group *w = copy->c->job.world;
	struct optimfs_error own = { 0 };

	if (optimfs_group_rank(w) == 0 && make_directory(*to, &own) == 0 &&
	    ofs_walk(copy->c->fs, dir, 0, count_entry, copy, &own) == 0)
		own.code = 0;
	if (optimfs_group_agree(w, &own, err) == -1 ||
	    optimfs_group_see(w, to, sees, err) == -1)
		return -1;
	return optimfs_group_divide(w, copy->size, sees, &copy->who,
	    &copy->nfiles, err);
}

static int copy_together(struct copy *copy, uint64_t dir, char **to,
    struct optimfs_error *err)
{
	struct optimfs_group *w = copy->c->job.world;
	struct optimfs_error own = { 0 };
	bool *sees = calloc((size_t)optimfs_group_size(w), sizeof(*sees));
	int ret;

	if (sees == NULL)
		optimfs_fail(&own, ENOMEM, "out of memory");
	ret = optimfs_group_agree(w, &own, err);
	if (ret == 0)
		ret = divide(copy, dir, to, sees, err);
	if (ret == 0) {
		copy->dest = *to;
		if (!sees[optimfs_group_rank(w)] ||
		    ofs_walk(copy->c->fs, dir, 0, copy_entry, copy, &own) == 0)
			own.code = 0; /* of a file that could not be read */
		ret = optimfs_group_agree(w, &own, err);
	}
	if (ret == 0)
		ofs_command_tell(copy->c);
	free(copy->who);
	free(copy->size);
	free(sees);
	return ret;
}

/* *status becomes that of its files which could not be read, and were told
 * of. */
static int copy_directory(struct ofs_command *c, uint64_t dir, char **to,
    int *status, struct optimfs_error *err)
{
	struct copy copy = { .c = c, .dest = *to };
	int ret;

	if (c->job.world != NULL)
		ret = copy_together(&copy, dir, to, err);
	else if (make_directory(*to, err) == -1)
		ret = -1;
	else
		ret = ofs_walk(c->fs, dir, 0, copy_entry, &copy, err);
	*status = copy.status;
	return ret;
}

/* What is to be copied, and on the rank that says so: to where. */
static int find(struct ofs_command *c, const char *path, const char *dest,
    struct optimfs_attr *attr, char **to, struct optimfs_error *err)
{
	if (ofs_command_resolve(c, path, attr, err) == -1)
		return -1;
	if (S_ISDIR(attr->mode) && !(c->flags & OFS_RECURSIVE))
		return optimfs_fail(err, EISDIR, "%s: is a directory: use -r",
		    path);
	if (!ofs_job_is_first(&c->job))
		return 0;
	*to = target(path, dest);
	return *to == NULL ? optimfs_fail(err, ENOMEM, "out of memory") : 0;
}

/* The same on all ranks. */
static int find_together(struct ofs_command *c, const char *path,
    const char *dest, struct optimfs_attr *attr, char **to,
    struct optimfs_error *err)
{
	struct optimfs_error own = { 0 };

	if (c->job.world == NULL)
		return find(c, path, dest, attr, to, err);
	if (find(c, path, dest, attr, to, &own) == 0)
		own.code = 0;
	return optimfs_group_agree(c->job.world, &own, err);
}

static int copy(struct ofs_command *c, const char *path, const char *dest,
    int *status, struct optimfs_error *err)
{
	struct optimfs_attr attr;
	char *to = NULL;
	int ret = find_together(c, path, dest, &attr, &to, err);

	if (ret == 0 && S_ISDIR(attr.mode))
		ret = copy_directory(c, attr.node, &to, status, err);
	else if (ret == 0 && ofs_job_is_first(&c->job))
		ret = copy_file(c, attr.node, to, err);
	free(to);
	return ret == 0 ? 0 : -1;
}

static int run(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct optimfs_error err;
	int status, unread = OFS_EXIT_OK;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_RECURSIVE | OFS_VERBOSE | OFS_TOGETHER | OFS_PATHS |
		    OFS_DEST,
		2, 2, &status) == -1)
		return status;
	if (copy(&c, c.operand[0], c.operand[1], &unread, &err) == -1)
		status = ofs_command_fail(&c, &err);
	else
		status = unread;
	ofs_command_fini(&c);
	return status;
}

const struct ofs_verb ofs_verb_cp = {
	.name = "cp",
	.synopsis = "[-r] [-v] [-o OPTION] CHECKPOINT PATH DESTINATION",
	.summary = "copy a file of the tree, or with -r a directory",
	.options = "  -r  copy directories\n"
		   "  -v  under mpirun: say what each rank did\n",
	.run = run,
};
