/* global.c - the names a pickle refers to, and which are harmless */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <errno.h>

#include "base/buf.h"
#include "base/str.h"
#include "pickle/pickle_impl.h"

#define NAME_LIMIT  512
#define GLOBALS_MAX 65536

/* Globals whose REDUCE makes more than an OBJECT. */
static const struct {
	const char *module, *name;
	enum pk_special special;
} specials[] = {
	{ "torch", "Size", PK_TORCH_SIZE },
	{ "collections", "OrderedDict", PK_MAPPING },
	{ "collections", "defaultdict", PK_MAPPING },
	{ "collections", "Counter", PK_MAPPING },
	{ "builtins", "set", PK_SET },
	{ "__builtin__", "set", PK_SET },
	{ "builtins", "frozenset", PK_FROZENSET },
	{ "__builtin__", "frozenset", PK_FROZENSET },
	{ "builtins", "bytes", PK_TO_BYTES },
	{ "__builtin__", "bytes", PK_TO_BYTES },
	{ "builtins", "bytearray", PK_TO_BYTEARRAY },
	{ "__builtin__", "bytearray", PK_TO_BYTEARRAY },
	{ "_codecs", "encode", PK_ENCODE },
	{ "builtins", "getattr", PK_GETATTR_FN },
	{ "__builtin__", "getattr", PK_GETATTR_FN },
};

/* The allow-list (docs/formats/pickle.md). A module that ends in "*" matches
 * all with that prefix. Names are separated by spaces; "@" is any name that
 * looks like a class or an enum member, "*X" any that ends in X. A global in
 * the list causes no warning; it is not called either. */
static const struct {
	const char *modules, *names;
} allowed[] = {
	{ "builtins",
	    "set frozenset list dict tuple int float bool str bytes"
	    " bytearray complex slice range object getattr" },
	{ "__builtin__",
	    "set frozenset list dict tuple int long float bool str unicode"
	    " bytes bytearray complex slice xrange object getattr" },
	{ "collections", "OrderedDict defaultdict deque Counter" },
	{ "_codecs", "encode" },
	{ "argparse", "Namespace" },
	{ "types", "SimpleNamespace" },
	{ "datetime", "datetime date time timedelta timezone" },
	{ "pathlib", "@" },
	{ "pathlib._local", "@" },
	{ "numpy",
	    "dtype ndarray float16 float32 float64 int8 int16 int32"
	    " int64 uint8 uint16 uint32 uint64 bool_ str_" },
	{ "numpy.core.multiarray", "scalar _reconstruct" },
	{ "numpy._core.multiarray", "scalar _reconstruct" },
	{ "numpy.core.numeric", "_frombuffer" },
	{ "numpy._core.numeric", "_frombuffer" },
	{ "numpy.dtypes", "*DType" },
	{ "torch",
	    "Size device Tensor *Storage *Tensor float64 double float32 float"
	    " float16 half bfloat16 int64 long int32 int int16 short int8"
	    " uint64 uint32 uint16 uint8 bool complex128 complex64 complex32"
	    " bcomplex32"
	    " float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz"
	    " float8_e8m0fnu float4_e2m1fn_x2 bits8 bits16 bits1x8 bits2x4"
	    " bits4x2 qint8 quint8 qint32 quint4x2 quint2x4 strided"
	    " contiguous_format preserve_format channels_last"
	    " channels_last_3d per_tensor_affine per_channel_affine"
	    " per_tensor_symmetric per_channel_symmetric"
	    " per_channel_affine_float_qparams" },
	{ "torch.cuda", "*Storage *Tensor" },
	{ "torch.storage",
	    "UntypedStorage TypedStorage _UntypedStorage"
	    " _TypedStorage" },
	{ "torch.nn.parameter",
	    "Parameter Buffer UninitializedParameter"
	    " UninitializedBuffer" },
	{ "torch._utils",
	    "_rebuild_tensor _rebuild_tensor_v2 _rebuild_tensor_v3"
	    " _rebuild_parameter _rebuild_parameter_with_state"
	    " _rebuild_sparse_tensor _rebuild_sparse_csr_tensor"
	    " _rebuild_qtensor _rebuild_meta_tensor_no_storage"
	    " _rebuild_nested_tensor _rebuild_device_tensor_from_numpy"
	    " _rebuild_device_tensor_from_cpu_tensor"
	    " _rebuild_wrapper_subclass" },
	{ "torch._tensor", "_rebuild_from_type _rebuild_from_type_v2" },
	{ "torch.serialization", "_get_layout" },
	{ "torch.distributed.checkpoint.metadata", "@" },
	{ "torch.distributed.checkpoint.filesystem", "@" },
	{ "torch.distributed.checkpoint.planner", "@" },
	{ "torch.distributed._shard.*", "@" },
	{ "torch.distributed.tensor*", "@" },
	{ "torch.distributed._tensor*", "@" },
	{ "torch.distributed.device_mesh", "@" },
	{ "torch.distributed._mesh_layout", "@" },
	{ "torch.distributed.remote_device", "_remote_device" },
	{ "torch.distributed.fsdp.flat_param", "_ShardParamInfo" },
	{ "torch.distributed.fsdp._flat_param", "_ShardParamInfo" },
	{ "olmo_core.distributed.checkpoint.filesystem", "_StorageInfo" },
	{ "megatron.core.dist_checkpointing.strategies.torch",
	    "MCoreMetadata MCoreSavePlan" },
	{ "deepspeed.utils.tensor_fragment", "fragment_address" },
	{ "deepspeed.runtime.fp16.loss_scaler",
	    "LossScaler DynamicLossScaler" },
	{ "deepspeed.runtime.zero.config",
	    "ZeroStageEnum ZeroStageEnum.disabled"
	    " ZeroStageEnum.optimizer_states ZeroStageEnum.gradients"
	    " ZeroStageEnum.weights" },
	{ "deepspeed.checkpoint.universal_checkpoint", "SubparamShape" },
};

