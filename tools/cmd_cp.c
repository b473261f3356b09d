/* cmd_cp.c - optimfs cp: copy files of the tree out */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/replace.h"
#include "cli/interrupt.h"
#include "cli/lost.h"
#include "tools/operand.h"

struct copying {
	struct ofs_command *c;
	struct ofs_lost lost;
	int status; /* of the first unreadable file */
	uint64_t unread;
};

static void unread(void *ctx, const struct optimfs_error *err)
{
	struct copying *copying = ctx;

	if (!ofs_lost_add(&copying->lost, NULL, err->text, err)) {
		ofs_progress_break(&copying->c->progress);
		ofs_tool_say("%s", err->text);
	}
	if (copying->status == OFS_EXIT_OK)
		copying->status = ofs_tool_status(err->code);
	copying->unread++;
}

static void copied(void *ctx, uint64_t bytes, const char *name)
{
	struct copying *copying = ctx;

	if (copying->c->progress.begun)
		ofs_progress_add(&copying->c->progress, bytes, name);
}

/* For a single process: adds the number of bytes to copy. */
static int measure(struct ofs_command *c, const char *operand,
    struct optimfs_error *err)
{
	struct optimfs_attr attr;
	struct ofs_operand p;
	int ret;

	if (c->job.group != NULL)
		return 0;
	ret = ofs_operand_find(&p, c, operand, err);
	attr = p.attr;
	if (ret == 0 && p.slice == NULL)
		ret = ofs_command_measure(c, &attr, err);
	ofs_operand_fini(&p);
	return ret;
}

static int put_bytes(void *ctx, const void *data, size_t n,
    struct optimfs_error *err)
{
	return fwrite(data, 1, n, ctx) == n
	    ? 0
	    : optimfs_fail(err, errno, "writing failed: %m");
}

static int write_slice(struct ofs_operand *p, const char *operand,
    const char *dest, struct optimfs_error *err)
{
	struct ofs_replace to;
	FILE *f;
	int ret;

	if (ofs_replace_open(&to, dest, err) == -1)
		return -1;
	f = fdopen(dup(to.fd), "w");
	ret = f == NULL ? optimfs_fail(err, errno, "%m")
			: ofs_operand_npy(p, operand, put_bytes, f, err);
	if (f != NULL && fclose(f) != 0 && ret == 0)
		ret = optimfs_fail(err, errno, "%m");
	if (ret == 0)
		ret = ofs_replace_finish(&to, err);
	ofs_replace_fini(&to);
	return ret == 0 ? 0 : optimfs_fail_in(err, "%s", dest);
}

/* In a directory, the slice of model/w is w.npy. */
static int copy_slice(struct ofs_operand *p, const char *operand,
    const char *dest, struct optimfs_error *err)
{
	const char *name = strrchr(p->path, '/');
	struct stat st;
	char *file;
	int ret;

	if (p->c->job.group != NULL)
		return optimfs_fail(err, EOPNOTSUPP,
		    "%s: several ranks copy no slice: run it without mpirun",
		    operand);
	if (stat(dest, &st) == -1 || !S_ISDIR(st.st_mode))
		return write_slice(p, operand, dest, err);
	if (asprintf(&file, "%s/%s.npy", dest,
		name == NULL ? p->path : name + 1) == -1)
		return ofs_no_memory(err);
	ret = write_slice(p, operand, file, err);
	free(file);
	return ret;
}

static int copy_path(struct copying *copying, const char *operand,
    const char *dest, const struct optimfs_copy *how, struct optimfs_error *err)
{
	struct ofs_command *c = copying->c;
	struct ofs_operand p;
	int ret = ofs_operand_find(&p, c, operand, err);

	if (ret == 0)
		ret = p.slice != NULL
		    ? copy_slice(&p, operand, dest, err)
		    : optimfs_copy(c->fs, operand, dest, how, err);
	if (ret == -1)
		ofs_command_explain_place(dest, err);
	ofs_operand_fini(&p);
	return ret;
}

