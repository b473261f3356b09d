/* coordinator_publish.c - publish in all directories or none */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/memory.h"
#include "cluster/commit/coordinator_impl.h"
#include "journal/decision.h"
#include "journal/publish_impl.h"

/* Size of a DATA request, and number of such requests at once. */
#define PIECE ((uint64_t)960 << 10)
enum { PIECES = 16 };
/* A NAMES request with more bytes is sent: a few hundred files, which a slow file
 * system can make within the time for an answer. */
#define NAMES_MAX ((uint64_t)32 << 10)

struct shipping {
	struct ofs_coordinator *s;
	const struct ofs_publish_plan *plan;
	int new;
	/* By name and participant: whether it goes there, and its number. */
	bool *goes;
	uint32_t *slot;
	/* Requests in progress. */
	struct ofs_ask ask[PIECES];
	uint8_t *piece; /* PIECES buffers */
	size_t n;
	struct optimfs_error *err;
};

static size_t at(const struct shipping *p, size_t name, uint32_t to)
{
	return name * p->s->n + to;
}

/* Choosing destinations. */

static bool go_like(struct shipping *p, size_t name, const char *rel)
{
	const struct ofs_manifest *manifest = p->s->manifest;
	uint32_t i = rel == NULL ? OFS_NONE : ofs_manifest_find(manifest, rel);
	const struct ofs_manifest_file *f;

	if (i == OFS_NONE)
		return false;
	f = &manifest->file[i];
	for (uint32_t k = f->owner; k < f->owner + f->nowners; k++) {
		int to = p->s->of_rank[manifest->owner[k].rank];

		if (to != -1)
			p->goes[at(p, name, (uint32_t)to)] = true;
	}
	return true;
}

static bool has_place(const struct shipping *p, size_t name)
{
	for (uint32_t k = 0; k < p->s->n; k++)
		if (p->goes[at(p, name, k)])
			return true;
	return false;
}

/* A file that replaces or removes another goes to every directory with that
 * file; a new one to that of the file it is like. In a new checkpoint the files
 * are distributed in their order, except for the last one. */
static void choose(struct shipping *p)
{
	size_t homeless = 0, placed = 0;

	for (size_t i = 0; i < p->plan->n; i++) {
		const struct ofs_publish_name *n = &p->plan->name[i];

		if (!go_like(p, i, n->rel))
			(void)go_like(p, i, n->like);
		homeless += !has_place(p, i) && n->kind == OFS_PUBLISH_CREATE;
	}
	for (size_t i = 0; i < p->plan->n; i++) {
		uint32_t to = 0;

		if (has_place(p, i))
			continue;
		if (p->plan->name[i].kind == OFS_PUBLISH_CREATE)
			to = (uint32_t)(placed++ * p->s->n / homeless);
		p->goes[at(p, i, to)] = true;
	}
}

static bool is_file(const struct ofs_publish_name *n)
{
	return n->kind != OFS_PUBLISH_REMOVE;
}

static int look_at(const struct ofs_publish_name *n, struct stat *st,
    struct optimfs_error *err)
{
	if (fstat(n->fd, st) == -1)
		return optimfs_fail(err, errno, "OFS821 new %.200s: %m",
		    n->rel);
	return 0;
}

static int size_of(const struct ofs_publish_name *n, uint64_t *size,
    struct optimfs_error *err)
{
	struct stat st;

	if (look_at(n, &st, err) == -1)
		return -1;
	*size = (uint64_t)st.st_size;
	return 0;
}

/* Files for the writer's own directory are moved, which takes no space. */
static int put_begin(const struct shipping *p, uint32_t to, struct ofs_buf *b)
{
	uint64_t need = 0, size = 0;

	for (size_t i = 0; i < p->plan->n && !ofs_coordinator_is_own(p->s, to);
	     i++) {
		if (!is_file(&p->plan->name[i]) || !p->goes[at(p, i, to)])
			continue;
		if (size_of(&p->plan->name[i], &size, p->err) == -1)
			return -1;
		need += size;
	}
	ofs_coordinator_request(p->s, OFS_PARTICIPANT_BEGIN, b);
	ofs_wire_u64(b, need);
	return 0;
}

