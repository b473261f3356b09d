/* write.c - opcodes of protocol 2, and tensors made of them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "pickle/write.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/cursor.h"
#include "base/memory.h"
#include "base/str.h"

/* Write an opcode and an n-byte little-endian operand. */
static inline void put_le(struct ofs_buf *b, uint8_t op, uint64_t v, int n)
{
	uint8_t bytes[9] = { op };

	ofs_put_le(bytes + 1, v, (unsigned)n);
	ofs_buf_put(b, bytes, 1 + (size_t)n);
}

static inline void put_memo(struct ofs_buf *b, const char ops[2], uint32_t memo)
{
	if (memo < 256)
		put_le(b, (uint8_t)ops[0], memo, 1);
	else
		put_le(b, (uint8_t)ops[1], memo, 4);
}

void ofs_pkw_put(struct ofs_pkw *w)
{
	if (!w->plain)
		put_memo(w->out, "qr", w->memo++);
}

void ofs_pkw_begin(struct ofs_pkw *w)
{
	ofs_buf_put(w->out, "\x80\2", 2);
}

int ofs_pkw_end(struct ofs_pkw *w, struct optimfs_error *err)
{
	ofs_pkw_op(w, OFS_PKW_STOP);
	return w->out->bad ? ofs_no_memory(err) : 0;
}

void ofs_pkw_op(struct ofs_pkw *w, enum ofs_pkw_op op)
{
	ofs_buf_putc(w->out, (int)op);
}

void ofs_pkw_op_put(struct ofs_pkw *w, enum ofs_pkw_op op)
{
	ofs_pkw_op(w, op);
	ofs_pkw_put(w);
}

void ofs_pkw_get(struct ofs_pkw *w, uint32_t memo)
{
	put_memo(w->out, "hj", memo);
}

/* Write the shortest form, as Python does. */
void ofs_pkw_int(struct ofs_pkw *w, int64_t v)
{
	int n = 5;

	if (v >= 0 && v < 1 << 8) {
		put_le(w->out, 'K', (uint64_t)v, 1);
	} else if (v >= 0 && v < 1 << 16) {
		put_le(w->out, 'M', (uint64_t)v, 2);
	} else if (v >= INT32_MIN && v <= INT32_MAX) {
		put_le(w->out, 'J', (uint64_t)v, 4);
	} else {
		while (n < 8 && v >> (8 * n - 1) != 0 && v >> (8 * n - 1) != -1)
			n++;
		ofs_buf_putc(w->out, '\x8a');
		put_le(w->out, (uint8_t)n, (uint64_t)v, n);
	}
}

void ofs_pkw_float(struct ofs_pkw *w, double v)
{
	uint64_t bits;
	uint8_t bytes[9] = { 'G' };

	memcpy(&bits, &v, sizeof(bits));
	for (int i = 0; i < 8; i++)
		bytes[1 + i] = (uint8_t)(bits >> (56 - 8 * i));
	ofs_buf_put(w->out, bytes, sizeof(bytes));
}

void ofs_pkw_str(struct ofs_pkw *w, const char *p, size_t n)
{
	assert(n <= UINT32_MAX);
	put_le(w->out, 'X', n, 4);
	ofs_buf_put(w->out, p, n);
	ofs_pkw_put(w);
}

static bool is_known(const struct ofs_pkw_known *k, struct ofs_str module,
    struct ofs_str name)
{
	/* names differ more often; a string is not a call */
	return ofs_str_equal(k->name, name) &&
	    ofs_str_equal(k->module, module) &&
	    (k->module.p == NULL) == (module.p == NULL);
}

/* The index in known; nknown when it is not there. Most texts are literals, so
 * their addresses are good hints. */
static uint32_t find_known(struct ofs_pkw *w, struct ofs_str module,
    struct ofs_str name)
{
	uint8_t *hint =
	    w->hint[(uint32_t)(uintptr_t)name.p * UINT32_C(2654435761) >> 25];
	uint32_t i;

	for (int k = 0; k < 2; k++)
		if (hint[k] < w->nknown &&
		    is_known(&w->known[hint[k]], module, name))
			return hint[k];
	for (i = 0; i < w->nknown; i++)
		if (is_known(&w->known[i], module, name))
			break;
	hint[1] = hint[0];
	hint[0] = (uint8_t)i;
	return i;
}

