/* cmd_tar.c - optimfs tar: write a part of the tree as a tar stream */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/memory.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "fs/walk.h"
#include "tools/command.h"

/* The archive is POSIX.1-2001 pax: ustar headers. A file whose name, size,
 * owner or time does not fit is preceded by an extended header of "length
 * key=value" lines. */

#define BLOCK 512
/* 11 and 7 octal digits */
#define USTAR_MAX_SIZE 077777777777ull
#define USTAR_MAX_ID   07777777u

struct header {
	char name[100], mode[8], uid[8], gid[8], size[12], mtime[12];
	char checksum[8], type, link[100], magic[6], version[2];
	char user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == BLOCK, "a tar header is a block");

struct archive {
	struct ofs_command *c;
	const char *base; /* prefix of each path */
	uint64_t left;    /* bytes left of the current file */
};

static int put(const void *p, size_t n, struct optimfs_error *err)
{
	return ofs_sink_stdout(NULL, p, n, err);
}

static int pad(uint64_t size, struct optimfs_error *err)
{
	static const char zeros[BLOCK];
	size_t n = (size_t)(-size % BLOCK);

	return put(zeros, n, err);
}

static void octal(char *field, size_t width, uint64_t v)
{
	for (size_t i = width - 1; i-- > 0; v >>= 3)
		field[i] = (char)('0' + (v & 7));
}

static uint64_t mtime_of(const struct optimfs_attr *attr)
{
	return attr->mtime_ns < 0 ? 0 : (uint64_t)attr->mtime_ns / 1000000000;
}

/* link: the target of a link, else "". */
static int put_header(const char *name, char type, const char *link,
    uint64_t size, const struct optimfs_attr *attr, struct optimfs_error *err)
{
	struct header h = { 0 };
	unsigned sum = 0;
	uint64_t mtime = mtime_of(attr);

	memcpy(h.name, name, strnlen(name, sizeof(h.name)));
	memcpy(h.link, link, strnlen(link, sizeof(h.link)));
	octal(h.mode, sizeof(h.mode), attr->mode & 0777);
	octal(h.uid, sizeof(h.uid), attr->uid <= USTAR_MAX_ID ? attr->uid : 0);
	octal(h.gid, sizeof(h.gid), attr->gid <= USTAR_MAX_ID ? attr->gid : 0);
	octal(h.size, sizeof(h.size), size <= USTAR_MAX_SIZE ? size : 0);
	octal(h.mtime, sizeof(h.mtime), mtime <= USTAR_MAX_SIZE ? mtime : 0);
	h.type = type;
	memcpy(h.magic, "ustar", 6);
	memcpy(h.version, "00", 2);
	memset(h.checksum, ' ', sizeof(h.checksum));
	for (size_t i = 0; i < sizeof(h); i++)
		sum += ((unsigned char *)&h)[i];
	octal(h.checksum, 7, sum);
	h.checksum[6] = '\0';
	return put(&h, sizeof(h), err);
}

/* The length of a record includes its own digits. */
static void pax_record(struct ofs_buf *b, const char *key, const char *value,
    size_t n)
{
	size_t rest = strlen(key) + n + 3, len = rest + 1;

	while (len != rest + (size_t)snprintf(NULL, 0, "%zu", len))
		len = rest + (size_t)snprintf(NULL, 0, "%zu", len);
	ofs_buf_printf(b, "%zu %s=", len, key);
	ofs_buf_put(b, value, n);
	ofs_buf_putc(b, '\n');
}

static void pax_number(struct ofs_buf *b, const char *key, uint64_t v,
    uint64_t max)
{
	char digits[24];
	int n = snprintf(digits, sizeof(digits), "%" PRIu64, v);

	if (v > max)
		pax_record(b, key, digits, (size_t)n);
}

static int put_member(const char *path, char type, const char *link,
    uint64_t size, const struct optimfs_attr *attr, struct optimfs_error *err)
{
	struct ofs_buf pax = { 0 };
	int ret = -1;

	if (strlen(path) > sizeof(((struct header *)0)->name))
		pax_record(&pax, "path", path, strlen(path));
	pax_number(&pax, "size", size, USTAR_MAX_SIZE);
	pax_number(&pax, "uid", attr->uid, USTAR_MAX_ID);
	pax_number(&pax, "gid", attr->gid, USTAR_MAX_ID);
	pax_number(&pax, "mtime", mtime_of(attr), USTAR_MAX_SIZE);
	if (pax.bad) {
		ofs_no_memory(err);
		goto out;
	}
	if (pax.len > 0 &&
	    (put_header("pax", 'x', "", pax.len, attr, err) == -1 ||
		put(pax.data, pax.len, err) == -1 || pad(pax.len, err) == -1))
		goto out;
	ret = put_header(path, type, link, size, attr, err);
out:
	ofs_buf_fini(&pax);
	return ret;
}

