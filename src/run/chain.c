/* chain.c - versions that are stored as changes of the one before */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "run/chain.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/str.h"
#include "derive/patch.h"
#include "fs/fs.h"
#include "run/places.h"

/* A version names the one that it changes, which has a smaller number, so that a
 * chain ends: at a state, which another checkpoint of the run is, or base=. The
 * catalog of a chain begins as a copy of that of the state; tensors that change
 * are made patched ones, each by all of its changes at once. */

struct link {
	struct optimfs *fs; /* of the changes, as they are stored */
	uint64_t version;
};

struct chain {
	struct ofs_run_dir *run;
	struct link *v; /* the newest first */
	uint32_t n, cap;
	struct optimfs *base;
	uint64_t base_version;
	struct optimfs_error *err;
};

static const struct ofs_delta *changes_of(const struct link *l)
{
	return l->fs->now->cat->delta;
}

/* What the run knows. */

/* Calls each for the member and all before it, up to the first state. */
static int walk(struct ofs_run_dir *run, const char *name,
    void (*each)(void *ctx, const struct ofs_run_member *m), void *ctx,
    struct optimfs_error *err)
{
	struct ofs_run_member m;

	if (ofs_run_shown(&run->members, name, &m, err) == -1)
		return -1;
	each(ctx, &m);
	while (m.found.changes &&
	    ofs_run_member(&run->members,
		ofs_run_member_before(&run->members, m.step), &m))
		each(ctx, &m);
	return 0;
}

static void add_stamp(void *ctx, const struct ofs_run_member *m)
{
	uint64_t *hash = ctx;

	*hash = XXH64(&m->stamp, sizeof(m->stamp), *hash);
}

static uint64_t chain_version(struct ofs_run_dir *run, const char *name)
{
	uint64_t hash = 0;

	(void)walk(run, name, add_stamp, &hash, NULL);
	return hash;
}

static void narrow(void *ctx, const struct ofs_run_member *m)
{
	struct optimfs_attr *attr = ctx;

	attr->mode &= m->found.mode;
	attr->uid = m->uid;
	attr->gid = m->gid;
	if (m->found.mtime_ns > attr->mtime_ns)
		attr->mtime_ns = m->found.mtime_ns;
}

/* Who may read all of it may read it. */
static int chain_attr(struct ofs_run_dir *run, const char *name,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	attr->mode = 0444;
	attr->mtime_ns = 0;
	if (walk(run, name, narrow, attr, err) == -1)
		return -1;
	attr->mode |= S_IFDIR | attr->mode >> 2;
	return 0;
}

/* Opening the links. */

static int open_link(struct chain *x, const struct ofs_run_member *m)
{
	char *path = ofs_run_member_path(x->run, m->name, x->err);
	struct link *l;

	if (path == NULL || ofs_grow(x->v, x->n, x->cap, x->err) == -1) {
		free(path);
		return -1;
	}
	l = &x->v[x->n];
	*l = (struct link){ .version = m->step };
	l->fs = x->run->open(path, &x->run->options, x->err);
	free(path);
	if (l->fs == NULL)
		return optimfs_fail_in(x->err, "version %" PRIu64, m->step);
	x->n++;
	if (changes_of(l) == NULL)
		return optimfs_fail(x->err, ESTALE,
		    "%s is no longer a version of changes", m->name);
	if (changes_of(l)->version != m->step)
		return optimfs_fail(x->err, EUCLEAN,
		    "OFS881 %.100s: it says that it is version %" PRIu64,
		    m->name, changes_of(l)->version);
	return 0;
}

static int missing(const struct chain *x, uint64_t version)
{
	const struct link *last = &x->v[x->n - 1];
	const char *hint = "";

	if (version == 0)
		hint = "; give it with -o base=PATH";
	else if (strcmp(ofs_path_last(x->run->path), "deltas") == 0)
		hint = ": give the directory above, which may have it";
	return optimfs_fail(x->err, ENOENT,
	    "OFS887 version %" PRIu64 " cannot be read: version %" PRIu64
	    ", which version %" PRIu64 " changes, is not in %s%s",
	    x->v[0].version, version, last->version, x->run->path, hint);
}

