/* manifest_agree.c - agree on which rank has which file */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/search.h"
#include "cluster/allgather.h"
#include "cluster/call.h"
#include "cluster/manifest_impl.h"
#include "cluster/relay.h"
#include "cluster/wire.h"

/* All ranks exchange messages up to three times, about names and times only:
 *
 * 1. The offer of each rank: whether it could list its files, its path, and a
 *    digest of its list. Ranks that see the same shared file system have the
 *    same digest.
 * 2. The lists: for each digest that of the lowest rank with it.
 * 3. If two lists describe a file differently, but with the same size: hashes
 *    of its contents. Copies have their own times and inode numbers.
 *
 * All ranks compute the same result from these messages, failures included. */

/* Hashed bytes of a file: all, or samples of a large one. */
#define HASH_WHOLE   ((uint64_t)64 << 20)
#define HASH_SAMPLE  ((uint64_t)64 << 10)
#define HASH_SAMPLES 64

/* Merging the lists. */

static int by_path(const void *va, const void *vb)
{
	const struct ofs_offer_line *a = va, *b = vb;
	int c = strcmp(a->o.path, b->o.path);

	return c != 0 ? c : a->leader < b->leader ? -1 : a->leader > b->leader;
}

OFS_COMPARE_BY(by_rank, struct ofs_owner, rank)

/* Adds all ranks that have the file described by n entries of one path. */
static void add_owners(struct ofs_agreement *a, const struct ofs_offer_line *l,
    uint32_t n, struct ofs_manifest_file *f, uint32_t *nowners)
{
	struct ofs_owner *owner = a->s->owner;

	f->owner = *nowners;
	for (uint32_t i = 0; i < n; i++)
		for (int r = l[i].leader; r < a->w->size; r++) {
			if (a->offer[r].leader != l[i].leader)
				continue;
			owner[(*nowners)++] =
			    (struct ofs_owner){ r, l[i].index };
			f->here |= r == a->w->rank;
		}
	f->nowners = *nowners - f->owner;
	qsort(owner + f->owner, f->nowners, sizeof(*owner), by_rank);
}

static uint32_t same_path(const struct ofs_agreement *a, uint32_t i)
{
	uint32_t n = 1;

	while (i + n < a->nlines &&
	    strcmp(a->line[i].o.path, a->line[i + n].o.path) == 0)
		n++;
	return n;
}

static int check_sizes(struct ofs_agreement *a, const struct ofs_offer_line *l,
    uint32_t n)
{
	for (uint32_t i = 1; i < n; i++)
		if (l[i].o.size != l[0].o.size)
			return optimfs_fail(a->err, EPROTO,
			    "OFS914 %.200s: %" PRIu64 " bytes on rank %d (%s), "
			    "%" PRIu64 " on rank %d (%s): these are not parts "
			    "of one checkpoint",
			    l[0].o.path, l[0].o.size, l[0].leader,
			    a->w->ops->host(a->w->w, l[0].leader), l[i].o.size,
			    l[i].leader, a->w->ops->host(a->w->w, l[i].leader));
	return 0;
}

/* Copies have their own times and inode numbers. */
static void mark_unlike(struct ofs_agreement *a, struct ofs_offer_line *l,
    uint32_t n)
{
	bool unlike = false;

	for (uint32_t i = 1; i < n; i++)
		unlike |= l[i].o.mtime_ns != l[0].o.mtime_ns ||
		    l[i].o.ino != l[0].o.ino ||
		    l[i].o.refused != l[0].o.refused;
	for (uint32_t i = 0; i < n; i++)
		l[i].unlike = unlike;
	a->unlike |= unlike;
}

static int add_file(struct ofs_agreement *a, struct ofs_offer_line *l,
    uint32_t n, uint32_t *nowners)
{
	struct ofs_manifest *s = a->s;
	struct ofs_manifest_file *f = &s->file[s->nfiles];

	if (check_sizes(a, l, n) == -1)
		return -1;
	f->o = l[0].o;
	f->path = f->o.path =
	    ofs_arena_strndup(&s->arena, l[0].o.path, strlen(l[0].o.path));
	if (f->path == NULL)
		return ofs_no_memory(a->err);
	add_owners(a, l, n, f, nowners);
	mark_unlike(a, l, n);
	s->nfiles++;
	return 0;
}

static int merge_lists(struct ofs_agreement *a)
{
	struct ofs_manifest *s = a->s;
	uint32_t nowners = 0, n;
	uint64_t most = 0;

	for (int r = 0; r < a->w->size; r++)
		most += a->offer[r].nfiles;
	if (most >= UINT32_MAX)
		return optimfs_fail(a->err, E2BIG, "OFS624 too many files");
	s->file = calloc((size_t)a->nlines + 1, sizeof(*s->file));
	s->owner = calloc((size_t)most + 1, sizeof(*s->owner));
	if (s->file == NULL || s->owner == NULL)
		return ofs_no_memory(a->err);
	if (a->nlines > 0)
		qsort(a->line, a->nlines, sizeof(*a->line), by_path);
	for (uint32_t i = 0; i < a->nlines; i += n) {
		n = same_path(a, i);
		if (add_file(a, a->line + i, n, &nowners) == -1)
			return -1;
	}
	return 0;
}

static int hash_range(struct ofs_manifest *s, uint32_t object, uint64_t off,
    uint64_t len, uint8_t *buf, uint64_t *h, struct optimfs_error *err)
{
	struct ofs_extent all = { .object = object,
		.len = s->files->objects[object].size };

	for (uint64_t n; len > 0; off += n, len -= n) {
		n = len < HASH_SAMPLE ? len : HASH_SAMPLE;
		if (ofs_transport_read(s->transport, &all, off, n, buf, err) ==
		    -1)
			return -1;
		*h = XXH64(buf, n, *h);
	}
	return 0;
}

