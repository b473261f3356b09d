/* ranks.c - several ranks that write a view together */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cluster/allgather.h"
#include "cluster/task.h"
#include "cluster/wire.h"
#include "reshard/reshard.h"

/* Rank 0 owns the stage and sends its location with the id of its lock. A rank
 * that sees the same lock there writes its share of the files; other ranks only
 * supply data to those. Rank 0 decides who writes what and what an earlier run
 * has done, because two ranks may see the directory at different times. */

static void put_place(const struct ofs_reshard *r, const char *dir,
    struct ofs_buf *b)
{
	ofs_wire_str(b, dir);
	ofs_wire_u64(b, r->files);
	ofs_wire_str(b, ofs_stage_lock_id(r->stage));
}

/* Checks the message of rank 0: fails if this rank would do something else.
 * *sees: it sees the same stage. */
static int take_place(struct ofs_reshard *r, const char *dir,
    const struct ofs_buf *got, bool *sees, struct optimfs_error *err)
{
	struct ofs_cursor c = ofs_cursor_of(got->data, got->len);
	const char *path = ofs_wire_take_str(&c);
	uint64_t files = ofs_cursor_le64(&c);
	const char *id = ofs_wire_take_str(&c);
	char holder[OFS_LOCK_ID];

	if (c.bad)
		return optimfs_fail(err, EPROTO,
		    "OFS913 the message of rank 0 is invalid");
	if (strcmp(path, dir) != 0)
		return optimfs_fail(err, EINVAL,
		    "OFS775 %.80s, but %.80s on rank 0: reshard has one "
		    "target; mkfs prepares one of several directories",
		    dir, path);
	if (files != r->files)
		return optimfs_fail(err, EPROTO,
		    "OFS913 it would write other files than rank 0: do all "
		    "ranks run the same version?");
	ofs_beside_holder(dir, holder);
	*sees = id[0] != '\0' && strcmp(holder, id) == 0;
	return 0;
}

/* Opens the directory of new files, if it is writable. */
static bool open_new(struct ofs_reshard *r, const char *dir)
{
	struct optimfs_error err;
	char *path = ofs_stage_place(dir, &err), *new = NULL;

	if (path != NULL && asprintf(&new, "%s/new", path) != -1)
		r->engine.dir =
		    open(new, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	free(new);
	free(path);
	if (r->engine.dir != -1 &&
	    faccessat(r->engine.dir, ".", W_OK, AT_EACCESS) == -1) {
		close(r->engine.dir);
		r->engine.dir = -1;
	}
	return r->engine.dir != -1;
}

static void say_who(const struct ofs_reshard *r, const char *dir, int nwriters)
{
	int n = ofs_allgather_size(r->group);
	char text[512];

	if (nwriters == n || r->how->watch.say == NULL)
		return;
	snprintf(text, sizeof(text),
	    "%d of %d ranks see %.300s, and write; the others send data",
	    nwriters, n, dir);
	r->how->watch.say(r->how->watch.ctx, text);
}

/* Rank 0: sends the rank of each file (4 bytes each), then the records. */
static int divide(struct ofs_reshard *r, const char *dir, const bool *writes,
    const struct ofs_buf *earlier, struct ofs_buf *b, struct optimfs_error *err)
{
	int size = r->group->size, n = 0, ret;
	struct ofs_owner *may = calloc((size_t)size, sizeof(*may));
	struct ofs_task_job *job =
	    calloc((size_t)r->engine.n + 1, sizeof(*job));

	for (int i = 0; may != NULL && i < size; i++)
		if (writes[i])
			may[n++].rank = i;
	if (may == NULL || job == NULL) {
		ret = ofs_no_memory(err);
		goto out;
	}
	say_who(r, dir, n);
	for (uint32_t i = 0; i < r->engine.n; i++)
		job[i] = (struct ofs_task_job){ .size = r->engine.file[i].size -
			    ofs_engine_written(&r->engine.file[i]),
			.may = may,
			.nmay = (uint32_t)n };
	ret = ofs_task_assign(job, r->engine.n, NULL, size, err);
	for (uint32_t i = 0; i < r->engine.n; i++)
		ofs_wire_u32(b, (uint32_t)job[i].rank);
	ofs_buf_put(b, earlier->data, earlier->len);
	b->bad |= earlier->bad;
out:
	free(job);
	free(may);
	return ret;
}

static int take_share(struct ofs_reshard *r, const struct ofs_buf *got,
    struct optimfs_error *err)
{
	struct ofs_cursor c = ofs_cursor_of(got->data, got->len);

	for (uint32_t i = 0; i < r->engine.n; i++)
		r->engine.file[i].ours =
		    ofs_cursor_le32(&c) == (uint32_t)r->group->rank;
	if (c.bad)
		return optimfs_fail(err, EPROTO,
		    "OFS913 the message of rank 0 is invalid");
	return r->is_rank0 || r->engine.dir == -1
	    ? 0
	    : ofs_reshard_log_earlier(r, &c, err);
}

/* Do all ranks have the same task, and which of them see the stage? */
static int meet_at(struct ofs_reshard *r, const char *dir, bool *writes,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	struct ofs_buf got = { 0 };
	bool sees = r->is_rank0;
	int ret;

	if (r->is_rank0)
		put_place(r, dir, &b);
	ret = ofs_task_broadcast(r->group, 0, &b, &got, err);
	ofs_buf_fini(&b);
	if (ret == -1)
		return -1;
	if (!r->is_rank0)
		ret = take_place(r, dir, &got, &sees, err);
	if (!r->is_rank0 && ret == 0)
		sees = sees && open_new(r, dir);
	ofs_buf_fini(&got);
	return ofs_task_who(r->group, ret, sees, writes, err);
}

/* Assigns files to ranks. */
static int share_out(struct ofs_reshard *r, const char *dir, const bool *writes,
    const struct ofs_buf *earlier, struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	struct ofs_buf got = { 0 };
	int ret = 0;

	if (r->is_rank0)
		ret = divide(r, dir, writes, earlier, &b, err);
	ret = ofs_task_broadcast(r->group, ret, &b, &got, err);
	ofs_buf_fini(&b);
	if (ret == -1)
		return -1;
	ret = take_share(r, &got, err);
	ofs_buf_fini(&got);
	return ofs_task_agree(r->group, ret, err);
}

int ofs_reshard_join(struct ofs_reshard *r, int ret, const char *dir,
    const struct ofs_buf *earlier, struct optimfs_error *err)
{
	struct optimfs_error own = { 0 };
	bool *writes;

	if (r->group == NULL)
		return ret;
	if (ret == -1)
		own = *err;
	writes = calloc((size_t)r->group->size, sizeof(*writes));
	if (writes == NULL && own.code == 0)
		ofs_no_memory(&own);
	ret = ofs_task_begin(r->group, ofs_reshard_log_take, r, &own, err);
	if (ret == 0)
		ret = meet_at(r, dir, writes, err);
	if (ret == 0)
		ret = share_out(r, dir, writes, earlier, err);
	free(writes);
	return ret;
}

static void tick(void *ctx)
{
	ofs_engine_tick(ctx);
}

int ofs_reshard_barrier(struct ofs_reshard *r, int ret,
    struct optimfs_error *err)
{
	struct optimfs_error own = { 0 };

	if (r->group == NULL)
		return ret;
	if (ret == -1)
		own = *err;
	return ofs_task_barrier(r->group, &own, tick, &r->engine, err);
}
