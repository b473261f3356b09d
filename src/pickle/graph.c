/* graph.c - nodes of a pickle: making, growing, measuring */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/memory.h"
#include "pickle/pickle_impl.h"

int pk_fail(struct pk_parser *p, int code, const char *ofs, const char *fmt,
    ...)
{
	char why[320];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(why, sizeof(why), fmt, ap);
	va_end(ap);
	return optimfs_fail_as(p->err, code,
	    "%s pickle at offset %" PRIu64 ": %s", ofs, p->at, why);
}

int pk_no_memory(struct pk_parser *p)
{
	return pk_fail(p, ENOMEM, "OFS443", "out of memory");
}

int pk_charge(struct pk_parser *p, uint64_t more)
{
	struct ofs_pickle *doc = p->doc;

	if (more > doc->limit || doc->charged > doc->limit - more)
		return pk_fail(p, ENOMEM, "OFS441",
		    "needs more than %" PRIu64 " bytes of memory"
		    " (-o parse_mem)",
		    doc->limit);
	doc->charged += more;
	return 0;
}

int pk_grow(struct pk_parser *p, void *array, size_t *cap, size_t need,
    size_t size)
{
	size_t want = *cap == 0 ? 32 : *cap * 2;
	uint64_t left = p->doc->limit - p->doc->charged;
	void *old, *new;

	if (need > PK_NODES_MAX || need > SIZE_MAX / 2 / size)
		return pk_charge(p, UINT64_MAX);
	if (want < need || (want - *cap) * (uint64_t)size > left)
		want = need;
	if (pk_charge(p, (want - *cap) * (uint64_t)size) == -1)
		return -1;
	memcpy(&old, array, sizeof(old));
	new = ofs_realloc_huge(old, *cap * size, want * size);
	if (new == NULL) {
		p->doc->charged -= (want - *cap) * (uint64_t)size;
		return pk_no_memory(p);
	}
	memcpy(array, &new, sizeof(new));
	*cap = want;
	return 0;
}

/* Sizes and offsets repeat: a small cache saves most of their nodes. */
uint32_t pk_int(struct pk_parser *p, int64_t v)
{
	struct pk_node x = { .kind = OFS_PK_INT };
	uint32_t *slot = &p->ints[pk_int_slot((uint64_t)v)];
	uint32_t node;

	if (*slot != 0 && (int64_t)pk_word(pk_at(p->doc, *slot)) == v)
		return *slot;
	memcpy(&x.v[1], &v, sizeof(v));
	node = pk_node(p, x);
	if (node != OFS_NONE)
		*slot = node;
	return node;
}

uint32_t pk_blob(struct pk_parser *p, enum ofs_pk_kind kind, const void *s,
    uint32_t n)
{
	struct pk_node x = { .kind = (uint8_t)kind, .v = { n } };

	memcpy(&x.v[1], &s, sizeof(s));
	return pk_node(p, x);
}

uint32_t pk_input(struct pk_parser *p, enum ofs_pk_kind kind, const void *s,
    uint32_t n)
{
	if (p->shed_at != NULL)
		s = ofs_arena_strndup(&p->doc->arena, s, n);
	if (s != NULL)
		return pk_blob(p, kind, s, n);
	pk_no_memory(p);
	return OFS_NONE;
}

/* n uninitialised items; the index of the first. */
static inline uint32_t take_items(struct pk_parser *p, size_t n)
{
	struct ofs_pickle *doc = p->doc;
	size_t at = doc->nitems;

	if (n > doc->cap_items - at &&
	    pk_grow(p, &doc->item, &doc->cap_items, at + n,
		sizeof(*doc->item)) == -1)
		return OFS_NONE;
	doc->nitems += n;
	return (uint32_t)at;
}

int pk_too_deep(struct pk_parser *p)
{
	return pk_fail(p, E2BIG, "OFS410",
	    "nesting deeper than %" PRIu32 " (limit)", p->depth);
}

static int place_all(struct pk_parser *p, uint32_t parent, const uint32_t *v,
    size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (pk_place(p, parent, v[i]) == -1)
			return -1;
	return 0;
}

uint32_t pk_tuple(struct pk_parser *p, const uint32_t *v, size_t n)
{
	struct pk_node x = { .kind = OFS_PK_TUPLE, .height = 1 };
	uint32_t node;

	if (n == 0)
		return PK_EMPTY_TUPLE;
	for (size_t i = 0; i < n; i++)
		x.flags |= pk_at(p->doc, v[i])->flags & PK_MUTABLE;
	if (n <= 3) {
		x.flags |= PK_INLINE;
		x.n = (uint8_t)n;
		memcpy(x.v, v, n * sizeof(*v));
	} else {
		x.v[0] = (uint32_t)n;
		x.v[1] = take_items(p, n);
		if (x.v[1] == OFS_NONE)
			return OFS_NONE;
		memcpy(p->doc->item + x.v[1], v, n * sizeof(*v));
	}
	node = pk_node(p, x);
	if (node == OFS_NONE || place_all(p, node, v, n) == -1)
		return OFS_NONE;
	return node;
}

/* Shapes and offsets repeat as well. They are immutable, so one node serves all
 * equal ones; equal INTs mostly are one node already. */
