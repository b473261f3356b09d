/* torch.c - tensors as torch.save pickles them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "archive/torch.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "archive/torch_storage.h"
#include "base/checked.h"
#include "base/str.h"

/* The most wrappers (parameter of subclass of ...) around a tensor. */
#define MAX_WRAP 16

/* A call of a rebuild function, by REDUCE or by _rebuild_from_type_v2. */
struct call {
	struct ofs_str name;
	const struct ofs_pickle *doc;
	uint32_t args; /* a tuple */
	uint32_t n;
};

static int malformed(const struct call *c, const char *what,
    struct optimfs_error *err)
{
	return optimfs_fail(err, EUCLEAN, "OFS534 %.*s: %s", (int)c->name.len,
	    c->name.p, what);
}

static uint32_t arg(const struct call *c, uint32_t i)
{
	return i < c->n ? ofs_pk_item(c->doc, c->args, i) : OFS_NONE;
}

/* Does c call _rebuild_from_type_v2 with (function, type, arguments, ...)? */
static bool is_typed(const struct call *c, struct ofs_str module)
{
	return (ofs_str_is(module, "torch._tensor") ||
		   ofs_str_is(module, "torch.tensor")) &&
	    (ofs_str_is(c->name, "_rebuild_from_type_v2") ||
		ofs_str_is(c->name, "_rebuild_from_type")) &&
	    ofs_pk_kind(c->doc, arg(c, 0)) == OFS_PK_GLOBAL &&
	    ofs_pk_kind(c->doc, arg(c, 2)) == OFS_PK_TUPLE;
}

/* If a call of a named function made node, that call. */
static bool get_call(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_str *module, struct call *c)
{
	uint32_t fn;

	if (ofs_pk_kind(doc, node) != OFS_PK_OBJECT)
		return false;
	fn = ofs_pk_callable(doc, node);
	c->args = ofs_pk_args(doc, node);
	if (ofs_pk_kind(doc, fn) != OFS_PK_GLOBAL ||
	    ofs_pk_kind(doc, c->args) != OFS_PK_TUPLE)
		return false;
	ofs_pk_class(doc, fn, module, &c->name);
	c->doc = doc;
	c->n = ofs_pk_len(doc, c->args);
	return true;
}

/* As above, for the rebuild function of a tensor, which may be called by
 * _rebuild_from_type_v2. */
static bool get_rebuild(const struct ofs_pickle *doc, uint32_t node,
    struct call *c)
{
	struct ofs_str module;

	if (!get_call(doc, node, &module, c))
		return false;
	if (is_typed(c, module)) {
		ofs_pk_class(doc, arg(c, 0), &module, &c->name);
		c->args = arg(c, 2);
		c->n = ofs_pk_len(doc, c->args);
	}
	return ofs_str_is(module, "torch._utils") &&
	    c->name.len > strlen("_rebuild_") &&
	    memcmp(c->name.p, "_rebuild_", strlen("_rebuild_")) == 0;
}

void ofs_torch_class(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_str *module, struct ofs_str *name)
{
	struct call c;

	if (get_call(doc, node, module, &c) && is_typed(&c, *module) &&
	    ofs_pk_kind(doc, arg(&c, 1)) == OFS_PK_GLOBAL)
		node = arg(&c, 1);
	ofs_pk_class(doc, node, module, name);
}

/* Unwrap calls that only wrap a tensor. */
static bool unwrap(const struct ofs_pickle *doc, uint32_t *node, struct call *c)
{
	static const char *const wrap[] = { "_rebuild_parameter",
		"_rebuild_parameter_with_state",
		"_rebuild_device_tensor_from_cpu_tensor" };

	for (int depth = 0; depth < MAX_WRAP; depth++) {
		size_t i = 0;

		if (!get_rebuild(doc, *node, c))
			return false;
		while (i < 3 && !ofs_str_is(c->name, wrap[i]))
			i++;
		if (i == 3 || arg(c, 0) == OFS_NONE)
			return true;
		*node = arg(c, 0);
	}
	return false;
}

enum ofs_dtype ofs_torch_dtype(const struct ofs_pickle *doc, uint32_t node)
{
	struct ofs_str module, name;

	if (ofs_pk_kind(doc, node) != OFS_PK_GLOBAL)
		return OFS_DTYPE_NONE;
	ofs_pk_class(doc, node, &module, &name);
	if (!ofs_str_is(module, "torch"))
		return OFS_DTYPE_NONE;
	return ofs_dtype_of_name(name.p, name.len);
}

