/* pickle.h - Python pickles read as data */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PICKLE_H
#define OFS_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "optimfs/error.h"

#include "base/types.h"

/* A pickle becomes a graph of nodes; nothing in it is ever called. Nodes have
 * 32-bit indexes and are shared, never copied, so that the size of a graph is
 * proportional to that of its pickle. docs/formats/pickle.md lists the opcodes,
 * what is refused, and the limits. */

enum ofs_pk_kind {
	OFS_PK_NONE,
	OFS_PK_BOOL,
	OFS_PK_INT,    /* fits in int64_t */
	OFS_PK_BIGINT, /* little-endian two's complement bytes */
	OFS_PK_FLOAT,
	OFS_PK_STR,    /* UTF-8 as pickled; may have surrogates */
	OFS_PK_BYTES,  /* bytes, bytearray, and _codecs.encode(..., 'latin1') */
	OFS_PK_LIST,   /* also instances with items: ofs_pk_class */
	OFS_PK_TUPLE,  /* also a torch.Size */
	OFS_PK_DICT,   /* also OrderedDict, instances with items ... */
	OFS_PK_SET,    /* also a frozenset */
	OFS_PK_GLOBAL, /* a name; ofs_pk_global */
	OFS_PK_OBJECT, /* REDUCE, NEWOBJ: a callable, its arguments, a state */
	OFS_PK_PERSID, /* a persistent id: one item, its argument */
};

struct ofs_pickle_limits {
	uint64_t memory; /* bytes of nodes; 0: min(4 GiB, a quarter of RAM) */
	uint32_t depth;  /* 0: 64 */
	/* The largest pickle; 0: 1 GiB. For callers that read one into memory;
	 * the parser does not test it. */
	uint64_t bytes;
	/* Gets the progress of a large pickle; borrowed, or NULL. */
	const struct optimfs_watch *watch;
};

/* Parse one pickle of at most n bytes at p. used, when not NULL, gets its
 * length, for streams of pickles; when it is NULL, bytes after STOP are OFS405.
 * The bytes are borrowed until ofs_pickle_free. With own they must be malloc'ed
 * and belong to the result, on failure too; of a large pickle the result keeps
 * only what it needs. Fails with EUCLEAN, EOPNOTSUPP, EPERM, E2BIG or ENOMEM,
 * OFS401 to OFS445. */
struct ofs_pickle *ofs_pickle_parse(const uint8_t *p, uint64_t n, bool own,
    const struct ofs_pickle_limits *limits, uint64_t *used,
    struct optimfs_error *err);
void ofs_pickle_free(struct ofs_pickle *doc);

/* The node of the pickled object. */
uint32_t ofs_pickle_root(const struct ofs_pickle *doc);
/* The number of nodes. They are numbered from 0, in the order of their
 * creation. */
uint32_t ofs_pickle_nodes(const struct ofs_pickle *doc);
/* The bytes of memory in use, without the pickle itself. */
uint64_t ofs_pickle_memory(const struct ofs_pickle *doc);

/* Every query accepts OFS_NONE as a node and answers as for None. Where a
 * container holds itself, an OBJECT without a callable is in its place
 * (ofs_pk_is_cycle), so a walk over nodes terminates. It may meet a node many
 * times, because nodes are shared. */
enum ofs_pk_kind ofs_pk_kind(const struct ofs_pickle *doc, uint32_t node);
bool ofs_pk_is_cycle(const struct ofs_pickle *doc, uint32_t node);
/* "int", "list", "torch.Size", "collections.OrderedDict" ..., for messages. */
const char *ofs_pk_kind_name(const struct ofs_pickle *doc, uint32_t node);
/* A list or a tuple. */
bool ofs_pk_is_sequence(const struct ofs_pickle *doc, uint32_t node);
/* Fail with EUCLEAN and "CODE WHAT is KIND, expected EXPECTED", because node is
 * of the wrong kind. fmt makes WHAT; expected may be NULL. For a container that
 * holds itself the code is OFS429. */
int ofs_pk_unexpected(const struct ofs_pickle *doc, uint32_t node,
    struct optimfs_error *err, const char *code, const char *expected,
    const char *fmt, ...) __attribute__((format(printf, 6, 7)));
bool ofs_pk_bool(const struct ofs_pickle *doc, uint32_t node);
double ofs_pk_float(const struct ofs_pickle *doc, uint32_t node);
/* *v = the value of an OFS_PK_INT; false for all other kinds, BOOL too. */
bool ofs_pk_int(const struct ofs_pickle *doc, uint32_t node, int64_t *v);
/* v[0..*n) = the values of a LIST or TUPLE of at most max such INTs; false for
 * all others. */
bool ofs_pk_ints(const struct ofs_pickle *doc, uint32_t node, int64_t *v,
    uint32_t max, uint32_t *n);
