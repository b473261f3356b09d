/* manifest_refresh.c - update the manifest after a commit */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "base/memory.h"
#include "cluster/call.h"
#include "cluster/manifest_impl.h"
#include "cluster/wire.h"

/* After a commit, rank 0 needs to know where the new files are; other ranks do
 * not. So it asks each rank for its messages of exchanges 1 and 2. Hashes are
 * not needed: rank 0 has sent all copies of new files. */

/* The length of an offer (8), the offer, the list. */
static int put_all(struct ofs_manifest *s, struct ofs_buf *out,
    struct optimfs_error *err)
{
	struct ofs_agreement a = { .s = s, .w = s->group, .err = err };
	struct ofs_buf offer = { 0 }, list = { 0 };
	int ret;

	ofs_offer_put_list(&a, &list);
	ofs_offer_put(&a, s->path, &list, &offer);
	ofs_wire_u64(out, offer.len);
	ofs_buf_put(out, offer.data, offer.len);
	ofs_buf_put(out, list.data, list.len);
	ret = offer.bad || out->bad ? ofs_no_memory(err) : 0;
	ofs_buf_fini(&offer);
	ofs_buf_fini(&list);
	return ret;
}

/* The answers of the ranks. */
struct answers {
	struct ofs_buf *bytes; /* by rank */
	struct ofs_cursor *offer, *list;
};

static int answers_init(struct answers *answers, int n,
    struct optimfs_error *err)
{
	answers->bytes = calloc((size_t)n, sizeof(*answers->bytes));
	answers->offer = calloc((size_t)n, sizeof(*answers->offer));
	answers->list = calloc((size_t)n, sizeof(*answers->list));
	return answers->bytes == NULL || answers->offer == NULL ||
		answers->list == NULL
	    ? ofs_no_memory(err)
	    : 0;
}

static void answers_fini(struct answers *answers, int n)
{
	for (int r = 0; answers->bytes != NULL && r < n; r++)
		ofs_buf_fini(&answers->bytes[r]);
	free(answers->bytes);
	free(answers->offer);
	free(answers->list);
}

static int take_answer(struct ofs_agreement *a, struct answers *answers,
    int rank)
{
	const struct ofs_buf *b = &answers->bytes[rank];
	struct ofs_cursor c = ofs_cursor_of(b->data, b->len);
	uint64_t n = ofs_cursor_le64(&c);
	const uint8_t *offer = ofs_cursor_take(&c, n);

	if (c.bad)
		return ofs_offer_malformed(a, rank);
	answers->offer[rank] = ofs_cursor_of(offer, n);
	answers->list[rank] = c;
	return 0;
}

int ofs_manifest_rescan(struct ofs_request *q, struct optimfs_error *err)
{
	uint32_t number = ofs_cursor_le32(&q->c);
	struct ofs_manifest *next;

	if (q->c.bad || q->result == NULL ||
	    OFS_MANIFEST_PLACE(number) !=
		OFS_MANIFEST_PLACE(q->manifest->number))
		return ofs_wire_malformed(err);
	next = ofs_manifest_again(q->manifest, err);
	if (next == NULL)
		return -1;
	next->number = number;
	if (put_all(next, q->result, err) == -1) {
		ofs_manifest_let(next);
		return -1;
	}
	ofs_group_put(q->group, next);
	return 0;
}

/* Fails if a dead rank is the only owner of a file. */
static int can_do_without(const struct ofs_manifest *s, int rank,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < s->nfiles; i++)
		if (s->file[i].nowners == 1 &&
		    s->owner[s->file[i].owner].rank == rank) {
			optimfs_fail(err, EHOSTDOWN,
			    "OFS911 it has died, and only it has %.200s",
			    s->file[i].path);
			return ofs_group_error_in(s->group, rank, err);
		}
	return 0;
}

/* Asks the other ranks. */
static int ask_others(struct ofs_agreement *a, const struct ofs_manifest *old,
    const struct ofs_buf *request, struct answers *answers)
{
	const struct optimfs_group *w = a->w;
	struct ofs_call *call = calloc((size_t)w->size, sizeof(*call));
	size_t n = 0;
	int ret = call == NULL || request->bad ? ofs_no_memory(a->err) : 0;

	for (int r = 0; r < w->size && ret == 0; r++)
		if (r == w->rank)
			continue;
		else if (w->ops->dead(w->w, r))
			ret = can_do_without(old, r, a->err);
		else
			call[n++] =
			    (struct ofs_call){ .to = r, .request = request };
	if (ret == 0)
		ofs_group_call(a->w, call, n);
	for (size_t i = 0; i < n; i++) {
		answers->bytes[call[i].to] = call[i].result;
		if (ret == 0 && call[i].err.code != 0)
			ret = optimfs_fail_with(a->err, &call[i].err);
		else if (ret == 0)
			ret = take_answer(a, answers, call[i].to);
	}
	free(call);
	return ret;
}

static int ask_all(struct ofs_agreement *a, const struct ofs_manifest *old,
    struct answers *answers)
{
	struct ofs_buf request = { 0 };
	int me = a->w->rank, ret;

	ofs_wire_u8(&request, OFS_WIRE_RESCAN);
	ofs_wire_u32(&request, old->offered->number);
	ofs_wire_u32(&request, a->s->number);
	ret = put_all(a->s, &answers->bytes[me], a->err);
	if (ret == 0)
		ret = take_answer(a, answers, me);
	if (ret == 0)
		ret = ask_others(a, old, &request, answers);
	ofs_buf_fini(&request);
	return ret;
}

int ofs_manifest_refresh(struct optimfs_group *w, const char *path,
    struct optimfs_error *err)
{
	struct ofs_manifest *old = ofs_group_manifest(w, path, err);
	struct ofs_agreement a = { .w = w, .err = err };
	struct answers answers = { 0 };
	int ret = -1;

	if (old != NULL)
		a.s = ofs_manifest_again(old, err);
	if (a.s == NULL)
		return -1;
	a.s->number = old->offered->number + ++w->refreshed * OFS_MANIFEST_NEXT;
	if (answers_init(&answers, w->size, err) == 0 &&
	    ask_all(&a, old, &answers) == 0 &&
	    ofs_offer_take_all(&a, answers.offer) == 0 &&
	    ofs_offer_take_lists(&a, answers.list) == 0)
		ret = ofs_agreement_merge(&a);
	ofs_agreement_fini(&a);
	answers_fini(&answers, w->size);
	if (ret == 0)
		ofs_group_put(w, a.s);
	else
		ofs_manifest_let(a.s);
	return ret;
}
