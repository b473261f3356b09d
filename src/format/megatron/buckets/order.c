/* order.c - the order in which Megatron-Core registers parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "base/search.h"
#include "base/str.h"
#include "format/megatron/buckets/buckets.h"

/* torch.nn.Module.named_parameters() gives parameters in the order in which
 * constructors assign modules, a module's own parameters first. The tables below
 * follow the constructors (docs/formats/megatron.md). The keys of a checkpoint
 * do not tell them apart in two respects: Megatron's own layers have their norms
 * before the attention and before the MLP, layers of TransformerEngine have them
 * inside the next linear module; and experts are registered one after the other,
 * or first all first matrices, then all second ones. */
enum form {
	FORM_FUSED = 1,   /* norms are inside of linear_qkv and linear_fc1 */
	FORM_GROUPED = 2, /* the first matrices of all experts come first */
};

/* The parts of a model, by the beginning of a component of the key. */
static const char *const tops[] = {
	"embedding.word_embeddings.",
	"embedding.position_embeddings.",
	"embedding.tokentype_embeddings.",
	"encoder.layers.",
	"encoder.final_",
	"decoder.layers.",
	"decoder.final_",
	"mtp.layers.",
	"output_layer.",
};
#define NTOPS  (sizeof(tops) / sizeof(*tops))
#define OUTPUT (NTOPS - 1)

/* The modules of a layer, by the beginning of the rest of the key. */
static const struct module {
	const char *begin;
	bool unfused; /* only in a form without FORM_FUSED */
} modules[] = {
	{ "input_layernorm.", false },
	{ "self_attention.linear_qkv.layer_norm_", true },
	{ "self_attention.core_attention.", false },
	{ "self_attention.linear_proj.", false },
	{ "self_attention.linear_qkv.", false },
	{ "self_attention.linear_q_proj.", false },
	{ "self_attention.linear_q_down_proj.", false },
	{ "self_attention.linear_q_up_proj.", false },
	{ "self_attention.linear_kv_down_proj.", false },
	{ "self_attention.linear_kv_up_proj.", false },
	{ "self_attention.q_layernorm.", false },
	{ "self_attention.k_layernorm.", false },
	{ "self_attention.kv_layernorm.", false },
	{ "pre_cross_attn_layernorm.", false },
	{ "cross_attention.linear_proj.", false },
	{ "cross_attention.linear_q.", false },
	{ "cross_attention.linear_kv.", false },
	{ "pre_mlp_layernorm.", false },
	{ "mlp.linear_fc1.layer_norm_", true },
	{ "mlp.router.", false },
	{ "mlp.experts.", false },
	{ "mlp.linear_fc1.", false },
	{ "mlp.linear_fc2.", false },
	{ "mlp.shared_experts.gate_weight", false },
	{ "mlp.shared_experts.linear_fc1.", false },
	{ "mlp.shared_experts.linear_fc2.", false },
};
#define NMODULES (sizeof(modules) / sizeof(*modules))

/* The parameters of a module. */
static const char *const lasts[] = { "layer_norm_weight", "layer_norm_bias",
	"weight", "bias" };
#define NLASTS (sizeof(lasts) / sizeof(*lasts))

/* The key in its parts: PREFIX TOP [NUMBER.] TAIL. */
static void find_top(struct ofs_bucket_param *a)
{
	a->top = NTOPS;
	a->head = (struct ofs_str){ a->key.p, 0 };
	a->tail = a->key;
	for (uint32_t i = 0; i < a->key.len; i++) {
		struct ofs_str rest = ofs_str_after(a->key, i);

		if (i > 0 && a->key.p[i - 1] != '.')
			continue;
		for (uint8_t k = 0; k < NTOPS; k++) {
			if (!ofs_str_begins(rest, tops[k]))
				continue;
			a->top = k;
			a->prefix = i;
			a->head.len = i + (uint32_t)strlen(tops[k]);
			a->tail = ofs_str_after(a->key, a->head.len);
			return;
		}
	}
}

/* Removes "NUMBER." from the beginning. */
static struct ofs_str without_number(struct ofs_str s)
{
	struct ofs_str rest = s;
	uint64_t number;