/* Does every part between dots begin with a capital letter, after underscores?
 * "ShardedTensor.ProcessGroupState", "_MeshLayout", "Kind.MEMBER". */
static bool class_like(struct ofs_str name)
{
	bool start = true;

	for (uint32_t i = 0; i < name.len; i++) {
		unsigned char c = (unsigned char)name.p[i];

		if (start && c == '_')
			continue;
		if (start && !isupper(c))
			return false;
		start = c == '.';
	}
	return !start;
}

static bool name_matches(const char *word, size_t n, struct ofs_str name)
{
	if (n == 1 && *word == '@')
		return class_like(name);
	if (*word != '*')
		return name.len == n && memcmp(name.p, word, n) == 0;
	word++;
	n--;
	return name.len > n && memcmp(name.p + name.len - n, word, n) == 0 &&
	    memchr(name.p, '.', name.len) == NULL;
}

static bool module_matches(const char *pattern, struct ofs_str module)
{
	size_t n = strlen(pattern);

	if (pattern[n - 1] != '*')
		return ofs_str_is(module, pattern);
	return module.len >= n - 1 && memcmp(module.p, pattern, n - 1) == 0;
}

static bool names_match(const char *names, struct ofs_str name)
{
	while (*names != '\0') {
		size_t n = strcspn(names, " ");

		if (name_matches(names, n, name))
			return true;
		names += n + strspn(names + n, " ");
	}
	return false;
}

bool ofs_pk_global_allowed(const struct ofs_pk_global *g)
{
	for (size_t i = 0; i < sizeof(allowed) / sizeof(*allowed); i++)
		if (module_matches(allowed[i].modules, g->module) &&
		    names_match(allowed[i].names, g->name))
			return true;
	return false;
}

static enum pk_special special_of(struct ofs_str module, struct ofs_str name)
{
	for (size_t i = 0; i < sizeof(specials) / sizeof(*specials); i++)
		if (ofs_str_is(module, specials[i].module) &&
		    ofs_str_is(name, specials[i].name))
			return specials[i].special;
	return PK_OPAQUE;
}

/* Is it letters, digits and underscores, in parts between dots? Modules named
 * after repositories may have dashes and begin with digits. */
static bool well_formed(const char *s, size_t n, bool dots, bool module)
{
	bool start = true;

	if (n == 0 || n > NAME_LIMIT)
		return false;
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c == '.') {
			if (!dots || start)
				return false;
			start = true;
			continue;
		}
		if (c >= 0x80 ||
		    !(isalnum(c) || c == '_' || (module && c == '-')))
			return false;
		if (start && !module && isdigit(c))
			return false;
		start = false;
	}
	return !start;
}

static uint32_t bad_name(struct pk_parser *p, const char *module,
    size_t nmodule, const char *name, size_t nname)
{
	struct ofs_buf b = { 0 };

	ofs_buf_plain(&b, module, nmodule < 80 ? nmodule : 80);
	ofs_buf_puts(&b, " ");
	ofs_buf_plain(&b, name, nname < 80 ? nname : 80);
	ofs_buf_putc(&b, 0);
	pk_fail(p, EUCLEAN, "OFS422", "bad global name '%s'",
	    b.bad ? "?" : (const char *)b.data);
	ofs_buf_fini(&b);
	return OFS_NONE;
}

