/* cmd_sum.c - optimfs sum: one hash of a training state */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/buf.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "cli/interrupt.h"
#include "fs/walk.h"
#include "tools/command.h"

/* The state is listed in the order of the tree, one line for each file:
 *
 *     HASH  DTYPE  SHAPE  PATH
 *
 * HASH is that of the bytes of the file in the tree, which do not depend on
 * format and layout; DTYPE and SHAPE are "-" for text. The hash of the state is
 * the hash of these lines. So it is a tree of two levels: one line proves what
 * one tensor is, and xxh128sum or sha256sum of files in a mount, and of the
 * lines, give the same. */

struct hash {
	bool sha256;
	XXH3_state_t *xxh3; /* unless sha256 */
	struct ofs_sha256 sha;
};
#define HEX OFS_SHA256_HEX

static void hash_begin(struct hash *h)
{
	if (h->sha256)
		ofs_sha256_init(&h->sha);
	else
		XXH3_128bits_reset(h->xxh3);
}

static int hash_put(void *ctx, const void *p, size_t n,
    struct optimfs_error *err)
{
	struct hash *h = ctx;

	(void)err;
	if (h->sha256)
		ofs_sha256_put(&h->sha, p, n);
	else
		XXH3_128bits_update(h->xxh3, p, n);
	return 0;
}

/* As xxh128sum and sha256sum print it. */
static void hash_end(struct hash *h, char hex[HEX])
{
	XXH128_canonical_t c;

	if (h->sha256) {
		ofs_sha256_end(&h->sha, hex);
		return;
	}
	XXH128_canonicalFromHash(&c, XXH3_128bits_digest(h->xxh3));
	for (size_t i = 0; i < sizeof(c.digest); i++)
		snprintf(hex + 2 * i, 3, "%02x", c.digest[i]);
}

struct sum {
	struct ofs_command *c;
	const char *base; /* the path that was given */
	struct hash file, state;
	uint64_t files, bytes;
};

static void print_file(const struct sum *s, const char *hex, const char *dtype,
    const char *shape, const char *path, const struct ofs_buf *line)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	if ((s->c->flags & OFS_ALL) == 0)
		return;
	if ((s->c->flags & OFS_JSON) == 0) {
		fwrite(line->data, 1, line->len, stdout);
		return;
	}
	ofs_json_begin(&w, &b, "optimfs.sum");
	ofs_json_put_string(&w, "path", path);
	ofs_json_put_string(&w, "hash", hex);
	ofs_json_put_string(&w, "dtype", dtype);
	ofs_json_put_string(&w, "shape", shape);
	ofs_json_print(&w);
}

/* Adds the line of a file whose bytes were hashed. */
static int add_line(struct sum *s, const char *path, uint64_t node,
    struct optimfs_error *err)
{
	bool no_memory = false;
	char *dtype = ofs_attribute(s->c->fs, node, "dtype", &no_memory);
	char *shape = ofs_attribute(s->c->fs, node, "shape", &no_memory);
	struct ofs_buf line = { 0 };
	char hex[HEX];

	hash_end(&s->file, hex);
	ofs_buf_printf(&line, "%s  %s  %s  %s\n", hex,
	    dtype != NULL ? dtype : "-",
	    shape != NULL && *shape != '\0' ? shape : "-", path);
	if (!line.bad && !no_memory) {
		hash_put(&s->state, line.data, line.len, err);
		print_file(s, hex, dtype, shape, path, &line);
	}
	no_memory |= line.bad;
	ofs_buf_fini(&line);
	free(dtype);
	free(shape);
	return no_memory ? ofs_no_memory(err) : 0;
}

static int add_file(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct sum *s = ctx;
	struct ofs_buf path = { 0 };
	int ret;

	if (S_ISDIR(e->attr.mode))
		return 0;
	ofs_buf_printf(&path, "%s%s%s", s->base,
	    *s->base != '\0' && *e->path != '\0' ? "/" : "", e->path);
	ofs_buf_putc(&path, '\0');
	if (path.bad)
		return ofs_no_memory(err);
	hash_begin(&s->file);
	s->c->reading = e->name;
	ret = ofs_command_read(s->c, e->attr.node, hash_put, &s->file, err);
	if (ret == 0)
		ret = add_line(s, (char *)path.data, e->attr.node, err);
	s->files++;
	s->bytes += e->attr.size;
	ofs_buf_fini(&path);
	return ret;
}

static void print_state(struct sum *s)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };
	char hex[HEX];

	hash_end(&s->state, hex);
	if ((s->c->flags & OFS_JSON) == 0) {
		if ((s->c->flags & OFS_ALL) == 0)
			printf("%s  %s\n", hex, s->c->checkpoint);
		return;
	}
	ofs_json_begin(&w, &b, "optimfs.sum");
	ofs_json_put_string(&w, "source", s->c->checkpoint);
	ofs_json_put_string(&w, "below", s->base);
	ofs_json_put_string(&w, "algorithm",
	    s->state.sha256 ? "sha256" : "xxh3-128");
	ofs_json_put_string(&w, "hash", hex);
	ofs_json_put_u64(&w, "files", s->files);
	ofs_json_print(&w);
}

static int sum_all(struct sum *s, struct optimfs_error *err)
{
	struct ofs_walk_entry self = { .path = "", .name = s->base };

	if (ofs_command_resolve(s->c, s->base, &self.attr, err) == -1 ||
	    ofs_command_measure(s->c, &self.attr, err) == -1)
		return -1;
	hash_begin(&s->state);
	return S_ISDIR(self.attr.mode)
	    ? ofs_walk(s->c->fs, self.attr.node, 0, add_file, s, err)
	    : add_file(s, &self, err);
}

static int run_sum(const struct ofs_verb *verb, int argc, char **argv)
{
	struct optimfs_error err = { 0 };
	struct ofs_command c;
	struct sum s = { .c = &c, .base = "" };
	int status;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_JSON | OFS_PATHS | OFS_ALL | OFS_SHA256, 0, 1,
		&status) == -1)
		return status;
	if (c.noperands > 0)
		s.base = c.operand[0] + (c.operand[0][0] == '/');
	s.file.sha256 = s.state.sha256 = (c.flags & OFS_SHA256) != 0;
	s.file.xxh3 = XXH3_createState();
	s.state.xxh3 = XXH3_createState();
	ofs_interrupt_catch();
	if (s.file.xxh3 == NULL || s.state.xxh3 == NULL)
		ofs_no_memory(&err);
	else if (sum_all(&s, &err) == 0)
		print_state(&s);
	XXH3_freeState(s.file.xxh3);
	XXH3_freeState(s.state.xxh3);
	ofs_progress_end(&c.progress, err.code == 0);
	if (err.code != 0)
		status = ofs_command_stopped(&c, &err, "there is no hash");
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_sum = {
	.name = "sum",
	.from = true,
	.synopsis = "[--all] [--sha256] [--json] [-o OPTION] CHECKPOINT [PATH]",
	.summary = "one hash of a training state, whatever its layout",
	.options =
	    "  --all     print the hash of each file of the tree instead\n"
	    "  --sha256  SHA-256 instead of XXH3 with 128 bits\n"
	    "  --json    print JSON objects\n",
	.run = run_sum,
};
