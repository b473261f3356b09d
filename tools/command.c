/* command.c - what the verbs that open a checkpoint have in common */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/command.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/replace.h"
#include "cli/args.h"
#include "cli/interrupt.h"
#include "cli/sandbox.h"
#include "fs/walk.h"
#include "tools/delta.h"

/* A sanitizer reads files, and at the end traces the process from another. */
#ifdef SANITIZED
# define SANDBOX OFS_SANDBOX_OFF
#else
# define SANDBOX OFS_SANDBOX_AUTO
#endif

static const char *const work_ranks[] = { "nodes", "all", NULL };

static const struct ofs_option options_table[] = {
	OFS_OPEN_OPTIONS(offsetof(struct ofs_command, open)),
	OFS_JOB_OPTIONS(offsetof(struct ofs_command, how)),
	{ .name = "work_ranks",
	    .kind = OFS_OPTION_CHOICE,
	    .choices = work_ranks,
	    .offset = offsetof(struct ofs_command, work_ranks) },
	OFS_OPTION_ROW("timeout", OFS_OPTION_TIME,
	    offsetof(struct ofs_command, timeout)),
	{ .name = "sandbox",
	    .kind = OFS_OPTION_CHOICE,
	    .choices = ofs_sandbox_policies,
	    .offset = offsetof(struct ofs_command, sandbox) },
	{ .name = NULL },
};

/* A flag with a value has the member of struct ofs_command that gets it. */
static const struct known {
	uint64_t mask;
	struct ofs_flag flag;
	size_t member;
} known[] = {
	{ OFS_LONG, { 'l', NULL, false }, 0 },
	{ OFS_RECURSIVE, { 'r', NULL, false }, 0 },
	{ OFS_RECURSIVE, { 'R', NULL, false }, 0 },
	{ OFS_JSON, { 256, "json", false }, 0 },
	{ OFS_DATA, { 257, "data", false }, 0 },
	{ OFS_TO, { 258, "to", true }, offsetof(struct ofs_command, to) },
	{ OFS_RTOL, { 259, "rtol", true }, offsetof(struct ofs_command, rtol) },
	{ OFS_JOBS, { 'j', "jobs", true }, offsetof(struct ofs_command, jobs) },
	{ OFS_LIKE, { 261, "like", true },
	    offsetof(struct ofs_command, checkpoint) },
	{ OFS_LAYOUT, { 262, "layout", true },
	    offsetof(struct ofs_command, layout) },
	{ OFS_VERBOSE, { 'v', "verbose", false }, 0 },
	{ OFS_SORT, { 263, "sort", true }, offsetof(struct ofs_command, sort) },
	{ OFS_ONLY, { 264, "only", true }, offsetof(struct ofs_command, only) },
	{ OFS_BY, { 265, "by", true }, offsetof(struct ofs_command, by) },
	{ OFS_ATOL, { 266, "atol", true }, offsetof(struct ofs_command, atol) },
	{ OFS_SUMMARY, { 267, "summary", false }, 0 },
	{ OFS_SWEEP, { 268, "sweep", true },
	    offsetof(struct ofs_command, sweep) },
	{ OFS_OUTPUT, { 'o', "output", true },
	    offsetof(struct ofs_command, output) },
	{ OFS_NO_DATA, { 269, "no-data", false }, 0 },
	{ OFS_ALL, { 'a', "all", false }, 0 },
	{ OFS_HUMAN, { 'h', "human-readable", false }, 0 },
	{ OFS_ONE, { '1', NULL, false }, 0 },
	{ OFS_DRY, { 'n', "dry-run", false }, 0 },
	{ OFS_SHA256, { 281, "sha256", false }, 0 },
	{ OFS_STAT, { 282, "stat", true }, offsetof(struct ofs_command, stat) },
	{ OFS_CSV, { 283, "csv", false }, 0 },
	{ OFS_THIN, { 284, "keep-last", true },
	    offsetof(struct ofs_command, keep_last) },
	{ OFS_THIN, { 285, "keep-every", true },
	    offsetof(struct ofs_command, keep_every) },
	{ OFS_YES, { 286, "yes", false }, 0 },
	{ OFS_DROP, { 290, "drop", true }, offsetof(struct ofs_command, drop) },
	{ OFS_VERIFY, { 287, "verify", true },
	    offsetof(struct ofs_command, verify) },
	{ OFS_SERVE, { 288, "listen", true },
	    offsetof(struct ofs_command, listen) },
	{ OFS_SERVE, { 289, "token-file", true },
	    offsetof(struct ofs_command, token_file) },
};
#define NKNOWN (sizeof(known) / sizeof(known[0]))