static void set_storage(struct ofs_torch_tensor *t, uint32_t node,
    const struct ofs_torch_source *s)
{
	t->storage = node;
	t->typed = s->dtype != OFS_DTYPE_NONE;
	t->key = s->key;
	t->storage_bytes = s->bytes;
}

static int get_shape(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_tensor *t, struct optimfs_error *err)
{
	uint32_t n;

	if (ofs_pk_kind(doc, node) != OFS_PK_TUPLE)
		return ofs_pk_unexpected(doc, node, err, "OFS418", NULL,
		    "size");
	n = ofs_pk_len(doc, node);
	if (n > OFS_MAX_DIMS)
		return optimfs_fail(err, EUCLEAN,
		    "OFS534 tensor of %" PRIu32 " dimensions", n);
	for (uint32_t i = 0; i < n; i++)
		if (ofs_torch_size(doc, ofs_pk_item(doc, node, i), "size",
			&t->shape[i], err) == -1)
			return -1;
	t->ndim = (uint8_t)n;
	return 0;
}

static int get_strides(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_tensor *t, struct optimfs_error *err)
{
	if (ofs_pk_kind(doc, node) != OFS_PK_TUPLE ||
	    ofs_pk_len(doc, node) != t->ndim)
		return optimfs_fail(err, EUCLEAN,
		    "OFS529 strides are not one for each of %u dimensions",
		    t->ndim);
	for (uint32_t i = 0; i < t->ndim; i++) {
		uint32_t item = ofs_pk_item(doc, node, i);

		if (ofs_pk_int(doc, item, &t->stride[i]) && t->stride[i] >= 0)
			continue;
		return optimfs_fail(err, EUCLEAN,
		    "OFS529 stride of dimension %" PRIu32 " is %s", i,
		    ofs_pk_kind(doc, item) == OFS_PK_INT
			? "negative"
			: ofs_pk_kind_name(doc, item));
	}
	return 0;
}

static int get_flags(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_tensor *t, struct optimfs_error *err)
{
	uint32_t conj, neg;
	bool complex = ofs_dtype_is_complex(t->dtype);

	if (ofs_pk_kind(doc, node) != OFS_PK_DICT)
		return 0;
	conj = ofs_pk_get(doc, node, "conj");
	neg = ofs_pk_get(doc, node, "neg");
	if (ofs_pk_kind(doc, conj) == OFS_PK_BOOL && ofs_pk_bool(doc, conj))
		t->fix |= OFS_FIX_CONJ;
	if (ofs_pk_kind(doc, neg) == OFS_PK_BOOL && ofs_pk_bool(doc, neg))
		t->fix |= OFS_FIX_NEG;
	if ((t->fix & OFS_FIX_CONJ) != 0 && !complex)
		return optimfs_fail(err, EUCLEAN,
		    "OFS534 conjugate of a %s tensor",
		    ofs_dtype_name(t->dtype));
	return 0;
}

static int no_elements(struct optimfs_error *err)
{
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS538 tensor on the meta device: it has no elements");
}

/* storage, offset, size and stride are the first arguments for every tensor
 * with a storage. With dtype NONE the type is that of the storage. */
static int get_strided(const struct call *c, enum ofs_dtype dtype,
    struct ofs_torch_tensor *t, struct optimfs_error *err)
{
	struct ofs_torch_source s;
	uint64_t off;

	if (c->n < 4)
		return malformed(c, "fewer than four arguments", err);
	if (ofs_torch_storage_of(c->doc, arg(c, 0), &s, err) == -1)
		return -1;
	if (dtype == OFS_DTYPE_NONE)
		dtype = s.dtype;
	if (dtype == OFS_DTYPE_NONE)
		return malformed(c, "neither it nor its storage has a dtype",
		    err);
	set_storage(t, arg(c, 0), &s);
	if (get_shape(c->doc, arg(c, 2), t, err) == -1)
		return -1;
	t->dtype = (uint8_t)dtype;
	if (ofs_torch_size(c->doc, arg(c, 1), "storage offset", &off, err) ==
	    -1)
		return -1;
	if (!ofs_add_u64(off, s.offset, &t->offset))
		return malformed(c, "its storage offset overflows", err);
	if (get_strides(c->doc, arg(c, 3), t, err) == -1)
		return -1;
	if (s.meta)
		return no_elements(err);
	return 1;
}

/* (storage, offset, size, stride, requires_grad, hooks, dtype, flags) */
static int get_v3(const struct call *c, struct ofs_torch_tensor *t,
    struct optimfs_error *err)
{
	enum ofs_dtype dtype = ofs_torch_dtype(c->doc, arg(c, 6));

