/* fuzz_megatron.c - arbitrary keys as a checkpoint of Megatron-Core */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "format/megatron/megatron.h"
#include "naming/naming.h"
#include "tree/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(bool holds)
{
	if (!holds)
		abort();
}

static void inside(struct ofs_str s, struct ofs_str text)
{
	must(s.len == 0 ||
	    (s.p >= text.p && s.len <= text.len &&
		s.p + s.len <= text.p + text.len));
}

/* The parts that a key is parsed into must lie inside the key. */
static void check_key(const char *p, size_t n)
{
	struct ofs_str text = { p, (uint32_t)n };
	struct ofs_megatron_key key;

	ofs_megatron_parse(text, &key);
	inside(key.name, text);
	inside(key.state, text);
	inside(key.chained, text);
	inside(key.offsets, text);
	must(key.nlayers == 0 || key.layer < key.nlayers);
	must(ofs_megatron_layer_at(key.name) <= key.name.len);
}

/* Each line of the input is an entry: one byte with kind, dimensions and chunks,
 * then the key, or keys separated by '|'. */
static uint32_t tensor(struct ofs_catalog *cat, uint8_t how)
{
	static const uint64_t shapes[][3] = { { 4, 2, 3 }, { 24, 1, 1 },
		{ 2, 3, 5 }, { 0, 2, 3 } };
	const uint64_t *dims = shapes[how / 4 % 4];
	struct ofs_tensor t = { .dtype = OFS_FLOAT32, .error = OFS_NONE };
	uint64_t box[6] = { 0 };
	unsigned chunks;

	t.ndim = t.grid_ndim = how % 4;
	t.shape = t.grid = ofs_catalog_dims(cat, dims, t.ndim, NULL);
	t.shard = cat->nshards;
	chunks = t.ndim > 0 && dims[0] % 2 == 0 && (how & 0x10) != 0 ? 2 : 1;
	for (unsigned i = 0; i < chunks; i++) {
		struct ofs_shard s = { .box = OFS_NONE, .view = OFS_NONE };

		memcpy(box + t.ndim, dims, t.ndim * sizeof(*dims));
		if (t.ndim > 0) {
			box[t.ndim] = dims[0] / chunks;
			box[0] = i * box[t.ndim];
		}
		if (chunks > 1)
			s.box = ofs_catalog_dims(cat, box, 2u * t.ndim, NULL);
		s.at.encoding = OFS_TORCH_RECORD;
		s.at.len = 640;
		ofs_catalog_shard(cat, &s, NULL);
	}
	t.nshards = cat->nshards - t.shard;
	return ofs_catalog_tensor(cat, &t, NULL);
}

static void add(struct ofs_catalog *cat, const char *p, size_t n)
{
	struct ofs_item item = { .error = OFS_NONE };
	struct ofs_entry e = { .tree = OFS_NONE };
	uint32_t c[8], nc = 0;
	const char *end = p + n, *bar;
	uint8_t how = (uint8_t)*p++;

	check_key(p, (size_t)(end - p));
	do {
		bar = memchr(p, '|', (size_t)(end - p));
		if (bar == NULL || nc == 7)
			bar = end;
		c[nc++] = ofs_catalog_str(cat, p, (size_t)(bar - p), NULL);
		p = bar + 1;
	} while (bar != end);
	e.path = ofs_catalog_path(cat, c, nc, NULL);
	e.kind = (how & 0x80) != 0 ? OFS_ENTRY_ITEM : OFS_ENTRY_TENSOR;
	e.ref = e.kind == OFS_ENTRY_ITEM ? ofs_catalog_item(cat, &item, NULL)
					 : tensor(cat, how);
	ofs_catalog_entry(cat, &e, NULL);
}

/* Every entry must have a file in the tree, and every shard must exist. */
static void check(struct ofs_catalog *cat)
{
	struct ofs_tree t;
	uint32_t files = 0;

	for (uint32_t i = 0; i < cat->ntensors; i++)
		must(cat->tensors[i].shard + cat->tensors[i].nshards <=
		    cat->nshards);
	must(ofs_tree_build(&t, cat, NULL) == 0);
	for (uint32_t i = 0; i < t.n; i++)
		files += t.node[i].entry != OFS_NONE;
	must(files == cat->nentries);
	ofs_tree_fini(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	const char *p = (const char *)bytes, *end = p + n, *nl;
	const struct optimfs_options opt = { 0 };
	struct ofs_dir dir = { .fd = -1 };
	struct ofs_catalog *cat = ofs_catalog_new(&dir, NULL);

	must(cat != NULL && ofs_catalog_object(cat, "data", -1, NULL) == 0);
	for (; p < end; p = nl + 1) {
		nl = memchr(p, '\n', (size_t)(end - p));
		if (nl == NULL)
			nl = end;
		if (nl > p)
			add(cat, p, (size_t)(nl - p));
	}
	if (ofs_format_megatron.join(cat, NULL) == 0 &&
	    ofs_name_entries(cat, &opt, NULL) == 0 &&
	    ofs_catalog_finish(cat, NULL) == 0)
		check(cat);
	ofs_catalog_free(cat);
	return 0;
}
