/* manifest_agree.c - who has which file, agreed upon by all ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/buf.h"
#include "base/memory.h"
#include "cluster/call.h"
#include "cluster/manifest.h"
#include "cluster/wire.h"
#include "journal/decision.h"
#include "journal/stage.h"

/* Three exchanges, of names and times only:
 *
 * 1. what each rank offers, in short: whether it could look, what its path
 *    is, and a digest of its list of files. Whoever sees the same shared file
 *    system has the same digest.
 * 2. the lists, one of each digest, from the lowest rank that has it.
 * 3. if some file is on two lists that describe it differently, though with
 *    one size: hashes. Copies have times and inodes of their own.
 *
 * All ranks compute the same from what they got, failures included. */

/* Bytes of a file that are hashed: all of it, or samples of a large one. */
#define HASH_WHOLE   ((uint64_t)64 << 20)
#define HASH_SAMPLE  ((uint64_t)64 << 10)
#define HASH_SAMPLES 64

enum kind { NOTHING, DIRECTORY, FILE_IN_DIRECTORY };

/* What a rank says first. */
struct offer {
	uint32_t code;
	const char *text, *path, *rel;
	uint8_t kind;
	uint32_t nfiles;
	uint64_t digest[2];
	/* Of a commit that was cut short: what is prepared here, and what was
	 * decided by who is the writer here. */
	const char *pending, *decided;
	int leader; /* the lowest rank with the same list; -1: no files */
};

/* A line of a list. */
struct line {
	struct ofs_object o;
	int leader;
	uint32_t index;
};

struct agreement {
	struct ofs_manifest *s; /* NULL: we failed */
	struct optimfs_group *w;
	struct ofs_buf list; /* of what is here */
	struct offer *offer; /* of each rank */
	struct ofs_said *said, *lists, *hashes;
	struct line *line;
	uint32_t nlines;
	struct optimfs_error *err;
};

static int garbled(struct agreement *a, int rank)
{
	optimfs_fail(a->err, EPROTO,
	    "OFS913 what it said makes no sense: are all ranks of one "
	    "version?");
	return ofs_group_blame(a->w, rank, a->err);
}

static int exchange(struct agreement *a, const struct ofs_buf *b,
    struct ofs_said **all)
{
	if (b->bad)
		return ofs_no_memory(a->err);
	*all = calloc((size_t)a->w->size, sizeof(**all));
	if (*all == NULL)
		return ofs_no_memory(a->err);
	return a->w->ops->exchange(a->w->w, b->data, b->len, *all, a->err);
}

/* One that has died has said nothing. */
static bool is_absent(const struct agreement *a, int rank)
{
	return a->said[rank].n == 0;
}

static void free_said(const struct agreement *a, struct ofs_said *all)
{
	for (int r = 0; all != NULL && r < a->w->size; r++)
		free(all[r].p);
	free(all);
}

/* 1. */

static void put_line(struct ofs_buf *b, const struct ofs_object *o)
{
	ofs_wire_str(b, o->path);
	ofs_wire_u8(b, o->refused);
	ofs_wire_u64(b, o->size);
	ofs_wire_u64(b, (uint64_t)o->mtime_ns);
	ofs_wire_u64(b, o->ino);
	ofs_wire_u64(b, o->blocks);
	ofs_wire_u64(b, (uint64_t)o->stamp.ctime_ns);
	ofs_wire_u32(b, o->stamp.nlink);
	ofs_wire_u32(b, o->stamp.mode);
	ofs_wire_u32(b, o->stamp.uid);
	ofs_wire_u32(b, o->stamp.gid);
}
/* The shortest: a path of one letter. */
#define LINE_MIN (4 + 2 + 1 + 5 * 8 + 4 * 4)

/* Lines are numbered as the objects are: a file that went while we looked
 * stands there as refused. */
static void put_list(struct agreement *a)
{
	for (uint32_t i = 0; a->s != NULL && i < a->s->files->nobjects; i++) {
		struct ofs_object o = a->s->files->objects[i];

		o.refused |= o.missing;
		put_line(&a->list, &o);
	}
}

