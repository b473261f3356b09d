/* coordinator.c - the directories that one rank writes for all */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/commit/coordinator.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cluster/call.h"
#include "cluster/commit/coordinator_impl.h"
#include "journal/decision.h"

void ofs_coordinator_request(const struct ofs_coordinator *s,
    enum ofs_participant_op op, struct ofs_buf *b)
{
	b->len = 0;
	ofs_wire_u8(b, OFS_WIRE_PARTICIPANT);
	ofs_wire_u32(b, s->manifest->number);
	ofs_wire_u8(b, (uint8_t)op);
	ofs_wire_u32(b, s->attempt);
}

/* The writer's own directory. */
static int ask_own(const struct ofs_coordinator *s,
    const struct ofs_buf *request, struct optimfs_error *err)
{
	struct ofs_request q = { .from = s->group->rank,
		.c = ofs_cursor_of(request->data, request->len) };
	struct optimfs_error own;

	if (ofs_group_handle(s->group, &q, &own) == 0)
		return 0;
	ofs_group_error_in(s->group, s->group->rank, &own);
	return optimfs_fail_with(err, &own);
}

int ofs_coordinator_ask(const struct ofs_coordinator *s,
    const struct ofs_buf *request, bool same, struct optimfs_error *err)
{
	struct ofs_ask *ask = calloc((size_t)s->n + 1, sizeof(*ask));
	const struct ofs_buf *own = NULL;
	size_t n = 0;
	int ret = ask == NULL ? ofs_no_memory(err) : 0;

	for (uint32_t i = 0; i < s->n && ret == 0; i++) {
		const struct ofs_buf *b = &request[same ? 0 : i];

		if (b->bad)
			ret = ofs_no_memory(err);
		else if (b->len != 0 && ofs_coordinator_is_own(s, i))
			own = b;
		else if (b->len != 0)
			ask[n++] =
			    (struct ofs_ask){ .to = s->participant[i].rank,
				    .request = b->data,
				    .nrequest = b->len };
	}
	if (ret == 0) {
		ret = ofs_group_ask_all(s->group, ask, n, err);
		s->group->ops->release(s->group->w, ask, n);
	}
	if (own != NULL && ask_own(s, own, ret == -1 ? NULL : err) == -1)
		ret = -1;
	free(ask);
	return ret;
}

/* Joining. */

/* The participant with the lock of that id; s->n: none. */
static uint32_t find_id(const struct ofs_coordinator *s, const char *id)
{
	uint32_t i = 0;

	while (i < s->n && strcmp(s->participant[i].id, id) != 0)
		i++;
	return i;
}

static int add_participant(struct ofs_coordinator *s, int rank, const char *id,
    const char *path, struct optimfs_error *err)
{
	struct ofs_participant_ref *p = &s->participant[s->n];

	if (asprintf(&p->name, "%s:%s", s->group->ops->host(s->group->w, rank),
		path) == -1) {
		p->name = NULL;
		return ofs_no_memory(err);
	}
	p->rank = -1;
	p->lowest = rank;
	snprintf(p->id, sizeof(p->id), "%s", id);
	s->n++;
	return 0;
}

/* A directory is named after the lowest rank that sees it. */
static int take_joined(struct ofs_coordinator *s,
    const struct ofs_join_answer *joined, struct optimfs_error *err)
{
	uint32_t own = s->of_rank[s->group->rank] == 0;

	while (s->n > own)
		free(s->participant[--s->n].name);
	for (int r = 0; r < s->group->size; r++) {
		const struct ofs_join_answer *a = &joined[r];
		uint32_t i = find_id(s, a->id);

		if (r == s->group->rank)
			continue;
		s->of_rank[r] = -1;
		if (a->id[0] == '\0')
			continue;
		if (i == s->n &&
		    add_participant(s, r, a->id, a->path, err) == -1)
			return -1;
		if (a->err.code == 0)
			s->participant[i].rank = r;
		s->of_rank[r] = (int)i;
	}
	return 0;
}

/* Is it known which rank has the lock of the directory of rank r? */
static bool is_known(const struct ofs_coordinator *s,
    const struct ofs_join_answer *joined, int r)
{
	return joined[r].err.code == 0 ||
	    (s->of_rank[r] != -1 && s->participant[s->of_rank[r]].rank != -1);
}

/* Asks n ranks, at once, to join or to leave. One that does not answer is lost:
 * checkpoints are being opened, and nothing can go on without it. */
static int ask_ranks(const struct ofs_coordinator *s,
    enum ofs_participant_op op, struct ofs_ask *ask, size_t n,
    struct ofs_join_answer *joined, struct optimfs_error *err)
{
	struct optimfs_group *w = s->group;
	struct ofs_buf b = { 0 };
	int ret;