static int put_name(const struct shipping *p, size_t name, struct ofs_buf *b)
{
	const struct ofs_publish_name *n = &p->plan->name[name];
	struct stat st = { 0 };

	if (is_file(n) && look_at(n, &st, p->err) == -1)
		return -1;
	if (b->len == 0)
		ofs_coordinator_request(p->s, OFS_PARTICIPANT_NAMES, b);
	ofs_wire_u8(b, is_file(n));
	ofs_wire_str(b, n->rel);
	ofs_wire_str(b, n->like == NULL ? "" : n->like);
	ofs_wire_u64(b, (uint64_t)st.st_size);
	ofs_wire_u32(b, st.st_mode & 0777);
	return 0;
}

/* Sends what b has for each participant. */
static int tell(const struct shipping *p, struct ofs_buf *b)
{
	int ret = ofs_coordinator_ask(p->s, b, false, p->err);

	for (uint32_t k = 0; k < p->s->n; k++)
		b[k].len = 0;
	return ret;
}

/* Adds a name for all that get it; requests that are full are sent. */
static int announce_name(struct shipping *p, size_t name, struct ofs_buf *b,
    uint32_t *nfiles)
{
	bool file = is_file(&p->plan->name[name]), full = false;

	for (uint32_t k = 0; k < p->s->n; k++) {
		if (!p->goes[at(p, name, k)] ||
		    (file && ofs_coordinator_is_own(p->s, k)))
			continue;
		if (put_name(p, name, &b[k]) == -1)
			return -1;
		if (file)
			p->slot[at(p, name, k)] = nfiles[k]++;
		full |= b[k].len > NAMES_MAX;
	}
	return full ? tell(p, b) : 0;
}

/* All participants at once. */
static int announce(struct shipping *p)
{
	struct ofs_buf *b = calloc(p->s->n + 1ul, sizeof(*b));
	uint32_t *nfiles = calloc(p->s->n + 1ul, sizeof(*nfiles));
	int ret = b == NULL || nfiles == NULL ? ofs_no_memory(p->err) : 0;

	for (uint32_t k = 0; k < p->s->n && ret == 0; k++)
		ret = put_begin(p, k, &b[k]);
	if (ret == 0)
		ret = tell(p, b);
	for (size_t i = 0; i < p->plan->n && ret == 0; i++)
		ret = announce_name(p, i, b, nfiles);
	if (ret == 0)
		ret = tell(p, b);
	for (uint32_t k = 0; b != NULL && k < p->s->n; k++)
		ofs_buf_fini(&b[k]);
	free(nfiles);
	free(b);
	return ret;
}

/* Bytes. */

static int flush(struct shipping *p)
{
	const struct optimfs_group *w = p->s->group;
	int ret = ofs_group_ask_all(w, p->ask, p->n, p->err);

	w->ops->release(w->w, p->ask, p->n);
	p->n = 0;
	return ret;
}

static int send_piece(struct shipping *p, size_t name, uint32_t to,
    const uint8_t *bytes, uint64_t len, uint64_t off)
{
	uint8_t *piece = p->piece + p->n * OFS_GROUP_REQUEST_MAX;
	struct ofs_buf b = { 0 };

	ofs_coordinator_request(p->s, OFS_PARTICIPANT_DATA, &b);
	ofs_wire_u32(&b, p->slot[at(p, name, to)]);
	ofs_wire_u64(&b, off);
	if (b.bad)
		return ofs_no_memory(p->err);
	memcpy(piece, b.data, b.len);
	memcpy(piece + b.len, bytes, len);
	p->ask[p->n++] = (struct ofs_ask){ .to = p->s->participant[to].rank,
		.request = piece,
		.nrequest = b.len + len };
	ofs_buf_fini(&b);
	return p->n == PIECES ? flush(p) : 0;
}

