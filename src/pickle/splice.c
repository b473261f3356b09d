/* splice.c - a pickle with changed items of its containers */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "pickle/splice.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search.h"
#include "pickle/opcode.h"

/* The pickle is run again, to find where each item of the stack was made. The
 * opcodes that push an item are contiguous: they end where those of the next
 * item begin. A replaced or dropped item is cut out, unless a later get needs
 * what its opcodes put into the memo. Gets in what is cut out, too, need nothing;
 * where these decide, the pickle is run once more, and then they are known. A
 * string or a class is moved to the first get that needs it; what needs more than
 * that is popped. (torch.load with weights_only knows no POP.) FRAME opcodes are
 * hints and left out. */

/* The most further runs. */
#define RUNS 4
/* Memo numbers are compacted when at least this many bytes were cut. */
#define GAP 256

struct patch {
	uint64_t at;
	uint64_t cut;  /* bytes to remove */
	uint64_t from; /* start of the opcodes of the old item, which can be
		        * removed instead of popped; 0: they cannot */
	const char *before, *after;
	const struct ofs_pk_splice *edit; /* has the new bytes */
	uint64_t moved, nmoved; /* bytes of the pickle that come here */
	size_t order;
};

/* Where a memo entry was put, and where it was last and first read. */
struct memo {
	uint64_t put, got; /* got 0: never */
	uint64_t first;
	uint64_t atom; /* the opcode of a string or class; 0: not one */
};

/* Bytes [from, to) that may be cut out. */
struct range {
	uint64_t from, to;
};

struct tracer {
	struct pk_parser p;
	struct memo *memo; /* by memo index */
	struct memo *past; /* overwritten entries that were read */
	size_t nmemo, cap_memo, npast, cap_past;
	bool counted; /* MEMOIZE: numbers count the puts */
	bool no_memory;
	uint64_t *start, *mark; /* start of each stack item, of each MARK */
	size_t cap_start, cap_mark;
	struct ofs_pk_splice *edit;
	struct patch *of; /* of each edit, same index */
	size_t n;
	/* In a further run: whose old items have to be popped, by edit; and the
	 * bytes of the others, sorted and disjoint. */
	bool *popped;
	struct range *range;
	size_t nranges;
	uint64_t before;     /* the opcode before the current one */
	struct patch *frame; /* and what is moved */
	size_t nframes, cap_frames;
	struct optimfs_error *err;
};

/* Make room for memo index i. New entries have got 0. */
static int grow_memo(struct tracer *t, size_t i)
{
	if (i < t->nmemo)
		return 0;
	if (ofs_reserve(t->memo, i + 1, t->cap_memo, t->err) == -1)
		return -1;
	memset(t->memo + t->nmemo, 0, (i + 1 - t->nmemo) * sizeof(*t->memo));
	t->nmemo = i + 1;
	return 0;
}

static int keep_past(struct tracer *t, struct memo m)
{
	if (ofs_grow(t->past, t->npast, t->cap_past, t->err) == -1)
		return -1;
	t->past[t->npast++] = m;
	return 0;
}

static int compare_place(const void *key, const void *item)
{
	uint64_t at = *(const uint64_t *)key;
	const struct range *r = item;

	return at < r->from ? -1 : at >= r->to;
}

static bool may_be_cut(const struct tracer *t, uint64_t at)
{
	return t->nranges > 0 &&
	    ofs_search(&at, t->range, t->nranges, sizeof(*t->range),
		compare_place) != NULL;
}

/* The opcode of what is put, if it is a string or a class; else 0. */
static uint64_t atom_of(const struct tracer *t)
{
	const struct pk_parser *p = &t->p;
	uint8_t op = p->start[t->before];

	return (p->op == OP_BINPUT || p->op == OP_LONG_BINPUT) &&
		p->nstack > 0 && t->start[p->nstack - 1] == t->before &&
		(op == OP_BINUNICODE || op == OP_SHORT_BINUNICODE ||
		    op == OP_GLOBAL)
	    ? t->before
	    : 0;
}

