/* leaf.c - numbers of NumPy, dtypes, devices, paths and tensors as text */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "text/leaf.h"

#include <inttypes.h>
#include <string.h>

#include "archive/torch.h"
#include "base/checked.h"
#include "base/cursor.h"
#include "base/dtype.h"
#include "base/str.h"
#include "text/leaf_time.h"

/* The longest integer that is printed; the parser accepts no longer one. */
#define BIGINT_MAX 4096
/* The most elements of an array that are printed: the state of NumPy's random
 * numbers has 624. */
#define ARRAY_MAX 1024

/* Divide a number of n 32-bit words, highest first, by 10^9; returns the
 * remainder. */
static uint32_t divide(uint32_t *word, size_t n)
{
	uint64_t rest = 0;

	for (size_t i = 0; i < n; i++) {
		rest = rest << 32 | word[i];
		word[i] = (uint32_t)(rest / 1000000000);
		rest %= 1000000000;
	}
	return (uint32_t)rest;
}

void ofs_leaf_bigint(const uint8_t *le, size_t n, struct ofs_buf *out)
{
	uint32_t word[BIGINT_MAX / 4 + 1] = { 0 }, *high = word;
	/* groups of nine digits, lowest first */
	uint32_t nine[BIGINT_MAX * 8 / 29 + 1];
	size_t nwords = n / 4 + 1, k = 0;
	bool minus = n > 0 && le[n - 1] >= 0x80;
	uint32_t carry = 1;

	if (n > BIGINT_MAX)
		return;
	for (size_t i = 0; i < n; i++)
		word[nwords - 1 - i / 4] |= (uint32_t)le[i] << i % 4 * 8;
	for (size_t i = n; minus && i < nwords * 4; i++)
		word[nwords - 1 - i / 4] |= (uint32_t)0xff << i % 4 * 8;
	for (size_t i = nwords; minus && i-- > 0;) {
		word[i] = ~word[i] + carry;
		carry &= word[i] == 0;
	}
	do {
		while (nwords > 0 && *high == 0) {
			high++;
			nwords--;
		}
		nine[k++] = divide(high, nwords);
	} while (nwords > 1 || (nwords == 1 && *high != 0));
	ofs_buf_printf(out, "%s%" PRIu32, minus ? "-" : "", nine[--k]);
	while (k-- > 0)
		ofs_buf_printf(out, "%09" PRIu32, nine[k]);
}

enum ofs_dtype ofs_leaf_numpy(const struct ofs_pickle *doc, uint32_t node,
    bool *swap)
{
	enum ofs_dtype type;
	struct ofs_str code;

	*swap = false;
	if (!ofs_pk_is(doc, node, "numpy", "dtype"))
		return OFS_DTYPE_NONE;
	code = ofs_pk_str(doc, ofs_pk_item(doc, ofs_pk_args(doc, node), 0));
	type = ofs_dtype_of_npy(code, swap);
	/* a code without a byte order: the state has it */
	if (code.len > 0 && memchr("<>|=", *code.p, 4) == NULL)
		*swap = ofs_pk_str_is(doc,
		    ofs_pk_item(doc, ofs_pk_state(doc, node), 1), ">");
	return type;
}

/* One element; swap: its bytes are in reverse order. */
static void number_text(enum ofs_dtype t, const char *raw, bool swap,
    char text[80])
{
	size_t size = ofs_dtype_size(t);
	uint8_t le[16];

	memcpy(le, raw, size);
	if (swap)
		ofs_swap_bytes(le, size, ofs_dtype_swap(t));
	ofs_dtype_print(t, le, text);
}

/* numpy.core.multiarray.scalar(dtype, bytes) */
static enum ofs_leaf numpy_scalar(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out)
{
	uint32_t args = ofs_pk_args(doc, node);
	struct ofs_str raw = ofs_pk_str(doc, ofs_pk_item(doc, args, 1));
	char text[80];
	bool swap = false;
	enum ofs_dtype t;

	t = ofs_leaf_numpy(doc, ofs_pk_item(doc, args, 0), &swap);
	if (t == OFS_DTYPE_NONE || raw.len != ofs_dtype_size(t))
		return OFS_LEAF_NONE;
	number_text(t, raw.p, swap, text);
	if (out != NULL)
		ofs_buf_puts(out, text);
	return ofs_dtype_swap(t) == ofs_dtype_size(t) ? OFS_LEAF_NUMBER
						      : OFS_LEAF_QUOTED;
}