static int hash_file(struct ofs_manifest *s, uint32_t object, uint8_t *buf,
    uint64_t *h, struct optimfs_error *err)
{
	uint64_t size = s->files->objects[object].size;
	uint64_t step = (size - HASH_SAMPLE) / (HASH_SAMPLES - 1);

	*h = 0;
	if (size <= HASH_WHOLE)
		return hash_range(s, object, 0, size, buf, h, err);
	for (uint64_t i = 0; i < HASH_SAMPLES; i++)
		if (hash_range(s, object, i * step, HASH_SAMPLE, buf, h, err) ==
		    -1)
			return -1;
	return 0;
}

/* Writes hashes of those local files whose entries differ; 0 for one that
 * cannot be read. */
static int put_hashes(struct ofs_agreement *a, struct ofs_buf *b,
    struct optimfs_error *err)
{
	uint8_t *buf = malloc(HASH_SAMPLE);
	int ret = buf == NULL ? ofs_no_memory(err) : 0;

	for (uint32_t i = 0; i < a->nlines && ret == 0; i++) {
		const struct ofs_offer_line *l = &a->line[i];
		uint64_t h = 0;

		if (!l->unlike || l->leader != a->w->rank)
			continue;
		if (!l->o.refused)
			ret = hash_file(a->s, l->index, buf, &h, err);
		ofs_wire_u64(b, h);
	}
	free(buf);
	return ret;
}

/* Compares the hashes; each leader sent them in the order of its entries. */
static int compare(struct ofs_agreement *a, struct ofs_cursor *c)
{
	const struct ofs_offer_line *first = NULL;
	uint64_t expected = 0;

	for (uint32_t i = 0; i < a->nlines; i++) {
		const struct ofs_offer_line *l = &a->line[i];
		uint64_t h;

		if (!l->unlike)
			continue;
		h = ofs_cursor_le64(&c[l->leader]);
		if (c[l->leader].bad)
			return ofs_offer_malformed(a, l->leader);
		if (first == NULL || strcmp(first->o.path, l->o.path) != 0) {
			first = l;
			expected = h;
		} else if (h != expected)
			return optimfs_fail(a->err, EPROTO,
			    "OFS914 %.200s: ranks %d (%s) and %d (%s) have "
			    "different files of this name",
			    l->o.path, first->leader,
			    a->w->ops->host(a->w->w, first->leader), l->leader,
			    a->w->ops->host(a->w->w, l->leader));
	}
	return 0;
}

/* Exchanges messages: -1 if a rank is lost or has failed. */
static int exchange(struct ofs_agreement *a, const struct optimfs_error *own,
    const struct ofs_buf *mine, struct ofs_allgather *all)
{
	*all = (struct ofs_allgather){ .own = own, .mine = mine };
	if (ofs_allgather(a->w, all, a->err) == -1)
		return -1;
	return ofs_allgather_verdict(a->w, all, true, a->err);
}

static int exchange_lists(struct ofs_agreement *a, const struct ofs_buf *list,
    struct ofs_allgather *all)
{
	bool first = a->offer[a->w->rank].leader == a->w->rank;
	int ret = exchange(a, NULL, first ? list : NULL, all);

	if (ret == 0)
		ret = ofs_offer_take_lists(a, all->of);
	return ret == 0 ? merge_lists(a) : ret;
}

static int exchange_hashes(struct ofs_agreement *a)
{
	struct optimfs_error own = { 0 };
	struct ofs_allgather all;
	struct ofs_buf b = { 0 };
	int ret;

	if (!a->unlike)
		return 0;
	if (put_hashes(a, &b, &own) == 0)
		own.code = 0;
	ret = exchange(a, &own, &b, &all);
	if (ret == 0)
		ret = compare(a, all.of);
	ofs_allgather_fini(&all);
	ofs_buf_fini(&b);
	return ret;
}

static void agreement_fini(struct ofs_agreement *a)
{
	free(a->line);
	free(a->offer);
}

int ofs_manifest_agree(struct ofs_manifest *s, struct optimfs_group *w,
    const char *path, const struct optimfs_error *own,
    struct optimfs_error *err)
{
	struct ofs_agreement a = { .s = s, .w = w, .err = OFS_SOME_ERROR(err) };
	struct ofs_buf list = { 0 }, offer = { 0 };
	/* strings of offers and entries point into these */
	struct ofs_allgather all, lists = { 0 };
	int ret;

	ofs_offer_put_list(s, &list);
	ofs_offer_put(s, path, &list, &offer);
	ret = exchange(&a, own, &offer, &all);
	if (ret == 0)
		ret = ofs_offer_take_all(&a, all.of);
	if (ret == 0)
		ret = exchange_lists(&a, &list, &lists);
	if (ret == 0)
		ret = exchange_hashes(&a);
	if (s != NULL)
		ofs_relay_agreed(s, ret);
	agreement_fini(&a);
	ofs_allgather_fini(&all);
	ofs_allgather_fini(&lists);
	ofs_buf_fini(&list);
	ofs_buf_fini(&offer);
	return ret;
}

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
static int agree_again(struct ofs_agreement *a, const struct ofs_manifest *old)
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
		ret = merge_lists(a);
	agreement_fini(a);
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
	if (agree_again(&a, old) == 0) {
		ofs_group_put(w, a.s);
		return 0;
	}
	ofs_manifest_let(a.s);
	return -1;
}
