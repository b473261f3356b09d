/* tree.c - directories and file names from the paths of a catalog */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tree/tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "random.h"
#include "tap.h"

static struct ofs_catalog *new_catalog(void)
{
	struct ofs_dir dir = { .fd = -1 };
	struct ofs_catalog *cat = ofs_catalog_new(&dir, NULL);

	if (cat == NULL)
		bail_out("no memory");
	return cat;
}

/* The path of text, with components separated by '|'. */
static uint32_t path_of(struct ofs_catalog *cat, const char *text)
{
	uint32_t c[64];
	size_t n = 0;

	for (;;) {
		size_t k = strcspn(text, "|");

		c[n++] = ofs_catalog_str(cat, text, k, NULL);
		if (text[k] == '\0')
			break;
		text += k + 1;
	}
	return ofs_catalog_path(cat, c, n, NULL);
}

static void add(struct ofs_catalog *cat, const char *source, const char *tree)
{
	struct ofs_entry e = {
		.path = path_of(cat, source),
		.tree = tree == NULL ? OFS_NONE : path_of(cat, tree),
		.kind = OFS_ENTRY_VALUE,
	};

	if (ofs_catalog_entry(cat, &e, NULL) == OFS_NONE)
		bail_out("no memory");
}

static struct ofs_tree build(struct ofs_catalog *cat)
{
	struct ofs_tree tree;
	struct optimfs_error err;

	if (ofs_tree_build(&tree, cat, &err) == -1)
		bail_out("%s", err.text);
	return tree;
}

/* Every node but the root in depth-first order, as lines "path:entry" or
 * "path/". */
static char *listing(const struct ofs_tree *t)
{
	struct ofs_buf b = { 0 };
	char path[4096];
	uint32_t *stack = malloc((t->n + 1) * sizeof(*stack)), n = 0;

	stack[n++] = 0;
	while (n > 0) {
		uint32_t i = stack[--n];
		const struct ofs_tree_node *d = &t->node[i];

		if (i != 0) {
			ofs_tree_path(t, i, path, sizeof(path));
			if (d->entry == OFS_NONE)
				ofs_buf_printf(&b, "%s/\n", path);
			else
				ofs_buf_printf(&b, "%s:%u\n", path, d->entry);
		}
		for (uint32_t k = d->nchild; k-- > 0;)
			stack[n++] = d->child + k;
	}
	ofs_buf_putc(&b, 0);
	free(stack);
	return (char *)b.data;
}

static void is_tree(struct ofs_catalog *cat, const char *want, const char *what)
{
	struct ofs_tree t = build(cat);
	char *got = listing(&t);

	is_str(got, want, "%s", what);
	free(got);
	ofs_tree_fini(&t);
	ofs_catalog_free(cat);
}

static void shape(void)
{
	struct ofs_catalog *cat = new_catalog();

	add(cat, "m|b", "model|b");
	add(cat, "o|w", "optim|state|w|step");
	add(cat, "m|a/b", "model|a/b");
	add(cat, "left out", NULL);
	add(cat, "m|", "model|");
	add(cat, "o|w2", "optim|state|w|exp_avg");
	add(cat, "m|B", "model|B");
	add(cat, "m|a", "model|a");
	add(cat, "m|.", "model|.");
	is_tree(cat,
	    "model/\n"
	    "model/%:4\n"
	    "model/%2E:8\n"
	    "model/B:6\n"
	    "model/a:7\n"
	    "model/a%2Fb:2\n"
	    "model/b:0\n"
	    "optim/\n"
	    "optim/state/\n"
	    "optim/state/w/\n"
	    "optim/state/w/exp_avg:5\n"
	    "optim/state/w/step:1\n",
	    "directories are made and names are sorted");
	is_tree(new_catalog(), "", "an empty tree has only the root");
}

static void collisions(void)
{
	struct ofs_catalog *cat = new_catalog();
	char key[301], line[1024];

	add(cat, "z|a", "model|a");
	add(cat, "y|a", "model|a");
	add(cat, "x|a", "model|a|b");
	add(cat, "w|a~2", "model|a~2");
	add(cat, "v|a.b", "model|a.b");
	is_tree(cat,
	    "model/\n"
	    "model/a/\n"
	    "model/a/b:2\n"
	    "model/a.b:4\n"
	    "model/a~2:3\n"
	    "model/a~3:1\n"
	    "model/a~4:0\n",
	    "colliding names: a directory wins, then the smaller source path");
	cat = new_catalog();
	memset(key, 'k', sizeof(key));
	key[250] = '\0';
	add(cat, "1", key);
	add(cat, "2", key);
	snprintf(line, sizeof(line), "%s:0\n", key);
	key[200] = '\0';
	{
		struct ofs_tree t = build(cat);

		is_u64(t.n, 3, "two equal long names are two nodes");
		ok(strncmp(t.node[1].name, key, 200) == 0 &&
			strlen(t.node[1].name) == 250,
		    "the first of two equal long names is kept");
		ok(strncmp(t.node[2].name, key, 200) == 0 &&
			strlen(t.node[2].name) == 219,
		    "the second of two equal long names is cut and numbered");
		ofs_tree_fini(&t);
	}
	ofs_catalog_free(cat);
}

