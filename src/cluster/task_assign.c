/* task_assign.c - assign jobs to ranks that can do them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/team.h"
#include "cluster/task.h"
#include "cluster/wire.h"

/* load: bytes assigned to each rank, updated. */
static int assign_next(uint64_t *load, const struct ofs_owner *may,
    uint32_t nmay, const int *worker, uint64_t size)
{
	int best = 0, rank;

	for (uint32_t i = 0; i < nmay; i++) {
		rank = worker == NULL ? may[i].rank : worker[may[i].rank];
		if (i == 0 || load[rank] < load[best])
			best = rank;
	}
	/* an empty job counts too; an overflow only makes it unfair */
	load[best] += size + 1;
	return best;
}

static int by_size(const void *va, const void *vb)
{
	const struct ofs_task_job *a = *(struct ofs_task_job *const *)va;
	const struct ofs_task_job *b = *(struct ofs_task_job *const *)vb;

	if ((a->nmay <= 1) != (b->nmay <= 1))
		return a->nmay <= 1 ? -1 : 1; /* no choice */
	if (a->size != b->size)
		return a->size > b->size ? -1 : 1;
	return a < b ? -1 : a > b;
}

int ofs_task_assign(struct ofs_task_job *job, size_t n, const int *worker,
    int nranks, struct optimfs_error *err)
{
	struct ofs_task_job **order =
	    calloc(n + 1, sizeof(struct ofs_task_job *));
	uint64_t *load = calloc((size_t)nranks, sizeof(*load));
	int ret = 0;

	if (order == NULL || load == NULL)
		ret = ofs_no_memory(err);
	for (size_t i = 0; i < n && ret == 0; i++)
		order[i] = &job[i];
	if (ret == 0)
		qsort(order, n, sizeof(*order), by_size);
	for (size_t i = 0; i < n && ret == 0; i++)
		order[i]->rank = assign_next(load, order[i]->may,
		    order[i]->nmay, worker, order[i]->size);
	free(order);
	free(load);
	return ret;
}

int *ofs_task_workers(const struct optimfs_group *w, struct optimfs_error *err)
{
	int *worker = ofs_alloc((size_t)w->size, sizeof(*worker), err);
	int first;

	for (int r = 0; worker != NULL && r < w->size; r++)
		worker[r] = w->together ? 0 : r;
	for (int m = 0; worker != NULL && w->together && m < w->nmachines;
	     m++) {
		first = w->reader[w->machine[m]];
		for (int r = 0; r < w->size; r++)
			if (w->ops->node(w->w, r) == w->ops->node(w->w, first))
				worker[r] = first;
		for (int i = w->machine[m]; i < w->machine[m + 1]; i++)
			worker[w->reader[i]] = w->reader[i];
	}
	return worker;
}

unsigned ofs_task_threads(const struct optimfs_group *w)
{
	unsigned processors = ofs_team_size(0), ranks = 0;
	int n = w == NULL ? 0
	    : w->together ? w->machine[w->nmachines]
			  : w->size;

	for (int i = 0; i < n; i++)
		ranks += w->ops->node(w->w, w->together ? w->reader[i] : i) ==
		    w->ops->node(w->w, w->rank);
	return ranks < 2         ? processors
	    : processors > ranks ? processors / ranks
				 : 1;
}

/* Finding which ranks see a directory: rank 0 creates a file there with a
 * random name. */

static char *make_mark(const char *dir, struct optimfs_error *err)
{
	char *mark = NULL;
	int fd;

	if (asprintf(&mark, "%s/.optimfs.XXXXXX", dir) == -1) {
		ofs_no_memory(err);
		return NULL;
	}
	fd = mkostemp(mark, O_CLOEXEC);
	if (fd == -1) {
		optimfs_fail(err, errno, "%.200s: %m", dir);
		free(mark);
		return NULL;
	}
	close(fd);
	return mark;
}