uint32_t pk_size(struct pk_parser *p, const uint32_t *v, size_t n)
{
	uint32_t h = (uint32_t)n, node, *slot;
	struct pk_node *x;

	if (n == 0)
		return PK_EMPTY_SIZE;
	for (size_t i = 0; i < n; i++) {
		h = (h ^ v[i]) * UINT32_C(0x9e3779b1);
		if (pk_at(p->doc, v[i])->kind != OFS_PK_INT)
			return pk_tuple(p, v, n);
	}
	slot = &p->sizes[h >> 22];
	x = pk_at(p->doc, *slot);
	if (*slot != 0 && pk_count(x) == n &&
	    memcmp(pk_run(p->doc, x), v, n * sizeof(*v)) == 0)
		return *slot;
	node = pk_tuple(p, v, n);
	if (node == OFS_NONE)
		return OFS_NONE;
	pk_at(p->doc, node)->flags |= PK_SIZE;
	*slot = node;
	return node;
}

uint32_t pk_container(struct pk_parser *p, enum ofs_pk_kind kind,
    uint32_t class, uint32_t args)
{
	struct pk_node x = {
		.kind = (uint8_t)kind,
		.flags = PK_MUTABLE,
		.height = 1,
	};
	uint32_t node;

	if (class != OFS_NONE) {
		uint32_t at = take_items(p, PK_HEAD);

		if (at == OFS_NONE)
			return OFS_NONE;
		p->doc->item[at] = class;
		p->doc->item[at + 1] = args;
		p->doc->item[at + 2] = OFS_NONE;
		x.flags |= PK_CLASS;
		x.v[1] = at + PK_HEAD;
	}
	node = pk_node(p, x);
	if (node != OFS_NONE && class != OFS_NONE &&
	    pk_place(p, node, args) == -1)
		return OFS_NONE;
	return node;
}

/* Make room for n more items. A run at the end of the array grows in place; any
 * other moves and doubles, so that batches are cheap. */
static inline int reserve(struct pk_parser *p, uint32_t node, size_t n)
{
	struct ofs_pickle *doc = p->doc;
	struct pk_node *x = pk_at(doc, node);
	size_t unit = x->kind == OFS_PK_DICT ? 2 : 1;
	size_t used = x->v[0] * unit, cap = x->v[2];
	size_t head = (x->flags & PK_CLASS) != 0 ? PK_HEAD : 0;
	uint32_t at;

	if (n <= cap - used)
		return 0;
	if (used != 0 && n < used)
		n = used;
	if (cap != 0 && x->v[1] + cap == doc->nitems) {
		if (take_items(p, used + n - cap) == OFS_NONE)
			return -1;
		x->v[2] = (uint32_t)(used + n);
		return 0;
	}
	at = take_items(p, head + used + n);
	if (at == OFS_NONE)
		return -1;
	if (head + used != 0)
		memcpy(doc->item + at, doc->item + x->v[1] - head,
		    (head + used) * sizeof(*doc->item));
	x->v[1] = (uint32_t)(at + head);
	x->v[2] = (uint32_t)(used + n);
	return 0;
}

int pk_extend(struct pk_parser *p, uint32_t node, const uint32_t *v, size_t n)
{
	struct pk_node *x = pk_at(p->doc, node);
	size_t unit = x->kind == OFS_PK_DICT ? 2 : 1;
	uint32_t *to;

	if (n == 0)
		return 0;
	if (reserve(p, node, n) == -1)
		return -1;
	to = p->doc->item + x->v[1] + x->v[0] * unit;
	for (size_t i = 0; i < n; i++) { /* few, as a rule: no memcpy */
		if (pk_place(p, node, v[i]) == -1)
			return -1;
		to[i] = v[i];
	}
	x->v[0] += (uint32_t)(n / unit);
	return 0;
}

/* Both containers share a run. They only append: the copy, which is full, moves
 * first, or takes the space behind the run before the original can. */
uint32_t pk_share(struct pk_parser *p, enum ofs_pk_kind kind, uint32_t class,
    uint32_t from)
{
	struct ofs_pickle *doc = p->doc;
	uint32_t node = pk_container(p, kind, class, PK_EMPTY_TUPLE), n;
	struct pk_node *x, *src;

	if (node == OFS_NONE)
		return OFS_NONE;
	x = pk_at(doc, node);
	src = pk_at(doc, from);
	n = pk_count(src);
	if (x->height < src->height)
		x->height = src->height;
	if (n == 0)
		return node;
	if (class != OFS_NONE || (src->flags & PK_INLINE) != 0) {
		/* The class and state before a shared run are the other's. */
		size_t unit = kind == OFS_PK_DICT ? 2 : 1;

		if (reserve(p, node, n * unit) == -1)
			return OFS_NONE;
		x = pk_at(doc, node);
		memcpy(doc->item + x->v[1], pk_run(doc, pk_at(doc, from)),
		    n * unit * sizeof(*doc->item));
	} else {
		x->v[1] = src->v[1];
		x->v[2] = n;
	}
	x->v[0] = n;
	return node;
}

uint32_t pk_object(struct pk_parser *p, uint32_t callable, uint32_t args)
{
	struct pk_node x = {
		.kind = OFS_PK_OBJECT,
		.height = 1,
		.v = { callable, args, OFS_NONE },
	};
	uint32_t node = pk_node(p, x);

	if (node == OFS_NONE || pk_place(p, node, callable) == -1 ||
	    pk_place(p, node, args) == -1)
		return OFS_NONE;
	return node;
}

int pk_become(struct pk_parser *p, uint32_t node, enum ofs_pk_kind kind)
{
	struct ofs_pickle *doc = p->doc;
	uint32_t at = take_items(p, PK_HEAD);
	struct pk_node *x = pk_at(doc, node);

	if (at == OFS_NONE)
		return -1;
	memcpy(doc->item + at, x->v, sizeof(x->v));
	x->kind = (uint8_t)kind;
	x->flags |= PK_CLASS | PK_MUTABLE;
	x->v[0] = 0;
	x->v[1] = at + PK_HEAD;
	x->v[2] = 0;
	return 0;
}
