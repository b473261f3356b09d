/* pickle.c - a pickle's bytes parsed into a document; nothing is called */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "pickle/pickle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "base/memory.h"
#include "base/step.h"
#include "pickle/opcode.h"

#define DEPTH_DEFAULT 64
#define DEPTH_MAX     250
#define MEMORY_MAX    ((uint64_t)4 << 30)

/* The smallest input whose pages are freed while it is read, and the step, which
 * is a huge page. */
#define SHED_MIN  ((uint64_t)4 << 20)
#define SHED_STEP ((uint64_t)2 << 20)
/* The smallest input whose arrays are worth a guess of their size. */
#define EXPECT_MIN ((uint64_t)64 << 10)

/* A large pickle is an index: its graph takes twice its size, and of the input
 * only strings are needed later. They are copied, so that the graph grows into
 * the memory that the input frees. */
static const uint8_t *step_of(const uint8_t *at)
{
	return at - ((uintptr_t)at & (SHED_STEP - 1));
}

static void start_shedding(struct pk_parser *p)
{
	p->shed = step_of(p->start - 1 + SHED_STEP);
	p->shed_at = p->start + SHED_STEP;
}

int pk_shed(struct pk_parser *p)
{
	const uint8_t *to = step_of(p->c.p);

	if (to > p->shed)
		madvise((void *)(uintptr_t)p->shed, (size_t)(to - p->shed),
		    MADV_DONTNEED);
	p->shed = to;
	p->shed_at = p->c.p + SHED_STEP;
	return ofs_step(p->watch, "parsing the index",
	    (uint64_t)(p->c.p - p->start), (uint64_t)(p->c.end - p->start),
	    p->err);
}

static int shared_nodes(struct pk_parser *p)
{
	static const struct pk_node shared[PK_NSHARED] = {
		[PK_NONE_NODE] = { .kind = OFS_PK_NONE },
		[PK_TRUE_NODE] = { .kind = OFS_PK_BOOL },
		[PK_FALSE_NODE] = { .kind = OFS_PK_BOOL, .flags = PK_FALSE },
		[PK_EMPTY_TUPLE] = { .kind = OFS_PK_TUPLE, .flags = PK_INLINE },
		[PK_EMPTY_SIZE] = { .kind = OFS_PK_TUPLE,
		    .flags = PK_INLINE | PK_SIZE },
	};

	for (int i = 0; i < PK_NSHARED; i++)
		if (pk_node(p, shared[i]) == OFS_NONE)
			return -1;
	/* so that an empty run has an address */
	if (pk_grow(p, &p->doc->item, &p->doc->cap_items, 1,
		sizeof(*p->doc->item)) == -1)
		return -1;
	return pk_grow(p, &p->stack, &p->cap_stack, 1, sizeof(*p->stack));
}

/* What an index of n bytes needs, about. Arrays of that size need not grow, and
 * memory that they do not use is never touched. */
static int expect(struct pk_parser *p, uint64_t n)
{
	struct ofs_pickle *doc = p->doc;

	if (n > doc->limit / 8)
		return 0;
	if (pk_grow(p, &doc->node, &doc->cap_nodes, n / 16,
		sizeof(*doc->node)) == -1 ||
	    pk_grow(p, &doc->item, &doc->cap_items, n / 4,
		sizeof(*doc->item)) == -1)
		return -1;
	return pk_grow(p, &p->memo, &p->cap_memo, n / 8, sizeof(*p->memo));
}

static uint64_t default_memory(void)
{
	uint64_t part = ofs_memory_limit() / 4;

	return part < MEMORY_MAX ? part : MEMORY_MAX;
}

/* Shrink an array to its n elements. */
static void trim(struct ofs_pickle *doc, void *array, size_t *cap, size_t n,
    size_t size)
{
	void *old, *new;

	memcpy(&old, array, sizeof(old));
	if (n == 0 || n == *cap)
		return;
	new = realloc(old, n * size);
	if (new == NULL)
		return;
	memcpy(array, &new, sizeof(new));
	doc->charged -= (*cap - n) * (uint64_t)size;
	*cap = n;
}

