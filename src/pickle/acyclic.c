/* acyclic.c - removal of cycles from a pickle's graph */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "pickle/pickle_impl.h"

/* A node on the current path, and its next slot. */
struct frame {
	uint32_t node, next;
};

/* Slot i of a node: each of its references, class and state included. NULL
 * after the last. */
static uint32_t *slot(const struct ofs_pickle *doc, struct pk_node *x,
    uint32_t i)
{
	uint32_t head = (x->flags & PK_CLASS) != 0 ? PK_HEAD : 0;
	uint32_t n = pk_count(x);

	switch ((enum ofs_pk_kind)x->kind) {
	case OFS_PK_DICT:
		n *= 2;
		__attribute__((fallthrough));
	case OFS_PK_LIST:
	case OFS_PK_TUPLE:
	case OFS_PK_SET:
		return i < n + head ? pk_run(doc, x) - head + i : NULL;
	case OFS_PK_PERSID:
		return i == 0 ? &x->v[0] : NULL;
	case OFS_PK_OBJECT:
		if (i == 2 && (x->flags & PK_GETATTR) != 0)
			return NULL;
		return i < 3 ? &x->v[i] : NULL;
	default:
		return NULL;
	}
}

enum color { WHITE, GREY, BLACK };

/* Replace a reference to an enclosing container by a placeholder. */
static int cut(struct pk_parser *p, const struct frame *at)
{
	struct ofs_pickle *doc = p->doc;
	struct pk_node x = { .kind = OFS_PK_OBJECT,
		.flags = PK_CYCLE,
		.v = { OFS_NONE, PK_EMPTY_TUPLE } };
	uint32_t node;

	x.v[2] = *slot(doc, pk_at(doc, at->node), at->next);
	node = pk_node(p, x);
	if (node == OFS_NONE)
		return -1;
	*slot(doc, pk_at(doc, at->node), at->next) = node;
	return 0;
}

/* Visit one slot of the top frame. 1 when there may be more, 0 after the
 * last, -1 on failure. */
static int visit(struct pk_parser *p, uint8_t *color, struct frame *top,
    uint32_t *down)
{
	const struct ofs_pickle *doc = p->doc;
	struct pk_node *x = pk_at(doc, top->node);
	uint32_t *s = slot(doc, x, top->next);

	*down = OFS_NONE;
	if (s == NULL) {
		color[top->node] = BLACK;
		return 0;
	}
	if (*s == OFS_NONE || pk_at(doc, *s)->height == 0) {
		top->next++;
		return 1;
	}
	if (color[*s] == GREY) {
		if (cut(p, top) == -1)
			return -1;
		top->next++;
		return 1;
	}
	if (color[*s] == WHITE) {
		*down = *s; /* visited again when it is black */
		return 1;
	}
	if (x->height <= pk_at(doc, *s)->height)
		x->height = pk_at(doc, *s)->height + 1;
	top->next++;
	return 1;
}

static int walk(struct pk_parser *p, uint8_t *color, struct frame *frame)
{
	struct ofs_pickle *doc = p->doc;
	uint32_t n = 0, down = doc->root;
	int ret;

	for (;;) {
		if (down != OFS_NONE) {
			if (n == p->depth)
				return pk_too_deep(p);
			color[down] = GREY;
			pk_at(doc, down)->height = 1;
			frame[n++] = (struct frame){ down, 0 };
		}
		ret = visit(p, color, &frame[n - 1], &down);
		if (ret == -1)
			return -1;
		if (ret == 1)
			continue;
		if (pk_at(doc, frame[n - 1].node)->height > p->depth)
			return pk_too_deep(p);
		if (--n == 0)
			return 0;
		down = OFS_NONE;
	}
}

int pk_check_graph(struct pk_parser *p)
{
	struct ofs_pickle *doc = p->doc;
	uint8_t *color = NULL;
	struct frame *frame = NULL;
	size_t n = doc->nnodes;
	int ret = -1;

	if (!p->recheck || pk_at(doc, doc->root)->height == 0)
		return 0;
	if (pk_charge(p, n) == -1)
		return -1;
	color = calloc(n, 1);
	frame = calloc(p->depth, sizeof(*frame));
	if (color == NULL || frame == NULL)
		pk_no_memory(p);
	else
		ret = walk(p, color, frame);
	free(frame);
	free(color);
	doc->charged -= n;
	return ret;
}
