/* layout/flat.c - flat parameters, by worked examples and by properties */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "layout/flat.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "optimfs/error.h"

#include "tap.h"

/* Of each parameter on each rank "first count at", "-" where it has none. */
struct example {
	const char *name;
	uint64_t numel[4];
	uint32_t nparams, align, world;
	uint64_t size, shard;
	const char *slices;
};

/* As PyTorch 2.11 lays them out: docs/formats/fsdp.md. */
static const struct example examples[] = {
	{ "packed", { 15, 5 }, 2, OFS_FLAT_PACKED, 4, 20, 5,
	    "0 5 0,-;5 5 0,-;10 5 0,-;-,0 5 0;" },
	{ "aligned", { 15, 5 }, 2, 4, 4, 24, 6,
	    "0 6 0,-;6 6 0,-;12 3 0,0 2 4;-,2 3 0;" },
	{ "packed, last shard padded", { 15, 3 }, 2, OFS_FLAT_PACKED, 4, 18, 5,
	    "0 5 0,-;5 5 0,-;10 5 0,-;-,0 3 0;" },
	{ "aligned, last shard padded", { 15, 3 }, 2, 4, 4, 20, 5,
	    "0 5 0,-;5 5 0,-;10 5 0,-;-,0 3 1;" },
	{ "packed, three parameters", { 15, 5, 6 }, 3, OFS_FLAT_PACKED, 4, 26,
	    7, "0 7 0,-,-;7 7 0,-,-;14 1 0,0 5 1,0 1 6;-,-,1 5 0;" },
	{ "aligned, three parameters", { 15, 5, 6 }, 3, 4, 4, 32, 8,
	    "0 8 0,-,-;8 7 0,-,-;-,0 5 0,-;-,-,0 6 0;" },
	{ "aligned, bf16 on one rank", { 12, 5 }, 2, 8, 1, 21, 21,
	    "0 12 0,0 5 16;" },
	{ "packed, parameters smaller than a shard", { 1, 1, 3 }, 3,
	    OFS_FLAT_PACKED, 4, 5, 2,
	    "0 1 0,0 1 1,-;-,-,0 2 0;-,-,2 1 0;-,-,-;" },
	{ "aligned, parameters smaller than the alignment", { 1, 1, 3 }, 3, 4,
	    4, 12, 3, "0 1 0,-,-;-,0 1 1,-;-,-,0 1 2;-,-,1 2 0;" },
	{ "packed, more ranks than elements", { 2 }, 1, OFS_FLAT_PACKED, 4, 2,
	    1, "0 1 0;1 1 0;-;-;" },
	{ "aligned, only empty parameters", { 0, 0 }, 2, 4, 3, 0, 0,
	    "-,-;-,-;-,-;" },
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
		    "%s: the layout is made", e->name);
		is_u64(f.size, e->size, "%s: size of the flat parameter",
		    e->name);
		is_u64(f.shard, e->shard, "%s: size of a shard", e->name);
		print_slices(&f, text);
		is_str(text, e->slices, "%s: slices of each rank", e->name);
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
	ok(ofs_flat_spread(&f, 8, NULL) == 0,
	    "a ZeRO group of three parameters is laid out");
	is_u64(f.shard, 14,
	    "the shards of a ZeRO group are padded to equal sizes");
	print_slices(&f, text);
	is_str(text, "0 14 0,-,-;14 14 0,-,-;28 7 0,0 7 7,-;-,7 8 0,0 3 8;",
	    "the shards of a ZeRO group are contiguous slices");
	is_u64(ofs_flat_held(&f, 3), 11,
	    "the last shard of a ZeRO group ends with padding");
	ofs_flat_fini(&f);
	ofs_flat_init(&f, &many, 1, OFS_FLAT_PACKED, 768, NULL);
	ofs_flat_spread(&f, 2 * 768, NULL);
	is_u64(f.shard, 348, "the shards of 768 ranks have 348 elements");
	is_u64(ofs_flat_held(&f, 765), 20,
	    "rank 765 of 768 has 20 elements before the padding");
	is_u64(ofs_flat_held(&f, 766), 0,
	    "a rank behind the last element has only padding");
	ofs_flat_fini(&f);
	many = UINT64_MAX - 1;
	ofs_flat_init(&f, &many, 1, OFS_FLAT_PACKED, 1, NULL);
	ok(ofs_flat_spread(&f, 4, NULL) == -1,
	    "a padded size beyond 64 bits is refused");
	ofs_flat_fini(&f);
}

static uint64_t seed = 88172645463325252u;

static uint64_t below(uint64_t n)
{
	seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
	return seed % n;
}

/* Number the elements, lay them out as a writer does, cut the result, and
 * compare each slice: every element must arrive once, in its place. */
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

	ok(ofs_flat_init(&f, huge, 1, 4, 0, &err) == -1,
	    "a layout for 0 ranks is refused");
	is_int(err.code, EINVAL, "a layout for 0 ranks fails with EINVAL");
	ok(ofs_flat_init(&f, more, 2, 0, 1, &err) == -1,
	    "a sum of sizes beyond 64 bits is refused");
	is_error(err, EINVAL, "OFS606",
	    "a sum of sizes beyond 64 bits fails with OFS606");
	ok(ofs_flat_init(&f, huge, 2, 16, 1, &err) == -1,
	    "padding between parameters beyond 64 bits is refused");
	ok(ofs_flat_init(&f, more, 1, 0, 7, &err) == -1,
	    "padding at the end beyond 64 bits is refused");
}

int main(void)
{
	worked();
	spread();
	properties();
	refused();
	return done_testing();
}
