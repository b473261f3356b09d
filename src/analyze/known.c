/* known.c - what an earlier call found out about the elements of a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "analyze/known.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/map.h"
#include "base/memory.h"
#include "base/user_cache.h"
#include "fs/fs.h"
#include "tree/digest.h"

/* Of the file, and of the way in which results are computed. */
#define FORMAT 1
/* A record is its key, its length, and its bytes. */
#define HEAD 12
/* Of one checkpoint, about 100,000 tensors; and of all. */
#define FILE_MAX  (64u << 20)
#define TOTAL_MAX (512u << 20)
/* The resolution of the times of files, and where they seem to be in seconds. */
#define TICK   INT64_C(100000000)
#define SECOND INT64_C(2000000000)

struct known {
	bool none; /* nothing is kept of this checkpoint */
	char name[64];
	pthread_mutex_t lock;
	/* Protected by lock: */
	uint8_t *old; /* what was loaded; it does not move */
	struct ofs_buf fresh;
	uint64_t nold;
	struct ofs_map by_key;
	struct record {
		uint64_t key;
		const uint8_t *p; /* NULL: in fresh */
		uint32_t len;
	} * v;
	size_t n, cap;
};

static bool same_key(const void *ctx, uint32_t index, const void *key, size_t n)
{
	const struct known *k = ctx;

	return memcmp(&k->v[index].key, key, n) == 0;
}

static uint32_t find_known(const struct known *k, uint64_t key)
{
	return ofs_map_find(&k->by_key, ofs_map_hash(&key, sizeof(key)),
	    same_key, k, &key, sizeof(key));
}

static bool add_known(struct known *k, uint64_t key, const uint8_t *p,
    uint32_t len)
{
	if (k->n >= UINT32_MAX || ofs_grow(k->v, k->n, k->cap, NULL) == -1 ||
	    !ofs_map_add(&k->by_key, ofs_map_hash(&key, sizeof(key)),
		(uint32_t)k->n))
		return false;
	k->v[k->n++] = (struct record){ key, p, len };
	return true;
}

static void drop(void *p)
{
	struct known *k = p;
	struct ofs_buf all = { 0 };

	if (k->fresh.len > 0 && !k->fresh.bad) {
		ofs_buf_put(&all, k->old, k->nold);
		ofs_buf_put(&all, k->fresh.data, k->fresh.len);
		if (!all.bad) {
			ofs_user_cache_trim("stats-", TOTAL_MAX - FILE_MAX);
			ofs_user_cache_save(k->name, all.data, all.len);
		}
		ofs_buf_fini(&all);
	}
	pthread_mutex_destroy(&k->lock);
	ofs_map_fini(&k->by_key);
	ofs_buf_fini(&k->fresh);
	free(k->old);
	free(k->v);
	free(k);
}

/* Would a change from now on be seen in the times of the files? */
static bool is_settled(const struct ofs_identity *id)
{
	int64_t tick = id->changed_ns % 1000000000 == 0 ? SECOND : TICK;

	return id->changed_ns + tick < ofs_now_ns();
}

static bool has_identity(const struct optimfs *fs)
{
	const struct ofs_catalog *cat = fs->now->cat;

	return fs->run == NULL && !fs->changes && fs->coordinator == NULL &&
	    fs->options.group == NULL && fs->options.fill == NULL &&
	    cat->dir.names == NULL;
}

/* Takes the records of the loaded bytes, up to one that is none. */
static void take(struct known *k)
{
	struct ofs_cursor c = ofs_cursor_of(k->old, k->nold);

	while (ofs_cursor_left(&c) >= HEAD) {
		uint64_t key = ofs_cursor_le64(&c);
		uint32_t len = ofs_cursor_le32(&c);
		const uint8_t *p = ofs_cursor_take(&c, len);

		if (p == NULL ||
		    (find_known(k, key) == OFS_NONE &&
			!add_known(k, key, p, len)))
			break;
	}
}

static struct known *load(struct optimfs *fs, struct optimfs_error *err)
{
	struct known *k = calloc(1, sizeof(*k));
	const char *program = optimfs_version();
	struct ofs_identity id;

	if (k == NULL) {
		ofs_no_memory(err);
		return NULL;
	}
	pthread_mutex_init(&k->lock, NULL);
	k->none = !has_identity(fs);
	if (k->none)
		return k;
	id = ofs_catalog_identity(fs->now->cat);
	k->none = !is_settled(&id);
	if (k->none)
		return k;
	id.hash[1] ^= XXH64(program, strlen(program), FORMAT);
	snprintf(k->name, sizeof(k->name), "stats-%016" PRIx64 "%016" PRIx64,
	    id.hash[1], id.hash[0]);
	switch (ofs_user_cache_load(k->name, FILE_MAX, &k->old, &k->nold,
	    err)) {
	case 1:
		take(k);
		return k;
	case 0:
		k->nold = 0;
		return k;
	default:
		k->nold = 0;
		drop(k);
		return NULL;
	}
}

/* That of fs; it is loaded once. NULL: ENOMEM. */
static struct known *known_of(struct optimfs *fs, struct optimfs_error *err)
{
	struct known *k;

	pthread_mutex_lock(&fs->lock);
	if (fs->known.p == NULL) {
		fs->known.p = load(fs, err);
		fs->known.drop = drop;
	}
	k = fs->known.p;
	pthread_mutex_unlock(&fs->lock);
	return k;
}