/* What a commit that was cut short has left beside the directory that this rank
 * sees: the id that was prepared there, the one that was decided, or "". */
static void peek_at_commit(const struct ofs_manifest *s,
    char pending[OFS_PUBLISH_ID], char decided[OFS_PUBLISH_ID])
{
	char *path = ofs_manifest_here(s, NULL), *place = NULL;
	struct ofs_buf names = { 0 };
	int dir = -1;

	if (path != NULL)
		place = ofs_stage_place(path, NULL);
	if (place != NULL)
		dir = open(place, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir != -1) {
		(void)ofs_publish_pending(dir, pending, NULL);
		(void)ofs_decision_read(dir, decided, &names, NULL);
		close(dir);
	}
	ofs_buf_fini(&names);
	free(place);
	free(path);
}

static void put_commit(const struct ofs_manifest *s, struct ofs_buf *b)
{
	char pending[OFS_PUBLISH_ID] = "", decided[OFS_PUBLISH_ID] = "";

	if (s != NULL && s->dir.fd != -1)
		peek_at_commit(s, pending, decided);
	ofs_wire_str(b, pending);
	ofs_wire_str(b, decided);
}

static void put_offer(struct agreement *a, const char *path,
    const struct optimfs_error *own, struct ofs_buf *b)
{
	const struct ofs_manifest *s = a->s;
	XXH128_hash_t h = XXH3_128bits(a->list.data, a->list.len);

	ofs_wire_u32(b, (uint32_t)own->code);
	ofs_wire_str(b, own->code == 0 ? "" : own->text);
	ofs_wire_str(b, path);
	ofs_wire_str(b, s == NULL ? "" : s->rel);
	ofs_wire_u8(b,
	    s == NULL || s->dir.fd == -1 ? NOTHING
		: s->rel[0] == '\0'      ? DIRECTORY
					 : FILE_IN_DIRECTORY);
	ofs_wire_u32(b, s == NULL ? 0 : s->files->nobjects);
	ofs_wire_u64(b, h.low64);
	ofs_wire_u64(b, h.high64);
	put_commit(s, b);
}

static bool take_offer(const struct ofs_said *said, struct offer *o)
{
	struct ofs_cursor c = ofs_cursor_of(said->p, said->n);

	o->code = ofs_cursor_le32(&c);
	o->text = ofs_wire_take_str(&c);
	o->path = ofs_wire_take_str(&c);
	o->rel = ofs_wire_take_str(&c);
	o->kind = ofs_cursor_u8(&c);
	o->nfiles = ofs_cursor_le32(&c);
	o->digest[0] = ofs_cursor_le64(&c);
	o->digest[1] = ofs_cursor_le64(&c);
	o->pending = ofs_wire_take_str(&c);
	o->decided = ofs_wire_take_str(&c);
	return !c.bad && ofs_cursor_left(&c) == 0;
}

static void find_leader(struct agreement *a, int rank)
{
	struct offer *o = &a->offer[rank];
	int r = 0;

	while (a->offer[r].nfiles != o->nfiles ||
	    memcmp(a->offer[r].digest, o->digest, sizeof(o->digest)) != 0)
		r++;
	o->leader = o->nfiles == 0 ? -1 : r;
}

/* Some of the files may be new, and some old. */
static int check_commits(struct agreement *a)
{
	for (int r = 0; r < a->w->size; r++)
		for (int k = 0; k < a->w->size; k++)
			if (a->offer[r].decided[0] != '\0' &&
			    strcmp(a->offer[r].decided, a->offer[k].pending) ==
				0)
				return optimfs_fail(a->err, EBUSY,
				    "OFS840 %.150s: a commit by several ranks "
				    "was cut short before all directories had "
				    "it: mount it for writing, once, to have "
				    "that finished",
				    a->offer[k].path);
	return 0;
}

/* The same path on all ranks, and the same kind of thing where there is
 * something. */
