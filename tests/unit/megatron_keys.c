/* format/megatron/keys.c - parsing of the keys of Megatron-Core */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format/megatron/megatron.h"
#include "tap.h"

static void show_key(const struct ofs_megatron_key *k, char text[256])
{
	static const char *const kinds[] = { "model", "state", "bucket",
		"common", "other" };
	int n;

	n = snprintf(text, 256, "%s %.*s", kinds[k->kind], (int)k->name.len,
	    k->name.p);
	if (k->state.len > 0)
		n += snprintf(text + n, 256 - (size_t)n, " state %.*s",
		    (int)k->state.len, k->state.p);
	if (k->chained.len > 0)
		n += snprintf(text + n, 256 - (size_t)n, " of %.*s",
		    (int)k->chained.len, k->chained.p);
	if (k->nlayers > 0)
		n += snprintf(text + n, 256 - (size_t)n,
		    " layer %" PRIu64 "/%" PRIu64, k->layer, k->nlayers);
	if (k->object && !k->alone)
		snprintf(text + n, 256 - (size_t)n, " at %.*s",
		    (int)k->offsets.len, k->offsets.p);
}

static void keys(void)
{
	static const struct {
		const char *key, *want;
	} cases[] = {
		{ "decoder.w", "model decoder.w" },
		{ "optimizer.state.exp_avg.a.b", "state a.b state exp_avg" },
		{ "chained_12.optimizer.state.fp32_param.a",
		    "state a state fp32_param of chained_12" },
		{ "optimizer.distributed.dp_group_idx_0.x",
		    "bucket distributed.dp_group_idx_0.x" },
		{ "chained_1.optimizer.distributed.x",
		    "bucket distributed.x of chained_1" },
		{ "common_state/shard_0_1", "common common_state" },
		{ "rng_state/shard_0.0_1.1", "other rng_state" },
		{ "rng_state/shard_0.3_1.4", "other rng_state at 0.3" },
		{ "a.layers.m._extra_state/shard_2_8",
		    "model a.layers.m._extra_state layer 2/8" },
		{ "a.layers.m._extra_state/shard_2.1_8.2",
		    "model a.layers.m._extra_state layer 2/8 at 1" },
		{ "a.layers.3.m._extra_state/shard_0_1",
		    "model a.layers.3.m._extra_state" },
		{ "_extra_state/shard_0_1", "model _extra_state" },
		{ "my_extra_state/shard_0_1", "other my_extra_state" },
		/* malformed keys, and names that only look like one */
		{ "chained_.optimizer.state.a.b",
		    "model chained_.optimizer.state.a.b" },
		{ "chained_0.w", "model chained_0.w" },
		{ "optimizer.state.", "bucket state." },
		{ "optimizer.state.a", "bucket state.a" },
		{ "optimizer.state..a", "bucket state..a" },
		{ "optimizer.", "model optimizer." },
		{ "optimizer", "model optimizer" },
		{ "", "model " },
		{ "a/shard_0", "model a/shard_0" },
		{ "a/shard__1", "model a/shard__1" },
		{ "a/shard_0_", "model a/shard_0_" },
		{ "/shard_0_1", "other " },
		{ "shard_0_1", "model shard_0_1" },
		{ "a.layers.m._extra_state/shard_8_8",
		    "model a.layers.m._extra_state at 8" },
		{ "a.layers.m._extra_state/shard_0_99999999999999999999999",
		    "model a.layers.m._extra_state at 0" },
		{ "a/shard_.._..", "other a at .." },
	};
	struct ofs_megatron_key key;
	char text[256];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		ofs_megatron_parse((struct ofs_str){ cases[i].key,
				       (uint32_t)strlen(cases[i].key) },
		    &key);
		show_key(&key, text);
		is_str(text, cases[i].want, "parsed key '%s'", cases[i].key);
	}
}

static void layers(void)
{
	static const struct {
		const char *name;
		uint32_t want;
	} cases[] = {
		{ "decoder.layers.mlp.weight", 15 },
		{ "layers.w", 7 },
		{ "decoder.layers.0.mlp.weight", 0 },
		{ "decoder.layers.0", 0 },
		{ "decoder.layers.0x.w", 15 },
		{ "a.layers.0.b.layers.w", 0 },
		{ "mylayers.w", 0 },
		{ "layers", 0 },
		{ "layers.", 0 },
		{ "", 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		is_u64(ofs_megatron_layer_at((struct ofs_str){
			   cases[i].name, (uint32_t)strlen(cases[i].name) }),
		    cases[i].want, "place of the layer number in '%s'",
		    cases[i].name);
}

int main(void)
{
	keys();
	layers();
	return done_testing();
}
