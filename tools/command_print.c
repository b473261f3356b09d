/* command_print.c - what verbs print alike, and the bytes and the progress of what
 * they read */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/human.h"
#include "base/memory.h"
#include "base/nearest.h"
#include "base/utf8.h"
#include "cli/interrupt.h"
#include "fs/walk.h"
#include "stats/stats.h"
#include "tools/command.h"

/* "dcp@N, torch or zero3@N" */
static void list_layouts(struct ofs_buf *b)
{
	const char *name, *next;
	bool ranked, more;

	name = optimfs_layout(0, &ranked);
	for (unsigned i = 1; name != NULL; i++) {
		next = optimfs_layout(i, &more);
		ofs_buf_printf(b, "%s%s%s",
		    i == 1             ? ""
			: next == NULL ? " or "
				       : ", ",
		    name, ranked ? "@N" : "");
		name = next;
		ranked = more;
	}
	ofs_buf_putc(b, '\0');
}

int ofs_command_which_layout(const struct ofs_verb *verb, const char *option)
{
	struct ofs_buf b = { 0 };
	int status;

	list_layouts(&b);
	status = ofs_tool_usage(verb, "which layout? %s %s", option,
	    b.bad ? "FORMAT" : (const char *)b.data);
	ofs_buf_fini(&b);
	return status;
}

/* Completions read these lines; names.t compares the second with data/names. */
void ofs_command_print_layouts(void)
{
	static const char names[] =
	    "Names: deepseek, deepseek_te, deepseek_v2, deepseek_v3, "
	    "gemma, gemma2, gemma3_text, glm4, glm4_moe, glm4_moe_te, "
	    "gpt2, gpt_oss, llama, mistral, mixtral, mixtral_te, nemotron, "
	    "olmo2, olmo3, olmoe, olmoe_te, phi3, qwen2, qwen2_moe, "
	    "qwen2_moe_te, qwen3, qwen3_moe, qwen3_moe_te or megatron\n";

	struct ofs_buf b = { 0 };

	list_layouts(&b);
	if (!b.bad) {
		struct ofs_buf line = { 0 };

		ofs_buf_printf(&line, "\nFormats: %s\n", (const char *)b.data);
		ofs_buf_puts(&line, names);
		ofs_tool_print_buf(&line, 2);
	}
	ofs_buf_fini(&b);
}

int ofs_command_which_value(const struct ofs_verb *verb, const char *option,
    const char *given, const char *what)
{
	char word[32];
	struct ofs_buf names = { 0 };
	struct ofs_nearest near;
	const char *name;
	int status;

	snprintf(word, sizeof(word), "%.*s", (int)strcspn(given, " <>=!"),
	    given);
	ofs_nearest_init(&near, word);
	for (size_t i = 0; (name = ofs_stats_name(i)) != NULL; i++) {
		ofs_buf_printf(&names, "%s%s", i == 0 ? "" : ", ", name);
		ofs_nearest_try(&near, name);
	}
	if (strcmp(near.best, word) == 0)
		near.best[0] = '\0';
	ofs_buf_putc(&names, '\0');
	status = ofs_tool_usage(verb,
	    "%s %s: %s" OFS_NEAREST_FMT "%s Values are %s", option, given, what,
	    OFS_NEAREST(&near), near.best[0] == '\0' ? "." : "",
	    names.bad ? "rms, nan, ..." : (char *)names.data);
	ofs_buf_fini(&names);
	return status;
}

void ofs_print_buf(struct ofs_buf *b)
{
	fwrite(b->data, 1, b->len, stdout);
	ofs_buf_fini(b);
}

void ofs_json_begin(struct ofs_json_writer *w, struct ofs_buf *b,
    const char *schema)
{
	*w = (struct ofs_json_writer){ b, " ", false };
	ofs_json_open(w, NULL, '{');
	ofs_json_put_string(w, "schema", schema);
	ofs_json_put_u64(w, "v", 1);
}

