/* pickle_impl.h - shared declarations of the pickle reader */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PICKLE_PICKLE_IMPL_H
#define OFS_PICKLE_PICKLE_IMPL_H

#include <string.h>

#include "base/arena.h"
#include "base/cursor.h"
#include "base/map.h"
#include "pickle/pickle.h"

/* Sixteen bytes. v holds
 *   INT, FLOAT               the 64 bits in v[1], v[2]
 *   STR, BYTES, BIGINT       length, and a pointer in v[1], v[2]
 *   TUPLE of 1 to 3 (INLINE) the items
 *   longer TUPLE             count, start of its run of doc->item
 *   LIST, SET, DICT          count (of pairs), start, capacity (in items)
 *   OBJECT                   callable, arguments, state. With GETATTR the state
 *                            is the global that the attribute is, with KWARGS
 *                            the arguments are a tuple of both kinds, with
 *                            CYCLE the state is the node that it stands for
 *   GLOBAL                   index of doc->global
 *   PERSID                   the argument
 * With CLASS, a LIST or DICT has its class, the arguments of the call that made
 * it and its state in the three items before its start. */
#define PK_HEAD 3u
struct pk_node {
	uint8_t kind;
	uint8_t flags;
	uint8_t height; /* 0 for a leaf, else 1 + that of the highest child */
	uint8_t n;      /* items of an INLINE tuple */
	uint32_t v[3];
};

enum pk_flag {
	PK_INLINE = 1,
	PK_CLASS = 2,
	PK_SIZE = 4,     /* TUPLE: a torch.Size */
	PK_CYCLE = 4,    /* OBJECT: in place of a container that holds itself */
	PK_GETATTR = 8,  /* OBJECT: an attribute of a global */
	PK_PLACED = 16,  /* is in a container */
	PK_MUTABLE = 32, /* not hashable: list, dict, set, bytearray ... */
	PK_FALSE = 64,   /* BOOL */
	PK_KWARGS = 64,  /* OBJECT: made with keyword arguments */
	PK_NEWOBJ = 128, /* OBJECT: made without its constructor */
};

/* Nodes that every graph has. */
enum pk_shared {
	PK_NONE_NODE,
	PK_TRUE_NODE,
	PK_FALSE_NODE,
	PK_EMPTY_TUPLE,
	PK_EMPTY_SIZE,
	PK_NSHARED,
};

/* Flag of a memo entry: a tuple of this one node, which was not created. */
#define PK_WRAPPED 0x80000000u
/* Node numbers stay below, so that the flag's bit is free. */
#define PK_NODES_MAX 0x7ffffff0u

/* What REDUCE of a global makes, where it is more than an OBJECT. */
enum pk_special {
	PK_OPAQUE,
	PK_TORCH_SIZE,
	PK_MAPPING, /* OrderedDict, defaultdict, Counter */
	PK_SET,
	PK_FROZENSET,
	PK_ENCODE, /* _codecs.encode */
	PK_TO_BYTES,
	PK_TO_BYTEARRAY,
	PK_GETATTR_FN,
};

/* Parallel to struct ofs_pk_global. */
struct pk_global {
	const char *full; /* "module.name" */
	uint32_t node;
	uint8_t special; /* enum pk_special */
};

struct ofs_pickle {
	const uint8_t *bytes;
	bool own;
	uint32_t root;

	struct pk_node *node;
	uint32_t *item;
	struct ofs_pk_global *global;
	struct pk_global *ginfo;
	struct ofs_map by_name; /* of global; until the parser has finished */
	size_t nnodes, nitems, nglobals;
	size_t cap_nodes, cap_items, cap_globals, cap_ginfo;
	struct ofs_arena arena;

	struct pk_element {
		uint32_t node;
		uint8_t bytes[OFS_PK_ELEMENT];
	} * element;
	size_t nelements, cap_elements;

	uint64_t charged, limit; /* bytes of all, but by_name and element */
};

/* The state of the parser; the result is in doc. */
struct pk_parser {
	struct ofs_pickle *doc;
	struct ofs_cursor c;
	const uint8_t *start;
	uint64_t at; /* offset of the opcode being executed */
	struct optimfs_error *err;
	uint32_t depth; /* the limit */
	uint8_t op;
	uint8_t proto;
	bool recheck; /* a container grew after it was placed in another */

