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
/* Python's batch size for APPENDS and SETITEMS. */
#define OFS_PKW_BATCH 1000

/* Opcodes for writers of containers. */
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
	OFS_PKW_NEWOBJ_EX = 0x92, /* of protocol 4, but read in any */
	OFS_PKW_TRUE = 0x88,
	OFS_PKW_FALSE = 0x89,
};

/* What the integers of a quantized tensor stand for, if that is known. */
struct ofs_pkw_scale {
	double scale;
	int64_t zero_point;
	bool known;
};

/* Writes a pickle to out (borrowed); out->bad is tested at the end.
 * Zero-initialise all but out, then call _begin. What Python shares is shared:
 * globals and literals through known, by content; nodes of a graph by their
 * index. */
struct ofs_pkw {
	struct ofs_buf *out;
	bool plain;   /* does not use the memo: shares nothing */
	bool modern;  /* protocol >= 3: Python 3 names of builtins */
	bool copies;  /* ofs_pkw_node writes globals outside the allow-list */
	bool foreign; /* it has written one */
	const struct ofs_pkw_scale *scale; /* of the next tensor; borrowed */
	/* Write the storage that persistent id node is for, in ofs_pkw_node;
	 * NULL: EOPNOTSUPP (OFS448). */
	int (*storage)(void *ctx, struct ofs_pkw *w,
	    const struct ofs_pickle *doc, uint32_t node,
	    struct optimfs_error *err);
	void *storage_ctx;
	uint32_t memo; /* entries so far */
	uint32_t nknown;
	struct ofs_pkw_known {
		/* module.p NULL: a string; module empty: a call */
		struct ofs_str module, name;
		uint32_t memo;
	} known[OFS_PKW_KNOWN];
	uint8_t hint[128][2]; /* guesses at the index in known, by address */
	unsigned nopen;       /* containers that ofs_pkw_lit opened */
	struct ofs_pkw_open {
		char kind;
		bool whole; /* it began with [* or {*: one batch */
		uint32_t n; /* items so far */
		size_t mark,
		    item; /* offsets in out: of the MARK, of the current item */
	} open[OFS_PKW_OPEN];
};

void ofs_pkw_begin(struct ofs_pkw *w); /* PROTO 2 */
/* STOP. ENOMEM when out is bad. */
int ofs_pkw_end(struct ofs_pkw *w, struct optimfs_error *err);

/* Write a value as Python does:
 *
 *  None  True  12  'text'    a text is written once, then read from the memo
 *  [1, 2]  {'a': 1}  (1, 2)  (1) is a tuple of one
 *  torch.float32             a global
 *  torch.Size((2, 3))        a call
 *  $torch.device('cpu')      a call that is written once; without holes
 *  collections.OrderedDict(){'a': 1}    a call, and items set in its result
 *  torch.storage.Untyped<{'a': 1}>      an object made without its
 *                            constructor, and its state; <> is none
 *  %d %u %f %s %.*s '%s'     holes, as in printf; torch.%s is a global
 *  %n                        *int = the last memo number
 *  @%d                       the object with that memo number
 *
 * A quoted string is borrowed until w is no longer used. What fmt does not
 * close stays open: later calls, of other functions too, write its items, and
 * a comma ends an item. One item is added alone, more in batches of 1000, as
 * Python does; after {* or [* all are one batch. */
