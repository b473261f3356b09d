/* pickle.h - Python pickles read as data */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PICKLE_H
#define OFS_PICKLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/types.h"

/* A pickle becomes a graph of nodes; nothing in it is ever called. Nodes are
 * named by 32-bit indexes and shared, never copied, so that a graph costs what
 * its bytes cost. See docs/formats/pickle.md for opcodes, what is refused, and
 * the limits. */

enum ofs_pk_kind {
	OFS_PK_NONE,
	OFS_PK_BOOL,
	OFS_PK_INT,    /* fits int64_t */
	OFS_PK_BIGINT, /* little-endian two's complement bytes */
	OFS_PK_FLOAT,
	OFS_PK_STR,    /* UTF-8 as pickled: surrogates are possible */
	OFS_PK_BYTES,  /* bytes, bytearray, and _codecs.encode(..., 'latin1') */
	OFS_PK_LIST,   /* instances that were appended to, too: ofs_pk_class */
	OFS_PK_TUPLE,  /* torch.Size too */
	OFS_PK_DICT,   /* OrderedDict, defaultdict and instances that got items
			* too: ofs_pk_class says so */
	OFS_PK_SET,    /* frozenset too */
	OFS_PK_GLOBAL, /* a name; ofs_pk_global */
	OFS_PK_OBJECT, /* REDUCE, NEWOBJ: a callable, its arguments, a state */
	OFS_PK_PERSID, /* a persistent id: one item, its argument */
};

struct ofs_pickle_limits {
	uint64_t memory; /* bytes of nodes; 0: min(4 GiB, a quarter of RAM) */
	uint32_t depth;  /* 0: 64 */
	/* The largest pickle; 0: 1 GiB. For those who read one: the parser's
	 * is in memory already. */
	uint64_t bytes;
};

/* Parse one pickle of at most n bytes at p. used, when not NULL, gets how many
 * bytes it took (for streams of pickles); when NULL, bytes after STOP are
 * OFS405. The bytes are borrowed as long as the result lives unless own is
 * set, when they become the result's (malloc'ed), on failure too; it keeps of
 * a large pickle only what it needs. Failure is
 * EUCLEAN, EOPNOTSUPP, EPERM, E2BIG or ENOMEM with OFS401 to OFS445. */
struct ofs_pickle *ofs_pickle_parse(const uint8_t *p, uint64_t n, bool own,
    const struct ofs_pickle_limits *limits, uint64_t *used,
    struct optimfs_error *err);
void ofs_pickle_free(struct ofs_pickle *doc);

/* The object the pickle is. */
uint32_t ofs_pickle_root(const struct ofs_pickle *doc);
/* How many nodes it has; they are numbered from 0, in the order in which they
 * were made. */
uint32_t ofs_pickle_nodes(const struct ofs_pickle *doc);
/* Bytes of memory it holds, the pickle's own not counted. */
uint64_t ofs_pickle_memory(const struct ofs_pickle *doc);

/* Every query takes OFS_NONE for a node, and says of it what it says of None.
 * A container that holds itself has an OBJECT without a callable in its place
 * there (ofs_pk_is_cycle), so that following nodes always comes to an end;
 * how often a node is met is another matter, for they are shared. */
enum ofs_pk_kind ofs_pk_kind(const struct ofs_pickle *doc, uint32_t node);
bool ofs_pk_is_cycle(const struct ofs_pickle *doc, uint32_t node);
/* "int", "list", "torch.Size", "collections.OrderedDict" ... for messages. */
const char *ofs_pk_kind_name(const struct ofs_pickle *doc, uint32_t node);
/* Fail with EUCLEAN: "CODE WHAT is KIND, expected EXPECTED", where node is not
 * what its place asks for. WHAT is made of fmt; expected may be NULL. OFS429 in
 * place of code where it is a container that holds itself. */
int ofs_pk_unexpected(const struct ofs_pickle *doc, uint32_t node,
    struct optimfs_error *err, const char *code, const char *expected,
    const char *fmt, ...) __attribute__((format(printf, 6, 7)));
bool ofs_pk_bool(const struct ofs_pickle *doc, uint32_t node);
double ofs_pk_float(const struct ofs_pickle *doc, uint32_t node);
/* false unless node is an OFS_PK_INT (a bool is not). */
bool ofs_pk_int(const struct ofs_pickle *doc, uint32_t node, int64_t *v);
/* Bytes of a STR, BYTES or BIGINT, borrowed from doc; len 0 for other kinds. */
struct ofs_str ofs_pk_str(const struct ofs_pickle *doc, uint32_t node);
bool ofs_pk_str_is(const struct ofs_pickle *doc, uint32_t node, const char *s);

/* Items of a LIST, TUPLE or SET, pairs of a DICT, 1 for PERSID; 0 otherwise.
 * An index behind the end, or of the wrong kind, gives OFS_NONE. */
uint32_t ofs_pk_len(const struct ofs_pickle *doc, uint32_t node);
uint32_t ofs_pk_item(const struct ofs_pickle *doc, uint32_t node, uint32_t i);
uint32_t ofs_pk_key(const struct ofs_pickle *doc, uint32_t node, uint32_t i);
uint32_t ofs_pk_val(const struct ofs_pickle *doc, uint32_t node, uint32_t i);
/* The value of a DICT's string key (the last, as in Python); OFS_NONE. Looks at
 * every key: for dicts of attributes, not for tables. */
uint32_t ofs_pk_get(const struct ofs_pickle *doc, uint32_t node,
    const char *key);

/* Module and name of a GLOBAL; of an OBJECT's callable, or of a DICT's, SET's
 * or TUPLE's class when it is not the plain one; empty strings otherwise. */
void ofs_pk_class(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_str *module, struct ofs_str *name);
/* Does ofs_pk_class say module.name? A NULL module matches all. */
bool ofs_pk_is(const struct ofs_pickle *doc, uint32_t node, const char *module,
    const char *name);
/* Of an OBJECT: its callable (a GLOBAL, or an OBJECT such as a getattr call),
 * its argument tuple, and its BUILD state, OFS_NONE when there was none; the
 * state of a LIST or DICT with a class too. */
uint32_t ofs_pk_callable(const struct ofs_pickle *doc, uint32_t node);
uint32_t ofs_pk_args(const struct ofs_pickle *doc, uint32_t node);
uint32_t ofs_pk_state(const struct ofs_pickle *doc, uint32_t node);
/* Was an OBJECT made without its constructor? */
bool ofs_pk_is_newobj(const struct ofs_pickle *doc, uint32_t node);
/* An attribute of an OBJECT that BUILD set from a dict, or from a
 * (dict or None, dict of slots) pair; OFS_NONE. */
uint32_t ofs_pk_attr(const struct ofs_pickle *doc, uint32_t node,
    const char *name);

/* Is node an OBJECT that getattr made of a global? Then what it would be:
 * module, and the name with the attribute, "Kind.MEMBER". */
bool ofs_pk_attribute(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_str *module, struct ofs_str *name);

/* Every global that the pickle names, in the order of first appearance, used
 * or not; offset is where. called: something was made of it by REDUCE, NEWOBJ
 * or the like. What getattr takes from a global is listed as one more, with
 * the attribute behind a dot. */
struct ofs_pk_global {
	struct ofs_str module, name;
	uint64_t offset;
	bool called;
};
const struct ofs_pk_global *ofs_pk_globals(const struct ofs_pickle *doc,
    size_t *n);
/* Is it on the allow-list of docs/formats/pickle.md? */
bool ofs_pk_global_allowed(const struct ofs_pk_global *g);

#endif