	ofs_coordinator_request(s, op, &b);
	if (b.bad)
		return ofs_no_memory(err);
	for (size_t i = 0; i < n; i++)
		ask[i] = (struct ofs_ask){ .to = ask[i].to,
			.request = b.data,
			.nrequest = b.len,
			.want =
			    op == OFS_PARTICIPANT_JOIN ? sizeof(*joined) : 0 };
	ret = ofs_group_ask_all(w, ask, n, err);
	for (size_t i = 0; i < n && ret == 0; i++) {
		struct ofs_join_answer *a = &joined[ask[i].to];

		if (op != OFS_PARTICIPANT_JOIN)
			continue;
		memcpy(a, ask[i].answer, sizeof(*a));
		a->id[sizeof(a->id) - 1] = a->path[sizeof(a->path) - 1] = '\0';
		a->err.text[sizeof(a->err.text) - 1] = '\0';
		a->err.how = OPTIMFS_NOT_LOST;
	}
	for (size_t i = 0; i < n; i++)
		ofs_group_set_lost(w, ask[i].to, &ask[i].err);
	w->ops->release(w->w, ask, n);
	ofs_buf_fini(&b);
	return ret;
}

/* The participant shall be the lowest rank, whoever was first. */
static int hand_over(struct ofs_coordinator *s, struct ofs_ask *ask,
    struct ofs_join_answer *joined, struct optimfs_error *err)
{
	size_t n = 0;

	for (uint32_t i = 0; i < s->n; i++)
		if (s->participant[i].rank != s->participant[i].lowest)
			ask[n++].to = s->participant[i].rank;
	if (ask_ranks(s, OFS_PARTICIPANT_LEAVE, ask, n, joined, err) == -1)
		return -1;
	n = 0;
	for (uint32_t i = 0; i < s->n; i++)
		if (s->participant[i].rank != s->participant[i].lowest)
			ask[n++].to = s->participant[i].rank =
			    s->participant[i].lowest;
	return ask_ranks(s, OFS_PARTICIPANT_JOIN, ask, n, joined, err);
}

/* The first directory that another writer has. */
static int check_joined(const struct ofs_coordinator *s,
    const struct ofs_join_answer *joined, struct optimfs_error *err)
{
	for (int r = 0; r < s->group->size; r++) {
		int i = s->of_rank[r];

		if (joined[r].err.code == 0 ||
		    (i != -1 && s->participant[i].rank != -1 &&
			s->participant[i].rank != r))
			continue;
		optimfs_fail_with(err, &joined[r].err);
		return ofs_group_error_in(s->group, r, err);
	}
	return 0;
}

/* Of several ranks that see a directory, one gets its lock. Those that looked
 * before it had written its id are asked again. */
static int join_others(struct ofs_coordinator *s, struct ofs_ask *ask,
    struct ofs_join_answer *joined, struct optimfs_error *err)
{
	for (int r = 0; r < s->group->size; r++)
		joined[r].err.code = r != s->group->rank;
	for (int i = 0; i < 2; i++) {
		size_t n = 0;

		for (int r = 0; r < s->group->size; r++)
			if (!is_known(s, joined, r))
				ask[n++].to = r;
		if (ask_ranks(s, OFS_PARTICIPANT_JOIN, ask, n, joined, err) ==
			-1 ||
		    take_joined(s, joined, err) == -1)
			return -1;
	}
	if (check_joined(s, joined, err) == -1 ||
	    hand_over(s, ask, joined, err) == -1)
		return -1;
	return check_joined(s, joined, err);
}

static int join_own(struct ofs_coordinator *s, const char *id,
    struct optimfs_error *err)
{
	char *path = ofs_manifest_here(s->manifest, err);
	int me = s->group->rank, ret = path == NULL ? -1 : 0;

	if (ret == 0 && s->manifest->dir.fd != -1) {
		ret = ofs_participant_own(s->manifest, s->stage, err);
		if (ret == 0)
			ret = add_participant(s, me, id, path, err);
		if (ret == 0)
			s->participant[s->of_rank[me] = 0].rank = me;
	}
	free(path);
	return ret;
}

static int join_all(struct ofs_coordinator *s, const char *id,
    struct optimfs_error *err)
{
	size_t n = (size_t)s->group->size;
	struct ofs_join_answer *joined = calloc(n, sizeof(*joined));
	struct ofs_ask *ask = calloc(n, sizeof(*ask));
	int ret = joined == NULL || ask == NULL ? ofs_no_memory(err)
						: join_own(s, id, err);

	if (ret == 0)
		ret = join_others(s, ask, joined, err);
	free(joined);
	free(ask);
	return ret;
}

