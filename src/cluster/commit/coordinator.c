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
}

/* The writer's own directory. */
static int ask_own(const struct ofs_coordinator *s,
    const struct ofs_buf *request, void *out, uint64_t want,
    struct optimfs_error *err)
{
	struct ofs_request q = { .from = s->group->rank,
		.c = ofs_cursor_of(request->data, request->len),
		.out = out,
		.want = want };
	struct optimfs_error own;

	if (ofs_group_handle(s->group, &q, &own) == 0)
		return 0;
	ofs_group_error_in(s->group, s->group->rank, &own);
	return optimfs_fail_with(err, &own);
}

static int ask_rank(const struct ofs_coordinator *s, int rank,
    const struct ofs_buf *request, void *out, uint64_t want,
    struct optimfs_error *err)
{
	if (request->bad)
		return ofs_no_memory(err);
	if (rank == s->group->rank)
		return ask_own(s, request, out, want, err);
	return ofs_group_ask(s->group, rank, request, out, want, err);
}

int ofs_coordinator_ask(const struct ofs_coordinator *s, uint32_t to,
    const struct ofs_buf *request, void *out, uint64_t want,
    struct optimfs_error *err)
{
	return ask_rank(s, s->participant[to].rank, request, out, want, err);
}

/* Joining. */

static int add_participant(struct ofs_coordinator *s, int rank, const char *id,
    const char *path, struct optimfs_error *err)
{
	struct ofs_participant_ref *p = &s->participant[s->n];

	if (s->n == OFS_MAX_PARTICIPANTS)
		return optimfs_fail(err, E2BIG,
		    "OFS624 a checkpoint in more than %d directories",
		    OFS_MAX_PARTICIPANTS);
	if (asprintf(&p->name, "%s:%s", s->group->ops->host(s->group->w, rank),
		path) == -1) {
		p->name = NULL;
		return ofs_no_memory(err);
	}
	p->rank = rank;
	snprintf(p->id, sizeof(p->id), "%s", id);
	s->of_rank[rank] = (int)s->n++;
	return 0;
}

static int take_joined(struct ofs_coordinator *s, int rank,
    const uint8_t *answer, struct optimfs_error *err)
{
	struct ofs_cursor c = ofs_cursor_of(answer, OFS_JOIN_WANT);
	uint8_t joined = ofs_cursor_u8(&c);
	uint32_t index = ofs_cursor_le32(&c);
	const char *id = ofs_wire_take_str(&c), *path = ofs_wire_take_str(&c);

	if (c.bad || (joined == OFS_JOINED_SAME && index >= s->n)) {
		ofs_wire_malformed(err);
		return ofs_group_error_in(s->group, rank, err);
	}
	if (joined == OFS_JOINED_NEW)
		return add_participant(s, rank, id, path, err);
	if (joined == OFS_JOINED_SAME)
		s->of_rank[rank] = (int)index;
	return 0;
}

static int join(struct ofs_coordinator *s, int rank, struct optimfs_error *err)
{
	uint8_t *answer = malloc(OFS_JOIN_WANT);
	struct ofs_buf b = { 0 };
	int ret;

	if (answer == NULL)
		return ofs_no_memory(err);
	ofs_coordinator_request(s, OFS_PARTICIPANT_JOIN, &b);
	ofs_wire_u32(&b, s->n);
	for (uint32_t i = 0; i < s->n; i++)
		ofs_wire_str(&b, s->participant[i].id);
	ret = ask_rank(s, rank, &b, answer, OFS_JOIN_WANT, err);
	if (ret == 0)
		ret = take_joined(s, rank, answer, err);
	ofs_buf_fini(&b);
	free(answer);
	return ret;
}

/* One after the other: later ranks find the locks of earlier ones. */
static int join_all(struct ofs_coordinator *s, const char *id,
    struct optimfs_error *err)
{
	struct optimfs_group *w = s->group;

	char *path = ofs_manifest_here(s->manifest, err);
	int ret = path == NULL ? -1 : 0;

	if (ret == 0 && s->manifest->dir.fd != -1 &&
	    (ofs_participant_own(s->manifest, s->stage, err) == -1 ||
		add_participant(s, w->rank, id, path, err) == -1))
		ret = -1;
	free(path);
	if (ret == -1)
		return -1;
	for (int r = 0; r < w->size; r++)
		if (r != w->rank && join(s, r, err) == -1)
			return -1;
	return 0;
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
	int ret = 0;

	ofs_coordinator_request(s, OFS_PARTICIPANT_FORGET, &b);
	for (uint32_t i = 0; i < s->n; i++)
		if (ofs_coordinator_ask(s, i, &b, NULL, 0, err) == -1)
			ret = -1;
	ofs_buf_fini(&b);
	return ret == -1 ? -1 : ofs_decision_remove(s->stage, err);
}