/* If it is in the memo, write a get. */
static bool get_known(struct ofs_pkw *w, struct ofs_str module,
    struct ofs_str name)
{
	uint32_t i = find_known(w, module, name);

	if (i == w->nknown)
		return false;
	ofs_pkw_get(w, w->known[i].memo);
	return true;
}

/* When the table is full, the text is written again each time. */
static void learn(struct ofs_pkw *w, struct ofs_str module, struct ofs_str name,
    uint32_t memo)
{
	if (w->nknown < OFS_PKW_KNOWN && !w->plain)
		w->known[w->nknown++] =
		    (struct ofs_pkw_known){ module, name, memo };
}

void ofs_pkw_known_text(struct ofs_pkw *w, const char *p, size_t n)
{
	struct ofs_str s = { p, (uint32_t)n }, none = { NULL, 0 };

	if (get_known(w, none, s))
		return;
	learn(w, none, s, w->memo);
	ofs_pkw_str(w, p, n);
}

void ofs_pkw_known(struct ofs_pkw *w, const char *s)
{
	ofs_pkw_known_text(w, s, strlen(s));
}

void ofs_pkw_name(struct ofs_pkw *w, struct ofs_str module, struct ofs_str name)
{
	ofs_buf_putc(w->out, 'c');
	if (ofs_str_is(module, "builtins") || ofs_str_is(module, "__builtin__"))
		ofs_buf_puts(w->out, w->modern ? "builtins" : "__builtin__");
	else
		ofs_buf_put(w->out, module.p, module.len);
	ofs_buf_putc(w->out, '\n');
	ofs_buf_put(w->out, name.p, name.len);
	ofs_buf_putc(w->out, '\n');
}

void ofs_pkw_global_text(struct ofs_pkw *w, struct ofs_str module,
    struct ofs_str name)
{
	if (get_known(w, module, name))
		return;
	learn(w, module, name, w->memo);
	ofs_pkw_name(w, module, name);
	ofs_pkw_put(w);
}

void ofs_pkw_global(struct ofs_pkw *w, const char *module, const char *name)
{
	ofs_pkw_global_text(w, ofs_str_of(module), ofs_str_of(name));
}

bool ofs_pkw_get_call(struct ofs_pkw *w, const char *p, size_t n)
{
	return get_known(w, (struct ofs_str){ "", 0 },
	    (struct ofs_str){ p, (uint32_t)n });
}

void ofs_pkw_learn_call(struct ofs_pkw *w, const char *p, size_t n)
{
	learn(w, (struct ofs_str){ "", 0 }, (struct ofs_str){ p, (uint32_t)n },
	    w->memo - 1);
}

void ofs_pkw_tuple_open(struct ofs_pkw *w, size_t n)
{
	if (n > 3)
		ofs_pkw_op(w, OFS_PKW_MARK);
}

void ofs_pkw_tuple_close(struct ofs_pkw *w, size_t n)
{
	if (n == 0) {
		ofs_pkw_op(w, OFS_PKW_UNIT);
		return;
	}
	ofs_buf_putc(w->out, n > 3 ? 't' : "\x85\x86\x87"[n - 1]);
	ofs_pkw_put(w);
}

void ofs_pkw_dims(struct ofs_pkw *w, const uint64_t *v, size_t n)
{
	ofs_pkw_tuple_open(w, n);
	for (size_t i = 0; i < n; i++)
		ofs_pkw_int(w, (int64_t)v[i]);
	ofs_pkw_tuple_close(w, n);
}

void ofs_pkw_object(struct ofs_pkw *w, const char *module, const char *cls)
{
	ofs_pkw_global(w, module, cls);
	ofs_pkw_op(w, OFS_PKW_UNIT);
	ofs_pkw_op_put(w, OFS_PKW_NEWOBJ);
	ofs_pkw_op_put(w, OFS_PKW_DICT);
	ofs_pkw_op(w, OFS_PKW_MARK);
}

void ofs_pkw_object_end(struct ofs_pkw *w)
{
	ofs_pkw_op(w, OFS_PKW_SETITEMS);
	ofs_pkw_op(w, OFS_PKW_BUILD);
}

void ofs_pkw_item(struct ofs_pkw *w, uint32_t i, uint32_t n,
    enum ofs_pkw_op one, enum ofs_pkw_op many)
{
	bool first = i % OFS_PKW_BATCH == 0;