static void take_flag(struct ofs_command *c, int id, const char *value)
{
	const struct known *k = known;

	while (k->flag.id != id)
		k++;
	c->flags |= k->mask;
	if (k->flag.value)
		*(const char **)((char *)c + k->member) = value;
}

/* "type=dcp", where a file is wanted. */
static bool is_option(const struct ofs_command *c, const char *s)
{
	size_t n = strcspn(s, "=");
	char name[64];

	if (s[n] != '=' || n >= sizeof(name))
		return false;
	memcpy(name, s, n);
	name[n] = '\0';
	return ofs_options_known(&c->options, name);
}

static int parse(struct ofs_command *c, const struct ofs_verb *verb, int argc,
    char **argv, uint64_t allowed, int *status)
{
	struct ofs_flag flags[NKNOWN + 1];
	struct ofs_args args;
	const char *value;
	size_t n = 0;
	int id;

	for (size_t i = 0; i < NKNOWN; i++)
		if (known[i].mask & allowed)
			flags[n++] = known[i].flag;
	flags[n] = (struct ofs_flag){ 0 };
	ofs_args_init(&args, verb, argc, argv, flags, &c->options);
	while ((id = ofs_args_next(&args, &value, status)) != OFS_ARGS_END) {
		if (id == OFS_ARGS_STOP)
			return -1;
		if (id == OFS_ARGS_OPERAND)
			c->operand[c->noperands++] = (char *)value;
		else
			take_flag(c, id, value);
	}
	if (c->output != NULL && is_option(c, c->output)) {
		*status = ofs_tool_usage(verb,
		    "-o %s: here -o names the file to write; the option is "
		    "given as --%s",
		    c->output, c->output);
		return -1;
	}
	ofs_progress_init(&c->progress, verb->name, args.quiet, args.progress);
	return 0;
}

/* The ranks that continue. A new checkpoint has directories of all. */
static const char *workers(const struct ofs_command *c, uint64_t allowed)
{
	if ((allowed & OFS_TOGETHER) == 0)
		return NULL;
	return (allowed & OFS_LAYOUT) != 0 ? "all" : work_ranks[c->work_ranks];
}

/* Ranks that only serve return when everything is done. */
static int join(struct ofs_command *c, uint64_t allowed, int *status)
{
	const char *who = workers(c, allowed);
	struct optimfs_error err;

	if (ofs_job_join(&c->job, &c->how, who, c->timeout, ofs_tool_say_text,
		&err) == -1 ||
	    ofs_job_offer(&c->job, &c->how, c->checkpoint, &c->open, &err) ==
		-1 ||
	    ((allowed & OFS_SECOND) != 0 && c->noperands > 0 &&
		ofs_job_offer(&c->job, &c->how, c->operand[0], &c->open,
		    &err) == -1)) {
		*status = ofs_job_fail(&c->job, &err);
		return -1;
	}
	c->open.group = c->job.group;
	if (who == work_ranks[0])
		ofs_job_say_bound(&c->job,
		    ", and -o work_ranks=all lets all ranks work",
		    ofs_tool_say_text);
	if (ofs_job_works(&c->job))
		return 0;
	*status = OFS_EXIT_OK;
	return -1;
}

/* What is made from a checkpoint is for nobody who may not read the
 * checkpoint. */
static void keep_private(struct optimfs *fs)
{
	struct optimfs_attr attr;

	if (optimfs_getattr(fs, OPTIMFS_ROOT, &attr, NULL) == 0)
		(void)umask(umask(0777) |
		    (0777 & ~ofs_made_mode(0777, attr.mode, attr.gid)));
}

struct optimfs *ofs_command_open(struct ofs_command *c, const char *path,
    struct optimfs_error *err)
{
	const struct optimfs_watch watch = { .progress = ofs_progress_step,
		.ctx = &c->progress };
	struct optimfs_options open = c->open;
	struct optimfs *fs;

