/* keys.c - Megatron-Core keys, parsed */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "base/str.h"
#include "format/megatron/megatron.h"

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* "chained_1.": one of several optimizers */
static void take_chained(struct ofs_str *s, struct ofs_str *chained)
{
	struct ofs_str rest = *s;
	uint64_t number;

	if (!ofs_str_take(&rest, "chained_") ||
	    !ofs_str_take_number(&rest, &number) || rest.len == 0 ||
	    rest.p[0] != '.')
		return;
	*chained = (struct ofs_str){ s->p, s->len - rest.len };
	*s = ofs_str_after(rest, 1);
}

/* "optimizer.state.EXP_AVG.PARAMETER" */
static bool take_state(struct ofs_str s, struct ofs_megatron_key *key)
{
	const char *dot;
	size_t n;

	if (!ofs_str_take(&s, "optimizer.state."))
		return false;
	dot = memchr(s.p, '.', s.len);
	if (dot == NULL || dot == s.p)
		return false;
	n = (size_t)(dot - s.p);
	if (n + 1 == s.len)
		return false;
	key->state = (struct ofs_str){ s.p, (uint32_t)n };
	key->name = ofs_str_after(s, n + 1);
	return true;
}

/* Finds "/shard_OFFSETS_SHAPE" and its two parts; false: the key has none.
 * Offsets and shape have equally many numbers, with dots between them. */
static bool find_grid(struct ofs_str text, uint32_t *at,
    struct ofs_str *offsets, struct ofs_str *shape)
{
	static const char mark[] = "/shard_";
	uint32_t n = sizeof(mark) - 1, i, under;

	for (i = text.len;
	     i > 0 && (is_digit(text.p[i - 1]) || text.p[i - 1] == '.'); i--)
		;
	if (i == 0 || i == text.len || text.p[i - 1] != '_')
		return false;
	*shape = ofs_str_after(text, i);
	under = --i;
	for (; i > 0 && (is_digit(text.p[i - 1]) || text.p[i - 1] == '.'); i--)
		;
	if (i == under || i < n || memcmp(text.p + i - n, mark, n) != 0)
		return false;
	*offsets = (struct ofs_str){ text.p + i, under - i };
	*at = i - n;
	return true;
}

/* Removes the first of a row of numbers, with the dot after it. */
static bool first_number(struct ofs_str *row, uint64_t *v)
{
	if (!ofs_str_take_number(row, v))
		return false;
	if (row->len == 0)
		return true;
	if (row->p[0] != '.')
		return false;
	*row = ofs_str_after(*row, 1);
	return true;
}

static bool all_ones(struct ofs_str shape)
{
	uint64_t v;

	while (shape.len > 0)
		if (!first_number(&shape, &v) || v != 1)
			return false;
	return true;
}

/* The entry of a state dict that holds a module's get_extra_state(). */
static bool is_extra_state(struct ofs_str s)
{
	return ofs_str_ends(s, "._extra_state") ||
	    ofs_str_is(s, "_extra_state");
}

/* The position of an object in its grid. In the grid of a module's object the
 * first axis is that of the layers, if they are stacked. */
static void read_grid(struct ofs_megatron_key *key, struct ofs_str offsets,
    struct ofs_str shape)
{
	struct ofs_str o = offsets, s = shape;

	if (key->kind == OFS_MEGATRON_MODEL &&
	    ofs_megatron_layer_at(key->name) != 0 &&
	    first_number(&o, &key->layer) && first_number(&s, &key->nlayers) &&
	    key->layer < key->nlayers) {
		offsets = o;
		shape = s;
	} else {
		key->layer = key->nlayers = 0;
	}
	key->offsets = offsets;
	key->alone = all_ones(shape);
}

void ofs_megatron_parse(struct ofs_str text, struct ofs_megatron_key *key)
{
	struct ofs_str offsets = { "", 0 }, shape = { "", 0 }, s = text;
	uint32_t at = text.len;

	*key = (struct ofs_megatron_key){ .chained = { "", 0 },
		.state = { "", 0 },
		.offsets = { "", 0 },
		.alone = true };
	if (find_grid(text, &at, &offsets, &shape)) {
		s.len = at;
		key->object = true;
	}
	take_chained(&s, &key->chained);
	if (take_state(s, key)) {
		key->kind = OFS_MEGATRON_STATE;
	} else if (ofs_str_take(&s, "optimizer.")) {
		key->kind = OFS_MEGATRON_BUCKET;
		key->name = s;
	} else {
		key->name = (struct ofs_str){ text.p, at };
		key->chained.len = 0;
		key->kind = !key->object || is_extra_state(key->name)
		    ? OFS_MEGATRON_MODEL
		    : OFS_MEGATRON_OTHER;
	}
	if (key->object && key->kind == OFS_MEGATRON_OTHER &&
	    ofs_str_is(key->name, OFS_MEGATRON_COMMON))
		key->kind = OFS_MEGATRON_COMMONS;
	if (key->object)
		read_grid(key, offsets, shape);
}

uint32_t ofs_megatron_layer_at(struct ofs_str name)
{
	static const char word[] = "layers.";
	uint32_t n = sizeof(word) - 1;

	for (uint32_t i = 0; i + n < name.len; i++) {
		uint32_t k = i + n;

		if ((i > 0 && name.p[i - 1] != '.') ||
		    memcmp(name.p + i, word, n) != 0)
			continue;
		while (k < name.len && is_digit(name.p[k]))
			k++;
		if (k > i + n && (k == name.len || name.p[k] == '.'))
			return 0; /* the layers are stored one by one */
		return i + n;
	}
	return 0;
}

uint32_t ofs_megatron_chained(const struct ofs_megatron_key *key)
{
	struct ofs_str s = key->chained;
	uint64_t number;

	return ofs_str_take(&s, "chained_") &&
		ofs_str_take_number(&s, &number) && number < UINT32_MAX
	    ? (uint32_t)number
	    : 0;
}

int ofs_megatron_groups_rank(const struct ofs_megatron_key *key)
{
	struct ofs_str name = key->name;
	uint64_t rank;

	if (key->kind != OFS_MEGATRON_BUCKET || !key->object ||
	    !ofs_str_take(&name, "distributed.dp_group_idx_") ||
	    !ofs_str_take_number(&name, &rank) || rank >= 1000000 ||
	    !ofs_str_is(name, ".optimizer"))
		return -1;
	return (int)rank;
}
