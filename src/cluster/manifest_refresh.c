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

/* The offer, and the list. */
static int put_all(const struct ofs_manifest *s, struct ofs_buf *out,
    struct optimfs_error *err)
{
	struct ofs_buf list = { 0 };

	ofs_offer_put_list(s, &list);
	ofs_offer_put(s, s->path, &list, out);
	ofs_buf_put(out, list.data, list.len);
	ofs_buf_fini(&list);
	return out->bad ? ofs_no_memory(err) : 0;
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

/* The first call is to this rank, and is not made: its new manifest is not known
 * yet. */
static int ask_all(struct ofs_agreement *a, const struct ofs_manifest *old,
    struct ofs_call *call, size_t *n)
{
	const struct optimfs_group *w = a->w;
	struct ofs_buf request = { 0 };
	int ret;

	ofs_wire_u8(&request, OFS_WIRE_RESCAN);
	ofs_wire_u32(&request, old->offered->number);
	ofs_wire_u32(&request, a->s->number);
	*n = 1;
	call->to = w->rank;
	ret = request.bad ? ofs_no_memory(a->err)
			  : put_all(a->s, &call->result, a->err);
	for (int r = 0; r < w->size && ret == 0; r++)
		if (r == w->rank)
			continue;
		else if (w->ops->dead(w->w, r))
			ret = can_do_without(old, r, a->err);
		else
			call[(*n)++] =
			    (struct ofs_call){ .to = r, .request = &request };
	if (ret == 0)
		ofs_group_call(a->w, call + 1, *n - 1);
	for (size_t i = 1; i < *n && ret == 0; i++)
		if (call[i].err.code != 0)
			ret = optimfs_fail_with(a->err, &call[i].err);
	ofs_buf_fini(&request);
	return ret;
}

/* Strings of the agreement point into the results of the calls. */
static int agree(struct ofs_agreement *a, const struct ofs_manifest *old)
{
	size_t size = (size_t)a->w->size, n = 0;
	struct ofs_call *call = calloc(size, sizeof(*call));
	struct ofs_cursor *by_rank = calloc(size, sizeof(*by_rank));
	int ret = call == NULL || by_rank == NULL ? ofs_no_memory(a->err)
						  : ask_all(a, old, call, &n);

	for (size_t i = 0; i < n; i++)
		by_rank[call[i].to] =
		    ofs_cursor_of(call[i].result.data, call[i].result.len);
	if (ret == 0)
		ret = ofs_offer_take_all(a, by_rank);
	if (ret == 0)
		ret = ofs_offer_take_lists(a, by_rank);
	if (ret == 0)
		ret = ofs_agreement_merge(a);
	ofs_agreement_fini(a);
	for (size_t i = 0; i < n; i++)
		ofs_buf_fini(&call[i].result);
	free(by_rank);
	free(call);
	return ret;
}

int ofs_manifest_refresh(struct optimfs_group *w, const char *path,
    struct optimfs_error *err)
{
	struct ofs_manifest *old = ofs_group_manifest(w, path, err);
	struct ofs_agreement a = { .w = w, .err = err };

	if (old != NULL)
		a.s = ofs_manifest_again(old, err);
	if (a.s == NULL)
		return -1;
	a.s->number = old->offered->number + ++w->refreshed * OFS_MANIFEST_NEXT;
	if (agree(&a, old) == 0) {
		ofs_group_put(w, a.s);
		return 0;
	}
	ofs_manifest_let(a.s);
	return -1;
}
