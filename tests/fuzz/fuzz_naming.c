/* fuzz_naming.c - arbitrary keys as a checkpoint: each must get a path in the tree */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "naming/naming.h"
#include "tree/tree.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* The first line of the input has options. Each further line is an entry: one byte
 * with kind and shape, then keys separated by '|', a list index after '#'. */

static uint32_t tensor(struct ofs_catalog *cat, uint8_t how)
{
	static const uint64_t dims[] = { 3, 2, 5 };
	struct ofs_shard s = { .box = OFS_NONE, .view = OFS_NONE };
	struct ofs_tensor t = { .dtype = OFS_FLOAT32, .error = OFS_NONE };

	t.ndim = t.grid_ndim = how % 4;
	t.shape = t.grid = ofs_catalog_dims(cat, dims, t.ndim, NULL);
	s.at.encoding = OFS_TORCH_RECORD;
	s.at.off = how / 4 % 4;
	s.at.len = 64;
	t.shard = ofs_catalog_shard(cat, &s, NULL);
	t.nshards = 1;
	return ofs_catalog_tensor(cat, &t, NULL);
}

static void add(struct ofs_catalog *cat, const char *p, size_t n)
{
	struct ofs_item item = { .error = OFS_NONE };
	struct ofs_entry e = { .tree = OFS_NONE };
	uint32_t c[32], nc = 0, index;
	const char *end = p + n, *bar;
	uint8_t how = (uint8_t)*p++;

	while (nc < 32) {
		bar = memchr(p, '|', (size_t)(end - p));
		if (bar == NULL)
			bar = end;
		index = p < bar && *p == '#' ? OFS_PATH_INDEX : 0;
		p += index != 0;
		c[nc++] =
		    ofs_catalog_str(cat, p, (size_t)(bar - p), NULL) | index;
		if (bar == end)
			break;
		p = bar + 1;
	}
	e.path = ofs_catalog_path(cat, c, nc, NULL);
	e.kind = (how & 0x80) != 0 ? OFS_ENTRY_ITEM : OFS_ENTRY_TENSOR;
	e.ref = e.kind == OFS_ENTRY_ITEM ? ofs_catalog_item(cat, &item, NULL)
					 : tensor(cat, how);
	ofs_catalog_entry(cat, &e, NULL);
}

static void check(struct ofs_catalog *cat, bool narrowed)
{
	struct ofs_str raw;
	struct ofs_tree t;
	uint32_t files = 0;

	must(ofs_tree_build(&t, cat, NULL) == 0);
	for (uint32_t i = 0; i < t.n; i++) {
		const struct ofs_tree_node *d = &t.node[i];

		files += d->entry != OFS_NONE;
		for (uint32_t k = 0; k < d->nchild; k++) {
			const char *name = t.node[d->child + k].name;

			must(k == 0 ||
			    strcmp(t.node[d->child + k - 1].name, name) < 0);
			must(ofs_tree_lookup(&t, i, name) == d->child + k);
		}
	}
	must(narrowed || files == cat->nentries);
	for (uint32_t i = 0; i < t.nalias; i++)
		must(t.alias[i].dir < t.n &&
		    (t.alias[i].target < t.n || t.alias[i].target == OFS_NONE));
	for (uint32_t i = 0; i < cat->nentries; i++)
		ofs_raw_fqn(cat, &cat->entries[i], &raw);
	ofs_tree_fini(&t);
}

/* An option is a letter and a text up to the next space. */
static void parse_options(char *line, struct optimfs_options *opt)
{
	for (char *save, *w = strtok_r(line, " ", &save); w != NULL;
	     w = strtok_r(NULL, " ", &save)) {
		if (*w == 'o')
			opt->optim_key = w + 1;
		else if (*w == 'm')
			opt->model_key = w + 1;
		else if (*w == 's')
			opt->subtree = w + 1;
		else if (*w == 'i')
			opt->ids = "model";
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	const char *p = (const char *)bytes, *end = p + n, *nl;
	struct optimfs_options opt = { 0 };
	struct ofs_dir dir = { .fd = -1 };
	struct ofs_catalog *cat;
	char line[256] = "";

	nl = n == 0 ? NULL : memchr(p, '\n', n);
	if (nl == NULL || nl - p >= (ptrdiff_t)sizeof(line))
		return 0;
	memcpy(line, p, (size_t)(nl - p));
	parse_options(line, &opt);
	cat = ofs_catalog_new(&dir, NULL);
	must(cat != NULL);
	for (p = nl + 1; p < end; p = nl + 1) {
		nl = memchr(p, '\n', (size_t)(end - p));
		if (nl == NULL)
			nl = end;
		if (nl > p)
			add(cat, p, (size_t)(nl - p));
	}
	if (ofs_name_entries(cat, &opt, NULL) == 0)
		check(cat, opt.subtree != NULL);
	ofs_catalog_free(cat);
	return 0;
}