static void note_get(struct tracer *t, struct memo *m)
{
	const struct pk_parser *p = &t->p;

	if (may_be_cut(t, p->at))
		return;
	if (m->got == 0)
		m->first = p->at;
	m->got = p->at;
	if (p->op != OP_BINGET && p->op != OP_LONG_BINGET)
		m->atom = 0;
}

static void memoed(struct pk_parser *p, uint64_t i, bool put)
{
	struct tracer *t = (struct tracer *)p; /* p is its first member */

	t->counted = t->counted || p->op == OP_MEMOIZE;
	if (t->counted || t->no_memory)
		return; /* order_memo and cut_out need no entries then */
	if (!put) {
		if (i < t->nmemo)
			note_get(t, &t->memo[i]);
		return;
	}
	if (grow_memo(t, i) == -1 ||
	    (t->memo[i].got != 0 && keep_past(t, t->memo[i]) == -1))
		t->no_memory = true;
	else
		t->memo[i] = (struct memo){ .put = p->at, .atom = atom_of(t) };
}

static int compare_edits(const void *a, const void *b)
{
	const struct ofs_pk_splice *x = a, *y = b;

	if (x->node != y->node)
		return x->node < y->node ? -1 : 1;
	if ((x->op == OFS_PK_ADD) != (y->op == OFS_PK_ADD))
		return x->op == OFS_PK_ADD ? 1 : -1;
	return (x->item > y->item) - (x->item < y->item);
}

/* The first edit of node with at least this item. */
static size_t first_edit(const struct tracer *t, uint32_t node, uint32_t item)
{
	struct ofs_pk_splice key = { .node = node, .item = item };

	return ofs_lower_bound(&key, t->edit, t->n, sizeof(*t->edit),
	    compare_edits);
}

/* An opcode at at adds items to a container: those of the stack slots first to
 * last - 1, per slots each. */
struct adding {
	uint32_t node;
	uint32_t base; /* number of items before */
	size_t first, last, per;
	uint64_t at;
	bool marked; /* the opcode takes all items above a MARK */
};

/* The end of the opcodes that pushed a slot. */
static uint64_t end_of(const struct tracer *t, const struct adding *a,
    size_t slot)
{
	return slot + 1 < a->last ? t->start[slot + 1] : a->at;
}

static void place(struct tracer *t, const struct adding *a, size_t i)
{
	const struct ofs_pk_splice *e = &t->edit[i];
	size_t slot = a->first + (e->item - a->base) * a->per +
	    (e->op == OFS_PK_RENAME ? 0 : a->per - 1);
	struct patch *x = &t->of[i];

	*x = (struct patch){
		.at = end_of(t, a, slot),
		.from = t->start[slot],
		.order = i,
	};
	if (e->op != OFS_PK_DROP) {
		x->before = "0";
		x->edit = e;
	} else {
		x->from = t->start[slot + 1 - a->per];
		x->before = a->per == 2 ? "00" : "0";
		x->cut = a->marked ? 0 : 1; /* also APPEND or SETITEM */
	}
}

static void place_added(struct tracer *t, const struct adding *a, size_t i)
{
	t->of[i] = (struct patch){
		.at = a->marked ? a->at : a->at + 1,
		.before = a->marked ? "" : "(",
		.after = a->marked ? ""
		    : a->per == 2  ? "u"
				   : "e",
		.edit = &t->edit[i],
		.order = i,
	};
}

static void added(struct tracer *t, const struct adding *a)
{
	uint32_t count = (uint32_t)((a->last - a->first) / a->per);

	for (size_t i = first_edit(t, a->node, a->base);
	     i < t->n && t->edit[i].node == a->node; i++)
		if (t->edit[i].op == OFS_PK_ADD)
			place_added(t, a, i);
		else if (t->edit[i].item - a->base < count)
			place(t, a, i);
}