/* The same paths in another order get the same names. */
static void determinism(void)
{
	static const char *const source[] = { "c", "a", "b", "d", "e" };
	char *first = NULL, *got;
	bool same = true;

	for (int turn = 0; turn < 5; turn++) {
		struct ofs_catalog *cat = new_catalog();
		struct ofs_buf b = { 0 };
		struct ofs_tree t;

		for (int i = 0; i < 5; i++)
			add(cat, source[(i + turn) % 5], "extra|x");
		t = build(cat);
		for (uint32_t i = 1; i < t.n; i++) {
			uint32_t e = t.node[i].entry, n;
			const uint32_t *c;

			if (e == OFS_NONE)
				continue;
			c = ofs_catalog_components(cat, cat->entries[e].path,
			    &n);
			ofs_buf_printf(&b, "%s=%s ", t.node[i].name,
			    ofs_catalog_string(cat, c[0]).p);
		}
		ofs_buf_putc(&b, 0);
		got = (char *)b.data;
		if (first == NULL)
			first = strdup(got);
		same = same && strcmp(first, got) == 0;
		free(got);
		ofs_tree_fini(&t);
		ofs_catalog_free(cat);
	}
	is_str(first, "x=a x~2=b x~3=c x~4=d x~5=e ",
	    "colliding names are numbered by source path");
	ok(same, "the order of entries does not change the names");
	free(first);
}

static void lookups(void)
{
	struct ofs_catalog *cat = new_catalog();
	struct ofs_tree t;
	char path[64];
	uint32_t model, w, state;

	add(cat, "1", "model|w");
	add(cat, "2", "model|x.w");
	add(cat, "3", "optim|state|w|step");
	ofs_catalog_alias(cat, path_of(cat, "model|module.w"),
	    path_of(cat, "model|w"), NULL);
	ofs_catalog_alias(cat, path_of(cat, "model|module.w"),
	    path_of(cat, "model|w"), NULL);
	ofs_catalog_alias(cat, path_of(cat, "optim|state|tied/w"),
	    path_of(cat, "optim|state|w"), NULL);
	ofs_catalog_alias(cat, path_of(cat, "model|x.w"),
	    path_of(cat, "model|w"), NULL);
	ofs_catalog_alias(cat, path_of(cat, "model|gone"),
	    path_of(cat, "model|no"), NULL);
	ofs_catalog_alias(cat, path_of(cat, "no|dir"), path_of(cat, "model|w"),
	    NULL);
	t = build(cat);
	model = ofs_tree_lookup(&t, 0, "model");
	w = ofs_tree_lookup(&t, model, "w");
	state = ofs_tree_lookup(&t, ofs_tree_lookup(&t, 0, "optim"), "state");
	ok(model != OFS_NONE && w != OFS_NONE, "children are found by name");
	is_u64(t.node[w].entry, 0, "a file leads to its entry");
	is_u64(t.nalias, 2,
	    "only aliases with a target and a free name are kept");
	is_u64(ofs_tree_lookup(&t, model, "module.w"), w,
	    "an alias of a file leads to the file");
	is_u64(ofs_tree_lookup(&t, state, "tied%2Fw"),
	    ofs_tree_lookup(&t, state, "w"),
	    "an alias of a directory leads to the directory");
	ok(ofs_tree_lookup(&t, model, "x.w") != w,
	    "a child takes precedence over an alias");
	is_u64(ofs_tree_lookup(&t, model, "gone"), OFS_NONE,
	    "an alias without target is not found");
	is_u64(ofs_tree_lookup(&t, w, "w"), OFS_NONE, "a file has no children");
	is_u64(ofs_tree_lookup(&t, 0, ""), OFS_NONE,
	    "the empty name is not found");
	ok(ofs_tree_path(&t, 0, path, sizeof(path)),
	    "the path of the root fits the buffer");
	is_str(path, "", "the path of the root is empty");
	ok(ofs_tree_path(&t, w, path, 8), "a path of seven bytes fits eight");
	is_str(path, "model/w", "a path that just fits the buffer");
	ok(!ofs_tree_path(&t, w, path, 7), "a path of seven bytes needs eight");
	is_str(path, ".../w", "of a path that is too long the end is kept");
	ok(!ofs_tree_path(&t, model, path, 5),
	    "a name of five bytes needs six");
	is_str(path, "...", "of a name that is too long nothing is kept");
	is_u64(ofs_tree_node_ino(&t, w),
	    ofs_tree_ino(ofs_tree_ino(1, "w"), "model"),
	    "an inode number depends on the path only");
	ok(ofs_catalog_string_is(cat, ofs_tree_key(&t, cat, w), "w") &&
		ofs_catalog_string_is(cat, ofs_tree_key(&t, cat, state),
		    "state"),
	    "the keys of a file and of a directory");
	ok(t.node[w].parent == model && ofs_tree_node_ino(&t, 0) == 1,
	    "nodes have their parent, and the root has inode 1");
	ofs_tree_fini(&t);
	ofs_catalog_free(cat);
}