	/* For input whose pages are freed while it is read: the start of what
	 * is left, and the position at which to free more. NULL: all is
	 * kept. */
	const uint8_t *shed, *shed_at;
	const struct optimfs_watch *watch; /* or NULL */

	uint32_t *stack, *marks, *memo;
	size_t nstack, nmarks, nmemo, nputs;
	size_t cap_stack, cap_marks, cap_memo;

	/* memoed, if not NULL, is called for each put into the memo and each
	 * get. */
	bool sparse; /* accept any memo index */
	void (*memoed)(struct pk_parser *p, uint64_t i, bool put);

	uint32_t ints[1024];  /* recent INT nodes, at pk_int_slot(value) */
	uint32_t sizes[1024]; /* recent torch.Sizes, by a hash of the items */
};

static inline struct pk_node *pk_at(const struct ofs_pickle *doc, uint32_t node)
{
	return &doc->node[node];
}

/* The items of a TUPLE, LIST, SET or DICT; of a DICT keys and values in
 * turn. */
static inline uint32_t *pk_run(const struct ofs_pickle *doc, struct pk_node *x)
{
	if ((x->flags & PK_INLINE) != 0)
		return x->v;
	return doc->item + x->v[1];
}

/* With CLASS: the class is at 0, its arguments at 1, the state at 2. */
static inline uint32_t *pk_head(const struct ofs_pickle *doc,
    const struct pk_node *x)
{
	return doc->item + x->v[1] - PK_HEAD;
}

static inline size_t pk_int_slot(uint64_t v)
{
	return (v ^ v >> 10) % 1024;
}

static inline uint64_t pk_word(const struct pk_node *x)
{
	uint64_t w;

	memcpy(&w, &x->v[1], sizeof(w));
	return w;
}

static inline const char *pk_ptr(const struct pk_node *x)
{
	const char *p;

	_Static_assert(sizeof(p) <= 8, "a pointer fits beside a length");
	memcpy(&p, &x->v[1], sizeof(p));
	return p;
}

static inline uint32_t pk_count(const struct pk_node *x)
{
	return (x->flags & PK_INLINE) != 0 ? x->n : x->v[0];
}

/* Fail with "OFS4xx pickle at offset N: " and the reason; -1. */
int pk_fail(struct pk_parser *p, int code, const char *ofs, const char *fmt,
    ...) __attribute__((format(printf, 4, 5)));
int pk_no_memory(struct pk_parser *p);
/* pickle.c: free the pages of input that have been read. ECANCELED. */
int pk_shed(struct pk_parser *p);
int pk_too_deep(struct pk_parser *p);

/* graph.c: create and extend nodes. All return -1 or OFS_NONE with p->err:
 * OFS441 over the budget, OFS443 out of memory, OFS410 too deep. */

/* Make room for need elements of size bytes in *array. */
int pk_grow(struct pk_parser *p, void *array, size_t *cap, size_t need,
    size_t size);
int pk_charge(struct pk_parser *p, uint64_t more);
/* A new node with the content of x, which is passed by value because the array
 * of nodes moves. */
static inline uint32_t pk_node(struct pk_parser *p, struct pk_node x)
{
	struct ofs_pickle *doc = p->doc;

	if (doc->nnodes == doc->cap_nodes &&
	    pk_grow(p, &doc->node, &doc->cap_nodes, doc->nnodes + 1,
		sizeof(*doc->node)) == -1)
		return OFS_NONE;
	doc->node[doc->nnodes] = x;
	return (uint32_t)doc->nnodes++;
}
uint32_t pk_int(struct pk_parser *p, int64_t v);
uint32_t pk_blob(struct pk_parser *p, enum ofs_pk_kind kind, const void *s,
    uint32_t n);
/* As above, of bytes of the input, which may be freed before the node. */
uint32_t pk_input(struct pk_parser *p, enum ofs_pk_kind kind, const void *s,
    uint32_t n);
uint32_t pk_tuple(struct pk_parser *p, const uint32_t *v, size_t n);
/* As above, for a tuple that becomes a torch.Size: may return an equal existing
 * one. */
uint32_t pk_size(struct pk_parser *p, const uint32_t *v, size_t n);
/* An empty LIST, SET or DICT; class(*args) unless class is OFS_NONE. */
uint32_t pk_container(struct pk_parser *p, enum ofs_pk_kind kind,
    uint32_t class, uint32_t args);
/* A new container with the items of another; later changes are separate. Its
 * class, if any, gets no arguments. */