static int find_key(struct known *k, uint64_t key, struct ofs_cursor *c)
{
	uint32_t i;
	int ret = 0;

	pthread_mutex_lock(&k->lock);
	i = find_known(k, key);
	if (i != OFS_NONE && k->v[i].p != NULL) {
		*c = ofs_cursor_of(k->v[i].p, k->v[i].len);
		ret = 1;
	}
	pthread_mutex_unlock(&k->lock);
	return ret;
}

/* The same tensor is other bytes in another space: of a rank, as float32. */
static uint64_t in_space(uint64_t hash, uint32_t space)
{
	hash = XXH64(&space, sizeof(space), hash);
	return hash == 0 ? 1 : hash;
}

int ofs_known_find(struct optimfs *fs, const struct ofs_file_info *f,
    uint64_t *key, struct ofs_cursor *c, struct optimfs_error *err)
{
	struct known *k = known_of(fs, err);
	struct ofs_buf space = { 0 };
	struct ofs_at at;
	uint64_t hash;
	bool good;

	*key = 0;
	if (k == NULL)
		return -1;
	if (k->none || ofs_node_at(fs->now, f->node, &at, NULL) == -1 ||
	    at.space >= OFS_SPACE_VIEW || at.index >= fs->now->tree.n)
		return 0;
	good = ofs_tree_digest(&fs->now->tree, fs->now->cat, at.index, &space,
	    &hash);
	ofs_buf_fini(&space);
	if (!good)
		return ofs_no_memory(err);
	*key = in_space(hash, at.space);
	return find_key(k, *key, c);
}

int ofs_known_find_all(struct optimfs *fs, const char *name, uint64_t *key,
    struct ofs_cursor *c, struct optimfs_error *err)
{
	struct known *k = known_of(fs, err);
	uint64_t *hash, all;

	*key = 0;
	if (k == NULL)
		return -1;
	if (k->none)
		return 0;
	hash = ofs_tree_digests(&fs->now->tree, fs->now->cat, err);
	if (hash == NULL)
		return -1;
	all = XXH64(name, strlen(name), 0);
	all = XXH64(hash, fs->now->tree.n * sizeof(*hash), all);
	*key = in_space(all, OFS_SPACE_TREE);
	free(hash);
	return find_key(k, *key, c);
}

/* The entry of a node, if it is a tensor whose bytes are all in files that are
 * there. */
static const struct ofs_tensor *stored(const struct optimfs *fs, uint64_t node,
    uint64_t *digest)
{
	const struct ofs_catalog *cat;
	const struct ofs_tree *tree;
	const struct ofs_entry *e;
	const struct ofs_tensor *t;
	struct ofs_buf space = { 0 };
	struct ofs_at at;
	bool good;

	if (fs->run != NULL || !has_identity(fs))
		return NULL;
	cat = fs->now->cat;
	tree = &fs->now->tree;
	if (ofs_node_at(fs->now, node, &at, NULL) == -1 ||
	    at.space != OFS_SPACE_TREE || at.index >= tree->n ||
	    tree->node[at.index].entry == OFS_NONE)
		return NULL;
	e = ofs_tree_entry(tree, cat, at.index);
	if (e->kind != OFS_ENTRY_TENSOR)
		return NULL;
	t = &cat->tensors[e->ref];
	if (t->error != OFS_NONE ||
	    (t->flags & (OFS_TENSOR_HOLES | OFS_TENSOR_DOUBT)) != 0)
		return NULL;
	good = ofs_tree_digest(tree, cat, at.index, &space, digest);
	ofs_buf_fini(&space);
	return good ? t : NULL;
}

/* Is the file of a shard still that of the catalog? *st is what it is. */
static bool same_file(const struct ofs_catalog *cat, const struct ofs_shard *s,
    struct stat *st)
{
	const struct ofs_object *o = &cat->objects[s->at.object];

	return s->at.encoding != OFS_DERIVED && !o->missing && !o->damaged &&
	    !o->refused && ofs_dir_stat(&cat->dir, o->path, st) &&
	    st->st_ino == o->ino && (uint64_t)st->st_size == o->size &&
	    ofs_time_ns(&st->st_mtim) == o->mtime_ns;
}

bool ofs_known_same(struct optimfs *a, uint64_t x, struct optimfs *b,
    uint64_t y)
{
	const struct ofs_catalog *c, *d;
	const struct ofs_tensor *t, *u;
	uint64_t p, q;

	t = stored(a, x, &p);
	u = t == NULL ? NULL : stored(b, y, &q);
	if (u == NULL || p != q || t->nshards != u->nshards)
		return false;
	c = a->now->cat;
	d = b->now->cat;
	for (uint32_t i = 0; i < t->nshards; i++) {
		struct stat s, r;

		if (!same_file(c, &c->shards[t->shard + i], &s) ||
		    !same_file(d, &d->shards[u->shard + i], &r) ||
		    s.st_dev != r.st_dev || s.st_ino != r.st_ino)
			return false;
	}
	return true;
}

void ofs_known_put(struct optimfs *fs, uint64_t key, const struct ofs_buf *b)
{
	struct known *k = known_of(fs, NULL);

	if (k == NULL || key == 0 || b->bad || b->len > FILE_MAX)
		return;
	pthread_mutex_lock(&k->lock);
	if (k->nold + k->fresh.len + HEAD + b->len <= FILE_MAX &&
	    find_known(k, key) == OFS_NONE && add_known(k, key, NULL, 0)) {
		ofs_buf_put_le(&k->fresh, key, 8);
		ofs_buf_put_le(&k->fresh, b->len, 4);
		ofs_buf_put(&k->fresh, b->data, b->len);
	}
	pthread_mutex_unlock(&k->lock);
}
