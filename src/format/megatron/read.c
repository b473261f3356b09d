/* read.c - Megatron-Core checkpoints (torch_dist) */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>

#include "base/str.h"
#include "format/megatron/megatron.h"
#include "format/megatron/solve.h"
#include "pickle/pickle.h"

/* The most tensors and shards that splitting stacks and blocks may add. A model
 * of a thousand layers adds a tenth of this. */
#define BUDGET (UINT64_C(1) << 20)
/* The most chained optimizers. */
#define MAX_CHAINED 64

/* Facts in the common state. */

/* The path components of a common value, without the prefix; NULL: another
 * entry. */
static const uint32_t *common_of(const struct ofs_megatron *m, uint32_t entry,
    uint32_t *n)
{
	const uint32_t *c =
	    ofs_catalog_components(m->cat, m->cat->entries[entry].path, n);
	uint32_t skip;

	if (*n < 2)
		return NULL;
	if (ofs_catalog_string_is(m->cat, c[0], OFS_MEGATRON_COMMON))
		skip = 1;
	else if (*n > 2 &&
	    ofs_catalog_string_is(m->cat, c[0],
		OFS_MEGATRON_COMMON "/shard_0_1"))
		skip = 2;
	else
		return NULL;
	*n -= skip;
	return c + skip;
}

static const struct ofs_value *value_of(const struct ofs_megatron *m,
    uint32_t entry)
{
	const struct ofs_entry *e = &m->cat->entries[entry];

	return e->kind == OFS_ENTRY_VALUE ? &m->cat->values[e->ref] : NULL;
}

/* Without an encoder, num_layers is the number of layers of the decoder. */
static void read_args(struct ofs_megatron *m, const struct ofs_value *args)
{
	int64_t n;

	m->args = args;
	if (ofs_pk_int(args->doc,
		ofs_pk_attr(args->doc, args->node, "decoder_num_layers"), &n) ||
	    ofs_pk_int(args->doc,
		ofs_pk_attr(args->doc, args->node, "num_layers"), &n))
		m->num_layers = n > 0 ? (uint64_t)n : 0;
}

static void note_group(struct ofs_megatron *m, uint32_t chained, uint32_t group,
    uint32_t *count)
{
	if (count[chained] <= group)
		count[chained] = group + 1;
	if (m->nchained <= chained)
		m->nchained = chained + 1;
}

/* The path "optimizer N optimizer param_groups I ..." shows that N has at least
 * I + 1 groups. */
static void count_group(struct ofs_megatron *m, const uint32_t *c, uint32_t n,
    uint32_t *count)
{
	uint32_t chained, group;

	if (n < 5 || OFS_PATH_STR(c[0]) != m->optimizer ||
	    OFS_PATH_STR(c[3]) != m->groups || (c[4] & OFS_PATH_INDEX) == 0)
		return;
	if (!ofs_str_digits(ofs_catalog_string(m->cat, c[1]), &chained) ||
	    !ofs_str_digits(ofs_catalog_string(m->cat, c[4]), &group) ||
	    chained >= MAX_CHAINED || group >= 100000)
		return;
	note_group(m, chained, group, count);
}

static void read_common(struct ofs_megatron *m, uint32_t entry, uint32_t *count)
{
	static const char space[] = "fully_sharded_model_space";
	const struct ofs_value *v = value_of(m, entry);
	uint32_t n;
	const uint32_t *c = common_of(m, entry, &n);

	if (c == NULL)
		return;
	m->has_common = true;
	count_group(m, c, n, count);
	if (v == NULL)
		return;
	if (n == 1 && ofs_catalog_string_is(m->cat, c[0], "args"))
		read_args(m, v);
	if (ofs_catalog_string_is(m->cat, c[n - 1],
		"distrib_optim_sharding_type") ||
	    ofs_catalog_string_is(m->cat, c[n - 1],
		"param_state_sharding_type"))
		m->model_space =
		    m->model_space || ofs_pk_str_is(v->doc, v->node, space);
}

/* The groups of an optimizer with buckets are in an object: [0] param_groups I
 * OPTION below its key. */
static void count_object_group(struct ofs_megatron *m,
    const struct ofs_megatron_key *key, const uint32_t *c, uint32_t n,
    uint32_t *count)
{
	uint32_t group, chained;

	if (ofs_megatron_groups_rank(key) != 0)
		return;
	if (n > 0 && c[0] == (m->zero | OFS_PATH_INDEX))
		c++, n--;
	if (n < 2 || c[0] != m->groups || (c[1] & OFS_PATH_INDEX) == 0 ||
	    !ofs_str_digits(ofs_catalog_string(m->cat, c[1]), &group))
		return;
	chained = ofs_megatron_chained(key);
	if (chained >= MAX_CHAINED || group >= 100000)
		return;
	note_group(m, chained, group, count);
}