static int check_offers(struct agreement *a)
{
	const struct offer *first = NULL;
	int was = 0;

	for (int r = 0; r < a->w->size; r++) {
		const struct offer *o = &a->offer[r];

		if (!is_absent(a, r) && strcmp(o->path, a->offer[0].path) != 0)
			return optimfs_fail(a->err, EPROTO,
			    "OFS914 ranks 0 and %d were given different "
			    "checkpoints: %.150s and %.150s",
			    r, a->offer[0].path, o->path);
		if (o->kind == NOTHING)
			continue;
		if (first == NULL) {
			first = o;
			was = r;
		}
		if (o->kind != first->kind || strcmp(o->rel, first->rel) != 0)
			return optimfs_fail(a->err, EPROTO,
			    "OFS914 %.200s is not the same file or directory "
			    "on ranks %d and %d",
			    o->path, was, r);
	}
	if (first == NULL)
		return optimfs_fail(a->err, ENOENT,
		    "%.300s: no such file or directory on any of %d ranks",
		    a->offer[0].path, a->w->size);
	a->s->rel =
	    ofs_arena_strndup(&a->s->arena, first->rel, strlen(first->rel));
	return a->s->rel == NULL ? ofs_no_memory(a->err) : 0;
}

/* What all have said. */
static int take_offers(struct agreement *a)
{
	a->offer = calloc((size_t)a->w->size, sizeof(*a->offer));
	if (a->offer == NULL)
		return ofs_no_memory(a->err);
	for (int r = 0; r < a->w->size; r++) {
		a->offer[r] = (struct offer){
			.path = "", .rel = "", .pending = "", .decided = ""
		};
		if (!is_absent(a, r) && !take_offer(&a->said[r], &a->offer[r]))
			return garbled(a, r);
		find_leader(a, r);
	}
	for (int r = 0; r < a->w->size; r++) {
		if (a->offer[r].code == 0)
			continue;
		optimfs_fail_as(a->err, (int)a->offer[r].code, "%s",
		    a->offer[r].text);
		return ofs_group_blame(a->w, r, a->err);
	}
	return check_commits(a) == -1 ? -1 : check_offers(a);
}

static int exchange_offers(struct agreement *a, const char *path,
    const struct optimfs_error *own)
{
	struct ofs_buf b = { 0 };
	int ret;

	put_list(a);
	put_offer(a, path, own, &b);
	b.bad |= a->list.bad;
	ret = exchange(a, &b, &a->said);
	ofs_buf_fini(&b);
	return ret == -1 ? -1 : take_offers(a);
}

/* 2. */

static bool take_line(struct ofs_cursor *c, struct ofs_object *o)
{
	*o = (struct ofs_object){ .rank = -1 };
	o->path = ofs_wire_take_str(c);
	o->refused = ofs_cursor_u8(c) != 0;
	o->size = ofs_cursor_le64(c);
	o->mtime_ns = (int64_t)ofs_cursor_le64(c);
	o->ino = ofs_cursor_le64(c);
	o->blocks = ofs_cursor_le64(c);
	o->stamp.ctime_ns = (int64_t)ofs_cursor_le64(c);
	o->stamp.nlink = ofs_cursor_le32(c);
	o->stamp.mode = ofs_cursor_le32(c);
	o->stamp.uid = ofs_cursor_le32(c);
	o->stamp.gid = ofs_cursor_le32(c);
	return !c->bad && ofs_path_stays(o->path, strlen(o->path)) &&
	    o->size <= INT64_MAX;
}

static int take_list(struct agreement *a, int rank)
{
	struct ofs_cursor c = ofs_cursor_of(a->lists[rank].p, a->lists[rank].n);
	uint32_t n = a->offer[rank].nfiles;
	struct line *grown;

	if (!ofs_cursor_fits(&c, n, LINE_MIN) || n > UINT32_MAX - a->nlines)
		return garbled(a, rank);
	grown = reallocarray(a->line, (size_t)a->nlines + n, sizeof(*grown));
	if (grown == NULL)
		return ofs_no_memory(a->err);
	a->line = grown;
	for (uint32_t i = 0; i < n; i++) {
		struct line *l = &a->line[a->nlines];

		l->leader = rank;
		l->index = i;
		if (!take_line(&c, &l->o))
			return garbled(a, rank);
		a->nlines++;
	}
	return ofs_cursor_left(&c) == 0 ? 0 : garbled(a, rank);
}

