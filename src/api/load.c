/* load.c - read many ranges at once, into memory of this machine or of a GPU */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

#include "api/device.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/step.h"
#include "base/team.h"
#include "fs/fs.h"

/* Threads take pieces in the order of the parts, so that a disk is read in that
 * order. A file is opened for the first piece of a part, and closed with its
 * last one. Parts of one file that follow each other, such as the rows of a column,
 * are one piece, which is read by one plan. */
#define PIECE    ((uint64_t)8 << 20)
#define TOGETHER 65536u /* parts of a piece */

struct part {
	struct optimfs_file *file; /* NULL: not open */
	uint64_t left;             /* bytes that are not read yet */
};

struct load {
	struct optimfs *fs;
	const struct optimfs_part *part;
	const struct optimfs_load *how;
	size_t n;
	uint64_t most;             /* bytes of the largest piece */
	struct ofs_device *device; /* NULL: memory of this process */
	pthread_mutex_t lock;      /* protects the members below */
	struct part *state;        /* n of them */
	size_t at;                 /* the part and the byte of the next piece */
	uint64_t off;
	bool failed;
	struct optimfs_error err; /* the first one */
};

struct piece {
	size_t part, n; /* n > 1: whole parts, of the file of the first one */
	struct optimfs_file *file;
	uint64_t off, len; /* bytes of the part, or of all of them */
};

static void failed(struct load *l, const struct optimfs_error *err)
{
	pthread_mutex_lock(&l->lock);
	if (!l->failed)
		l->err = *err;
	l->failed = true;
	pthread_mutex_unlock(&l->lock);
}

static int check_part(const struct optimfs_part *part, uint64_t size,
    struct optimfs_error *err)
{
	return part->off <= size && part->len <= size - part->off
	    ? 0
	    : optimfs_fail(err, EINVAL,
		  "bytes %" PRIu64 " to %" PRIu64 " of a file of %" PRIu64,
		  part->off, part->off + part->len, size);
}

/* Adds the parts behind p that can be read with it. What goes to a device goes
 * there in one piece. The lock is held. */
static int take_more(struct load *l, struct piece *p, uint64_t size,
    struct optimfs_error *err)
{
	const struct optimfs_part *part = &l->part[l->at];

	if (l->device != NULL || p->len < part->len)
		return 0;
	for (; p->n < l->n - p->part && p->n < TOGETHER; p->n++) {
		part++;
		if (part->node != l->part[p->part].node ||
		    part->len > PIECE - p->len)
			break;
		if (check_part(part, size, err) == -1)
			return -1;
		p->len += part->len;
	}
	if (p->n > 1) {
		l->at += p->n;
		l->off = 0;
	}
	return 0;
}

/* The lock is held. */
static int take_part(struct load *l, struct piece *p, struct optimfs_error *err)
{
	const struct optimfs_part *part = &l->part[l->at];
	struct part *state = &l->state[l->at];
	uint64_t size;

	if (state->file == NULL &&
	    optimfs_file_open(l->fs, part->node, &state->file, err) == -1)
		return -1;
	size = optimfs_file_size(state->file);
	if (check_part(part, size, err) == -1)
		return -1;
	p->part = l->at;
	p->n = 1;
	p->file = state->file;
	p->off = l->off;
	p->len = part->len - l->off < PIECE ? part->len - l->off : PIECE;
	l->off += p->len;
	return take_more(l, p, size, err) == -1 ? -1 : 1;
}

/* 1: *p is the next piece; 0: there is none; -1. */
static int take(struct load *l, struct piece *p, struct optimfs_error *err)
{
	int ret = 0;

	pthread_mutex_lock(&l->lock);
	while (l->at < l->n && l->off == l->part[l->at].len) {
		l->at++;
		l->off = 0;
	}
	if (l->at < l->n && !l->failed)
		ret = take_part(l, p, err);
	pthread_mutex_unlock(&l->lock);
	return ret;
}

