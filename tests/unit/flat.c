/* layout/flat.c - flat parameters against worked examples and properties */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "layout/flat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimfs/error.h"

#include "tap.h"

/* "first count at" of each parameter on each rank, "-" where there is none. */
struct example {
	const char *name;
	uint64_t numel[4];
	uint32_t nparams, align, world;
	uint64_t size, shard;
	const char *slices;
};

/* As PyTorch 2.11 laid them: docs/formats/fsdp.md. */
static const struct example examples[] = {
	{ "packed", { 15, 5 }, 2, OFS_FLAT_PACKED, 4, 20, 5,
	    "0 5 0,-;5 5 0,-;10 5 0,-;-,0 5 0;" },
	{ "aligned", { 15, 5 }, 2, 4, 4, 24, 6,
	    "0 6 0,-;6 6 0,-;12 3 0,0 2 4;-,2 3 0;" },
	{ "packed with an end", { 15, 3 }, 2, OFS_FLAT_PACKED, 4, 18, 5,
	    "0 5 0,-;5 5 0,-;10 5 0,-;-,0 3 0;" },
	{ "aligned with an end", { 15, 3 }, 2, 4, 4, 20, 5,
	    "0 5 0,-;5 5 0,-;10 5 0,-;-,0 3 1;" },
	{ "three packed", { 15, 5, 6 }, 3, OFS_FLAT_PACKED, 4, 26, 7,
	    "0 7 0,-,-;7 7 0,-,-;14 1 0,0 5 1,0 1 6;-,-,1 5 0;" },
	{ "three aligned", { 15, 5, 6 }, 3, 4, 4, 32, 8,
	    "0 8 0,-,-;8 7 0,-,-;-,0 5 0,-;-,-,0 6 0;" },
	{ "bf16 forward", { 12, 5 }, 2, 8, 1, 21, 21, "0 12 0,0 5 16;" },
	{ "tiny", { 1, 1, 3 }, 3, OFS_FLAT_PACKED, 4, 5, 2,
	    "0 1 0,0 1 1,-;-,-,0 2 0;-,-,2 1 0;-,-,-;" },
	{ "tiny aligned", { 1, 1, 3 }, 3, 4, 4, 12, 3,
	    "0 1 0,-,-;-,0 1 1,-;-,-,0 1 2;-,-,1 2 0;" },
	{ "more ranks than elements", { 2 }, 1, OFS_FLAT_PACKED, 4, 2, 1,
	    "0 1 0;1 1 0;-;-;" },
	{ "nothing", { 0, 0 }, 2, 4, 3, 0, 0, "-,-;-,-;-,-;" },
};

static void print_slices(const struct ofs_flat *f, char *text)
{
	for (uint32_t r = 0; r < f->world; r++)
		for (uint32_t i = 0; i < f->nparams; i++) {
			struct ofs_flat_slice s = ofs_flat_slice(f, i, r);

			text += s.count == 0
			    ? sprintf(text, "-")
			    : sprintf(text, "%d %d %d", (int)s.first,
				  (int)s.count, (int)s.at);
			text += sprintf(text, i + 1 < f->nparams ? "," : ";");
		}
}

static void worked(void)
{
	for (size_t i = 0; i < sizeof(examples) / sizeof(*examples); i++) {
		const struct example *e = &examples[i];
		struct ofs_flat f;
		char text[512];

		ok(ofs_flat_init(&f, e->numel, e->nparams, e->align, e->world,
		       NULL) == 0,
		    "%s", e->name);
		is_u64(f.size, e->size, "%s: size", e->name);
		is_u64(f.shard, e->shard, "%s: shard", e->name);
		print_slices(&f, text);
		is_str(text, e->slices, "%s: slices", e->name);
		ofs_flat_fini(&f);
	}
}