	if (dtype == OFS_DTYPE_NONE)
		return malformed(c, "its dtype is unknown", err);
	if (get_strided(c, dtype, t, err) == -1)
		return -1;
	return get_flags(c->doc, arg(c, 7), t, err) == -1 ? -1 : 1;
}

static int get_v2(const struct call *c, struct ofs_torch_tensor *t,
    struct optimfs_error *err)
{
	if (get_strided(c, OFS_DTYPE_NONE, t, err) == -1)
		return -1;
	return get_flags(c->doc, arg(c, 6), t, err) == -1 ? -1 : 1;
}

/* (..., stride, (scheme, scale, zero point, ...), ...): with a single scale,
 * the tensor is shown as the stored integers. */
static int get_quantized(const struct call *c, struct ofs_torch_tensor *t,
    struct optimfs_error *err)
{
	uint32_t how = arg(c, 4), scheme = ofs_pk_item(c->doc, how, 0);

	if (get_strided(c, OFS_DTYPE_NONE, t, err) == -1)
		return -1;
	t->quantized = true;
	if (ofs_pk_kind(c->doc, scheme) != OFS_PK_GLOBAL ||
	    !ofs_pk_is(c->doc, scheme, "torch", "per_tensor_affine"))
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS533 tensor quantized by channel");
	if (ofs_pk_kind(c->doc, ofs_pk_item(c->doc, how, 1)) != OFS_PK_FLOAT ||
	    !ofs_pk_int(c->doc, ofs_pk_item(c->doc, how, 2), &t->zero_point))
		return malformed(c, "its scale or zero point is not a number",
		    err);
	t->scale = ofs_pk_float(c->doc, ofs_pk_item(c->doc, how, 1));
	return 1;
}

/* (dtype, size, stride, requires_grad) */
static int get_meta(const struct call *c, struct ofs_torch_tensor *t,
    struct optimfs_error *err)
{
	if (get_shape(c->doc, arg(c, 1), t, err) == -1)
		return -1;
	t->dtype = (uint8_t)ofs_torch_dtype(c->doc, arg(c, 0));
	return no_elements(err);
}

/* (layout, (indices, values, size, ...)) or (layout, (crow, col, values,
 * size)): size and the dtype of values are known. */
static int get_sparse(const struct call *c, struct ofs_torch_tensor *t,
    struct optimfs_error *err)
{
	struct ofs_torch_tensor values = { 0 };
	uint32_t data = arg(c, 1), size = OFS_NONE, i = 0, inner;
	struct call v;

	if (ofs_pk_kind(c->doc, data) == OFS_PK_TUPLE)
		for (; i < ofs_pk_len(c->doc, data) && size == OFS_NONE; i++)
			if (ofs_pk_kind(c->doc, ofs_pk_item(c->doc, data, i)) ==
			    OFS_PK_TUPLE)
				size = ofs_pk_item(c->doc, data, i);
	if (size == OFS_NONE || i < 3 || get_shape(c->doc, size, t, err) == -1)
		return optimfs_fail(err, EOPNOTSUPP, "OFS533 sparse tensor");
	inner = ofs_pk_item(c->doc, data, i - 2);
	if (unwrap(c->doc, &inner, &v) &&
	    ofs_str_is(v.name, "_rebuild_tensor_v2"))
		get_v2(&v, &values, NULL);
	t->dtype = values.dtype;
	return optimfs_fail(err, EOPNOTSUPP, "OFS533 sparse tensor");
}

/* (class, dtype, size, ...): the elements are in attributes that only the class
 * understands. */
static int get_subclass(const struct call *c, struct ofs_torch_tensor *t,
    struct optimfs_error *err)
{
	struct ofs_str module = { "", 0 }, name = { "", 0 };

	(void)t;
	if (ofs_pk_kind(c->doc, arg(c, 0)) == OFS_PK_GLOBAL)
		ofs_pk_class(c->doc, arg(c, 0), &module, &name);
	return optimfs_fail(err, EOPNOTSUPP, "OFS533 tensor of class %.*s.%.*s",
	    OFS_STR_ARGS(module, 60), OFS_STR_ARGS(name, 60));
}

/* A storage without a tensor. */
static int get_bare(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_tensor *t, struct optimfs_error *err)
{
	struct ofs_torch_source s;

	if (ofs_torch_storage_of(doc, node, &s, err) == -1)
		return -1;
	set_storage(t, node, &s);
	t->dtype = (uint8_t)(t->typed ? s.dtype : OFS_UINT8);
	t->ndim = 1;
	t->offset = s.offset;
	t->shape[0] = s.bytes / ofs_dtype_size(t->dtype);
	t->stride[0] = 1;
	if (s.offset > t->shape[0])
		return optimfs_fail(err, EUCLEAN,
		    "OFS433 persistent id: its view begins past its end");
	t->shape[0] -= s.offset;
	return 1;
}

