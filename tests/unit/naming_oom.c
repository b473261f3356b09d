/* naming_oom.c - naming and building the tree with each allocation failing */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "naming/naming.h"
#include "oom.h"
#include "pickle/pickle.h"
#include "tap.h"
#include "tree/tree.h"

/* Each case takes another path through the naming code. Components are
 * separated by '|'. The first character is a digit, the offset and number of
 * rows of a tensor, or '-' for a list of the IDs 0 to 2. */
static const struct {
	const char *what, *ids, *paths[12];
} cases[] = {
	{ "nested keys", NULL,
	    { "1model|a", "2model|b", "3optim|state|a|exp_avg",
		"-optim|param_groups|0|params" } },
	{ "flattened keys", NULL,
	    { "1model|a.b", "2optim|state.a.b.exp_avg", "3optim|state.c.d.mine",
		"4optim|param_groups.e.lr" } },
	{ "dotted keys, several optimizers", NULL,
	    { "1model.a", "2o1.optim.state.a.exp_avg",
		"3o2.optim.state.a.exp_avg", "4x.y.optim.state.a.exp_avg" } },
	{ "a model found by the names of the state", NULL,
	    { "1gen|a", "2other|x", "3gen_opt|state|a|exp_avg" } },
	{ "wrapped names", NULL,
	    { "1model|_orig_mod.a", "2model|a", "3model|_orig_mod.b",
		"4optim|state|_orig_mod.b|exp_avg" } },
	{ "tied parameters", NULL,
	    { "1model|a", "1model|b", "1model|c", "2optim|state|b|exp_avg" } },
	{ "IDs named by the model", "model",
	    { "1model|a", "2model|b", "3model|c", "1optim|state|0|exp_avg",
		"3optim|state|2|exp_avg", "-optim|param_groups|0|params" } },
	{ "IDs named by a file", "file",
	    { "1model|a", "2model|b", "3model|c", "1optim|state|0|exp_avg",
		"3optim|state|2|exp_avg", "-optim|param_groups|0|params" } },
	{ "colliding paths", NULL,
	    { "1model|a", "2model|a", "3model|a|b", "4model|a~2", "5x|a" } },
};
#define NCASES (sizeof(cases) / sizeof(*cases))

static const char *ids_file(void)
{
	static char path[] = "/tmp/optimfs-oom-XXXXXX";
	static const char text[] = "a\nb\nc\n";
	int fd = mkstemp(path);

	if (fd == -1 || write(fd, text, sizeof(text) - 1) == -1)
		bail_out("%s", path);
	close(fd);
	return path;
}

static uint32_t path_of(struct ofs_catalog *cat, const char *text)
{
	uint32_t c[8];
	size_t n = 0, k;

	for (;; text += k + 1) {
		k = strcspn(text, "|");
		c[n++] = ofs_catalog_str(cat, text, k, NULL);
		if (text[k] == '\0')
			return ofs_catalog_path(cat, c, n, NULL);
	}
}

static uint32_t tensor(struct ofs_catalog *cat, uint64_t rows)
{
	struct ofs_shard s = { .box = OFS_NONE, .view = OFS_NONE };
	struct ofs_tensor t = { .dtype = OFS_FLOAT32,
		.ndim = 1,
		.grid_ndim = 1,
		.nshards = 1,
		.error = OFS_NONE };

	t.shape = t.grid = ofs_catalog_dims(cat, &rows, 1, NULL);
	s.at.encoding = OFS_TORCH_RECORD;
	s.at.off = rows;
	t.shard = ofs_catalog_shard(cat, &s, NULL);
	return ofs_catalog_tensor(cat, &t, NULL);
}

static uint32_t list(struct ofs_catalog *cat)
{
	static const uint8_t bytes[] = { 0x80, 2, ']', '(', 'K', 0, 'K', 1, 'K',
		2, 'e', '.' };
	struct ofs_pickle *doc =
	    ofs_pickle_parse(bytes, sizeof(bytes), false, NULL, NULL, NULL);

	if (doc == NULL || ofs_catalog_doc(cat, doc, NULL) == OFS_NONE)
		bail_out("cannot make a pickle");
	return ofs_catalog_value(cat, doc, ofs_pickle_root(doc), NULL);
}

static struct ofs_catalog *build(const char *const *path)
{
	struct ofs_dir dir = { .fd = -1 };
	struct ofs_catalog *cat = ofs_catalog_new(&dir, NULL);
	struct ofs_entry e;

	if (cat == NULL)
		bail_out("no memory");
	for (; *path != NULL; path++) {
		e = (struct ofs_entry){ .tree = OFS_NONE };
		e.path = path_of(cat, *path + 1);
		e.kind = **path == '-' ? OFS_ENTRY_VALUE : OFS_ENTRY_TENSOR;
		e.ref = **path == '-' ? list(cat)
				      : tensor(cat, (uint64_t)(**path - '0'));
		ofs_catalog_entry(cat, &e, NULL);
	}
	return cat;
}

static int name_all(struct ofs_catalog *cat, const char *ids,
    struct optimfs_error *err)
{
	struct optimfs_options opt = { .ids = ids };
	struct ofs_tree tree;

	if (ofs_name_entries(cat, &opt, err) == -1 ||
	    ofs_tree_build(&tree, cat, err) == -1)
		return -1;
	ofs_tree_fini(&tree);
	return 0;
}

static void sweep(const char *what, const char *const *path, const char *ids)
{
	bool done = false;
	int ret = -1, wrong = 0;
	long n;

	for (n = 1; n < 10000 && !done; n++) {
		struct ofs_catalog *cat = build(path);
		struct optimfs_error err = { 0 };

		left = n;
		ret = name_all(cat, ids, &err);
		done = left > 0; /* no allocation failed */
		left = -1;
		if (ret == -1 && err.code != ENOMEM) {
			diag("call %ld: %s", n, err.text);
			wrong++;
		} else if (ret == 0 && !done) {
			diag("call %ld: its failure went unnoticed", n);
			wrong++;
		}
		ofs_catalog_free(cat);
	}
	is_int(ret, 0, "%s: naming succeeds when memory suffices", what);
	ok(n > 20, "%s: naming makes %ld allocations", what, n);
	is_int(wrong, 0, "%s: every failed allocation gives ENOMEM", what);
}

int main(void)
{
	const char *file = ids_file();

	for (size_t i = 0; i < NCASES; i++)
		sweep(cases[i].what, cases[i].paths,
		    cases[i].ids != NULL && strcmp(cases[i].ids, "file") == 0
			? file
			: cases[i].ids);
	unlink(file);
	return done_testing();
}