/* An empty container was made, and is on top of the stack. Items can be added
 * behind this opcode, unless a later one adds items. */
static void made(struct tracer *t, uint32_t node, bool dict)
{
	struct adding a = {
		.node = node,
		.per = dict ? 2 : 1,
		.at = (uint64_t)(t->p.c.p - t->p.start) - 1,
	};

	for (size_t i = first_edit(t, node, 0);
	     i < t->n && t->edit[i].node == node; i++)
		if (t->edit[i].op == OFS_PK_ADD)
			place_added(t, &a, i);
}

static uint32_t count_of(const struct tracer *t, uint32_t node)
{
	const struct pk_node *x = pk_at(t->p.doc, node);

	if (x->kind == OFS_PK_LIST || x->kind == OFS_PK_DICT)
		return pk_count(x);
	return 0; /* an object that becomes a container */
}

/* Will the next opcode add to a container, or make one from items? */
static bool is_adding(const struct tracer *t, struct adding *a)
{
	const struct pk_parser *p = &t->p;
	size_t n = p->nstack;

	*a = (struct adding){
		.node = OFS_NONE, .at = p->at, .per = 1, .last = n
	};
	switch (*p->c.p) {
	case OP_SETITEMS:
	case OP_DICT:
		a->per = 2;
		/* fallthrough */
	case OP_APPENDS:
	case OP_LIST:
	case OP_TUPLE:
		a->marked = true;
		a->first = pk_fence(p);
		break;
	case OP_SETITEM:
		a->per = 2;
		a->first = n - 2;
		break;
	case OP_APPEND:
	case OP_TUPLE1:
		a->first = n - 1;
		break;
	case OP_TUPLE2:
		a->first = n - 2;
		break;
	case OP_TUPLE3:
		a->first = n - 3;
		break;
	default:
		return false;
	}
	if (a->first > n || n - a->first < (a->marked ? 0 : a->per))
		return false; /* the machine reports it */
	switch (*p->c.p) {
	case OP_SETITEMS:
	case OP_APPENDS:
	case OP_SETITEM:
	case OP_APPEND:
		if (a->first == 0)
			return false;
		a->node = p->stack[a->first - 1];
		a->base = count_of(t, a->node);
	}
	return true;
}

static bool is_put(uint8_t op)
{
	return op == OP_BINPUT || op == OP_LONG_BINPUT || op == OP_MEMOIZE ||
	    op == OP_PUT;
}

static int note_frame(struct tracer *t, uint64_t at)
{
	if (ofs_grow(t->frame, t->nframes, t->cap_frames, t->err) == -1)
		return -1;
	t->frame[t->nframes++] = (struct patch){ .at = at, .cut = 9 };
	return 0;
}

/* Execute one opcode and record what it shows; 1 at STOP. */
static int step(struct tracer *t)
{
	struct pk_parser *p = &t->p;
	size_t stack = p->nstack, marks = p->nmarks;
	uint64_t at = (uint64_t)(p->c.p - p->start);
	struct adding a;
	bool adding;
	uint32_t top;
	int ret;

	t->before = p->at;
	p->at = at;
	if (ofs_reserve(t->start, stack + 2, t->cap_start, t->err) == -1 ||
	    ofs_reserve(t->mark, marks + 1, t->cap_mark, t->err) == -1)
		return -1;
	adding = p->c.p != p->c.end && is_adding(t, &a);
	ret = pk_step(p);
	if (ret != 0)
		return ret;
	if (p->nmarks > marks)
		t->mark[marks] = at;
	else if (p->nmarks < marks && p->nstack > 0 &&
	    p->nstack - 1 == p->marks[marks - 1])
		t->start[p->nstack - 1] = t->mark[marks - 1];
	else if (p->nmarks == marks && p->nstack > stack)
		t->start[stack] = at;
	if (p->op == OP_FRAME)
		return note_frame(t, at);
	if (p->nstack == pk_fence(p))
		return 0;
	top = pk_top(p, 0);
	if (adding && a.node == OFS_NONE)
		a.node = top;
	if (adding)
		added(t, &a);
	else if ((p->nstack >= stack || p->op == OP_REDUCE ||
		     p->op == OP_NEWOBJ) &&
	    p->op != OP_BINGET && p->op != OP_LONG_BINGET && p->op != OP_GET &&
	    p->op != OP_DUP && p->op != OP_MARK &&
	    (!is_put(p->op) || count_of(t, top) == 0) &&
	    (pk_at(p->doc, top)->kind == OFS_PK_DICT ||
		pk_at(p->doc, top)->kind == OFS_PK_LIST))
		made(t, top, pk_at(p->doc, top)->kind == OFS_PK_DICT);
	return 0;
}