static int take_lists(struct agreement *a)
{
	for (int r = 0; r < a->w->size; r++)
		if (a->offer[r].leader == r && take_list(a, r) == -1)
			return -1;
	return 0;
}

static int exchange_lists(struct agreement *a)
{
	struct ofs_buf none = { 0 };
	bool lead = a->offer[a->w->rank].leader == a->w->rank;

	if (exchange(a, lead ? &a->list : &none, &a->lists) == -1)
		return -1;
	return take_lists(a);
}

/* Putting the lists together. */

static int by_path(const void *va, const void *vb)
{
	const struct line *a = va, *b = vb;
	int c = strcmp(a->o.path, b->o.path);

	return c != 0 ? c : a->leader < b->leader ? -1 : a->leader > b->leader;
}

static int by_rank(const void *va, const void *vb)
{
	const struct ofs_owner *a = va, *b = vb;

	return a->rank < b->rank ? -1 : a->rank > b->rank;
}

/* All ranks that have what n lines with one path describe. */
static void add_owners(struct agreement *a, const struct line *l, uint32_t n,
    struct ofs_manifest_file *f, uint32_t *nowners)
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

static uint32_t same_path(const struct agreement *a, uint32_t i)
{
	uint32_t n = 1;

	while (i + n < a->nlines &&
	    strcmp(a->line[i].o.path, a->line[i + n].o.path) == 0)
		n++;
	return n;
}

static int check_sizes(struct agreement *a, const struct line *l, uint32_t n)
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

static int add_file(struct agreement *a, const struct line *l, uint32_t n,
    uint32_t *nowners)
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
	s->nfiles++;
	return 0;
}

static int merge(struct agreement *a)
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

/* 3. */

static bool same_file(const struct line *a, const struct line *b)
{
	return a->o.mtime_ns == b->o.mtime_ns && a->o.ino == b->o.ino &&
	    a->o.refused == b->o.refused;
}

/* Must these n lines be told apart by what is in them? */
static bool differ(const struct line *l, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++)
		if (!same_file(&l[0], &l[i]))
			return true;
	return false;
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

/* Hashes of what is here of the files that differ; 0 for one that is not. */
static int put_hashes(struct agreement *a, struct ofs_buf *b,
    struct optimfs_error *err)
{
	uint8_t *buf = malloc(HASH_SAMPLE);
	int me = a->offer[a->w->rank].leader, ret = 0;
	uint32_t n;

	if (buf == NULL)
		return optimfs_fail(err, ENOMEM, "out of memory");
	for (uint32_t i = 0; i < a->nlines && ret == 0; i += n) {
		n = same_path(a, i);
		for (uint32_t k = i; k < i + n && ret == 0; k++) {
			uint64_t h = 0;

			if (!differ(a->line + i, n) ||
			    a->line[k].leader != me || me != a->w->rank)
				continue;
			if (!a->line[k].o.refused)
				ret = hash_file(a->s, a->line[k].index, buf, &h,
				    err);
			ofs_wire_u64(b, h);
		}
	}
	free(buf);
	return ret;
}

/* The next hash of each leader, for its lines in order. */
static int compare(struct agreement *a, struct ofs_cursor *c)
{
	uint32_t n;

	for (uint32_t i = 0; i < a->nlines; i += n) {
		const struct line *l = &a->line[i];
		uint64_t first = 0;

		n = same_path(a, i);
		if (!differ(l, n))
			continue;
		for (uint32_t k = 0; k < n; k++) {
			uint64_t h = ofs_cursor_le64(&c[l[k].leader]);

			if (k == 0)
				first = h;
			if (c[l[k].leader].bad)
				return garbled(a, l[k].leader);
			if (h != first)
				return optimfs_fail(a->err, EPROTO,
				    "OFS914 %.200s: ranks %d (%s) and %d (%s) "
				    "have different files of this name",
				    l[0].o.path, l[0].leader,
				    a->w->ops->host(a->w->w, l[0].leader),
				    l[k].leader,
				    a->w->ops->host(a->w->w, l[k].leader));
		}
	}
	return 0;
}