/* An array of NumPy. */
struct array {
	uint64_t shape[OFS_MAX_DIMS];
	unsigned ndim;
	enum ofs_dtype dtype;
	bool swap, fortran; /* byte order, order of elements */
	struct ofs_str raw;
};

/* numpy.core.multiarray._reconstruct(...), whose state is (1, shape, dtype, is
 * it in Fortran's order, bytes); or numpy.core.numeric._frombuffer(bytes, dtype,
 * shape, order). False: another call, or a longer array. */
static bool array_of(const struct ofs_pickle *doc, uint32_t node,
    struct array *a)
{
	bool buffer =
	    ofs_pk_is(doc, node, "numpy.core.numeric", "_frombuffer") ||
	    ofs_pk_is(doc, node, "numpy._core.numeric", "_frombuffer");
	uint32_t from =
	    buffer ? ofs_pk_args(doc, node) : ofs_pk_state(doc, node);
	uint32_t shape = ofs_pk_item(doc, from, buffer ? 2 : 1);
	uint64_t n = 1;

	if (!buffer &&
	    !ofs_pk_is(doc, node, "numpy.core.multiarray", "_reconstruct") &&
	    !ofs_pk_is(doc, node, "numpy._core.multiarray", "_reconstruct"))
		return false;
	a->dtype = ofs_leaf_numpy(doc, ofs_pk_item(doc, from, buffer ? 1 : 2),
	    &a->swap);
	a->raw = ofs_pk_str(doc, ofs_pk_item(doc, from, buffer ? 0 : 4));
	a->ndim = ofs_pk_len(doc, shape);
	if (a->dtype == OFS_DTYPE_NONE || a->ndim > OFS_MAX_DIMS)
		return false;
	for (unsigned i = 0; i < a->ndim; i++) {
		int64_t size;

		if (!ofs_pk_int(doc, ofs_pk_item(doc, shape, i), &size) ||
		    size < 0 || (uint64_t)size > ARRAY_MAX)
			return false;
		a->shape[i] = (uint64_t)size;
		n *= a->shape[i];
		if (n > ARRAY_MAX)
			return false;
	}
	a->fortran = buffer ? ofs_pk_str_is(doc, ofs_pk_item(doc, from, 3), "F")
			    : ofs_pk_bool(doc, ofs_pk_item(doc, from, 3));
	return a->raw.len == n * ofs_dtype_size(a->dtype);
}

/* The place among the stored elements of element i in C order. */
static uint64_t stored_at(const struct array *a, uint64_t i)
{
	uint64_t at = 0;

	if (!a->fortran)
		return i;
	for (unsigned d = a->ndim; d-- > 0; i /= a->shape[d])
		at = at * a->shape[d] + i % a->shape[d];
	return at;
}

static void put_element(const struct array *a, uint64_t i, struct ofs_buf *out)
{
	size_t size = ofs_dtype_size(a->dtype);
	bool complex = ofs_dtype_swap(a->dtype) != size;
	const char *quote = complex ? "\"" : "";
	char text[80];

	number_text(a->dtype, a->raw.p + stored_at(a, i) * size, a->swap, text);
	ofs_buf_printf(out, "%s%s%s", quote, text, quote);
}

/* Lists in lists: a bracket opens before element i for each dimension that
 * begins there, and closes behind it where one ends. */
static bool array(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out)
{
	uint64_t n = 1;
	struct array a;

	if (!array_of(doc, node, &a))
		return false;
	for (unsigned d = 0; d < a.ndim; d++)
		n *= a.shape[d];
	if (out == NULL)
		return true;
	if (n == 0)
		ofs_buf_puts(out, "[]");
	for (uint64_t i = 0; i < n; i++) {
		uint64_t inner = 1;
		unsigned ends = 0;

		if (i > 0)
			ofs_buf_puts(out, ", ");
		for (unsigned d = a.ndim; d-- > 0;) {
			inner *= a.shape[d];
			if (i % inner == 0)
				ofs_buf_putc(out, '[');
			ends += (i + 1) % inner == 0;
		}
		put_element(&a, i, out);
		while (ends-- > 0)
			ofs_buf_putc(out, ']');
	}
	return true;
}

/* complex(re, im) */
static enum ofs_leaf complex_number(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out)
{
	uint32_t args = ofs_pk_args(doc, node);
	uint32_t re = ofs_pk_item(doc, args, 0), im = ofs_pk_item(doc, args, 1);
	char text[80];

