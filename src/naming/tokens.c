/* tokens.c - the meaning of a key without its context */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "naming/naming_impl.h"

/* Names of optimizer states (docs/naming.md). Only optimizers use those in
 * sure. */
static const char *const sure[] = { "exp_avg", "exp_avg_sq", "max_exp_avg_sq",
	"momentum_buffer", "square_avg", "grad_avg", "acc_delta", "exp_inf",
	"mu_product", "exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_res", "fp32",
	"fp32_param", "master_param", NULL };
static const char *const known[] = { "step", "sum", "eta", "mu", "ax", "prev",
	"step_size", "param", "state1", "state2", "qmap1", "qmap2", "absmax1",
	"absmax2", "momentum", "variance", "rms", NULL };
static const char *const shaped[] = { "exp_avg", "exp_avg_sq", "max_exp_avg_sq",
	"momentum_buffer", "square_avg", "grad_avg", "acc_delta", "exp_inf",
	"fp32", "fp32_param", "master_param", "sum", "prev", "ax", "state1",
	"variance", NULL };
static const char *const masters[] = { "fp32", "fp32_param", "master_param",
	NULL };
/* Adafactor as in transformers and fairseq, in timm and in PyTorch. */
static const char *const rows[] = { "exp_avg_sq_row", "exp_avg_sq_r", "row_var",
	NULL };
static const char *const columns[] = { "exp_avg_sq_col", "exp_avg_sq_c",
	"col_var", NULL };
/* Likeliest first. */
static const char *const models[] = { "model", "state_dict", "model_state_dict",
	"model_state", "module", "net", "network", "weights", NULL };
static const char *const wrappers[] = { "_fsdp_wrapped_module",
	"_checkpoint_wrapped_module", "_orig_mod", NULL };
static const char *const optims[] = { "opt", "adam", "adamw", "sgd", "lion",
	"adafactor", "muon", NULL };

size_t ofs_naming_dot(struct ofs_str text, size_t from)
{
	const char *dot = from < text.len
	    ? memchr(text.p + from, '.', text.len - from)
	    : NULL;

	return dot == NULL ? text.len : (size_t)(dot - text.p);
}

static uint32_t find_word(const char *const *list, struct ofs_str s)
{
	for (uint32_t i = 0; list[i] != NULL; i++)
		if (ofs_str_is(s, list[i]))
			return i + 1;
	return 0;
}

static uint32_t optimizer_word(struct ofs_str s)
{
	char low[32] = "";
	struct ofs_str t = { low, s.len };

	if (s.len >= sizeof(low))
		return 0;
	for (uint32_t i = 0; i < s.len; i++)
		low[i] = s.p[i] >= 'A' && s.p[i] <= 'Z'
		    ? (char)(s.p[i] + ('a' - 'A'))
		    : s.p[i];
	if (find_word(optims, t) != 0 || ofs_str_ends(t, "optim") ||
	    ofs_str_ends(t, "optimizer") || ofs_str_begins(t, "optim"))
		return TOKEN_OPTIM;
	return 0;
}

/* The tokens of a key without dots. */
static uint32_t whole_word(struct ofs_str s)
{
	uint32_t w = optimizer_word(s), id;

	if (ofs_str_is(s, "state"))
		w |= TOKEN_STATE;
	if (ofs_str_is(s, "param_groups"))
		w |= TOKEN_GROUPS;
	if (ofs_str_is(s, "optim") || ofs_str_is(s, "optimizer"))
		w |= TOKEN_TOP;
	if (find_word(sure, s) != 0)
		w |= TOKEN_SURE | TOKEN_KNOWN;
	if (find_word(known, s) != 0)
		w |= TOKEN_KNOWN;
	if (find_word(shaped, s) != 0)
		w |= TOKEN_SHAPED;
	if (find_word(masters, s) != 0)
		w |= TOKEN_MASTER;
	if (find_word(rows, s) != 0)
		w |= TOKEN_ROWS;
	if (find_word(columns, s) != 0)
		w |= TOKEN_COLUMNS;
	if (ofs_str_number(s, &id))
		w |= TOKEN_NUMBER;
	return w | find_word(models, s) * TOKEN_MODEL;
}

bool ofs_naming_is_wrapper(struct ofs_str part)
{
	return find_word(wrappers, part) != 0;
}

/* The tokens of a component that is followed by another. */
static uint32_t part_word(struct ofs_str part, bool first)
{
	if (ofs_str_is(part, "state"))
		return TOKEN_TOKEN | (first ? TOKEN_STATE_DOT : 0u);
	if (ofs_str_is(part, "param_groups"))
		return TOKEN_TOKEN | (first ? TOKEN_GROUPS_DOT : 0u);
	if (ofs_naming_is_wrapper(part))
		return TOKEN_WRAPPED;
	if (first && ofs_str_is(part, "module"))
		return TOKEN_MODULE;
	return 0;
}

uint32_t ofs_naming_classify(struct ofs_str s)
{
	size_t from = 0, dot = ofs_naming_dot(s, 0);
	uint32_t w = 0;

	if (dot == s.len)
		return whole_word(s);
	for (; dot < s.len; from = dot + 1, dot = ofs_naming_dot(s, from))
		w |= part_word((struct ofs_str){ s.p + from,
				   (uint32_t)(dot - from) },
		    from == 0);
	return w;
}

bool ofs_naming_is_trained(struct ofs_str key, uint32_t before)
{
	uint32_t w = ofs_naming_classify(key);

	if ((w &
		(TOKEN_OPTIM | TOKEN_GROUPS | TOKEN_GROUPS_DOT | TOKEN_SURE)) !=
	    0)
		return true;
	return before < 2 &&
	    (TOKEN_MODEL_OF(w) != 0 ||
		(w & (TOKEN_STATE | TOKEN_STATE_DOT)) != 0);
}

int ofs_naming_words(struct naming *c, struct optimfs_error *err)
{
	c->nwords = c->cat->nstrs;
	c->word = malloc(c->nwords * sizeof(*c->word) + 1);
	if (c->word == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < c->nwords; i++) {
		c->word[i] = ofs_naming_classify(ofs_catalog_string(c->cat, i));
		if ((c->word[i] & (TOKEN_WRAPPED | TOKEN_MODULE)) != 0)
			c->wrapped = true;
	}
	return 0;
}

uint32_t ofs_naming_word(const struct naming *c, uint32_t component)
{
	uint32_t s = OFS_PATH_STR(component);

	/* strings that naming interned are not in the table */
	return s < c->nwords
	    ? c->word[s]
	    : ofs_naming_classify(ofs_catalog_string(c->cat, s));
}