uint32_t pk_share(struct pk_parser *p, enum ofs_pk_kind kind, uint32_t class,
    uint32_t from);
/* Append n items, to a DICT n pairs (2 * n nodes). v must not be inside
 * doc->item. */
int pk_extend(struct pk_parser *p, uint32_t node, const uint32_t *v, size_t n);
uint32_t pk_object(struct pk_parser *p, uint32_t callable, uint32_t args);
/* Record that child is now in parent. Pickles are written bottom up, so heights
 * are computed as containers are filled. When a container grows after it was
 * placed, its ancestors may become higher, or it may become its own ancestor:
 * then pk_check_graph computes all. */
static inline int pk_place(struct pk_parser *p, uint32_t parent, uint32_t child)
{
	struct pk_node *x = pk_at(p->doc, child), *up;

	if (x->height == 0) /* most are leaves */
		return 0;
	x->flags |= PK_PLACED;
	up = pk_at(p->doc, parent);
	if ((up->flags & PK_PLACED) != 0) {
		p->recheck = true;
		return 0;
	}
	if (x->height >= p->depth)
		return pk_too_deep(p);
	if (up->height <= x->height)
		up->height = x->height + 1;
	return 0;
}
/* Turn an OBJECT into an empty container of its class. */
int pk_become(struct pk_parser *p, uint32_t node, enum ofs_pk_kind kind);

/* acyclic.c: if a container grew after it was placed, cut cycles and compute
 * heights again. */
int pk_check_graph(struct pk_parser *p);

/* global.c */

/* "module.name", NUL-terminated, in the arena; NULL on failure. */
const char *pk_dotted(struct pk_parser *p, struct ofs_str module,
    struct ofs_str name);
/* The node of module.name. OFS422 when that is not a valid name. */
uint32_t pk_global(struct pk_parser *p, const char *module, size_t nmodule,
    const char *name, size_t nname);
/* The index of the global that a callable is, or of the attribute that a
 * getattr call names; OFS_NONE. */
uint32_t pk_global_of(const struct ofs_pickle *doc, uint32_t node);

/* reduce.c */
int pk_reduce(struct pk_parser *p, uint32_t callable, uint32_t args,
    uint32_t *out);
bool pk_is_size(const struct pk_parser *p, uint32_t callable);
/* Is callable torch.Size, and t, its only argument, a tuple? */
bool pk_makes_size(const struct pk_parser *p, uint32_t callable, uint32_t t);
uint32_t pk_size_of(struct pk_parser *p, uint32_t callable, uint32_t t);
/* kwargs may be OFS_NONE. */
int pk_newobj(struct pk_parser *p, uint32_t class, uint32_t args,
    uint32_t kwargs, uint32_t *out);
int pk_build(struct pk_parser *p, uint32_t node, uint32_t state);
int pk_persid(struct pk_parser *p, uint32_t arg, uint32_t *out);

/* pickle.c: a parser of n borrowed bytes with the default limits, and its
 * end. */
int pk_begin(struct pk_parser *p, const uint8_t *bytes, uint64_t n,
    struct optimfs_error *err);
void pk_end(struct pk_parser *p);

/* plain.c: run opcodes that only push or store nodes that exist. */
void pk_run_plain(struct pk_parser *p);

/* machine.c: run to STOP, after which one object is on the stack. */
int pk_machine(struct pk_parser *p);
/* Execute one opcode; 1 when it was STOP. */
int pk_step(struct pk_parser *p);

/* value.c: opcodes that push the value in their operands. */

/* "BININT"; NULL when op is not an opcode. */
const char *pk_op_name(uint8_t op);
/* Push a string of a kind, which follows its length of nlen bytes. */
int pk_push_blob(struct pk_parser *p, enum ofs_pk_kind kind, size_t nlen);
/* Push an unsigned integer of n bytes, or with sign_bits 32 a signed one of
 * 4. */
int pk_push_int(struct pk_parser *p, size_t n, int sign_bits);
/* Push a two's complement integer, which follows its length of nlen bytes. */
int pk_push_long(struct pk_parser *p, size_t nlen);
int pk_push_decimal(struct pk_parser *p);
int pk_push_float(struct pk_parser *p);
/* Read an unsigned operand of n bytes. */
int pk_operand(struct pk_parser *p, size_t n, uint64_t *v);
/* Read a text operand: the rest of the line, without its newline. */
int pk_line(struct pk_parser *p, const char **s, size_t *n);

#endif