static int broadcast_strings(struct optimfs_group *w, const char *a,
    const char *b, struct ofs_buf *got, struct optimfs_error *err)
{
	struct ofs_buf buf = { 0 };
	int ret;

	if (w->rank == 0) {
		ofs_wire_str(&buf, a);
		ofs_wire_str(&buf, b);
	}
	ret = ofs_task_broadcast(w, 0, &buf, got, err);
	ofs_buf_fini(&buf);
	return ret;
}

int ofs_task_sees(struct optimfs_group *w, int ret, char **dir, bool *sees,
    struct optimfs_error *err)
{
	struct optimfs_error own = { 0 };
	struct ofs_buf got = { 0 };
	char *mark = NULL, *name = NULL;
	bool seen = true;

	if (ret == -1)
		own = *err;
	else if (w->rank == 0)
		mark = make_mark(*dir, &own);
	ret = ofs_task_begin(w, NULL, NULL, &own, err);
	if (ret == 0)
		ret = broadcast_strings(w, w->rank == 0 ? *dir : NULL, mark,
		    &got, err);
	if (ret == 0 && w->rank != 0) {
		struct ofs_cursor c = ofs_cursor_of(got.data, got.len);

		name = strdup(ofs_wire_take_str(&c));
		seen = access(ofs_wire_take_str(&c), F_OK) == 0;
	}
	ofs_buf_fini(&got);
	if (ret == 0)
		ret = ofs_task_who(w,
		    w->rank != 0 && name == NULL ? ofs_no_memory(err) : 0, seen,
		    sees, err);
	if (mark != NULL)
		unlink(mark);
	free(mark);
	if (ret == 0 && w->rank != 0)
		*dir = name;
	else
		free(name);
	return ret;
}

/* Rank 0: writes the rank of each job (4 bytes). */
static int divide_all(struct optimfs_group *w, const uint64_t *size, size_t n,
    const bool *may, struct ofs_buf *b, struct optimfs_error *err)
{
	struct ofs_owner *owner = calloc((size_t)w->size, sizeof(*owner));
	struct ofs_task_job *job = calloc(n + 1, sizeof(*job));
	uint32_t nowners = 0;
	int ret = 0;

	if (owner == NULL || job == NULL)
		ret = ofs_no_memory(err);
	for (int r = 0; ret == 0 && r < w->size; r++)
		if (may[r])
			owner[nowners++].rank = r;
	for (size_t i = 0; ret == 0 && i < n; i++)
		job[i] = (struct ofs_task_job){ size[i], owner, nowners, 0 };
	if (ret == 0)
		ret = ofs_task_assign(job, n, NULL, w->size, err);
	for (size_t i = 0; ret == 0 && i < n; i++)
		ofs_wire_u32(b, (uint32_t)job[i].rank);
	if (ret == 0 && b->bad)
		ret = ofs_no_memory(err);
	free(owner);
	free(job);
	return ret;
}

int ofs_task_assign_all(struct optimfs_group *w, const uint64_t *size,
    const bool *may, int **who, size_t *n, struct optimfs_error *err)
{
	struct ofs_buf b = { 0 }, got = { 0 };
	struct ofs_cursor c;
	int ret = 0;

	*who = NULL;
	if (w->rank == 0)
		ret = divide_all(w, size, *n, may, &b, err);
	ret = ofs_task_broadcast(w, ret, &b, &got, err);
	ofs_buf_fini(&b);
	if (ret == -1)
		return -1;
	c = ofs_cursor_of(got.data, got.len);
	*n = got.len / 4;
	*who = ofs_alloc(*n + 1, sizeof(**who), err);
	for (size_t i = 0; *who != NULL && i < *n; i++)
		(*who)[i] = (int)ofs_cursor_le32(&c);
	ofs_buf_fini(&got);
	ret = ofs_task_agree(w, *who == NULL ? -1 : 0, err);
	if (ret == -1) {
		free(*who);
		*who = NULL;
	}
	return ret;
}