static int sink_member(void *ctx, const void *p, size_t n,
    struct optimfs_error *err)
{
	struct archive *a = ctx;

	if (n > a->left)
		return optimfs_fail(err, EIO, "the file grew");
	a->left -= n;
	return put(p, n, err);
}

/* The header has the size before the data; it is exact after opening. */
static int put_file(struct archive *a, const char *path,
    const struct optimfs_attr *attr, struct optimfs_error *err)
{
	struct optimfs_file *file;
	uint64_t size;

	if (optimfs_file_open(a->c->fs, attr->node, &file, err) == -1)
		return -1;
	size = a->left = optimfs_file_size(file);
	optimfs_file_close(file);
	if (put_member(path, '0', "", size, attr, err) == -1 ||
	    ofs_command_read(a->c, attr->node, sink_member, a, err) == -1)
		return -1;
	if (a->left != 0)
		return optimfs_fail(err, EIO, "the file shrank");
	return pad(size, err);
}

/* Its target is short: a step of a run. */
static int put_link(struct archive *a, const char *path,
    const struct optimfs_attr *attr, struct optimfs_error *err)
{
	char *target;
	int ret;

	if (optimfs_readlink(a->c->fs, attr->node, &target, err) == -1)
		return -1;
	ret = put_member(path, '2', target, 0, attr, err);
	free(target);
	return ret;
}

static int put_entry(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct archive *a = ctx;
	bool dir = S_ISDIR(e->attr.mode);
	struct ofs_buf path = { 0 };
	int ret;

	a->c->reading = e->name;
	ofs_buf_printf(&path, "%s%s%s%s", a->base,
	    *a->base != '\0' && *e->path != '\0' ? "/" : "", e->path,
	    dir ? "/" : "");
	if (path.bad)
		return ofs_no_memory(err);
	if (dir)
		ret = put_member((char *)path.data, '5', "", 0, &e->attr, err);
	else if (S_ISLNK(e->attr.mode))
		ret = put_link(a, (char *)path.data, &e->attr, err);
	else
		ret = put_file(a, (char *)path.data, &e->attr, err);
	if (ret == -1 && e->path[0] != '\0' &&
	    optimfs_error_about(err, (char *)path.data) ==
		optimfs_error_words(err)) /* does not name it yet */
		optimfs_fail_in(err, "%s", e->path);
	ofs_buf_fini(&path);
	return ret;
}

/* Members have the paths of the tree, without a leading slash. */
static int put_path(struct ofs_command *c, const char *path,
    struct optimfs_error *err)
{
	struct archive a = { .c = c };
	struct ofs_walk_entry self = { .path = "", .name = "" };
	char base[4096];
	size_t n;

	if (ofs_command_resolve(c, path, &self.attr, err) == -1)
		return -1;
	path += strspn(path, "/");
	n = (size_t)snprintf(base, sizeof(base), "%s", path);
	if (n >= sizeof(base))
		return optimfs_fail(err, ENAMETOOLONG, "%s: too long", path);
	while (n > 0 && base[n - 1] == '/')
		base[--n] = '\0';
	a.base = base;
	if (n > 0 && put_entry(&a, &self, err) == -1)
		return -1;
	if (S_ISDIR(self.attr.mode) &&
	    ofs_walk(c->fs, self.attr.node, 0, put_entry, &a, err) == -1)
		return -1;
	return 0;
}

static int archive(struct ofs_command *c, struct optimfs_error *err)
{
	static const char end[2 * BLOCK];
	struct optimfs_attr attr;

	for (int i = 0; i < c->noperands; i++)
		if (ofs_command_resolve(c, c->operand[i], &attr, err) == -1 ||
		    ofs_command_measure(c, &attr, err) == -1)
			return -1;
	for (int i = 0; i < c->noperands; i++)
		if (put_path(c, c->operand[i], err) == -1)
			return -1;
	ofs_progress_end(&c->progress, true);
	return put(end, sizeof(end), err);
}

static int run_tar(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct optimfs_error err;
	int status;

	if (ofs_command_init(&c, verb, argc, argv, OFS_PATHS | OFS_RUNS, 1,
		INT_MAX - 1, &status) == -1)
		return status;
	ofs_interrupt_catch();
	if (ofs_is_terminal(STDOUT_FILENO))
		status = ofs_tool_usage(verb,
		    "refusing to write an archive to a terminal: "
		    "redirect it, or pipe it to tar");
	else if (archive(&c, &err) == -1) {
		ofs_progress_end(&c.progress, false);
		status =
		    ofs_command_stopped(&c, &err, "the archive is incomplete");
	} else
		status = OFS_EXIT_OK;
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_tar = {
	.name = "tar",
	.from = true,
	.synopsis = "[-o OPTION] CHECKPOINT PATH...",
	.summary =
	    "write files and directories to standard output as a tar archive",
	.run = run_tar,
};