	/* it is a part of the first one only */
	if (path != c->checkpoint)
		open.join = c->source[1].open.join;
	open.watch = &watch;
	if (c->job.group == NULL) /* mpirun ends its ranks */
		ofs_interrupt_end(
		    "nothing was changed, and the output is incomplete; the "
		    "same command starts from the beginning");
	fs = optimfs_open(path, &open, err);
	if (fs != NULL)
		keep_private(fs);
	ofs_progress_clear(&c->progress);
	/* names that rest on the order of the model alone */
	if (fs != NULL && open.ids != NULL)
		ofs_command_say_warning(c, fs, "OFS631 ");
	if (fs == NULL && err->number == 19 && !optimfs_is_address(path) &&
	    access(path, F_OK) == -1)
		ofs_command_suggest_checkpoint(c, path, err);
	return fs;
}

/* A directory may hold only the checkpoint that was opened. */
static int open_as_run(struct ofs_command *c, struct optimfs_error *err)
{
	if (optimfs_is_run(c->fs))
		return 0;
	optimfs_close(c->fs);
	c->open.run = OPTIMFS_RUN_YES;
	c->fs = ofs_command_open(c, c->checkpoint, err);
	return c->fs == NULL ? -1 : 0;
}

int ofs_command_list_run(struct ofs_command *c, optimfs_run_entry_fn *each,
    void *ctx, const size_t *n, struct optimfs_error *err)
{
	int ret = open_as_run(c, err);

	if (ret == 0)
		ret = optimfs_run_list(c->fs, each, ctx, err);
	if (ret == 0 && *n == 0)
		return optimfs_fail(err, ENOENT,
		    "OFS852 %s is no directory of checkpoints", c->checkpoint);
	return ret == 1 ? ofs_no_memory(err) : ret;
}

/* What the command makes, or writes into; NULL: only standard output. */
static const char *output_of(const struct ofs_command *c, uint64_t allowed)
{
	if ((allowed & OFS_DEST) != 0)
		return c->operand[c->noperands - 1];
	if ((allowed & (OFS_TO | OFS_LAYOUT)) != 0)
		return c->operand[0];
	return c->output != NULL && strcmp(c->output, "-") == 0 ? NULL
								: c->output;
}

/* Is it a file, or a name in a run? */
static bool is_there(const char *path)
{
	char *run = optimfs_is_address(path) ? NULL : optimfs_run_of(path);
	bool there =
	    optimfs_is_address(path) || run != NULL || access(path, F_OK) == 0;

	free(run);
	return there;
}

/* Restricts this process before it parses anything, see sandbox.h. Ranks are
 * not: MPI and CUDA open devices and sockets at any time. Nor is a process that
 * has nothing to parse: it looks for names that were meant instead. */
static int confine(const struct ofs_command *c, uint64_t allowed,
    struct optimfs_error *err)
{
	const char *second = (allowed & OFS_SECOND) != 0 && c->noperands > 0
	    ? c->operand[0]
	    : c->verify;
	const struct ofs_sandbox_config config = {
		.source = { c->checkpoint, second },
		.join = { c->open.join, c->source[1].open.join },
		.base = { c->open.base, c->base },
		.output = output_of(c, allowed),
		.upper = (allowed & OFS_THIN) != 0 ? c->checkpoint : NULL,
		.file = { c->open.units, c->open.ids, c->open.names },
		.memory = -1,
		.open = &c->open,
		.accept = (allowed & OFS_SERVE) != 0,
	};
	struct ofs_sandbox *sandbox;
	int ret;

	if (ofs_tool_await(c->checkpoint, err) == -1 ||
	    (second != NULL && ofs_tool_await(second, err) == -1))
		return -1;
	if (c->sandbox == OFS_SANDBOX_OFF || c->job.group != NULL ||
	    !is_there(c->checkpoint) || (second != NULL && !is_there(second)))
		return 0;
	ret = ofs_sandbox_new(&config, &sandbox, err);
	if (ret == 1 && c->sandbox == OFS_SANDBOX_REQUIRE)
		ofs_sandbox_free(sandbox);
	else if (ret != -1) {
		ret = ofs_sandbox_enter(sandbox, err);
		ofs_sandbox_free(sandbox);
	}
	if (ret == 0 || c->sandbox != OFS_SANDBOX_REQUIRE)
		return 0;
	return optimfs_fail_in(err, "sandbox=require");
}

int ofs_command_no_memory(void)
{
	ofs_tool_say("out of memory");
	return OFS_EXIT_IO;
}

static bool is_path(const char *s, size_t n)
{
	static const char suffix[] = ".names";
	const size_t k = sizeof(suffix) - 1;

	return memchr(s, '/', n) != NULL ||
	    (n > k && memcmp(s + n - k, suffix, k) == 0);
}