static int compare_hashes(struct agreement *a)
{
	struct ofs_cursor *c = calloc((size_t)a->w->size, sizeof(*c));
	int ret = 0;

	if (c == NULL)
		return ofs_no_memory(a->err);
	for (int r = 0; r < a->w->size && ret == 0; r++) {
		uint32_t code;
		const char *text;

		if (is_absent(a, r))
			continue;
		c[r] = ofs_cursor_of(a->hashes[r].p, a->hashes[r].n);
		code = ofs_cursor_le32(&c[r]);
		text = ofs_wire_take_str(&c[r]);
		if (c[r].bad) {
			ret = garbled(a, r);
		} else if (code != 0) {
			optimfs_fail_as(a->err, (int)code, "%s", text);
			ret = ofs_group_blame(a->w, r, a->err);
		}
	}
	if (ret == 0)
		ret = compare(a, c);
	free(c);
	return ret;
}

static bool any_differ(const struct agreement *a)
{
	uint32_t n;

	for (uint32_t i = 0; i < a->nlines; i += n) {
		n = same_path(a, i);
		if (differ(a->line + i, n))
			return true;
	}
	return false;
}

static int exchange_hashes(struct agreement *a)
{
	struct ofs_buf b = { 0 }, hashes = { 0 };
	struct optimfs_error own = { 0 };
	int ret;

	if (!any_differ(a))
		return 0;
	if (put_hashes(a, &hashes, &own) == -1)
		hashes.len = 0;
	ofs_wire_u32(&b, (uint32_t)own.code);
	ofs_wire_str(&b, own.code == 0 ? "" : own.text);
	ofs_buf_put(&b, hashes.data, hashes.len);
	b.bad |= hashes.bad;
	ret = exchange(a, &b, &a->hashes);
	ofs_buf_fini(&hashes);
	ofs_buf_fini(&b);
	return ret == -1 ? -1 : compare_hashes(a);
}

static void agreement_fini(struct agreement *a)
{
	free_said(a, a->said);
	free_said(a, a->lists);
	free_said(a, a->hashes);
	free(a->line);
	free(a->offer);
	ofs_buf_fini(&a->list);
}

int ofs_manifest_agree(struct ofs_manifest *s, struct optimfs_group *w,
    const char *path, const struct optimfs_error *own,
    struct optimfs_error *err)
{
	struct optimfs_error unwanted;
	struct agreement a = {
		.s = s, .w = w, .err = err == NULL ? &unwanted : err
	};
	int ret = exchange_offers(&a, path, own);

	if (ret == 0)
		ret = exchange_lists(&a);
	if (ret == 0)
		ret = merge(&a);
	if (ret == 0)
		ret = exchange_hashes(&a);
	agreement_fini(&a);
	return ret;
}

/* After a commit rank 0 needs to know where the new files are, and nobody else
 * does. So it asks each rank for what that would say in the exchanges 1 and 2.
 * There are no hashes: copies of a new file are what rank 0 has sent. */

/* The length of an offer (8), the offer, the list. */
static int put_all(struct ofs_manifest *s, struct ofs_buf *out,
    struct optimfs_error *err)
{
	struct agreement a = { .s = s, .w = s->world, .err = err };
	struct optimfs_error well = { 0 };
	struct ofs_buf offer = { 0 };
	int ret;

	put_list(&a);
	put_offer(&a, s->path, &well, &offer);
	ofs_wire_u64(out, offer.len);
	ofs_buf_put(out, offer.data, offer.len);
	ofs_buf_put(out, a.list.data, a.list.len);
	ret = offer.bad || a.list.bad || out->bad ? ofs_no_memory(a.err) : 0;
	ofs_buf_fini(&offer);
	ofs_buf_fini(&a.list);
	return ret;
}