/* The state at the end of the chain. */
static int open_base(struct chain *x, uint32_t member, uint64_t version)
{
	const char *path = x->run->options.base;
	uint32_t tree;

	x->base_version = version;
	if (member != OFS_NONE) {
		tree = ofs_run_member_tree(x->run, member, x->err);
		x->base = tree == OFS_NONE
		    ? NULL
		    : ofs_run_tree_open(&x->run->trees, tree, x->err);
	} else if (version == 0 && path != NULL) {
		x->base = x->run->open(path, &x->run->options, x->err);
	} else {
		return missing(x, version);
	}
	return x->base != NULL
	    ? 0
	    : optimfs_fail_in(x->err, "version %" PRIu64, version);
}

static int open_chain(struct chain *x, const char *name)
{
	struct ofs_run_member m;
	uint64_t version;
	uint32_t i;

	if (ofs_run_shown(&x->run->members, name, &m, x->err) == -1)
		return -1;
	for (;;) {
		if (open_link(x, &m) == -1)
			return -1;
		version = changes_of(&x->v[x->n - 1])->base;
		i = ofs_run_member_from(&x->run->members, version);
		if (!ofs_run_member(&x->run->members, i, &m) ||
		    m.step != version)
			return open_base(x, OFS_NONE, version);
		if (!m.found.changes)
			return open_base(x, i, version);
	}
}

static void close_chain(struct chain *x)
{
	for (uint32_t i = 0; i < x->n; i++)
		optimfs_close(x->v[i].fs);
	free(x->v);
	optimfs_close(x->base);
}

/* The catalog. */

/* A change of a tensor of the state. */
struct hit {
	uint32_t tensor, link, change;
};

struct patching {
	const struct chain *x;
	struct ofs_snapshot *base;
	struct ofs_catalog *cat;
	const char **name; /* of each link, in the arena */
	struct hit *v;
	uint32_t n, cap;
	struct optimfs_error *err;
};

/* By tensor, the oldest change first. */
static int by_tensor(const void *a, const void *b)
{
	const struct hit *x = a, *y = b;

	if (x->tensor != y->tensor)
		return x->tensor < y->tensor ? -1 : 1;
	return (x->link < y->link) - (x->link > y->link);
}

static uint32_t find_tensor(const struct patching *p, struct ofs_str name)
{
	const struct ofs_entry *e;
	struct ofs_at at;
	char path[PATH_MAX];

	if ((size_t)snprintf(path, sizeof(path), "model/%.*s", (int)name.len,
		name.p) >= sizeof(path) ||
	    ofs_resolve(p->base, path, &at, NULL) == -1 ||
	    at.space != OFS_SPACE_TREE || at.index >= p->base->tree.n)
		return OFS_NONE;
	e = ofs_tree_entry(&p->base->tree, p->base->cat, at.index);
	return e == NULL || e->kind != OFS_ENTRY_TENSOR ? OFS_NONE : e->ref;
}

static int find_link(struct patching *p, uint32_t link)
{
	const struct ofs_delta *c = changes_of(&p->x->v[link]);

	for (uint32_t i = 0; i < c->n; i++) {
		uint32_t tensor = find_tensor(p, c->v[i].name);

		if (tensor == OFS_NONE) {
			if (ofs_catalog_note(p->cat, OFS_NOTE_MISSING, EUCLEAN,
				p->err,
				"OFS888 model/%.*s: version %" PRIu64
				" changes it, but version %" PRIu64
				" does not have it",
				OFS_STR_ARGS(c->v[i].name, 200),
				p->x->v[link].version,
				p->x->base_version) == -1)
				return -1;
			continue;
		}
		if (ofs_grow(p->v, p->n, p->cap, p->err) == -1)
			return -1;
		p->v[p->n++] = (struct hit){ tensor, link, i };
	}
	return 0;
}

static int name_links(struct patching *p)
{
	char text[40];

	p->name = ofs_arena_alloc(&p->cat->arena, p->x->n * sizeof(*p->name));
	for (uint32_t i = 0; p->name != NULL && i < p->x->n; i++) {
		int n = snprintf(text, sizeof(text), "version %" PRIu64,
		    p->x->v[i].version);

		p->name[i] = ofs_arena_strndup(&p->cat->arena, text, (size_t)n);
		if (p->name[i] == NULL)
			return ofs_no_memory(p->err);
	}
	return p->name == NULL ? ofs_no_memory(p->err) : 0;
}