	if (ofs_pk_kind(doc, re) != OFS_PK_FLOAT ||
	    ofs_pk_kind(doc, im) != OFS_PK_FLOAT)
		return OFS_LEAF_NONE;
	if (out == NULL)
		return OFS_LEAF_QUOTED;
	ofs_buf_put(out, text,
	    ofs_print_complex(ofs_pk_float(doc, re), ofs_pk_float(doc, im),
		text));
	return OFS_LEAF_QUOTED;
}

static void put_str(struct ofs_buf *out, struct ofs_str s)
{
	ofs_buf_put(out, s.p, s.len);
}

/* torch.device('cuda', 0), torch.device('cpu') */
static enum ofs_leaf device(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out)
{
	uint32_t args = ofs_pk_args(doc, node);
	uint32_t type = ofs_pk_item(doc, args, 0);
	int64_t index;

	if (ofs_pk_kind(doc, type) != OFS_PK_STR)
		return OFS_LEAF_NONE;
	if (out == NULL)
		return OFS_LEAF_TEXT;
	put_str(out, ofs_pk_str(doc, type));
	if (ofs_pk_int(doc, ofs_pk_item(doc, args, 1), &index))
		ofs_buf_printf(out, ":%" PRId64, index);
	return OFS_LEAF_TEXT;
}

/* _get_layout('torch.strided') */
static enum ofs_leaf layout(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out)
{
	uint32_t name = ofs_pk_item(doc, ofs_pk_args(doc, node), 0);

	if (ofs_pk_kind(doc, name) != OFS_PK_STR)
		return OFS_LEAF_NONE;
	if (out != NULL)
		put_str(out, ofs_pk_str(doc, name));
	return OFS_LEAF_TEXT;
}

/* PosixPath('/', 'a', 'b'): one argument a component. */
static enum ofs_leaf path(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out)
{
	uint32_t args = ofs_pk_args(doc, node), n = ofs_pk_len(doc, args);
	struct ofs_str before = { "/", 1 }, s;

	for (uint32_t i = 0; i < n; i++)
		if (ofs_pk_kind(doc, ofs_pk_item(doc, args, i)) != OFS_PK_STR)
			return OFS_LEAF_NONE;
	for (uint32_t i = 0; out != NULL && i < n; i++) {
		s = ofs_pk_str(doc, ofs_pk_item(doc, args, i));
		if (before.len > 0 && before.p[before.len - 1] != '/')
			ofs_buf_putc(out, '/');
		put_str(out, s);
		before = s;
	}
	return OFS_LEAF_TEXT;
}

static enum ofs_leaf known_call(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out)
{
	struct ofs_str m, n;

	ofs_pk_class(doc, node, &m, &n);
	if (ofs_str_is(n, "scalar") &&
	    (ofs_str_is(m, "numpy.core.multiarray") ||
		ofs_str_is(m, "numpy._core.multiarray")))
		return numpy_scalar(doc, node, out);
	if (ofs_str_is(n, "complex") &&
	    (ofs_str_is(m, "builtins") || ofs_str_is(m, "__builtin__")))
		return complex_number(doc, node, out);
	if (ofs_str_is(n, "device") && ofs_str_is(m, "torch"))
		return device(doc, node, out);
	if (ofs_str_is(n, "_get_layout") &&
	    ofs_str_is(m, "torch.serialization"))
		return layout(doc, node, out);
	if (ofs_str_begins(m, "pathlib"))
		return path(doc, node, out);
	if (ofs_leaf_time(doc, node, out) || ofs_leaf_range(doc, node, out))
		return OFS_LEAF_NAMED;
	return OFS_LEAF_NONE;
}

/* torch.float32: a name that is a value. */
static enum ofs_leaf known_name(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out)
{
	enum ofs_dtype t = ofs_torch_dtype(doc, node);

	if (t == OFS_DTYPE_NONE)
		return OFS_LEAF_NONE;
	if (out != NULL)
		ofs_buf_printf(out, "torch.%s", ofs_dtype_name(t));
	return OFS_LEAF_TEXT;
}

static void put_digest(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_text_budget *budget, struct ofs_buf *out)
{
	uint64_t digest;

	if (ofs_text_digest(doc, node, budget, &digest))
		ofs_buf_printf(out, ", \"xxh64\": \"%016" PRIx64 "\"", digest);
	ofs_buf_putc(out, '}');
}

