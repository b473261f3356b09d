/* write.h - Python pickles of protocol 2, as torch.save writes them */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PICKLE_WRITE_H
#define OFS_PICKLE_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "base/dtype.h"
#include "pickle/pickle.h"

#define OFS_PKW_KNOWN 64
#define OFS_PKW_OPEN  16

/* Opcodes that whoever writes containers needs. */
enum ofs_pkw_op {
	OFS_PKW_MARK = '(',
	OFS_PKW_STOP = '.',
	OFS_PKW_POP = '0',
	OFS_PKW_APPEND = 'a',
	OFS_PKW_APPENDS = 'e',
	OFS_PKW_BUILD = 'b',
	OFS_PKW_NONE = 'N',
	OFS_PKW_PERSID = 'Q',
	OFS_PKW_REDUCE = 'R',
	OFS_PKW_SETITEM = 's',
	OFS_PKW_SETITEMS = 'u',
	OFS_PKW_LIST = ']',
	OFS_PKW_DICT = '}',
	OFS_PKW_UNIT = ')',
	OFS_PKW_NEWOBJ = 0x81,
	OFS_PKW_TRUE = 0x88,
	OFS_PKW_FALSE = 0x89,
};

/* A pickle being written to out (borrowed), whose bad says at the end whether
 * memory sufficed. Zero-initialise but for out; the first call is _begin. What
 * Python shares is shared: globals and literals through known (by content),
 * nodes of a graph by their index. */
struct ofs_pkw {
	struct ofs_buf *out;
	bool plain;    /* touches no memo: nothing is shared */
	bool modern;   /* for protocols from 3 on: builtins by their names */
	uint32_t memo; /* entries so far */
	uint32_t nknown;
	struct ofs_pkw_known {
		/* module.p NULL: a string; empty: a call */
		struct ofs_str module, name;
		uint32_t memo;
	} known[OFS_PKW_KNOWN];
	uint8_t hint[256]; /* of known, by address */
	unsigned nopen;    /* containers that ofs_pkw_lit opened */
	struct ofs_pkw_open {
		char kind;
		bool whole; /* [* or {* */
		uint32_t n; /* items */
		size_t mark,
		    item; /* of out: where MARK is, where an item begins */
	} open[OFS_PKW_OPEN];
};

void ofs_pkw_begin(struct ofs_pkw *w); /* PROTO 2 */
/* STOP; ENOMEM: out is bad. */
int ofs_pkw_end(struct ofs_pkw *w, struct optimfs_error *err);

/* A value, as Python writes it:
 *
 *	None  True  12  'text'    text is written once, then taken from the memo
 *	[1, 2]  {'a': 1}  (1, 2)  (1) is a tuple of one
 *	torch.float32             a global
 *	torch.Size((2, 3))        a call
 *	$torch.device('cpu')      one that is written once; without holes
 *	collections.OrderedDict(){'a': 1}    a call, and items set in what it gives
 *	torch.storage.Untyped<{'a': 1}>      an object made without its
 *	                          constructor, and its state; <> is none
 *	%d %u %f %s %.*s '%s'     holes: as printf has them; torch.%s is a global
 *	%n                        *int: the number that the memo gave last
 *	@%d                       what has that number
 *
 * A string in quotes is borrowed as long as w is used. What fmt does not close
 * stays open: calls that follow, of other functions too, write what is in it,
 * and a comma ends an item. Items are added one alone or in batches of 1000, as
 * Python adds them; of what begins with {* or [* in one batch. */
void ofs_pkw_lit(struct ofs_pkw *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* For %.*s. */
#define OFS_PKW_STR(s) (int)(s).len, (s).p

/* Opcode by opcode. */
void ofs_pkw_op(struct ofs_pkw *w, enum ofs_pkw_op op);
/* What was made last goes into the memo, under the next number. */
void ofs_pkw_put(struct ofs_pkw *w);
/* The two together. */
void ofs_pkw_op_put(struct ofs_pkw *w, enum ofs_pkw_op op);
void ofs_pkw_get(struct ofs_pkw *w, uint32_t memo);
void ofs_pkw_int(struct ofs_pkw *w, int64_t v);
void ofs_pkw_float(struct ofs_pkw *w, double v);
/* n bytes of two's complement, little-endian. */
void ofs_pkw_long(struct ofs_pkw *w, const void *le, size_t n);
/* bytes, or a bytearray. */
void ofs_pkw_bytes(struct ofs_pkw *w, const void *p, size_t n, bool array);
void ofs_pkw_str(struct ofs_pkw *w, const char *p, size_t n);
/* A string or global that is written once and then taken from the memo. The
 * text is borrowed as long as w is used. */
void ofs_pkw_known(struct ofs_pkw *w, const char *s);
void ofs_pkw_known_text(struct ofs_pkw *w, const char *p, size_t n);
void ofs_pkw_global(struct ofs_pkw *w, const char *module, const char *name);
void ofs_pkw_global_text(struct ofs_pkw *w, struct ofs_str module,
    struct ofs_str name);
/* A call whose text is p: is it in the memo, and taken from there? If not, it
 * is what was put there last, once it was written. */
bool ofs_pkw_get_call(struct ofs_pkw *w, const char *p, size_t n);
void ofs_pkw_learn_call(struct ofs_pkw *w, const char *p, size_t n);
/* A tuple of the n objects that follow: _open, the objects, _close. */
void ofs_pkw_tuple_open(struct ofs_pkw *w, size_t n);
void ofs_pkw_tuple_close(struct ofs_pkw *w, size_t n);
void ofs_pkw_dims(struct ofs_pkw *w, const uint64_t *v, size_t n);
/* Python adds the items of a list or dict one alone, or in batches: call it
 * before item i of n, and with i == n behind the last. */
void ofs_pkw_item(struct ofs_pkw *w, uint32_t i, uint32_t n,
    enum ofs_pkw_op one, enum ofs_pkw_op many);
/* module.cls() made without its constructor, whose attributes follow as pairs;
 * then _end. */
void ofs_pkw_object(struct ofs_pkw *w, const char *module, const char *cls);
void ofs_pkw_object_end(struct ofs_pkw *w);

/* A tensor in C order that is all of storage key: _rebuild_tensor_v2, or _v3
 * for types without a storage class (docs/formats/torch.md). EOPNOTSUPP
 * (OFS448) for types that mean nothing without a scale. */
int ofs_pkw_tensor(struct ofs_pkw *w, enum ofs_dtype dtype, uint64_t key,
    const uint64_t *shape, unsigned ndim, struct optimfs_error *err);

/* The same for one that is a part of its storage: numel elements from offset
 * on, in C order. */
struct ofs_pkw_view {
	enum ofs_dtype dtype;
	uint64_t key, storage; /* elements of it */
	uint64_t offset;
	const uint64_t *shape;
	unsigned ndim;
	bool grad; /* requires_grad */
};
int ofs_pkw_view(struct ofs_pkw *w, const struct ofs_pkw_view *v,
    struct optimfs_error *err);

/* A node of a parsed pickle and all it holds, once more. EPERM (OFS445) for
 * anything that is made by calling a global outside the allow-list, EOPNOTSUPP
 * (OFS448) for tensors, storages and what only their archive has, E2BIG
 * (OFS444) when it unfolds to too much. */
int ofs_pkw_node(struct ofs_pkw *w, const struct ofs_pickle *doc, uint32_t node,
    struct optimfs_error *err);

#endif