OFS_COMPARE_BY2(compare_patches, struct patch, at, order)

OFS_COMPARE_BY(compare_memos, struct memo, put)

/* Collect all memo entries that were read, sorted by put. They nearly always
 * are in that order already. */
static int order_memo(struct tracer *t)
{
	size_t n = 0;
	bool sorted = true;

	for (size_t i = 0; i < t->npast; i++) {
		if (grow_memo(t, t->nmemo) == -1)
			return -1;
		t->memo[t->nmemo - 1] = t->past[i];
	}
	for (size_t i = 0; i < t->nmemo; i++) {
		if (t->memo[i].got == 0)
			continue;
		sorted =
		    sorted && (n == 0 || t->memo[n - 1].put < t->memo[i].put);
		t->memo[n++] = t->memo[i];
	}
	t->nmemo = n;
	if (!sorted)
		qsort(t->memo, n, sizeof(*t->memo), compare_memos);
	return 0;
}

/* Is an entry that is put between from and at read behind at? all: also one that
 * can be moved there. */
static bool is_needed(const struct tracer *t, uint64_t from, uint64_t at,
    bool all)
{
	struct memo key = { .put = from };
	size_t i = ofs_lower_bound(&key, t->memo, t->nmemo, sizeof(*t->memo),
	    compare_memos);

	for (; i < t->nmemo && t->memo[i].put < at; i++)
		if (t->memo[i].got >= at && (all || t->memo[i].atom == 0))
			return true;
	return false;
}

/* Has the old item of edit i to be popped? */
static bool is_popped(const struct tracer *t, size_t i)
{
	return t->popped != NULL
	    ? t->popped[i]
	    : is_needed(t, t->of[i].from, t->of[i].at, true);
}

/* Cut out popped items where no later opcode needs the entries that they put
 * into the memo. Returns the number of bytes removed. */
static uint64_t cut_out(struct tracer *t)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < t->n && !t->counted; i++) {
		struct patch *x = &t->of[i];

		if (x->from == 0 || is_popped(t, i))
			continue;
		x->cut += x->at - x->from;
		x->at = x->from;
		x->before = "";
		bytes += x->cut;
	}
	return bytes;
}

static int apply(struct tracer *t, uint64_t n, struct ofs_buf *out)
{
	size_t all = t->n + t->nframes;
	struct patch *v = reallocarray(NULL, all + 1, sizeof(*v));
	uint64_t done = 0;

	if (v == NULL)
		return ofs_no_memory(t->err);
	memcpy(v, t->of, t->n * sizeof(*v));
	if (t->nframes > 0)
		memcpy(v + t->n, t->frame, t->nframes * sizeof(*v));
	if (all > 0)
		qsort(v, all, sizeof(*v), compare_patches);
	for (size_t i = 0; i < all; i++) {
		if (v[i].at > done)
			ofs_buf_put(out, t->p.start + done, v[i].at - done);
		if (v[i].at + v[i].cut > done)
			done = v[i].at + v[i].cut;
		if (v[i].before != NULL)
			ofs_buf_puts(out, v[i].before);
		if (v[i].nmoved > 0)
			ofs_buf_put(out, t->p.start + v[i].moved, v[i].nmoved);
		if (v[i].edit != NULL)
			ofs_buf_put(out, v[i].edit->bytes.data,
			    v[i].edit->bytes.len);
		if (v[i].after != NULL)
			ofs_buf_puts(out, v[i].after);
	}
	ofs_buf_put(out, t->p.start + done, n - done);
	free(v);
	return out->bad ? ofs_no_memory(t->err) : 0;
}