void ofs_json_print(struct ofs_json_writer *w)
{
	ofs_json_close(w, '}');
	ofs_buf_putc(w->b, '\n');
	ofs_print_buf(w->b);
}

void ofs_print_made(const char *dir, const char *layout, bool synced)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	ofs_json_begin(&w, &b, "optimfs.made");
	ofs_json_put_string(&w, "directory", dir);
	ofs_json_put_string(&w, "layout", layout);
	ofs_json_put_bool(&w, "synced", synced);
	ofs_json_print(&w);
}

void ofs_command_say_warning(const struct ofs_command *c, struct optimfs *fs,
    const char *code)
{
	struct optimfs_attr attr;
	struct optimfs_error err;
	struct optimfs_file *f;
	char *text, *at;
	uint64_t size;
	ssize_t n;

	if (!ofs_job_is_first(&c->job) ||
	    optimfs_resolve(fs, ".optimfs/warnings", &attr, &err) == -1 ||
	    optimfs_file_open(fs, attr.node, &f, &err) == -1)
		return;
	size = optimfs_file_size(f);
	text = malloc(size + 1);
	n = text == NULL ? -1 : optimfs_file_read(f, text, size, 0, &err);
	optimfs_file_close(f);
	if (n >= 0)
		text[n] = '\0';
	at = n > 0 ? strstr(text, code) : NULL;
	if (at != NULL)
		ofs_tool_say("%.*s", (int)strcspn(at, "\n"), at);
	free(text);
}

static int add_size(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	uint64_t *total = ctx;

	(void)err;
	if (S_ISREG(e->attr.mode))
		*total += e->attr.size;
	return 0;
}

int ofs_command_measure(struct ofs_command *c, const struct optimfs_attr *attr,
    struct optimfs_error *err)
{
	uint64_t total = attr->size;

	if (c->job.group != NULL)
		return 0;
	if (S_ISDIR(attr->mode)) {
		total = 0;
		if (ofs_walk(c->fs, attr->node, 0, add_size, &total, err) == -1)
			return -1;
	}
	ofs_progress_show(&c->progress, 0, c->progress.total + total, NULL);
	return 0;
}

struct passing {
	struct ofs_command *c;
	ofs_sink_fn *sink;
	void *ctx;
};

static int pass(void *ctx, const void *p, size_t n, struct optimfs_error *err)
{
	const struct passing *to = ctx;

	if (ofs_interrupted(NULL))
		return optimfs_fail(err, ECANCELED, "interrupted");
	if (to->sink(to->ctx, p, n, err) == -1)
		return -1;
	if (to->c->progress.begun)
		ofs_progress_add(&to->c->progress, n, to->c->reading);
	return 0;
}

int ofs_command_read(struct ofs_command *c, uint64_t node, ofs_sink_fn *sink,
    void *ctx, struct optimfs_error *err)
{
	struct passing to = { c, sink, ctx };
	struct optimfs_file *file;
	int ret;

	if (optimfs_file_open(c->fs, node, &file, err) == -1)
		return -1;
	ret = optimfs_file_stream(file, pass, &to, err);
	optimfs_file_close(file);
	return ret;
}

int ofs_sink_stdout(void *ctx, const void *p, size_t n,
    struct optimfs_error *err)
{
	struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };
	const char *at = p;
	ssize_t k;

	(void)ctx;
	while (n > 0) {
		if (ofs_interrupted(NULL))
			return optimfs_fail(err, ECANCELED, "interrupted");
		/* an interrupt restarts a write that waits for a reader */
		if (poll(&out, 1, 1000) != 1)
			continue;
		k = write(STDOUT_FILENO, at, n);
		if (k == -1 && errno != EAGAIN && errno != EINTR)
			return optimfs_fail(err, errno, "standard output: %m");
		at += k > 0 ? k : 0;
		n -= k > 0 ? (size_t)k : 0;
	}
	return 0;
}

static void progress(void *ctx, uint64_t bytes, uint64_t total)
{
	struct ofs_command *c = ctx;

	ofs_progress_show(&c->progress, bytes, total, NULL);
}