static int copy_said(struct agreement *a, struct ofs_said *said,
    const uint8_t *p, uint64_t n)
{
	said->p = malloc(n + 1);
	if (said->p == NULL)
		return ofs_no_memory(a->err);
	if (n > 0)
		memcpy(said->p, p, n);
	said->n = n;
	return 0;
}

static int take_all(struct agreement *a, int rank, const struct ofs_buf *b)
{
	struct ofs_cursor c = ofs_cursor_of(b->data, b->len);
	uint64_t n = ofs_cursor_le64(&c);
	const uint8_t *offer = ofs_cursor_take(&c, n), *list;

	if (c.bad)
		return garbled(a, rank);
	n = b->len - 8 - n;
	list = ofs_cursor_take(&c, n);
	if (copy_said(a, &a->said[rank], offer, b->len - 8 - n) == -1)
		return -1;
	return copy_said(a, &a->lists[rank], list, n);
}

int ofs_manifest_rescan(struct ofs_request *q, struct optimfs_error *err)
{
	uint32_t number = ofs_cursor_le32(&q->c);
	struct ofs_manifest *next;

	if (q->c.bad || q->result == NULL ||
	    OFS_MANIFEST_PLACE(number) !=
		OFS_MANIFEST_PLACE(q->manifest->number))
		return optimfs_fail(err, EPROTO,
		    "OFS913 a request that makes no sense: are all ranks of "
		    "one version?");
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

/* What only a rank that has died has would be missing from now on. */
static int can_do_without(const struct ofs_manifest *s, int rank,
    struct optimfs_error *err)
{
	for (uint32_t i = 0; i < s->nfiles; i++)
		if (s->file[i].nowners == 1 &&
		    s->owner[s->file[i].owner].rank == rank) {
			optimfs_fail(err, EHOSTDOWN,
			    "OFS911 it has died, and only it has %.200s",
			    s->file[i].path);
			return ofs_group_blame(s->world, rank, err);
		}
	return 0;
}

/* Ask the other ranks. */
static int hear_others(struct agreement *a, const struct ofs_manifest *old,
    const struct ofs_buf *request)
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
	for (size_t i = 0; i < n && ret == 0; i++)
		if (call[i].err.code != 0)
			ret = optimfs_fail(a->err, call[i].err.code, "%s",
			    call[i].err.text);
		else
			ret = take_all(a, call[i].to, &call[i].result);
	for (size_t i = 0; i < n; i++)
		ofs_buf_fini(&call[i].result);
	free(call);
	return ret;
}

static int collect(struct agreement *a, const struct ofs_manifest *old)
{
	struct ofs_buf request = { 0 }, mine = { 0 };
	int ret;

	ofs_wire_u8(&request, OFS_WIRE_RESCAN);
	ofs_wire_u32(&request, old->offered->number);
	ofs_wire_u32(&request, a->s->number);
	a->said = calloc((size_t)a->w->size, sizeof(*a->said));
	a->lists = calloc((size_t)a->w->size, sizeof(*a->lists));
	ret = a->said == NULL || a->lists == NULL ? ofs_no_memory(a->err) : 0;
	if (ret == 0)
		ret = put_all(a->s, &mine, a->err);
	if (ret == 0)
		ret = take_all(a, a->w->rank, &mine);
	if (ret == 0)
		ret = hear_others(a, old, &request);
	ofs_buf_fini(&request);
	ofs_buf_fini(&mine);
	return ret;
}

int ofs_manifest_refresh(struct optimfs_group *w, const char *path,
    struct optimfs_error *err)
{
	struct ofs_manifest *old = ofs_group_share(w, path, err);
	struct agreement a = { .w = w, .err = err };
	int ret = -1;

	if (old != NULL)
		a.s = ofs_manifest_again(old, err);
	if (a.s == NULL)
		return -1;
	a.s->number = old->offered->number + ++w->refreshed * OFS_MANIFEST_NEXT;
	if (collect(&a, old) == 0 && take_offers(&a) == 0 &&
	    take_lists(&a) == 0)
		ret = merge(&a);
	agreement_fini(&a);
	if (ret == 0)
		ofs_group_put(w, a.s);
	else
		ofs_manifest_let(a.s);
	return ret;
}