static int trace_once(struct tracer *t)
{
	int ret;

	do
		ret = step(t);
	while (ret == 0);
	if (ret == -1)
		return -1;
	for (size_t i = 0; i < t->n; i++)
		if (t->of[i].before == NULL)
			return optimfs_fail(t->err, EUCLEAN,
			    "OFS825 item %" PRIu32 " of node %" PRIu32
			    " is not where it was",
			    t->edit[i].item, t->edit[i].node);
	return t->no_memory ? -1 : order_memo(t); /* err is filled */
}

OFS_COMPARE_BY(compare_ranges, struct range, from)

/* Fills range with what is not popped. */
static void join_ranges(struct tracer *t)
{
	size_t n = 0, kept = 0;

	for (size_t i = 0; i < t->n; i++)
		if (t->of[i].from != 0 && !t->popped[i])
			t->range[n++] =
			    (struct range){ t->of[i].from, t->of[i].at };
	if (n > 0)
		qsort(t->range, n, sizeof(*t->range), compare_ranges);
	for (size_t i = 0; i < n; i++) {
		struct range r = t->range[i];

		if (kept == 0 || r.from >= t->range[kept - 1].to)
			t->range[kept++] = r;
		else if (r.to > t->range[kept - 1].to)
			t->range[kept - 1].to = r.to;
	}
	t->nranges = kept;
}

/* Notes what has to be popped that was not; how much that is. */
static size_t note_popped(struct tracer *t)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n; i++)
		if (t->of[i].from != 0 && !t->popped[i] &&
		    is_needed(t, t->of[i].from, t->of[i].at, false)) {
			t->popped[i] = true;
			n++;
		}
	return n;
}

static bool any_needed(const struct tracer *t)
{
	for (size_t i = 0; i < t->n && !t->counted; i++)
		if (t->of[i].from != 0 &&
		    is_needed(t, t->of[i].from, t->of[i].at, true))
			return true;
	return false;
}

static uint64_t memo_size(const struct tracer *t, uint64_t at)
{
	uint8_t op = t->p.start[at];

	return op == OP_BINPUT || op == OP_BINGET ? 2 : 5;
}

/* What is put in bytes that are cut out, and got elsewhere, takes the place of
 * the first get, with its put. */
static int move_atoms(struct tracer *t)
{
	for (size_t i = 0; i < t->nmemo; i++) {
		const struct memo *m = &t->memo[i];

		if (!may_be_cut(t, m->put))
			continue;
		if (ofs_grow(t->frame, t->nframes, t->cap_frames, t->err) == -1)
			return -1;
		t->frame[t->nframes++] = (struct patch){
			.at = m->first,
			.cut = memo_size(t, m->first),
			.moved = m->atom,
			.nmoved = m->put + memo_size(t, m->put) - m->atom,
			.order = SIZE_MAX,
		};
	}
	return 0;
}

/* Runs the pickle again, as if all that can be cut were. What is then needed is
 * popped, and its gets count in the next run. If that does not end, all are
 * popped. */
static int trace_again(struct tracer *t)
{
	const uint8_t *p = t->p.start;
	uint64_t n = (uint64_t)(t->p.c.end - t->p.start);

	t->popped = ofs_alloc(t->n + 1, sizeof(*t->popped), t->err);
	t->range = ofs_alloc(t->n + 1, sizeof(*t->range), t->err);
	if (t->popped == NULL || t->range == NULL)
		return -1;
	for (unsigned i = 0; i < RUNS; i++) {
		join_ranges(t);
		t->nmemo = t->npast = t->nframes = 0;
		pk_end(&t->p);
		if (pk_begin(&t->p, p, n, t->err) == -1)
			return -1;
		t->p.memoed = memoed;
		if (trace_once(t) == -1)
			return -1;
		if (note_popped(t) == 0)
			return move_atoms(t);
	}
	memset(t->popped, true, t->n * sizeof(*t->popped));
	return 0;
}