static void read_key(struct ofs_megatron *m, uint32_t entry, uint32_t *count)
{
	struct ofs_megatron_key key;
	uint32_t n;
	const uint32_t *c =
	    ofs_catalog_components(m->cat, m->cat->entries[entry].path, &n);

	if (n == 0 || common_of(m, entry, &n) != NULL)
		return;
	ofs_megatron_parse(ofs_catalog_string(m->cat, c[0]), &key);
	if (key.kind == OFS_MEGATRON_STATE || key.kind == OFS_MEGATRON_BUCKET)
		m->prefixed = m->prefixed || key.chained.len > 0;
	if (key.kind != OFS_MEGATRON_BUCKET)
		return;
	count_object_group(m, &key, c + 1, n - 1, count);
	if (m->cat->entries[entry].kind == OFS_ENTRY_TENSOR)
		m->nbucket++;
	else if (ofs_str_ends(key.name, ".param_state"))
		/* that dp_zero_gather_scatter writes */
		m->nbuckets++;
}

static void survey(struct ofs_megatron *m, uint32_t count[MAX_CHAINED])
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < m->cat->nentries; i++) {
		read_common(m, i, count);
		read_key(m, i, count);
	}
	/* groups are numbered across optimizers */
	for (uint32_t i = 0; i < m->nchained; i++) {
		uint32_t n = count[i];

		count[i] = sum;
		sum += n;
	}
	m->first_group = count;
}

static int warn_of_buckets(struct ofs_megatron *m, uint32_t n, bool objects,
    struct optimfs_error *err)
{
	const char *what = objects ? "objects of flat buckets" : "flat buckets";

	if (m->nlost == 0)
		return ofs_catalog_note(m->cat, OFS_NOTE_WARNING, 0, err,
		    "OFS648 the state of the optimizer is in %u %s, in which no "
		    "parameter was found for certain: shown as stored below "
		    "optim/distributed. A save with "
		    "--dist-ckpt-optim-fully-reshardable has names",
		    n, what);
	return ofs_catalog_note(m->cat, OFS_NOTE_WARNING, 0, err,
	    "OFS648 the state of %s%s is in %u %s, in which it was not found "
	    "for certain: shown as stored below optim/distributed. A save with "
	    "--dist-ckpt-optim-fully-reshardable has names",
	    m->lost, m->nlost > 1 ? " and others" : "", n, what);
}

static int warn(struct ofs_megatron *m, struct optimfs_error *err)
{
	bool objects = m->nbucket == 0;
	uint32_t n = objects ? m->nbuckets : m->nbucket;

	if (n > 0 && warn_of_buckets(m, n, objects, err) == -1)
		return -1;
	if (!m->has_common &&
	    ofs_catalog_note(m->cat, OFS_NOTE_WARNING, EIO, err,
		"OFS649 neither common.pt nor common_state can be read: "
		"arguments, groups of parameters and steps are unknown") == -1)
		return -1;
	return 0;
}

static int words(struct ofs_megatron *m, struct optimfs_error *err)
{
	struct ofs_catalog *cat = m->cat;

	m->model = ofs_catalog_str(cat, "model", 5, err);
	m->optimizer = ofs_catalog_str(cat, "optimizer", 9, err);
	m->states = ofs_catalog_str(cat, "state", 5, err);
	m->groups = ofs_catalog_str(cat, "param_groups", 12, err);
	m->zero = ofs_catalog_str(cat, "0", 1, err);
	return ofs_catalog_failed(cat, err) ? -1 : 0;
}

int ofs_megatron_join(struct ofs_catalog *cat, struct optimfs_error *err)
{
	struct ofs_megatron m = { .cat = cat, .budget = BUDGET };
	uint32_t count[MAX_CHAINED] = { 0 }, n;

	if (words(&m, err) == -1)
		return -1;
	survey(&m, count);
	if (ofs_megatron_blocks(&m, err) == -1 ||
	    ofs_megatron_solve(&m, err) == -1)
		return -1;
	n = cat->nentries; /* entries that stacks add have their paths */
	for (uint32_t i = 0; i < n; i++)
		if (ofs_megatron_place(&m, i, err) == -1)
			return -1;
	if (ofs_megatron_drop_repeated(&m, err) == -1 ||
	    ofs_megatron_steps(&m, err) == -1)
		return -1;
	return warn(&m, err);
}