static bool goes_away(const struct shipping *p, size_t name)
{
	for (uint32_t k = 0; k < p->s->n; k++)
		if (p->goes[at(p, name, k)] && !ofs_coordinator_is_own(p->s, k))
			return true;
	return false;
}

static int send_file(struct shipping *p, size_t name, uint8_t *buf)
{
	const struct ofs_publish_name *n = &p->plan->name[name];
	uint64_t size = 0, len;
	int ret;

	if (size_of(n, &size, p->err) == -1)
		return -1;
	for (uint64_t off = 0; off < size; off += len) {
		len = size - off < PIECE ? size - off : PIECE;
		ret = ofs_pread_all(n->fd, buf, len, off, p->err);
		for (uint32_t k = 0; k < p->s->n && ret == 0; k++)
			if (p->goes[at(p, name, k)] &&
			    !ofs_coordinator_is_own(p->s, k))
				ret = send_piece(p, name, k, buf, len, off);
		if (ret == -1)
			return optimfs_fail_in(p->err, "%.200s", n->rel);
	}
	return 0;
}

static int send_files(struct shipping *p)
{
	uint8_t *buf = malloc(PIECE);
	int ret = 0;

	p->piece = malloc(PIECES * OFS_GROUP_REQUEST_MAX);
	if (buf == NULL || p->piece == NULL)
		ret = ofs_no_memory(p->err);
	for (size_t i = 0; i < p->plan->n && ret == 0; i++)
		if (is_file(&p->plan->name[i]) && goes_away(p, i))
			ret = send_file(p, i, buf);
	if (ret == 0 && p->n > 0)
		ret = flush(p);
	free(p->piece);
	free(buf);
	return ret;
}

/* The writer's own files come last, when no other needs them. */
static int take_own(struct shipping *p)
{
	for (uint32_t k = 0; k < p->s->n; k++)
		for (size_t i = 0; i < p->plan->n; i++) {
			const struct ofs_publish_name *n = &p->plan->name[i];

			if (ofs_coordinator_is_own(p->s, k) && is_file(n) &&
			    p->goes[at(p, i, k)] &&
			    ofs_participant_take(p->s->manifest, p->new, n->rel,
				n->like, p->err) == -1)
				return -1;
		}
	return 0;
}

static int ship(struct shipping *p)
{
	return announce(p) == -1 || send_files(p) == -1 ? -1 : take_own(p);
}

/* The two phases. */

static void abort_all(const struct ofs_coordinator *s)
{
	struct ofs_buf b = { 0 };

	ofs_coordinator_request(s, OFS_PARTICIPANT_ABORT, &b);
	(void)ofs_coordinator_ask(s, &b, true, NULL);
	ofs_buf_fini(&b);
}

static void make_id(char id[OFS_PUBLISH_ID])
{
	static const char digits[] = "0123456789abcdef";
	uint8_t random[(OFS_PUBLISH_ID - 1) / 2] = { 0 };

	(void)!getrandom(random, sizeof(random), 0);
	for (size_t i = 0; i < sizeof(random); i++) {
		id[2 * i] = digits[random[i] >> 4];
		id[2 * i + 1] = digits[random[i] & 15];
	}
	id[OFS_PUBLISH_ID - 1] = '\0';
}

/* Finds the participants that get more than new files. */
static void find_replacing(const struct shipping *p, bool *replaces)
{
	for (size_t i = 0; i < p->plan->n; i++)
		for (uint32_t k = 0; k < p->s->n; k++)
			replaces[k] |= p->goes[at(p, i, k)] &&
			    p->plan->name[i].kind != OFS_PUBLISH_CREATE;
}

static void invert(bool *mask, uint32_t n)
{
	for (uint32_t k = 0; k < n; k++)
		mask[k] = !mask[k];
}

/* Readers see the rename that replaces an index: so participants that only get
 * new files come first. */