static void give_back(struct load *l, const struct piece *p)
{
	struct part *state = &l->state[p->part];
	struct optimfs_file *file = NULL;

	pthread_mutex_lock(&l->lock);
	state->left = p->n > 1 ? 0 : state->left - p->len;
	if (state->left == 0) {
		file = state->file;
		state->file = NULL;
	}
	if (l->how->did != NULL)
		l->how->did(l->how->ctx, p->len);
	pthread_mutex_unlock(&l->lock);
	if (file != NULL)
		optimfs_file_close(file);
}

static int read_piece(struct load *l, struct ofs_pinned *pinned,
    const struct piece *p, struct optimfs_error *err)
{
	const struct optimfs_part *part = &l->part[p->part];
	char *there = (char *)part->to + p->off;
	void *to = there;
	ssize_t n;

	if (p->n > 1)
		return ofs_file_read_parts(p->file, part, p->n, err);
	if (pinned != NULL && (to = ofs_pinned_buffer(pinned, err)) == NULL)
		return -1;
	n = optimfs_file_read(p->file, to, p->len, part->off + p->off, err);
	if (n == -1)
		return -1;
	if ((uint64_t)n != p->len)
		return optimfs_fail(err, EIO, "%zd bytes of %" PRIu64, n,
		    p->len);
	return pinned == NULL ? 0 : ofs_pinned_send(pinned, there, p->len, err);
}

static int read_pieces(struct load *l, struct ofs_pinned *pinned,
    struct optimfs_error *err)
{
	struct piece p = { 0 };
	int ret;

	while ((ret = take(l, &p, err)) == 1) {
		if (ofs_go_on(l->how->stop, l->how->ctx, err) == -1 ||
		    read_piece(l, pinned, &p, err) == -1)
			return -1;
		give_back(l, &p);
	}
	return ret == -1 || pinned == NULL ? ret : ofs_pinned_wait(pinned, err);
}

static void work(void *ctx, unsigned i)
{
	struct load *l = ctx;
	struct ofs_pinned *pinned = NULL;
	struct optimfs_error err;

	(void)i;
	if (l->device != NULL &&
	    (pinned = ofs_pinned_open(l->device, l->most, &err)) == NULL)
		failed(l, &err);
	else if (read_pieces(l, pinned, &err) == -1)
		failed(l, &err);
	ofs_pinned_close(pinned);
}

int optimfs_load(struct optimfs *fs, const struct optimfs_part *part, size_t n,
    const struct optimfs_load *how, struct optimfs_error *err)
{
	struct load l = { .fs = fs, .part = part, .n = n, .how = how };
	uint64_t pieces = 0;
	unsigned threads;

	err = OFS_SOME_ERROR(err);
	l.state = ofs_alloc(n > 0 ? n : 1, sizeof(*l.state), err);
	if (l.state == NULL)
		return -1;
	for (size_t i = 0; i < n; i++) {
		uint64_t len = part[i].len;

		l.state[i].left = len;
		pieces += len / PIECE + (len % PIECE != 0);
		if (l.most < PIECE && len > l.most)
			l.most = len < PIECE ? len : PIECE;
	}
	if (pieces > 0 && how->device != OPTIMFS_HOST &&
	    (l.device = ofs_device_open(how->device, how->stream, err)) ==
		NULL) {
		free(l.state);
		return -1;
	}
	pthread_mutex_init(&l.lock, NULL);
	threads = ofs_team_size(how->threads);
	ofs_team_run(pieces < threads ? (unsigned)pieces : threads, work, NULL,
	    &l);
	ofs_device_close(l.device);
	for (size_t i = 0; i < n; i++)
		if (l.state[i].file != NULL)
			optimfs_file_close(l.state[i].file);
	pthread_mutex_destroy(&l.lock);
	free(l.state);
	return l.failed ? optimfs_fail_with(err, &l.err) : 0;
}