/* The hash is of the names apart, because "a.b" "c" is not "a" "b.c". */
static uint32_t hash_of(struct ofs_str module, struct ofs_str name)
{
	uint32_t h[2] = { ofs_map_hash(module.p, module.len),
		ofs_map_hash(name.p, name.len) };

	return ofs_map_hash(h, sizeof(h));
}

static bool same(const void *ctx, uint32_t index, const void *key, size_t n)
{
	const struct ofs_pk_global *g =
	    &((const struct ofs_pickle *)ctx)->global[index];
	const struct ofs_str *k = key;

	(void)n;
	return ofs_str_equal(g->module, k[0]) && ofs_str_equal(g->name, k[1]);
}

const char *pk_dotted(struct pk_parser *p, struct ofs_str module,
    struct ofs_str name)
{
	size_t n = (size_t)module.len + name.len + 2;
	char *full;

	if (pk_charge(p, n) == -1)
		return NULL;
	full = ofs_arena_alloc(&p->doc->arena, n);
	if (full == NULL) {
		pk_no_memory(p);
		return NULL;
	}
	memcpy(full, module.p, module.len);
	full[module.len] = '.';
	memcpy(full + module.len + 1, name.p, name.len);
	full[n - 1] = '\0';
	return full;
}

static uint32_t add_global(struct pk_parser *p, uint32_t hash,
    struct ofs_str module, struct ofs_str name)
{
	struct ofs_pickle *doc = p->doc;
	struct pk_node x = { .kind = OFS_PK_GLOBAL,
		.v = { (uint32_t)doc->nglobals } };
	size_t i = doc->nglobals;

	if (i >= GLOBALS_MAX) {
		pk_fail(p, E2BIG, "OFS439", "more than %d globals",
		    GLOBALS_MAX);
		return OFS_NONE;
	}
	if (i == doc->cap_globals &&
	    pk_grow(p, &doc->global, &doc->cap_globals, i + 1,
		sizeof(*doc->global)) == -1)
		return OFS_NONE;
	if (i == doc->cap_ginfo &&
	    pk_grow(p, &doc->ginfo, &doc->cap_ginfo, i + 1,
		sizeof(*doc->ginfo)) == -1)
		return OFS_NONE;
	doc->ginfo[i].full = pk_dotted(p, module, name);
	doc->ginfo[i].special = (uint8_t)special_of(module, name);
	doc->ginfo[i].node = pk_node(p, x);
	if (doc->ginfo[i].full == NULL || doc->ginfo[i].node == OFS_NONE)
		return OFS_NONE;
	/* not the input's bytes, which may be freed */
	module.p = doc->ginfo[i].full;
	name.p = module.p + module.len + 1;
	doc->global[i] = (struct ofs_pk_global){ module, name, p->at, false };
	if (!ofs_map_add(&doc->by_name, hash, (uint32_t)i)) {
		pk_no_memory(p);
		return OFS_NONE;
	}
	doc->nglobals++;
	return doc->ginfo[i].node;
}

uint32_t pk_global(struct pk_parser *p, const char *module, size_t nmodule,
    const char *name, size_t nname)
{
	struct ofs_str key[2] = { { module, (uint32_t)nmodule },
		{ name, (uint32_t)nname } };
	uint32_t hash, i;

	if (!well_formed(module, nmodule, true, true) ||
	    !well_formed(name, nname, p->proto >= 4, false))
		return bad_name(p, module, nmodule, name, nname);
	hash = hash_of(key[0], key[1]);
	i = ofs_map_find(&p->doc->by_name, hash, same, p->doc, key,
	    sizeof(key));
	return i != OFS_NONE ? p->doc->ginfo[i].node
			     : add_global(p, hash, key[0], key[1]);
}

uint32_t pk_global_of(const struct ofs_pickle *doc, uint32_t node)
{
	const struct pk_node *x;

	if (node == OFS_NONE)
		return OFS_NONE;
	x = pk_at(doc, node);
	if (x->kind == OFS_PK_GLOBAL)
		return x->v[0];
	if (x->kind == OFS_PK_OBJECT && (x->flags & PK_GETATTR) != 0)
		return x->v[2];
	return OFS_NONE;
}