struct ofs_coordinator *ofs_coordinator_open(struct ofs_manifest *manifest,
    const char *id, int stage, struct optimfs_error *err)
{
	struct ofs_coordinator *s = calloc(1, sizeof(*s));
	size_t n = (size_t)manifest->group->size;

	if (s == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	s->manifest = manifest;
	s->group = manifest->group;
	s->stage = stage;
	s->participant = calloc(n + 1, sizeof(*s->participant));
	s->of_rank = malloc((n + 1) * sizeof(*s->of_rank));
	for (size_t r = 0; s->of_rank != NULL && r < n; r++)
		s->of_rank[r] = -1;
	if (s->participant == NULL || s->of_rank == NULL)
		ofs_no_memory(err);
	else if (join_all(s, id, err) == 0)
		return s;
	ofs_coordinator_free(s);
	return NULL;
}

void ofs_coordinator_free(struct ofs_coordinator *s)
{
	if (s == NULL)
		return;
	for (uint32_t i = 0; i < s->n; i++)
		free(s->participant[i].name);
	free(s->participant);
	free(s->of_rank);
	free(s);
}

int ofs_coordinator_refresh(struct ofs_coordinator *s,
    struct optimfs_error *err)
{
	if (ofs_manifest_refresh(s->group, s->manifest->path, err) == -1)
		return -1;
	s->manifest = ofs_group_manifest(s->group, s->manifest->path, err);
	return 0;
}

const char *ofs_coordinator_source(const struct ofs_coordinator *s,
    struct optimfs_group **group)
{
	*group = s->group;
	return s->manifest->path;
}

bool ofs_coordinator_alone(const struct ofs_coordinator *s)
{
	return s->n == 1 && ofs_coordinator_is_own(s, 0);
}

bool ofs_coordinator_have(const struct ofs_coordinator *s, const char *rel)
{
	return ofs_manifest_find(s->manifest, rel) != OFS_NONE;
}

int ofs_coordinator_call(const struct ofs_coordinator *s,
    enum ofs_participant_op op, const char *id, const bool *mask,
    struct optimfs_error *err)
{
	struct ofs_call *call = calloc((size_t)s->n + 1, sizeof(*call));
	struct ofs_buf b = { 0 };
	uint32_t n = 0;
	int ret = 0;

	if (call == NULL)
		return ofs_no_memory(err);
	ofs_coordinator_request(s, op, &b);
	if (id != NULL)
		ofs_wire_str(&b, id);
	for (uint32_t i = 0; i < s->n; i++)
		if (mask == NULL || mask[i])
			call[n++] =
			    (struct ofs_call){ .to = s->participant[i].rank,
				    .request = &b };
	ofs_group_call(s->group, call, n);
	for (uint32_t i = 0; i < n; i++) {
		ofs_buf_fini(&call[i].result);
		/* as ask_ranks: it belongs to opening */
		if (op == OFS_PARTICIPANT_RECOVER && !call[i].answered)
			ofs_group_set_lost(s->group, call[i].to, &call[i].err);
		if (call[i].err.code != 0 && ret == 0)
			ret = optimfs_fail_with(err, &call[i].err);
	}
	ofs_buf_fini(&b);
	free(call);
	return ret;
}

/* Recovery from an interrupted commit. */

static bool is_here(const struct ofs_coordinator *s, const char *name)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (strcmp(s->participant[i].name, name) == 0)
			return true;
	return false;
}

static int check_here(const struct ofs_coordinator *s,
    const struct ofs_buf *names, struct optimfs_error *err)
{
	struct ofs_cursor c = ofs_cursor_of(names->data, names->len);

	while (ofs_cursor_left(&c) > 0) {
		const char *name = (const char *)c.p;
		size_t n = strnlen(name, ofs_cursor_left(&c));

		if (ofs_cursor_take(&c, n + 1) == NULL)
			break;
		if (!is_here(s, name))
			return optimfs_fail(err, EBUSY,
			    "OFS841 a commit must be finished in %.200s, which "
			    "is not among the directories of these ranks",
			    name);
	}
	return 0;
}

int ofs_coordinator_recover(struct ofs_coordinator *s,
    struct optimfs_error *err)
{
	char id[OFS_PUBLISH_ID];
	struct ofs_buf names = { 0 };
	int decided = ofs_decision_read(s->stage, id, &names, err);
	int ret = decided;

	if (ret == 1)
		ret = check_here(s, &names, err);
	ofs_buf_fini(&names);
	if (ret == -1 ||
	    ofs_coordinator_call(s, OFS_PARTICIPANT_RECOVER, id, NULL, err) ==
		-1)
		return -1;
	ofs_publish_clear(s->stage, OFS_PUBLISH_BUILT);
	ofs_decision_clean(s->stage);
	return decided;
}

/* Participants first: a record without a decision would be reverted. */
int ofs_coordinator_forget(struct ofs_coordinator *s, struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	int ret;

	ofs_coordinator_request(s, OFS_PARTICIPANT_FORGET, &b);
	ret = ofs_coordinator_ask(s, &b, true, err);
	ofs_buf_fini(&b);
	return ret == -1 ? -1 : ofs_decision_remove(s->stage, err);
}