void ofs_pkw_lit(struct ofs_pkw *w, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The arguments of a %.*s. */
#define OFS_PKW_STR(s) (int)(s).len, (s).p

/* One opcode. */
void ofs_pkw_op(struct ofs_pkw *w, enum ofs_pkw_op op);
/* Put the last object into the memo, under the next number. */
void ofs_pkw_put(struct ofs_pkw *w);
/* Both. */
void ofs_pkw_op_put(struct ofs_pkw *w, enum ofs_pkw_op op);
void ofs_pkw_get(struct ofs_pkw *w, uint32_t memo);
void ofs_pkw_int(struct ofs_pkw *w, int64_t v);
void ofs_pkw_float(struct ofs_pkw *w, double v);
/* n bytes of two's complement, little-endian. */
void ofs_pkw_long(struct ofs_pkw *w, const void *le, size_t n);
/* A bytes object, or with array a bytearray. */
void ofs_pkw_bytes(struct ofs_pkw *w, const void *p, size_t n, bool array);
void ofs_pkw_str(struct ofs_pkw *w, const char *p, size_t n);
/* A string or global, which is written once and then read from the memo. The
 * text is borrowed until w is no longer used. */
void ofs_pkw_known(struct ofs_pkw *w, const char *s);
void ofs_pkw_known_text(struct ofs_pkw *w, const char *p, size_t n);
void ofs_pkw_global(struct ofs_pkw *w, const char *module, const char *name);
void ofs_pkw_global_text(struct ofs_pkw *w, struct ofs_str module,
    struct ofs_str name);
/* The opcode of a global without the memo. A builtin gets its name in Python 2,
 * as protocol 2 requires, or with modern that in Python 3. */
void ofs_pkw_name(struct ofs_pkw *w, struct ofs_str module,
    struct ofs_str name);
/* If the call whose text is p is in the memo, get it from there. Else write it
 * and then call _learn_call. */
bool ofs_pkw_get_call(struct ofs_pkw *w, const char *p, size_t n);
void ofs_pkw_learn_call(struct ofs_pkw *w, const char *p, size_t n);
/* A tuple of n objects: _open, write the objects, _close. */
void ofs_pkw_tuple_open(struct ofs_pkw *w, size_t n);
void ofs_pkw_tuple_close(struct ofs_pkw *w, size_t n);
void ofs_pkw_dims(struct ofs_pkw *w, const uint64_t *v, size_t n);
/* Python adds one item alone and more in batches. Call this before item i of n,
 * and with i == n after the last. */
void ofs_pkw_item(struct ofs_pkw *w, uint32_t i, uint32_t n,
    enum ofs_pkw_op one, enum ofs_pkw_op many);
/* A module.cls() made without its constructor. Its attributes follow as pairs;
 * then _end. */
void ofs_pkw_object(struct ofs_pkw *w, const char *module, const char *cls);
void ofs_pkw_object_end(struct ofs_pkw *w);

/* Storage key: its class of module torch (NULL: UntypedStorage), and its number
 * of elements, of itemsize bytes. */
void ofs_pkw_storage(struct ofs_pkw *w, const char *cls, uint64_t key,
    uint64_t numel, size_t itemsize);
/* A tensor in C order that is all of storage key: _rebuild_tensor_v2, or _v3
 * for types without a storage class (docs/formats/torch.md); _rebuild_qtensor
 * for quantized types if their scale is known. EOPNOTSUPP (OFS448): a quantized
 * type, and w->scale is NULL. */
int ofs_pkw_tensor(struct ofs_pkw *w, enum ofs_dtype dtype, uint64_t key,
    const uint64_t *shape, unsigned ndim, struct optimfs_error *err);

/* A tensor in C order that is a part of its storage, from element offset on. */
struct ofs_pkw_view {
	enum ofs_dtype dtype;
	uint64_t key, storage; /* storage: its number of elements */
	uint64_t offset;
	const uint64_t *shape;
	unsigned ndim;
	bool grad; /* requires_grad */
};
int ofs_pkw_view(struct ofs_pkw *w, const struct ofs_pkw_view *v,
    struct optimfs_error *err);

/* A copy of a node of a parsed pickle with all it contains. EPERM (OFS445): it
 * names a global outside the allow-list, and w->copies is not set. EOPNOTSUPP
 * (OFS448): tensors and storages; without a memo, containers that contain
 * themselves. E2BIG (OFS444): it unfolds to too much. */
int ofs_pkw_node(struct ofs_pkw *w, const struct ofs_pickle *doc, uint32_t node,
    struct optimfs_error *err);

#endif