/* If c->to names a file of families, by a path with a slash or the suffix
 * .names, makes the option names= of it: the layout then has "file", which means
 * the first family in it. */
static int take_names_file(struct ofs_command *c)
{
	static const char option[] = ",names=", back[] = "megatron:";
	const char *at = c->to == NULL ? NULL : strstr(c->to, option);
	size_t n;

	if (at == NULL || c->open.names != NULL)
		return 0;
	at += strlen(option);
	if (strncmp(at, back, strlen(back)) == 0)
		at += strlen(back);
	n = strcspn(at, ",");
	if (!is_path(at, n))
		return 0;
	c->to_names = strndup(at, n);
	if (c->to_names == NULL ||
	    asprintf(&c->to_made, "%.*sfile%s", (int)(at - c->to), c->to,
		at + n) == -1) {
		c->to_made = NULL;
		return -1;
	}
	c->to = c->to_made;
	c->open.names = c->to_names;
	return 0;
}

/* A directory that is only a part of a checkpoint: others are on other
 * machines. */
static bool has_files(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
	    ofs_dir_empty(path) == 0;
}

static int open_checkpoint(struct ofs_command *c, uint64_t allowed)
{
	struct optimfs_error err;

	c->open.together =
	    c->job.group != NULL && (allowed & OFS_TOGETHER) != 0;
	if (take_names_file(c) == -1)
		return ofs_command_no_memory();
	c->base = ofs_to_base(c->to);
	/* the socket first: a confined process cannot make one */
	if (((allowed & OFS_SERVE) != 0 &&
		ofs_listen(c->listen, c->token_file, &c->listener, &err) ==
		    -1) ||
	    confine(c, allowed, &err) == -1)
		return c->open.together ? ofs_job_fail(&c->job, &err)
					: ofs_tool_fail(&err);
	c->fs = ofs_command_open(c, c->checkpoint, &err);
	if (c->fs != NULL)
		return OFS_EXIT_OK;
	if ((allowed & OFS_SERVE) != 0 && err.code != ENOMEM &&
	    err.code != EINVAL && err.code != ECANCELED &&
	    has_files(c->checkpoint)) {
		ofs_tool_say("only files are served: %s", err.text);
		return OFS_EXIT_OK;
	}
	return c->open.together ? ofs_job_fail(&c->job, &err)
				: ofs_tool_fail(&err);
}

/* The name of the first missing operand. */
static const char *missing(uint64_t allowed, int noperands)
{
	if ((allowed & OFS_SECOND) != 0)
		return "which other checkpoint?";
	if ((allowed & OFS_SWEEP) != 0)
		return "which view? dcp@16, fsdp@8, safetensors, ...";
	if ((allowed & OFS_PATHS) == 0)
		return "which new directory?";
	return noperands == 0 ? "which path of the checkpoint?"
			      : "copy to which destination?";
}

/* Takes the checkpoint from the first operand, unless a flag named it. */
static int take_checkpoint(struct ofs_command *c, const struct ofs_verb *verb,
    uint64_t allowed, int min, int max)
{
	int first = allowed & OFS_LIKE ? 0 : 1, status;

	if (c->checkpoint == NULL && (first == 0 || c->noperands == 0))
		return ofs_tool_usage(verb, "%s",
		    first == 0 ? "which checkpoint? --like CHECKPOINT"
			       : "which checkpoint?");
	if (first == 1) {
		c->checkpoint = c->operand[0];
		c->noperands--;
		memmove(c->operand, c->operand + 1,
		    (size_t)c->noperands * sizeof(*c->operand));
	}
	if (*c->checkpoint == '\0')
		return ofs_tool_usage(verb,
		    "the name of the checkpoint is empty");
	status = ofs_job_wanted(&c->how) ? OFS_EXIT_OK
					 : ofs_command_look(c, allowed, min);
	if (status != OFS_EXIT_OK)
		return status;
	if (c->noperands < min && (c->flags & OFS_DRY) == 0)
		return ofs_tool_usage(verb, "%s",
		    missing(allowed, c->noperands));
	if (c->noperands > max)
		return ofs_tool_usage(verb, "one argument too many: '%s'",
		    c->operand[max]);
	return OFS_EXIT_OK;
}