	if (!ofs_str_take_number(&rest, &number) || rest.len == 0 ||
	    rest.p[0] != '.')
		return s;
	return ofs_str_after(rest, 1);
}

static uint8_t find_module(struct ofs_str tail, bool fused)
{
	for (uint8_t i = 0; i < NMODULES; i++)
		if (ofs_str_begins(tail, modules[i].begin) &&
		    !(modules[i].unfused && fused))
			return i;
	return NMODULES;
}

static uint8_t find_last(struct ofs_str tail)
{
	const char *dot = memrchr(tail.p, '.', tail.len);

	if (dot != NULL)
		tail = ofs_str_after(tail, (size_t)(dot + 1 - tail.p));
	for (uint8_t i = 0; i < NLASTS; i++)
		if (ofs_str_is(tail, lasts[i]))
			return i;
	return NLASTS;
}

void ofs_bucket_param_init(struct ofs_bucket_param *a, struct ofs_str key,
    uint64_t layer, uint64_t expert, bool output)
{
	static const char second[] = ".linear_fc2.";

	*a = (struct ofs_bucket_param){
		.key = key, .layer = layer, .expert = expert
	};
	find_top(a);
	if (a->top != NTOPS)
		a->tail = without_number(a->tail);
	a->module = find_module(a->tail, false);
	a->fused_module = find_module(a->tail, true);
	a->last = find_last(a->tail);
	a->second = a->tail.len > 0 &&
	    memmem(a->tail.p, a->tail.len, second, sizeof(second) - 1) != NULL;
	if (output)
		a->top = OUTPUT;
}

static int compare_prefix(const struct ofs_bucket_param *a,
    const struct ofs_bucket_param *b)
{
	return ofs_str_compare((struct ofs_str){ a->key.p, a->prefix },
	    (struct ofs_str){ b->key.p, b->prefix });
}

int ofs_bucket_order(const struct ofs_bucket_param *a,
    const struct ofs_bucket_param *b, unsigned int form)
{
	bool fused = (form & FORM_FUSED) != 0;
	int c = compare_prefix(a, b);

	if (c == 0)
		c = OFS_ORDER(a->top, b->top);
	/* UINT64_MAX, no layer, is the first */
	if (c == 0)
		c = OFS_ORDER(a->layer + 1, b->layer + 1);
	if (c == 0)
		c = fused ? OFS_ORDER(a->fused_module, b->fused_module)
			  : OFS_ORDER(a->module, b->module);
	if (c == 0 && (form & FORM_GROUPED) != 0)
		c = OFS_ORDER(a->second, b->second);
	if (c == 0)
		c = OFS_ORDER(a->expert + 1, b->expert + 1);
	if (c == 0)
		c = OFS_ORDER(a->second, b->second);
	if (c == 0)
		c = OFS_ORDER(a->last, b->last);
	return c != 0 ? c : ofs_str_compare(a->tail, b->tail);
}

/* Are they parameters of one module, whose order is known? */
static bool one_module(const struct ofs_bucket_param *a,
    const struct ofs_bucket_param *b)
{
	const char *x = memrchr(a->tail.p, '.', a->tail.len),
		   *y = memrchr(b->tail.p, '.', b->tail.len);

	return x != NULL && y != NULL && x - a->tail.p == y - b->tail.p &&
	    memcmp(a->tail.p, b->tail.p, (size_t)(x - a->tail.p)) == 0 &&
	    a->last != b->last && a->last != NLASTS && b->last != NLASTS;
}

bool ofs_bucket_ordered(const struct ofs_bucket_param *a,
    const struct ofs_bucket_param *b)
{
	if (compare_prefix(a, b) != 0)
		return false;
	if (a->top == b->top && ofs_str_equal(a->tail, b->tail))
		return true;
	if (a->top == NTOPS || b->top == NTOPS)
		return false;
	if (a->top != b->top || a->layer != b->layer)
		return true;
	if (a->module == NMODULES || b->module == NMODULES)
		return false;
	return a->module != b->module || a->second != b->second ||
	    one_module(a, b);
}