static void finish(struct pk_parser *p)
{
	struct ofs_pickle *doc = p->doc;

	if (p->shed_at != NULL) {
		free((void *)(uintptr_t)doc->bytes);
		doc->bytes = NULL;
	}
	free(p->stack);
	free(p->marks);
	free(p->memo);
	doc->charged -=
	    (p->cap_stack + p->cap_marks + p->cap_memo) * sizeof(uint32_t);
	ofs_map_fini(&doc->by_name);
	trim(doc, &doc->node, &doc->cap_nodes, doc->nnodes, sizeof(*doc->node));
	trim(doc, &doc->item, &doc->cap_items, doc->nitems, sizeof(*doc->item));
}

static int check_end(const struct pk_parser *p, uint64_t *used)
{
	uint64_t left = ofs_cursor_left(&p->c);

	if (used != NULL)
		*used = (uint64_t)(p->c.p - p->start);
	else if (left != 0)
		return optimfs_fail(p->err, EUCLEAN,
		    "OFS405 pickle: %" PRIu64 " bytes after STOP", left);
	return 0;
}

struct ofs_pickle *ofs_pickle_parse(const uint8_t *bytes, uint64_t n, bool own,
    const struct ofs_pickle_limits *limits, uint64_t *used,
    struct optimfs_error *err)
{
	struct pk_parser p = { .start = bytes,
		.watch = limits == NULL ? NULL : limits->watch,
		.err = err };
	uint64_t memory = limits == NULL ? 0 : limits->memory;
	uint32_t depth = limits == NULL ? 0 : limits->depth;
	int ret = -1;

	p.c = ofs_cursor_of(bytes, n);
	p.depth = depth == 0 ? DEPTH_DEFAULT : depth;
	if (p.depth > DEPTH_MAX)
		p.depth = DEPTH_MAX;
	p.doc = calloc(1, sizeof(*p.doc));
	if (p.doc == NULL) {
		pk_no_memory(&p);
		if (own)
			free((void *)(uintptr_t)bytes);
		return NULL;
	}
	p.doc->bytes = bytes;
	p.doc->own = own;
	p.doc->limit = memory == 0 ? default_memory() : memory;
	if (own && n >= SHED_MIN)
		start_shedding(&p);
	if (n == 0)
		optimfs_fail(err, EUCLEAN, "OFS401 empty pickle");
	else if (shared_nodes(&p) == 0 &&
	    (n < EXPECT_MIN || expect(&p, n) == 0) && pk_machine(&p) == 0)
		ret = check_end(&p, used);
	finish(&p);
	if (ret == 0)
		return p.doc;
	ofs_pickle_free(p.doc);
	return NULL;
}

int pk_begin(struct pk_parser *p, const uint8_t *bytes, uint64_t n,
    struct optimfs_error *err)
{
	*p = (struct pk_parser){
		.c = ofs_cursor_of(bytes, n),
		.start = bytes,
		.depth = DEPTH_MAX,
		.err = err,
		.doc = calloc(1, sizeof(*p->doc)),
	};
	if (p->doc == NULL)
		return pk_no_memory(p);
	p->doc->bytes = bytes;
	p->doc->limit = default_memory();
	return shared_nodes(p);
}

void pk_end(struct pk_parser *p)
{
	if (p->doc != NULL)
		finish(p);
	ofs_pickle_free(p->doc);
	p->doc = NULL;
}

void ofs_pickle_free(struct ofs_pickle *doc)
{
	if (doc == NULL)
		return;
	free(doc->node);
	free(doc->item);
	free(doc->global);
	free(doc->ginfo);
	free(doc->element);
	ofs_arena_fini(&doc->arena);
	if (doc->own)
		free((void *)(uintptr_t)doc->bytes);
	free(doc);
}