/* Expands patterns; a verb that takes one path gets one. */
static int expand(struct ofs_command *c, const struct ofs_verb *verb,
    uint64_t allowed, int max)
{
	struct optimfs_error err;

	if ((allowed & OFS_PATHS) == 0 || (allowed & OFS_EACH_STEP) != 0)
		return OFS_EXIT_OK;
	if (ofs_command_expand(c, "", allowed, &err) == -1)
		return ofs_tool_fail(&err);
	if (c->noperands > max && (allowed & OFS_DEST) == 0)
		return ofs_tool_usage(verb,
		    "the pattern matches '%s', '%s' and others: %s takes one "
		    "path",
		    c->operand[0], c->operand[1], verb->name);
	return OFS_EXIT_OK;
}

int ofs_command_init(struct ofs_command *c, const struct ofs_verb *verb,
    int argc, char **argv, uint64_t allowed, int min, int max, int *status)
{
	*c = (struct ofs_command){ .options.table = options_table,
		.timeout = 30,
		.listener.fd = -1,
		.sandbox = SANDBOX };
	c->options.target = c;
	*status = OFS_EXIT_IO;
	c->operand = calloc((size_t)argc + 2, sizeof(*c->operand));
	if (c->operand == NULL) {
		ofs_command_no_memory();
		return -1;
	}
	if (allowed & OFS_RUNS)
		c->open.run = OPTIMFS_RUN_AUTO;
	if (parse(c, verb, argc, argv, allowed, status) == -1)
		goto fail;
	c->open.timeout = c->timeout == 0 ? OPTIMFS_NO_TIMEOUT : c->timeout;
	*status = take_checkpoint(c, verb, allowed, min, max);
	if (*status != OFS_EXIT_OK)
		goto fail;
	if (ofs_job_wanted(&c->how) && join(c, allowed, status) == -1)
		goto fail;
	*status = open_checkpoint(c, allowed);
	if (*status == OFS_EXIT_OK)
		*status = expand(c, verb, allowed, max);
	if (*status == OFS_EXIT_OK)
		return 0;
fail:
	ofs_command_fini(c);
	return -1;
}

void ofs_command_fini(struct ofs_command *c)
{
	if (c->fs != NULL)
		optimfs_close(c->fs);
	ofs_listener_close(&c->listener);
	ofs_job_leave(&c->job);
	ofs_options_fini(&c->options);
	ofs_source_fini(&c->source[0]);
	ofs_source_fini(&c->source[1]);
	for (int i = 0; i < 2; i++) {
		free(c->named[i]);
		free(c->within[i]);
	}
	free(c->base);
	free(c->to_made);
	free(c->to_names);
	for (char **p = c->joined; p != NULL && *p != NULL; p++)
		free(*p);
	free(c->joined);
	for (char **p = c->expanded; p != NULL && *p != NULL; p++)
		free(*p);
	free(c->expanded);
	free(c->operand);
}

int ofs_command_fail_layout(const struct ofs_command *c,
    const struct optimfs_error *err)
{
	struct optimfs_error e = *err;

	if (e.number == 771)
		e.code = EINVAL;
	return ofs_job_fail(&c->job, &e);
}

int ofs_command_resolve(struct ofs_command *c, const char *path,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	if (optimfs_resolve(c->fs, path, attr, err) == 0)
		return 0;
	if (err->number == 2)
		ofs_command_suggest(c, path, err);
	return optimfs_fail_in(err, "%s", c->checkpoint);
}

int ofs_command_number(const struct ofs_verb *verb, const char *option,
    const char *given, uint64_t max, uint64_t *n, int *status)
{
	char *end;

	errno = 0;
	*n = strtoull(given, &end, 10);
	if (isdigit((unsigned char)*given) && *end == '\0' && errno == 0 &&
	    *n >= 1 && *n <= max)
		return 0;
	*status = ofs_tool_usage(verb,
	    "%s %.40s: not a number from 1 to %" PRIu64, option, given, max);
	return -1;
}

int ofs_command_jobs(const struct ofs_command *c, const struct ofs_verb *verb,
    unsigned max, unsigned *jobs, int *status)
{
	uint64_t n = 0;

	if (c->jobs != NULL &&
	    ofs_command_number(verb, "-j", c->jobs, max, &n, status) == -1)
		return -1;
	*jobs = (unsigned)n;
	return 0;
}

bool ofs_has_xattr(struct optimfs *fs, uint64_t node, const char *name)
{
	char *value = ofs_attribute(fs, node, name, NULL);
	bool has = value != NULL && *value != '\0';

	free(value);
	return has;
}