/* The bytes of a STR, BYTES or BIGINT, borrowed from doc; len 0 for other
 * kinds. */
struct ofs_str ofs_pk_str(const struct ofs_pickle *doc, uint32_t node);
bool ofs_pk_str_is(const struct ofs_pickle *doc, uint32_t node, const char *s);

/* The number of items of a LIST, TUPLE or SET, of pairs of a DICT; 1 for
 * PERSID; 0 for other kinds. An index beyond the end, or a node of the wrong
 * kind, gives OFS_NONE. */
uint32_t ofs_pk_len(const struct ofs_pickle *doc, uint32_t node);
uint32_t ofs_pk_item(const struct ofs_pickle *doc, uint32_t node, uint32_t i);
uint32_t ofs_pk_key(const struct ofs_pickle *doc, uint32_t node, uint32_t i);
uint32_t ofs_pk_val(const struct ofs_pickle *doc, uint32_t node, uint32_t i);
/* The value of a string key of a DICT (the last one, as in Python), or
 * OFS_NONE. Compares every key: meant for dicts of attributes, not for
 * tables. */
uint32_t ofs_pk_get(const struct ofs_pickle *doc, uint32_t node,
    const char *key);

/* The module and name of a GLOBAL; of the callable of an OBJECT; of the class
 * of a container that is not a plain one. Empty strings for all others. */
void ofs_pk_class(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_str *module, struct ofs_str *name);
/* Does ofs_pk_class give module.name? A NULL module matches any. */
bool ofs_pk_is(const struct ofs_pickle *doc, uint32_t node, const char *module,
    const char *name);
/* The callable of an OBJECT (a GLOBAL, or an OBJECT such as a getattr call),
 * its argument tuple, its dict of keyword arguments or OFS_NONE, and its BUILD
 * state or OFS_NONE. ofs_pk_state also takes a LIST or DICT with a class. */
uint32_t ofs_pk_callable(const struct ofs_pickle *doc, uint32_t node);
uint32_t ofs_pk_args(const struct ofs_pickle *doc, uint32_t node);
uint32_t ofs_pk_kwargs(const struct ofs_pickle *doc, uint32_t node);
uint32_t ofs_pk_state(const struct ofs_pickle *doc, uint32_t node);
/* Was the OBJECT made without its constructor? */
bool ofs_pk_is_newobj(const struct ofs_pickle *doc, uint32_t node);
/* The value of an attribute that BUILD set from a dict, or from a (dict or
 * None, dict of slots) pair; OFS_NONE when there is none. */
uint32_t ofs_pk_find_attr(const struct ofs_pickle *doc, uint32_t node,
    const char *name, size_t n);
static inline uint32_t ofs_pk_attr(const struct ofs_pickle *doc, uint32_t node,
    const char *name)
{
	return ofs_pk_find_attr(doc, node, name, strlen(name));
}

/* Attributes of many objects, most of which have equal keys in equal order, so
 * that the names are compared once. Zero-initialise, with the names. */
#define OFS_PK_FIELDS     4
#define OFS_PK_FIELD_KEYS 8
struct ofs_pk_fields {
	const char *name[OFS_PK_FIELDS]; /* NULL: no more */
	/* the keys that the last object has, and the pair of each name, from 1
	 * on; 0: it has none */
	const struct ofs_pickle *doc;
	uint32_t npairs, key[OFS_PK_FIELD_KEYS];
	uint8_t at[OFS_PK_FIELDS];
};
/* value[i] = ofs_pk_attr() of name[i]. */
void ofs_pk_read_fields(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_pk_fields *f, uint32_t value[OFS_PK_FIELDS]);

/* The element of a tensor without dimensions, which is in its storage: set by
 * the code that can read it, in the order of nodes, before doc is shared.
 * _element gives NULL if it was not. */
#define OFS_PK_ELEMENT 16
int ofs_pickle_note_element(struct ofs_pickle *doc, uint32_t node,
    const uint8_t element[OFS_PK_ELEMENT], struct optimfs_error *err);
const uint8_t *ofs_pk_element(const struct ofs_pickle *doc, uint32_t node);

/* Is node an OBJECT that getattr made from a global? Gives the module, and the
 * name with the attribute: "Kind.MEMBER". */
bool ofs_pk_attribute(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_str *module, struct ofs_str *name);

/* Every global that the pickle names, used or not, in the order of first
 * appearance, which is at offset. called: REDUCE, NEWOBJ or the like made
 * something of it. An attribute that getattr takes from a global is one more,
 * with the attribute after a dot. */
struct ofs_pk_global {
	struct ofs_str module, name;
	uint64_t offset;
	bool called;
};
const struct ofs_pk_global *ofs_pk_globals(const struct ofs_pickle *doc,
    size_t *n);
/* Is it in the allow-list of docs/formats/pickle.md? */
bool ofs_pk_global_allowed(const struct ofs_pk_global *g);

#endif