static int trace_all(struct tracer *t, struct ofs_buf *out)
{
	size_t begin = out->len;
	uint64_t n;

	if (trace_once(t) == -1 || (any_needed(t) && trace_again(t) == -1))
		return -1;
	n = (uint64_t)(t->p.c.p - t->p.start);
	pk_end(&t->p); /* frees memory before the pickle is copied */
	if (cut_out(t) < GAP)
		return apply(t, n, out);
	if (apply(t, n, out) == -1)
		return -1;
	return ofs_pk_close_gaps(out->data + begin, out->len - begin, t->err);
}

static bool equal(const struct ofs_pk_splice *a, const struct ofs_pk_splice *b)
{
	return a->op == b->op && a->bytes.len == b->bytes.len &&
	    (a->bytes.len == 0 ||
		memcmp(a->bytes.data, b->bytes.data, a->bytes.len) == 0);
}

/* Several paths may lead to one item, with an edit from each: keep one of equal
 * edits. The others come last. */
static int drop_equal(const struct ofs_pk_edits *edits, size_t *n,
    struct optimfs_error *err)
{
	struct ofs_pk_splice *v = edits->v, *last;

	*n = 0;
	for (size_t i = 0; i < edits->n; i++) {
		last = *n == 0 ? NULL : &v[*n - 1];
		if (v[i].bytes.bad)
			return ofs_no_memory(err);
		if (last == NULL || v[i].op == OFS_PK_ADD ||
		    compare_edits(last, &v[i]) != 0) {
			struct ofs_pk_splice kept = v[i];

			v[i] = v[*n];
			v[(*n)++] = kept;
		} else if (!equal(last, &v[i])) {
			return optimfs_fail(err, EINVAL,
			    "OFS828 one stored value, which several files "
			    "show, was given different values: write the same "
			    "to all of them");
		}
	}
	return 0;
}

struct ofs_pk_splice *ofs_pk_edits_add(struct ofs_pk_edits *edits,
    uint32_t node, uint32_t item, enum ofs_pk_splice_op op,
    struct optimfs_error *err)
{
	struct ofs_pk_splice *e;

	if (ofs_grow(edits->v, edits->n, edits->cap, err) == -1)
		return NULL;
	e = &edits->v[edits->n++];
	*e = (struct ofs_pk_splice){ .node = node, .item = item, .op = op };
	return e;
}

void ofs_pk_edits_fini(struct ofs_pk_edits *edits)
{
	for (size_t i = 0; i < edits->n; i++)
		ofs_buf_fini(&edits->v[i].bytes);
	free(edits->v);
	*edits = (struct ofs_pk_edits){ 0 };
}

int ofs_pickle_splice(const uint8_t *p, uint64_t n, struct ofs_pk_edits *edits,
    struct ofs_buf *out, struct optimfs_error *err)
{
	struct tracer t = { .edit = edits->v, .err = err };
	int ret = -1;

	if (edits->n > 0)
		qsort(edits->v, edits->n, sizeof(*edits->v), compare_edits);
	if (drop_equal(edits, &t.n, err) == -1)
		return -1;
	t.of = calloc(t.n + 1, sizeof(*t.of));
	if (t.of == NULL)
		return ofs_no_memory(err);
	if (pk_begin(&t.p, p, n, err) == 0) {
		t.p.memoed = memoed;
		ret = trace_all(&t, out);
	}
	pk_end(&t.p);
	free(t.of);
	free(t.popped);
	free(t.range);
	free(t.start);
	free(t.mark);
	free(t.frame);
	free(t.memo);
	free(t.past);
	return ret;
}
