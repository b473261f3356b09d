/* manifest_offer.c - the offer of a rank and its list of files, as bytes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/memory.h"
#include "cluster/manifest_impl.h"
#include "cluster/wire.h"
#include "journal/decision.h"
#include "journal/stage.h"
#include "journal/stage_path.h"

int ofs_offer_malformed(struct ofs_agreement *a, int rank)
{
	ofs_wire_malformed(a->err);
	return ofs_group_error_in(a->w, rank, a->err);
}

/* Writing. */

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
/* The shortest entry: a path of one letter. */
#define LINE_MIN (4 + 2 + 1 + 5 * 8 + 4 * 4)

/* Entries are numbered like objects: a file that disappeared meanwhile is
 * listed as refused. */
void ofs_offer_put_list(const struct ofs_manifest *s, struct ofs_buf *list)
{
	for (uint32_t i = 0; s != NULL && i < s->files->nobjects; i++) {
		struct ofs_object o = s->files->objects[i];

		o.refused |= o.missing;
		/* other ranks see neither ACLs nor directories of this one */
		o.stamp.mode &= ~0444u |
		    ofs_object_access(s->files, &s->files->objects[i]);
		put_line(list, &o);
	}
}

/* Reads what an interrupted commit has left beside this rank's directory: the
 * id prepared there and the id decided, or "". */
static void peek_at_commit(const struct ofs_manifest *s,
    char pending[OFS_PUBLISH_ID], char decided[OFS_PUBLISH_ID])
{
	char *path = ofs_manifest_here(s, NULL), *place = NULL;
	struct ofs_buf names = { 0 };
	int dir = -1;

	if (path != NULL)
		place = ofs_stage_place(path, NULL);
	if (place != NULL)
		dir = ofs_stage_look(place, NULL);
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

void ofs_offer_put(const struct ofs_manifest *s, const char *path,
    const struct ofs_buf *list, struct ofs_buf *b)
{
	XXH128_hash_t h = XXH3_128bits(list->data, list->len);

	ofs_wire_str(b, path);
	ofs_wire_str(b, s == NULL ? "" : s->rel);
	ofs_wire_u8(b, s != NULL && s->dir.fd != -1);
	ofs_wire_u32(b, s == NULL ? 0 : s->files->nobjects);
	ofs_wire_u64(b, h.low64);
	ofs_wire_u64(b, h.high64);
	put_commit(s, b);
	b->bad |= list->bad;
}

/* Parsing. */

static bool take_offer(struct ofs_cursor *c, struct ofs_offer *o)
{
	o->path = ofs_wire_take_str(c);
	o->rel = ofs_wire_take_str(c);
	o->there = ofs_cursor_u8(c) != 0;
	o->nfiles = ofs_cursor_le32(c);
	o->digest[0] = ofs_cursor_le64(c);
	o->digest[1] = ofs_cursor_le64(c);
	o->pending = ofs_wire_take_str(c);
	o->decided = ofs_wire_take_str(c);
	return !c->bad;
}

static void find_leader(struct ofs_agreement *a, int rank)
{
	struct ofs_offer *o = &a->offer[rank];
	int r = 0;

	while (a->offer[r].nfiles != o->nfiles ||
	    memcmp(a->offer[r].digest, o->digest, sizeof(o->digest)) != 0)
		r++;
	o->leader = o->nfiles == 0 ? -1 : r;
}

/* Refuses a state in which some files may be new and others old. */
static int check_commits(struct ofs_agreement *a)
{
	for (int r = 0; r < a->w->size; r++)
		for (int k = 0;
		     a->offer[r].decided[0] != '\0' && k < a->w->size; k++)
			if (strcmp(a->offer[r].decided, a->offer[k].pending) ==
			    0)
				return optimfs_fail(a->err, EBUSY,
				    "OFS840 %.150s: a commit by several ranks "
				    "was interrupted before all directories "
				    "had it: mount it for writing, once, to "
				    "finish it",
				    a->offer[k].path);
	return 0;
}

/* Checks that all ranks have the same path, and the same kind of file at it. */
static int check_offers(struct ofs_agreement *a,
    const struct ofs_cursor *by_rank)
{
	const struct ofs_offer *first = NULL;
	int was = 0;

	for (int r = 0; r < a->w->size; r++) {
		const struct ofs_offer *o = &a->offer[r];

		if (by_rank[r].p != NULL &&
		    strcmp(o->path, a->offer[0].path) != 0)
			return optimfs_fail(a->err, EPROTO,
			    "OFS914 ranks 0 and %d were given different "
			    "checkpoints: %.150s and %.150s",
			    r, a->offer[0].path, o->path);
		if (!o->there)
			continue;
		if (first == NULL) {
			first = o;
			was = r;
		}
		if (strcmp(o->rel, first->rel) != 0)
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

int ofs_offer_take_all(struct ofs_agreement *a, struct ofs_cursor *by_rank)
{
	a->offer = calloc((size_t)a->w->size, sizeof(*a->offer));
	if (a->offer == NULL)
		return ofs_no_memory(a->err);
	for (int r = 0; r < a->w->size; r++) {
		a->offer[r] = (struct ofs_offer){
			.path = "", .rel = "", .pending = "", .decided = ""
		};
		if (by_rank[r].p != NULL &&
		    !take_offer(&by_rank[r], &a->offer[r]))
			return ofs_offer_malformed(a, r);
		find_leader(a, r);
	}
	return check_commits(a) == -1 ? -1 : check_offers(a, by_rank);
}

/* Lists. */

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

static int take_list(struct ofs_agreement *a, int rank, struct ofs_cursor *c)
{
	uint32_t n = a->offer[rank].nfiles;
	struct ofs_offer_line *grown;

	if (!ofs_cursor_fits(c, n, LINE_MIN) || n > UINT32_MAX - a->nlines)
		return ofs_offer_malformed(a, rank);
	grown = reallocarray(a->line, (size_t)a->nlines + n, sizeof(*grown));
	if (grown == NULL)
		return ofs_no_memory(a->err);
	a->line = grown;
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_offer_line *l = &a->line[a->nlines];

		l->leader = rank;
		l->index = i;
		if (!take_line(c, &l->o))
			return ofs_offer_malformed(a, rank);
		a->nlines++;
	}
	return ofs_cursor_left(c) == 0 ? 0 : ofs_offer_malformed(a, rank);
}

int ofs_offer_take_lists(struct ofs_agreement *a, struct ofs_cursor *by_rank)
{
	for (int r = 0; r < a->w->size; r++)
		if (a->offer[r].leader == r &&
		    take_list(a, r, &by_rank[r]) == -1)
			return -1;
	return 0;
}