	if (n == 1) {
		if (i == 1)
			ofs_pkw_op(w, one);
		return;
	}
	if (i > 0 && (first || i == n))
		ofs_pkw_op(w, many);
	if (first && i < n)
		ofs_pkw_op(w, OFS_PKW_MARK);
}

void ofs_pkw_storage(struct ofs_pkw *w, const char *cls, uint64_t key,
    uint64_t numel, size_t itemsize)
{
	char text[24];

	ofs_pkw_tuple_open(w, 5);
	ofs_pkw_known(w, "storage");
	if (cls != NULL)
		ofs_pkw_global(w, "torch", cls);
	else
		ofs_pkw_global(w, "torch.storage", "UntypedStorage");
	snprintf(text, sizeof(text), "%llu", (unsigned long long)key);
	ofs_pkw_str(w, text, strlen(text));
	ofs_pkw_known(w, "cpu");
	ofs_pkw_int(w, (int64_t)(cls != NULL ? numel : numel * itemsize));
	ofs_pkw_tuple_close(w, 5);
	ofs_pkw_op(w, OFS_PKW_PERSID);
}

/* PyTorch computes strides as if empty dimensions had length one. */
static void put_strides(struct ofs_pkw *w, const uint64_t *shape, unsigned ndim)
{
	uint64_t stride[OFS_MAX_DIMS], n = 1;

	for (unsigned d = ndim; d-- > 0;) {
		stride[d] = n;
		n *= shape[d] > 0 ? shape[d] : 1;
	}
	ofs_pkw_dims(w, stride, ndim);
}

/* Write the first arguments of every tensor. */
static void put_place(struct ofs_pkw *w, const struct ofs_pkw_view *v)
{
	ofs_pkw_storage(w, ofs_dtype_storage(v->dtype), v->key, v->storage,
	    ofs_dtype_size(v->dtype));
	ofs_pkw_int(w, (int64_t)v->offset);
	ofs_pkw_dims(w, v->shape, v->ndim);
	put_strides(w, v->shape, v->ndim);
}

static void put_quantizer(struct ofs_pkw *w)
{
	ofs_pkw_tuple_open(w, 3);
	ofs_pkw_global(w, "torch", "per_tensor_affine");
	ofs_pkw_float(w, w->scale->scale);
	ofs_pkw_int(w, w->scale->zero_point);
	ofs_pkw_tuple_close(w, 3);
}

int ofs_pkw_view(struct ofs_pkw *w, const struct ofs_pkw_view *v,
    struct optimfs_error *err)
{
	const char *cls = ofs_dtype_storage(v->dtype);
	const char *rebuild =
	    cls != NULL ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3";
	bool quantized = ofs_dtype_is_quantized(v->dtype);

	if (v->dtype == OFS_DTYPE_NONE)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS448 a tensor of unknown type cannot be written");
	if (quantized && w->scale == NULL)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS448 a tensor of type %s cannot be written: only views "
		    "torch and dcp have a scale for it",
		    ofs_dtype_name(v->dtype));
	quantized = quantized && w->scale->known;
	if (quantized)
		rebuild = "_rebuild_qtensor";
	ofs_pkw_global(w, "torch._utils", rebuild);
	ofs_pkw_tuple_open(w, 6);
	put_place(w, v);
	if (quantized)
		put_quantizer(w);
	ofs_pkw_op(w, v->grad ? OFS_PKW_TRUE : OFS_PKW_FALSE);
	ofs_pkw_global(w, "collections", "OrderedDict");
	ofs_pkw_op(w, OFS_PKW_UNIT);
	ofs_pkw_op_put(w, OFS_PKW_REDUCE);
	if (cls == NULL)
		ofs_pkw_global(w, "torch", ofs_dtype_name(v->dtype));
	ofs_pkw_tuple_close(w, 6);
	ofs_pkw_op_put(w, OFS_PKW_REDUCE);
	return 0;
}

int ofs_pkw_tensor(struct ofs_pkw *w, enum ofs_dtype dtype, uint64_t key,
    const uint64_t *shape, unsigned ndim, struct optimfs_error *err)
{
	struct ofs_pkw_view v = { .dtype = dtype,
		.key = key,
		.storage = 1,
		.shape = shape,
		.ndim = ndim };

	for (unsigned d = 0; d < ndim; d++)
		v.storage *= shape[d];
	return ofs_pkw_view(w, &v, err);
}