/* DeepSpeed's groups: docs/formats/deepspeed.md. */
static void spread(void)
{
	uint64_t numel[3] = { 35, 15, 3 }, many = 266240;
	struct ofs_flat f;
	char text[512];

	ofs_flat_init(&f, numel, 3, OFS_FLAT_PACKED, 4, NULL);
	ok(ofs_flat_spread(&f, 8, NULL) == 0, "spread");
	is_u64(f.shard, 14, "shards");
	print_slices(&f, text);
	is_str(text, "0 14 0,-,-;14 14 0,-,-;28 7 0,0 7 7,-;-,7 8 0,0 3 8;",
	    "slices");
	is_u64(ofs_flat_held(&f, 3), 11, "the last one has padding");
	ofs_flat_fini(&f);
	ofs_flat_init(&f, &many, 1, OFS_FLAT_PACKED, 768, NULL);
	ofs_flat_spread(&f, 2 * 768, NULL);
	is_u64(f.shard, 348, "of many ranks");
	is_u64(ofs_flat_held(&f, 765), 20, "one has some padding");
	is_u64(ofs_flat_held(&f, 766), 0, "those behind it nothing else");
	ofs_flat_fini(&f);
	many = UINT64_MAX - 1;
	ofs_flat_init(&f, &many, 1, OFS_FLAT_PACKED, 1, NULL);
	ok(ofs_flat_spread(&f, 4, NULL) == -1, "too many");
	ofs_flat_fini(&f);
}

static uint64_t seed = 88172645463325252u;

static uint64_t below(uint64_t n)
{
	seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
	return seed % n;
}

/* Lay numbered elements as a writer does, cut them, and put each slice back:
 * every element must arrive once, where it was. */
static bool tiles(uint32_t nparams, uint32_t align, uint32_t world, bool spread)
{
	uint64_t numel[16], *flat, id = 1, held = 0;
	struct ofs_flat f;
	bool good = true;

	for (uint32_t i = 0; i < nparams; i++)
		numel[i] = below(5) == 0 ? below(3) : below(200);
	ofs_flat_init(&f, numel, nparams, align, world, NULL);
	if (spread)
		good &= ofs_flat_spread(&f, 2ull * world, NULL) == 0 &&
		    f.shard % 2 == 0 && f.shard * world < f.size + 2ull * world;
	flat = calloc(f.shard * world + 1, sizeof(*flat));
	for (uint32_t i = 0; i < nparams; i++) {
		good &= align == 0 || f.start[i] % align == 0;
		for (uint64_t k = 0; k < numel[i]; k++)
			flat[f.start[i] + k] = id++;
	}
	id = 1;
	for (uint32_t i = 0; i < nparams; i++)
		for (uint32_t r = 0; r < world; r++) {
			struct ofs_flat_slice s = ofs_flat_slice(&f, i, r);

			for (uint64_t k = 0; k < s.count; k++)
				good &= flat[r * f.shard + s.at + k] == id++;
			good &= s.at + s.count <= ofs_flat_held(&f, r) ||
			    s.count == 0;
		}
	for (uint32_t r = 0; r < world; r++)
		held += ofs_flat_held(&f, r);
	good &= held == f.size;
	ofs_flat_fini(&f);
	free(flat);
	return good;
}

static void properties(void)
{
	static const uint32_t aligns[] = { OFS_FLAT_PACKED, 2, 4, 8, 16 };
	int bad = 0;

	for (int i = 0; i < 20000; i++) {
		uint32_t nparams = (uint32_t)below(17);
		uint32_t align = aligns[below(5)];
		uint32_t world = 1 + (uint32_t)below(64);

		bad += !tiles(nparams, align, world, below(2) == 1);
	}
	is_int(bad, 0, "20000 random units are tiled by their slices");
}

static void refused(void)
{
	uint64_t huge[] = { UINT64_MAX - 3, 2 }, more[] = { UINT64_MAX, 1 };
	struct optimfs_error err = { 0 };
	struct ofs_flat f;

	ok(ofs_flat_init(&f, huge, 1, 4, 0, &err) == -1, "no rank");
	is_int(err.code, EINVAL, "is EINVAL");
	ok(ofs_flat_init(&f, more, 2, 0, 1, &err) == -1, "a sum that wraps");
	is_error(err, EINVAL, "OFS606", "says so");
	ok(ofs_flat_init(&f, huge, 2, 16, 1, &err) == -1, "padding that does");
	ok(ofs_flat_init(&f, more, 1, 0, 7, &err) == -1, "and at the end");
}

int main(void)
{
	worked();
	spread();
	properties();
	refused();
	return done_testing();
}