int ofs_torch_tensor(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_tensor *t, struct optimfs_error *err)
{
	static const struct {
		const char *name;
		int (*get)(const struct call *c, struct ofs_torch_tensor *t,
		    struct optimfs_error *err);
	} rebuild[] = {
		{ "_rebuild_tensor", get_v2 }, /* without flags */
		{ "_rebuild_tensor_v2", get_v2 },
		{ "_rebuild_tensor_v3", get_v3 },
		{ "_rebuild_qtensor", get_quantized },
		{ "_rebuild_sparse_tensor", get_sparse },
		{ "_rebuild_sparse_csr_tensor", get_sparse },
		{ "_rebuild_meta_tensor_no_storage", get_meta },
		{ "_rebuild_wrapper_subclass", get_subclass },
	};
	struct call c;

	memset(t, 0, sizeof(*t));
	if (ofs_pk_kind(doc, node) == OFS_PK_PERSID)
		return get_bare(doc, node, t, err);
	if (!unwrap(doc, &node, &c))
		return 0;
	for (size_t i = 0; i < sizeof(rebuild) / sizeof(rebuild[0]); i++)
		if (ofs_str_is(c.name, rebuild[i].name))
			return rebuild[i].get(&c, t, err);
	return optimfs_fail(err, EOPNOTSUPP, "OFS533 tensor made by %.*s",
	    OFS_STR_ARGS(c.name, 100));
}

/* torchao: _rebuild_from_type_v2(_rebuild_wrapper_subclass, OptimState8bit, (class,
 * dtype, size, ...), attributes). */

static bool get_part(const struct ofs_pickle *doc, uint32_t state,
    const char *name, struct ofs_torch_tensor *t)
{
	return ofs_torch_tensor(doc, ofs_pk_get(doc, state, name), t, NULL) ==
	    1 &&
	    ofs_torch_is_plain(t);
}

static uint64_t length(const struct ofs_torch_tensor *t)
{
	uint64_t n;

	return ofs_numel(t->shape, t->ndim, &n) ? n : 0;
}

/* Do the numbers of the parts agree with the class? */
static bool fits(struct ofs_torch_packed *p, struct ofs_str class)
{
	uint64_t codes = length(&p->codes), scales = length(&p->scale);
	uint64_t values = p->has_table ? length(&p->table) : 0;

	p->nibbles = ofs_str_is(class, "OptimState4bit");
	if (!ofs_numel(p->shape, p->ndim, &p->numel) || p->numel == 0 ||
	    scales == 0 || p->numel % scales != 0 ||
	    p->scale.dtype != OFS_FLOAT32 ||
	    codes != (p->nibbles ? p->numel / 2 + p->numel % 2 : p->numel))
		return false;
	p->block = p->numel / scales;
	if (ofs_str_is(class, "OptimStateFp8"))
		return p->codes.dtype == OFS_FLOAT8_E4M3FN && !p->has_table;
	return p->codes.dtype == OFS_UINT8 && p->has_table &&
	    p->table.dtype == OFS_FLOAT32 &&
	    values == (p->nibbles ? 16 : 256) &&
	    (p->nibbles || ofs_str_is(class, "OptimState8bit"));
}

bool ofs_torch_packed(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_torch_packed *p)
{
	struct ofs_torch_tensor shape = { 0 };
	struct ofs_str module, class;
	uint32_t state;
	struct call c;

	memset(p, 0, sizeof(*p));
	if (!get_call(doc, node, &module, &c) || !is_typed(&c, module))
		return false;
	ofs_pk_class(doc, arg(&c, 0), &module, &class);
	if (!ofs_str_is(module, "torch._utils") ||
	    !ofs_str_is(class, "_rebuild_wrapper_subclass") ||
	    ofs_pk_kind(doc, arg(&c, 1)) != OFS_PK_GLOBAL)
		return false;
	ofs_pk_class(doc, arg(&c, 1), &module, &class);
	state = arg(&c, 3);
	if (!ofs_str_begins(module, "torchao.") ||
	    ofs_pk_kind(doc, state) != OFS_PK_DICT ||
	    get_shape(doc, ofs_pk_item(doc, arg(&c, 2), 2), &shape, NULL) == -1)
		return false;
	p->ndim = shape.ndim;
	memcpy(p->shape, shape.shape, sizeof(p->shape));
	p->has_table = get_part(doc, state, "qmap", &p->table);
	return get_part(doc, state, "codes", &p->codes) &&
	    get_part(doc, state, "scale", &p->scale) && fits(p, class);
}