/* Derives the tensor of the n hits at v. */
static int patch_tensor(struct patching *p, const struct hit *v, uint32_t n)
{
	struct ofs_patch_step *patch = ofs_alloc(n, sizeof(*patch), p->err);
	int ret;

	if (patch == NULL)
		return -1;
	for (uint32_t i = 0; i < n; i++) {
		const struct link *l = &p->x->v[v[i].link];

		patch[i] = (struct ofs_patch_step){ &l->fs->now->reader,
			p->name[v[i].link], &changes_of(l)->v[v[i].change] };
	}
	ret = ofs_patch_derive(p->cat, v[0].tensor, &p->base->reader,
	    v[0].tensor, patch, n, p->err);
	free(patch);
	return ret;
}

static int patch_all(struct patching *p)
{
	uint32_t n;

	for (uint32_t i = 0; i < p->x->n; i++)
		if (find_link(p, i) == -1)
			return -1;
	if (p->n > 0)
		qsort(p->v, p->n, sizeof(*p->v), by_tensor);
	for (uint32_t i = 0; i < p->n; i += n) {
		for (n = 1;
		     i + n < p->n && p->v[i + n].tensor == p->v[i].tensor; n++)
			;
		if (patch_tensor(p, &p->v[i], n) == -1)
			return -1;
	}
	return 0;
}

static int copy_entries(struct patching *p)
{
	const struct ofs_catalog *base = p->base->cat;

	for (uint32_t i = 0; i < base->nentries; i++)
		if (ofs_catalog_entry(p->cat, &base->entries[i], p->err) ==
		    OFS_NONE)
			return -1;
	for (uint32_t i = 0; i < base->nvariants; i++)
		if (ofs_catalog_variant(p->cat, &base->variants[i], p->err) ==
		    OFS_NONE)
			return -1;
	return 0;
}

static void release(void *fs)
{
	optimfs_close(fs);
}

static int keep(struct patching *p, struct optimfs *fs)
{
	ofs_catalog_from(p->cat, fs->now->cat, 1);
	p->cat->withheld |= 0444 & ~fs->now->access.now.mode;
	return ofs_catalog_keep(p->cat, ofs_fs_ref(fs), release, p->err);
}

static int describe(struct patching *p)
{
	const struct ofs_catalog *cat = p->x->v[0].fs->now->cat;
	char text[120];

	for (uint32_t i = 0; i < p->x->n; i++)
		if (keep(p, p->x->v[i].fs) == -1)
			return -1;
	if (keep(p, p->x->base) == -1)
		return -1;
	snprintf(text, sizeof(text),
	    "version %" PRIu64 " with the changes of %u version%s",
	    p->x->base_version, p->x->n, p->x->n == 1 ? "" : "s");
	p->cat->access.mode &= ~p->cat->withheld;
	for (uint32_t i = 0; i < cat->nobjects; i++)
		ofs_sum_u64(&p->cat->own, cat->objects[i].size);
	p->cat->computed =
	    ofs_arena_strndup(&p->cat->arena, text, strlen(text));
	return p->cat->computed == NULL ? ofs_no_memory(p->err) : 0;
}

static struct optimfs *patch_chain(const struct chain *x, const char *name)
{
	struct patching p = { .x = x, .base = x->base->now, .err = x->err };
	struct optimfs *fs = NULL;
	char *source;
	int ret = -1;

	p.cat = ofs_catalog_copy(p.base->cat, x->err);
	if (p.cat != NULL && name_links(&p) == 0 && describe(&p) == 0 &&
	    patch_all(&p) == 0)
		ret = copy_entries(&p);
	free(p.v);
	source = ret == 0 ? ofs_run_member_path(x->run, name, x->err) : NULL;
	if (source == NULL) {
		ofs_catalog_free(p.cat);
		return NULL;
	}
	ofs_catalog_seal(p.cat);
	fs = ofs_fs_new(p.cat, source, &x->run->options, x->err);
	free(source);
	return fs;
}

static struct optimfs *open_chained(struct ofs_run_dir *run, const char *name,
    struct optimfs_error *err)
{
	struct chain x = { .run = run, .err = err };
	struct optimfs *fs = NULL;

	if (open_chain(&x, name) == 0)
		fs = patch_chain(&x, name);
	close_chain(&x);
	return fs;
}

const struct ofs_run_source ofs_run_chained = {
	.open = open_chained,
	.version = chain_version,
	.attr = chain_attr,
};