/* Read the element of a tensor without dimensions from its storage. */
static bool read_element(const struct ofs_pickle *doc,
    const struct ofs_torch_tensor *t, struct ofs_text_budget *budget,
    uint8_t element[OFS_PK_ELEMENT])
{
	const struct ofs_text_storages *s =
	    budget == NULL ? NULL : budget->storages;
	uint64_t size = ofs_dtype_size(t->dtype), off;
	int ret;

	if (s == NULL || s->read == NULL || t->ndim > 0 || t->fix != 0 ||
	    t->quantized || size == 0 || size > OFS_PK_ELEMENT ||
	    !ofs_mul_u64(t->offset, size, &off))
		return false;
	ret = s->read(s->ctx, doc, t->storage, off, size, element, budget->err);
	budget->failed |= ret == -1;
	return ret == 1;
}

/* In a document that has no elements (ofs_pk_element), the kind is the same for
 * a number. */
static enum ofs_leaf put_number(const struct ofs_torch_tensor *t,
    const uint8_t *element, struct ofs_buf *out)
{
	const char *quote = ofs_dtype_is_complex(t->dtype) ? "\"" : "";
	char text[80];

	ofs_dtype_print(t->dtype, element, text);
	ofs_buf_printf(out, "%s%s%s", quote, text, quote);
	return OFS_LEAF_TENSOR;
}

static enum ofs_leaf tensor(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_text_budget *budget, struct ofs_buf *out)
{
	const uint8_t *element = ofs_pk_element(doc, node);
	uint8_t own[OFS_PK_ELEMENT];
	struct ofs_torch_tensor t;
	char text[80];

	if (ofs_torch_tensor(doc, node, &t, NULL) != 1)
		return OFS_LEAF_NONE;
	if (element != NULL) {
		ofs_dtype_print(t.dtype, element, text);
		if (out != NULL)
			ofs_buf_puts(out, text);
		return ofs_dtype_is_complex(t.dtype) ? OFS_LEAF_QUOTED
						     : OFS_LEAF_NUMBER;
	}
	if (out == NULL)
		return OFS_LEAF_TENSOR;
	if (read_element(doc, &t, budget, own))
		return put_number(&t, own, out);
	ofs_buf_printf(out, "{\"__tensor__\": {\"dtype\": \"%s\", \"shape\": [",
	    ofs_dtype_name((enum ofs_dtype)t.dtype));
	ofs_buf_numbers(out, t.shape, t.ndim, ", ");
	ofs_buf_puts(out, "]}");
	put_digest(doc, node, budget, out);
	return OFS_LEAF_TENSOR;
}

/* Names alone do not tell two objects of a class apart. */
static void opaque(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_text_budget *budget, struct ofs_buf *out)
{
	bool named = ofs_pk_kind(doc, node) == OFS_PK_GLOBAL ||
	    ofs_pk_is_cycle(doc, node);
	struct ofs_str m, n;

	ofs_buf_puts(out, "{\"__opaque__\": \"");
	if (ofs_pk_attribute(doc, node, &m, &n))
		named = true;
	else
		ofs_torch_class(doc, node, &m, &n);
	if (n.len == 0) {
		ofs_buf_puts(out, ofs_pk_kind_name(doc, node));
	} else {
		ofs_buf_json(out, m.p, m.len);
		ofs_buf_putc(out, '.');
		ofs_buf_json(out, n.p, n.len);
	}
	ofs_buf_putc(out, '"');
	if (named)
		ofs_buf_putc(out, '}');
	else
		put_digest(doc, node, budget, out);
}

enum ofs_leaf ofs_leaf(const struct ofs_pickle *doc, uint32_t node)
{
	return ofs_leaf_text(doc, node, NULL, NULL);
}

enum ofs_leaf ofs_leaf_text(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_text_budget *budget, struct ofs_buf *out)
{
	enum ofs_pk_kind kind = ofs_pk_kind(doc, node);
	enum ofs_leaf leaf = OFS_LEAF_NONE;

	if (kind == OFS_PK_GLOBAL)
		leaf = known_name(doc, node, out);
	else if (kind == OFS_PK_OBJECT)
		leaf = known_call(doc, node, out);
	else if (kind != OFS_PK_PERSID)
		return OFS_LEAF_NONE;
	if (leaf != OFS_LEAF_NONE)
		return leaf;
	if (kind == OFS_PK_OBJECT)
		leaf = tensor(doc, node, budget, out);
	if (leaf != OFS_LEAF_NONE)
		return leaf;
	if (kind == OFS_PK_OBJECT && array(doc, node, out))
		return OFS_LEAF_OPAQUE;
	if (out != NULL)
		opaque(doc, node, budget, out);
	return OFS_LEAF_OPAQUE;
}