/* Makes the directories of path that begin after the first n bytes. */
static int make_above(char *path, size_t n, struct optimfs_error *err)
{
	for (char *slash = path + n; (slash = strchr(slash, '/')) != NULL;
	     *slash++ = '/') {
		*slash = '\0';
		if (mkdir(path, 0777) == -1 && errno != EEXIST)
			return optimfs_fail(err, errno, "%s: %m", path);
	}
	return 0;
}

/* What a pattern matches gets its path below the part of the pattern that has no
 * wildcards, so that state/a/exp_avg and state/b/exp_avg are two files. */
static int copy_match(struct copying *copying, const char *operand,
    const struct optimfs_copy *how, struct optimfs_error *err)
{
	struct ofs_command *c = copying->c;
	const char *dest = c->operand[c->noperands - 1];
	char *path;
	int ret;

	if (asprintf(&path, "%s/%s", dest, operand + c->fixed) == -1)
		return ofs_no_memory(err);
	ret = make_above(path, strlen(dest), err);
	*strrchr(path, '/') = '\0';
	if (ret == 0)
		ret = copy_path(copying, operand, path, how, err);
	free(path);
	return ret;
}

static int copy_all(struct copying *copying, const struct optimfs_copy *how,
    struct optimfs_error *err)
{
	struct ofs_command *c = copying->c;
	int n = c->noperands - 1, ret = 0, worst = 0;

	for (int i = 0; i < n && ret == 0; i++)
		ret = measure(c, c->operand[i], err);
	for (int i = 0; i < n && ret >= 0; i++) {
		ret = c->pattern ? copy_match(copying, c->operand[i], how, err)
				 : copy_path(copying, c->operand[i],
				       c->operand[n], how, err);
		worst = ret > worst ? ret : worst;
	}
	return ret == -1 ? -1 : worst;
}

static int run_cp(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct copying copying = { .c = &c, .lost.list = "fsck" };
	struct optimfs_copy how = { .unread = unread,
		.copied = copied,
		.stop = ofs_interrupted,
		.ctx = &copying };
	struct optimfs_error err;
	int status, ret;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_RECURSIVE | OFS_VERBOSE | OFS_TOGETHER | OFS_PATHS |
		    OFS_SLICES | OFS_DEST | OFS_RUNS,
		2, 2, &status) == -1)
		return status;
	how.recursive = (c.flags & OFS_RECURSIVE) != 0;
	if (c.job.group == NULL)
		ofs_interrupt_catch();
	else
		ofs_command_watch_ranks(&c);
	ret = copy_all(&copying, &how, &err);
	ofs_progress_end(&c.progress, ret == 0);
	ofs_lost_tell(&copying.lost, ofs_tool_say_text, NULL);
	if (copying.unread > 0 && how.recursive)
		ofs_tool_say("%s: %" PRIu64 " file%s could not be read; all "
			     "others are there",
		    c.operand[c.noperands - 1], copying.unread,
		    copying.unread == 1 ? "" : "s");
	if (ret == -1)
		copying.status = ofs_command_stopped(&c, &err,
		    how.recursive || c.pattern
			? "files that are there are complete"
			: "nothing was written");
	ofs_command_fini(&c);
	return copying.status;
}

const struct ofs_verb ofs_verb_cp = {
	.name = "cp",
	.from = true,
	.synopsis = "[-rv] [-o OPTION] CHECKPOINT PATH[SLICE] DESTINATION",
	.summary = "copy a file, or with -r a directory, out of a checkpoint",
	.options =
	    "  -r  copy directories\n"
	    "  -v  under mpirun: report what each rank did\n"
	    "\n"
	    "PATH may be a pattern, 'optim/state/*/exp_avg'; DESTINATION is then a\n"
	    "directory. A slice, as of show, is written as a .npy file.\n",
	.run = run_cp,
};
