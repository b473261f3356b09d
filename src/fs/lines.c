/* lines.c - generated files of many lines */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fs/lines.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"

void ofs_lines_init(struct ofs_lines *l, const struct ofs_lines_ops *ops)
{
	*l = (struct ofs_lines){ .ops = ops };
	pthread_mutex_init(&l->lock, NULL);
}

void ofs_lines_fini(struct ofs_lines *l)
{
	free(l->mark);
	l->mark = NULL;
	pthread_mutex_destroy(&l->lock);
}

static int add_mark(struct ofs_lines *l, uint64_t off, uint32_t at)
{
	if (ofs_grow(l->mark, l->nmarks, l->cap, NULL) == -1)
		return -1;
	l->mark[l->nmarks++] = (struct ofs_lines_mark){ off, at };
	return 0;
}

static int make_index(struct ofs_lines *l, struct ofs_snapshot *snap,
    struct optimfs_error *err)
{
	struct ofs_buf line = { 0 };
	uint64_t off = 0;
	uint32_t steps = 0;
	int ret = 0;

	l->nmarks = 0;
	for (uint32_t at = 0; at != UINT32_MAX; at = l->ops->next(snap, at)) {
		if (steps++ % OFS_LINES_STRIDE == 0 &&
		    add_mark(l, off, at) == -1)
			line.bad = true;
		line.len = 0;
		l->ops->put(snap, at, &line);
		if (line.bad) {
			ret = ofs_no_memory(err);
			break;
		}
		off += line.len;
	}
	ofs_buf_fini(&line);
	if (ret == 0)
		l->size = off;
	return ret;
}

int ofs_lines_index(struct ofs_lines *l, struct ofs_snapshot *snap,
    struct optimfs_error *err)
{
	int ret = 0;

	if (atomic_load(&l->known))
		return 0;
	pthread_mutex_lock(&l->lock);
	if (!atomic_load(&l->known)) {
		ret = make_index(l, snap, err);
		if (ret == 0)
			atomic_store(&l->known, true);
	}
	pthread_mutex_unlock(&l->lock);
	return ret;
}

OFS_COMPARE_KEY(compare_off, uint64_t, struct ofs_lines_mark, off)

/* The last mark at or before off. The first mark is at 0. */
static const struct ofs_lines_mark *mark_before(const struct ofs_lines *l,
    uint64_t off)
{
	return &l->mark[ofs_upper_bound(&off, l->mark, l->nmarks,
			    sizeof(*l->mark), compare_off) -
	    1];
}

ssize_t ofs_lines_read(const struct ofs_lines *l, struct ofs_snapshot *snap,
    void *buf, size_t len, uint64_t off, struct optimfs_error *err)
{
	const struct ofs_lines_mark *m;
	struct ofs_buf line = { 0 };
	uint64_t pos, end;
	ssize_t ret;

	if (off >= l->size)
		return 0;
	if (len > l->size - off)
		len = (size_t)(l->size - off);
	m = mark_before(l, off);
	pos = m->off;
	end = off + len;
	for (uint32_t at = m->at; at != UINT32_MAX && pos < end;
	     at = l->ops->next(snap, at)) {
		uint64_t from, to;

		line.len = 0;
		l->ops->put(snap, at, &line);
		if (line.bad)
			break;
		from = pos < off ? off - pos : 0;
		to = end - pos < line.len ? end - pos : line.len;
		if (from < to)
			memcpy((char *)buf + (pos + from - off),
			    line.data + from, to - from);
		pos += line.len;
	}
	ret = line.bad ? ofs_no_memory(err) : (ssize_t)len;
	ofs_buf_fini(&line);
	return ret;
}