static double now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static bool sorted(const struct ofs_tree *t)
{
	for (uint32_t d = 0; d < t->n; d++)
		for (uint32_t i = 1; i < t->node[d].nchild; i++)
			if (strcmp(t->node[t->node[d].child + i - 1].name,
				t->node[t->node[d].child + i].name) >= 0)
				return false;
	return true;
}

/* n shuffled parameter names, as files and as directories. */
static void many(uint32_t n)
{
	struct ofs_catalog *cat = new_catalog();
	uint32_t model = ofs_catalog_str(cat, "model", 5, NULL);
	uint32_t optim = ofs_catalog_str(cat, "optim", 5, NULL);
	uint32_t state = ofs_catalog_str(cat, "state", 5, NULL);
	uint32_t step = ofs_catalog_str(cat, "step", 4, NULL), c[4], found = 0;
	struct ofs_tree t;
	char name[128];
	double start;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t j = (uint32_t)(i * 2654435761ull % n), w;
		struct ofs_entry e = { .kind = OFS_ENTRY_VALUE };
		int len = snprintf(name, sizeof(name),
		    "model.layers.%u.self_attn.experts.%u.weight", j / 100,
		    j % 100);

		w = ofs_catalog_str(cat, name, (size_t)len, NULL);
		memcpy(c, (uint32_t[]){ model, w }, 8);
		e.path = e.tree = ofs_catalog_path(cat, c, 2, NULL);
		ofs_catalog_entry(cat, &e, NULL);
		memcpy(c, (uint32_t[]){ optim, state, w, step }, 16);
		e.path = e.tree = ofs_catalog_path(cat, c, 4, NULL);
		ofs_catalog_entry(cat, &e, NULL);
	}
	start = now();
	t = build(cat);
	diag("%u nodes in %.3f s", t.n, now() - start);
	is_u64(t.n, 4 + 3ull * n, "a tree of %u siblings in two directories",
	    n);
	ok(sorted(&t), "%u siblings are sorted", n);
	for (uint32_t i = 0; i < n; i++) {
		snprintf(name, sizeof(name),
		    "model.layers.%u.self_attn.experts.%u.weight", i / 100,
		    i % 100);
		found += ofs_tree_lookup(&t, ofs_tree_lookup(&t, 0, "model"),
			     name) != OFS_NONE;
	}
	is_u64(found, n, "%u siblings are found", n);
	ofs_tree_fini(&t);
	ofs_catalog_free(cat);
}

/* Short random paths collide in all ways. Each entry must have one file, and
 * each directory sorted, distinct names. */
static void property(void)
{
	static const char alphabet[] = "ab/~2.\xff";
	uint64_t seed = 7;
	uint32_t bad = 0;

	for (int round = 0; round < 300; round++) {
		struct ofs_catalog *cat = new_catalog();
		uint32_t n = 1 + (uint32_t)tap_below(&seed, 60), files = 0;
		struct ofs_tree t;

		for (uint32_t i = 0; i < n; i++) {
			char text[32];
			uint32_t k = 0, len = (uint32_t)tap_below(&seed, 12);

			for (; k < len; k++)
				text[k] = tap_random(&seed) % 4 == 0
				    ? '|'
				    : alphabet[tap_random(&seed) % 7];
			text[k] = '\0';
			add(cat, text, text);
		}
		t = build(cat);
		for (uint32_t i = 1; i < t.n; i++)
			files += t.node[i].entry != OFS_NONE;
		bad += files != n || !sorted(&t);
		ofs_tree_fini(&t);
		ofs_catalog_free(cat);
	}
	is_int(bad, 0, "300 random trees keep every entry");
}

int main(void)
{
	shape();
	collisions();
	determinism();
	lookups();
	property();
	many(20011);
	if (getenv("OPTIMFS_TEST_BIG") != NULL)
		many(1000003);
	return done_testing();
}