static int apply(struct shipping *p)
{
	bool *mask = calloc((size_t)p->s->n + 1, sizeof(*mask));
	int ret;

	if (mask == NULL)
		return ofs_no_memory(p->err);
	find_replacing(p, mask);
	invert(mask, p->s->n);
	ret = ofs_coordinator_call(p->s, OFS_PARTICIPANT_COMMIT, NULL, mask,
	    p->err);
	invert(mask, p->s->n);
	if (ret == 0)
		ret = ofs_coordinator_call(p->s, OFS_PARTICIPANT_COMMIT, NULL,
		    mask, p->err);
	free(mask);
	return ret;
}

static int decide(const struct ofs_coordinator *s, const char *id,
    struct optimfs_error *err)
{
	struct ofs_buf names = { 0 };
	int ret;

	for (uint32_t i = 0; i < s->n; i++)
		ofs_buf_put(&names, s->participant[i].name,
		    strlen(s->participant[i].name) + 1);
	ret = ofs_decision_write(s->stage, id, &names, err);
	ofs_buf_fini(&names);
	return ret;
}

/* -1: published nowhere; 1: will be published everywhere. */
static int publish(struct shipping *p, struct optimfs_error *err)
{
	char id[OFS_PUBLISH_ID];

	make_id(id);
	p->s->attempt++;
	if (ship(p) == -1 ||
	    ofs_coordinator_call(p->s, OFS_PARTICIPANT_PREPARE, id, NULL,
		p->err) == -1 ||
	    decide(p->s, id, p->err) == -1) {
		abort_all(p->s);
		return optimfs_fail_with(err, p->err);
	}
	if (apply(p) == 0)
		return 0;
	optimfs_fail(err, EIO,
	    "OFS803 decided, but not in place everywhere: the next mount for "
	    "writing will finish it (%s)",
	    p->err->text);
	return 1;
}

/* Publishes plan, with its files in directory new. 0: done and durable; 1:
 * decided, but possibly not done everywhere (err, OFS803); -1: nothing has
 * changed. */
static int publish_plan(struct ofs_coordinator *s,
    const struct ofs_publish_plan *plan, int new, struct optimfs_error *err)
{
	struct optimfs_error own;
	struct shipping p = { .s = s, .plan = plan, .new = new, .err = &own };
	int ret = -1;

	p.goes = calloc(plan->n * s->n + 1, sizeof(*p.goes));
	p.slot = calloc(plan->n * s->n + 1, sizeof(*p.slot));
	if (p.goes == NULL || p.slot == NULL) {
		ofs_no_memory(err);
	} else {
		choose(&p);
		ret = publish(&p, err);
	}
	free(p.goes);
	free(p.slot);
	return ret;
}

/* The publisher for several directories: all files are created in one directory
 * and sent to where the old ones are. */
static int find(const struct ofs_publish *p, const char *rel, const char *like,
    struct ofs_publish_name *n)
{
	(void)like;
	n->kind = ofs_coordinator_have(p->ctx, rel) ? OFS_PUBLISH_REPLACE
						    : OFS_PUBLISH_CREATE;
	return -1;
}

static int commit(struct ofs_publish *p, struct optimfs_error *err)
{
	int ret = publish_plan(p->ctx, &p->plan, p->new, err);

	p->published = ret != -1;
	return ret;
}

/* new/ and gen/ of this stage belong to a participant. */
static void clear(struct ofs_publish *p)
{
	ofs_publish_clear(p->stage, OFS_PUBLISH_BUILT);
}

struct ofs_publish *ofs_publish_begin_all(struct ofs_coordinator *s, int stage,
    struct optimfs_error *err)
{
	static const struct ofs_publisher_ops ops = {
		.dir = OFS_PUBLISH_BUILT,
		.find = find,
		.keeps_like = true,
		.commit = commit,
		.clear = clear,
	};

	return ofs_publish_with(&ops, s, stage, err);
}