struct optimfs_scan ofs_command_scan(struct ofs_command *c)
{
	ofs_interrupt_catch();
	return (struct optimfs_scan){
		.progress = progress, .stop = ofs_interrupted, .ctx = c
	};
}

int ofs_command_stopped(const struct ofs_command *c,
    const struct optimfs_error *err, const char *left)
{
	char done[OFS_HUMAN_SIZE], total[OFS_HUMAN_SIZE], after[80] = "";
	struct optimfs_error why;

	if (err->code != ECANCELED)
		return ofs_job_fail(&c->job, err);
	if (c->progress.total > 0)
		snprintf(after, sizeof(after), " after %s of %s",
		    ofs_human_bytes(c->progress.done, done),
		    ofs_human_bytes(c->progress.total, total));
	optimfs_fail(&why, ECANCELED,
	    "interrupted%s: %s; the same command starts from the beginning",
	    after, left);
	return ofs_job_fail(&c->job, &why);
}

static void follow(void *ctx, uint64_t bytes, uint64_t total, const char *file)
{
	struct ofs_command *c = ctx;

	ofs_progress_show(&c->progress, bytes, total, file);
}

static void note(void *ctx, const char *text)
{
	struct ofs_command *c = ctx;

	ofs_progress_break(&c->progress);
	ofs_tool_say("%s", text);
}

static void tell_work(void *ctx, int rank, uint64_t files, uint64_t bytes)
{
	struct ofs_command *c = ctx;

	if ((c->flags & OFS_VERBOSE) == 0)
		return;
	ofs_progress_break(&c->progress);
	ofs_tool_say("rank %d (%s): %" PRIu64 " files, %" PRIu64 " bytes", rank,
	    optimfs_group_host(c->job.group, rank), files, bytes);
}

/* With several ranks, mpirun gets the signal and ends them all. */
struct optimfs_watch ofs_command_watch(struct ofs_command *c)
{
	if (c->job.group == NULL)
		ofs_interrupt_catch();
	return (struct optimfs_watch){ .progress = follow,
		.stop = ofs_interrupted,
		.say = note,
		.did = tell_work,
		.ctx = c };
}

void ofs_command_watch_ranks(struct ofs_command *c)
{
	struct optimfs_watch watch = { .did = tell_work, .ctx = c };

	optimfs_watch(c->fs, &watch);
}

int ofs_sink_terminal(void *ctx, const void *p, size_t n,
    struct optimfs_error *err)
{
	const char *at = p, *end = at + n;
	struct ofs_buf b = { 0 };
	int ret;

	for (const char *from = at; at < end; from = at) {
		while (at < end && *at != '\n' && *at != '\t')
			at++;
		ofs_buf_shown(&b, from, (size_t)(at - from));
		if (at < end)
			ofs_buf_putc(&b, *at++);
	}
	ret = b.bad ? ofs_no_memory(err)
		    : ofs_sink_stdout(ctx, b.data, b.len, err);
	ofs_buf_fini(&b);
	return ret;
}

/* Is what was read no text? That is enough. */
static int judge_bytes(void *ctx, const void *p, size_t n,
    struct optimfs_error *err)
{
	const uint8_t *at = p, *end = at + n;
	bool *binary = ctx;
	size_t len;

	(void)err;
	*binary = memchr(p, '\0', n) != NULL;
	/* the last character may go on in what follows */
	while (!*binary && at + 4 <= end) {
		len = ofs_utf8_length(at, (size_t)(end - at));
		*binary = len == 0;
		at += len;
	}
	return -1;
}

bool ofs_command_is_binary(struct ofs_command *c, uint64_t node)
{
	char *kind = ofs_attribute(c->fs, node, "kind", NULL);
	bool binary = kind != NULL &&
	    (strcmp(kind, "bytes") == 0 || ofs_has_xattr(c->fs, node, "shape"));

	free(kind);
	if (!binary)
		(void)ofs_command_read(c, node, judge_bytes, &binary, NULL);
	return binary;
}
