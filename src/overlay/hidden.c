/* hidden.c - a new checkpoint: names hidden until they are created */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "base/search.h"
#include "catalog/shards.h"
#include "overlay/overlay_impl.h"

/* `optimfs mkfs` makes a checkpoint like another one. Its mount has the tree of
 * that one under an overlay that hides every name. Creating a file makes the name
 * of the tree visible, with no bytes; what is written is staged as in any overlay.
 * Nothing below the overlay is read as the contents of a hidden name: a byte that
 * nobody wrote is an error, and prevents the commit.
 *
 * - Several names may be one tensor below (tied weights). Here each has a file of
 *   its own (ofs_overlay_file.tied), so that the commit can tell whether they were
 *   written differently. One of them is enough.
 * - Two tensors may lie in the same stored elements, such as a weight that is
 *   trained in float32 and its copy in the optimizer. One of them is enough, too,
 *   but they may differ: the new layout may store them apart.
 * - Names that the tree does not have are added files, as in any overlay, such as
 *   the temporary names of rsync. Renamed to a name of the tree, they become its
 *   contents; otherwise they prevent the commit. */

#define PIECE ((uint64_t)1 << 20)
/* The size of a buffer for a reason. */
#define WORDS 400

/* The place of a shard; equal boxes and strides have one index. */
static int compare_shards(const struct ofs_catalog *cat,
    const struct ofs_shard *a, const struct ofs_shard *b)
{
	static const struct ofs_view none = { .stride = OFS_NONE };
	const struct ofs_view *v = ofs_shard_view(cat, a),
			      *w = ofs_shard_view(cat, b);
	const struct ofs_shard *const shard[] = { a, b };
	const struct ofs_view *const view[] = { v == NULL ? &none : v,
		w == NULL ? &none : w };
	uint64_t key[2][10];

	for (size_t i = 0; i < 2; i++) {
		const struct ofs_extent *at = &shard[i]->at;
		const uint64_t k[] = { at->object, at->off, at->len,
			at->encoding, at->codec, shard[i]->box, view[i]->offset,
			view[i]->numel, view[i]->stride, view[i]->fix };

		memcpy(key[i], k, sizeof(k));
	}
	return memcmp(key[0], key[1], sizeof(key[0]));
}

static int compare_places(const void *one, const void *other, void *ctx)
{
	const struct ofs_catalog *cat = ctx;
	uint32_t i = *(const uint32_t *)one, k = *(const uint32_t *)other;
	const struct ofs_tensor *a = &cat->tensors[i], *b = &cat->tensors[k];
	int c = OFS_ORDER(a->dtype, b->dtype);

	if (c == 0)
		c = OFS_ORDER(a->nshards, b->nshards);
	if (c == 0)
		c = OFS_ORDER(ofs_tensor_numel(cat, a),
		    ofs_tensor_numel(cat, b));
	for (uint32_t s = 0; s < a->nshards && c == 0; s++)
		c = compare_shards(cat, &cat->shards[a->shard + s],
		    &cat->shards[b->shard + s]);
	return c;
}

/* Elements that are computed are in no place. */
static bool is_stored(const struct ofs_catalog *cat, const struct ofs_tensor *t)
{
	for (uint32_t s = 0; s < t->nshards; s++)
		if (cat->shards[t->shard + s].at.encoding == OFS_DERIVED)
			return false;
	return t->nshards > 0;
}

static int find_same(struct ofs_overlay *o, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = o->cat;
	uint64_t n = cat->ntensors + 1ull;
	uint32_t *order = ofs_alloc(n, sizeof(*order), err);

	o->same = ofs_alloc(n, sizeof(*o->same), err);
	if (order == NULL || o->same == NULL) {
		free(order);
		return -1;
	}
	for (uint32_t i = 0; i < cat->ntensors; i++)
		order[i] = o->same[i] = i;
	qsort_r(order, cat->ntensors, sizeof(*order), compare_places,
	    (void *)(uintptr_t)cat);
	for (uint32_t i = 1; i < cat->ntensors; i++)
		if (is_stored(cat, &cat->tensors[order[i]]) &&
		    compare_places(&order[i - 1], &order[i],
			(void *)(uintptr_t)cat) == 0)
			o->same[order[i]] = o->same[order[i - 1]];
	free(order);
	return 0;
}

int ofs_overlay_hide(struct ofs_overlay *o, const char *only,
    struct optimfs_error *err)
{
	o->only = only;
	o->hidden = ofs_alloc(o->cat->ntensors + 1ull, sizeof(*o->hidden), err);
	if (o->hidden == NULL || find_same(o, err) == -1)
		return -1;
	for (uint32_t i = 1; i < o->tree->n; i++) {
		struct ofs_overlay_node *v = ofs_overlay_touch(o, i, err);
		uint32_t entry = o->tree->node[i].entry;

		if (v == NULL)
			return -1;
		v->gone = true;
		if (entry != OFS_NONE &&
		    o->cat->entries[entry].kind == OFS_ENTRY_TENSOR)
			o->hidden[o->cat->entries[entry].ref] = true;
	}
	return 0;
}

bool ofs_overlay_hides(const struct ofs_overlay *o)
{
	return o->hidden != NULL && !o->published;
}

bool ofs_overlay_hides_tensor(const struct ofs_overlay *o, uint32_t tensor)
{
	return ofs_overlay_hides(o) && tensor < o->cat->ntensors &&
	    o->hidden[tensor];
}

/* Names. */

/* The hidden node with this name; OFS_NONE: none. */
static uint32_t absent(const struct ofs_overlay *o, uint32_t dir,
    const char *name, bool is_dir)
{
	const struct ofs_overlay_node *v;
	uint32_t index;

	if (dir >= o->tree->n)
		return OFS_NONE;
	index = ofs_tree_lookup(o->tree, dir, name);
	v = index == OFS_NONE ? NULL : ofs_overlay_node(o, index);
	if (v == NULL || !v->gone || v->parent != OFS_NONE || v->dir != is_dir)
		return OFS_NONE;
	return index;
}

static bool is_shared(const struct ofs_overlay *o,
    const struct ofs_overlay_file *f)
{
	const struct ofs_tensor *t =
	    ofs_entry_tensor(o->cat, &o->cat->entries[f->entry]);

	return f->text && t != NULL && (t->flags & OFS_TENSOR_TIED) != 0;
}

/* A file that just became visible is empty, even if bytes were written earlier
 * to a file of this name that was removed. */
static int begin_empty(struct ofs_overlay *o, uint32_t index,
    struct optimfs_error *err)
{
	struct ofs_overlay_file *f = ofs_overlay_file_touch(o, index, err);
	struct ofs_buf none = { 0 };
	struct ofs_blob *empty;

	if (f == NULL)
		return -1;
	if (!is_shared(o, f))
		ofs_overlay_file_revert(o, f);
	if (!f->text || f->accepted != NULL)
		return 0;
	empty = ofs_blob_of(&none, err);
	if (empty == NULL)
		return -1;
	pthread_rwlock_wrlock(&f->lock);
	f->accepted = empty;
	f->unwritten = true;
	pthread_rwlock_unlock(&f->lock);
	return 0;
}

int ofs_overlay_reveal(struct ofs_overlay *o, uint32_t dir, const char *name,
    bool is_dir, uint32_t *index, struct optimfs_error *err)
{
	uint32_t found =
	    o->hidden == NULL ? OFS_NONE : absent(o, dir, name, is_dir);

	if (found == OFS_NONE)
		return 0;
	if (!is_dir && begin_empty(o, found, err) == -1)
		return -1;
	if (ofs_overlay_record_path(o, is_dir ? OFS_REC_MKDIR : OFS_REC_CREATE,
		dir, name, err) == -1)
		return -1;
	ofs_overlay_node(o, found)->gone = false;
	*index = found;
	ofs_overlay_changed(o, true);
	return 1;
}

/* Gives the staged bytes of one file to another, which loses its own. */
static void move_bytes(struct ofs_overlay *o, struct ofs_overlay_file *from,
    struct ofs_overlay_file *to)
{
	ofs_overlay_file_revert(o, to);
	pthread_rwlock_wrlock(&from->lock);
	pthread_rwlock_wrlock(&to->lock);
	to->id = from->id;
	to->fd = from->fd;
	to->unsynced = from->unsynced;
	to->version = from->version;
	to->size = from->size;
	to->written = from->written;
	to->lost = from->lost;
	to->why = from->why;
	to->mtime_ns = from->mtime_ns;
	from->id = from->size = from->version = 0;
	from->fd = -1;
	from->unsynced = false;
	from->written = from->lost = (struct ofs_ranges){ 0 };
	pthread_rwlock_unlock(&to->lock);
	pthread_rwlock_unlock(&from->lock);
	if (to->opens == 0)
		ofs_overlay_file_idle(o, to);
}

/* One record moves the bytes, and nothing has changed before it is written. */
static int take_bytes(struct ofs_overlay *o, struct ofs_overlay_file *from,
    struct ofs_overlay_file *to, uint32_t dir, const char *name,
    struct optimfs_error *err)
{
	uint64_t limit = ofs_overlay_limit(o, to->index);

	if (!o->replaying && from->size > limit)
		return optimfs_fail(err, EFBIG,
		    "OFS813 past the tensor's end (it has %llu bytes)",
		    (unsigned long long)limit);
	if ((!o->replaying &&
		ofs_overlay_fits(o, from, to->index, err) == -1) ||
	    ofs_overlay_record_rename(o, ofs_overlay_parent(o, from->index),
		ofs_overlay_name(o, from->index), dir, name, err) == -1)
		return -1;
	move_bytes(o, from, to);
	ofs_overlay_drop(o, from->index);
	return 0;
}

static int take_text(struct ofs_overlay *o, struct ofs_overlay_file *from,
    struct ofs_overlay_file *to, struct optimfs_error *err)
{
	if (ofs_overlay_text_take(o, from, to, to->index, err) == -1)
		return -1;
	return ofs_overlay_remove(o, ofs_overlay_parent(o, from->index),
	    ofs_overlay_name(o, from->index), false, err);
}

int ofs_overlay_rename_over(struct ofs_overlay *o, uint32_t index, uint32_t dir,
    const char *name, struct optimfs_error *err)
{
	struct ofs_overlay_file *from, *to;
	uint32_t known;
	bool hidden;

	if (o->hidden == NULL || !ofs_overlay_is_made(o, index) ||
	    ofs_overlay_is_dir(o, index))
		return 0;
	known = absent(o, dir, name, false);
	hidden = known != OFS_NONE;
	if (!hidden)
		known = ofs_overlay_find(o, dir, name);
	if (known == OFS_NONE || ofs_overlay_is_made(o, known) ||
	    ofs_overlay_is_dir(o, known))
		return 0;
	from = ofs_overlay_file_touch(o, index, err);
	to = ofs_overlay_file_touch(o, known, err);
	if (from == NULL || to == NULL)
		return -1;
	if (!to->text) {
		if (take_bytes(o, from, to, dir, name, err) == -1)
			return -1;
		if (hidden)
			ofs_overlay_node(o, known)->gone = false;
		return 1;
	}
	if (hidden &&
	    ofs_overlay_reveal(o, dir, name, false, &known, err) == -1)
		return -1;
	if (take_text(o, from, to, err) == 0)
		return 1;
	if (hidden)
		(void)ofs_overlay_remove(o, dir, name, false, NULL);
	return -1;
}

/* What is written. */

/* Does the file exist under its own name? */
static bool is_present(const struct ofs_overlay *o, uint32_t index)
{
	const struct ofs_tree_node *b = &o->tree->node[index];
	const struct ofs_overlay_node *v;

	for (; index != 0; index = b->parent) {
		v = ofs_overlay_node(o, index);
		b = &o->tree->node[index];
		/* moved away and back */
		if (v->gone &&
		    (v->parent != b->parent || v->name == NULL ||
			strcmp(v->name, b->name) != 0))
			return false;
	}
	return true;
}

static uint64_t bytes_of(const struct ofs_overlay *o,
    const struct ofs_overlay_file *f)
{
	return ofs_tensor_bytes(o->cat,
	    ofs_entry_tensor(o->cat, &o->cat->entries[f->entry]));
}

/* Is this file of a tensor visible and completely written? */
static bool is_whole(const struct ofs_overlay *o, struct ofs_overlay_file *f)
{
	uint64_t total = bytes_of(o, f);
	bool whole;

	if (f->text || !is_present(o, f->index))
		return false;
	pthread_rwlock_rdlock(&f->lock);
	whole = f->size == total && f->lost.n == 0 &&
	    ofs_ranges_cover(&f->written, 0, total);
	pthread_rwlock_unlock(&f->lock);
	return whole;
}

/* What has the bytes of each tensor. */
struct supply {
	const struct ofs_overlay *o;
	struct ofs_overlay_file **whole; /* by o->same: a complete file */
};

static int supply_init(struct supply *s, const struct ofs_overlay *o,
    struct optimfs_error *err)
{
	s->o = o;
	s->whole = ofs_alloc(o->cat->ntensors + 1ull,
	    sizeof(struct ofs_overlay_file *), err);
	if (s->whole == NULL)
		return -1;
	for (uint32_t i = 0; i < o->cat->ntensors; i++)
		for (struct ofs_overlay_file *f = o->tensor[i]; f != NULL;
		     f = f->tied)
			if (is_whole(o, f))
				s->whole[o->same[i]] = f;
	return 0;
}

/* What is missing. */

static bool begins_with_zeros(const struct ofs_overlay *o, uint32_t entry)
{
	const struct ofs_tensor *t =
	    ofs_entry_tensor(o->cat, &o->cat->entries[entry]);

	return t != NULL && t->ndim > 0 && (t->flags & OFS_TENSOR_ZERO) != 0;
}

/* Is it in the part of the tree that the new checkpoint has? */
static bool is_wanted(const struct ofs_overlay *o, uint32_t index)
{
	const struct ofs_tree_node *v = o->tree->node;

	while (v[index].parent != 0)
		index = v[index].parent;
	return o->only == NULL || strcmp(v[index].name, o->only) == 0;
}

/* May the file be missing? A value without a text cannot be written, and comes
 * from the checkpoint below. */
static bool is_left_out(const struct supply *s, uint32_t index)
{
	const struct ofs_overlay *o = s->o;
	uint32_t entry = o->tree->node[index].entry;
	const struct ofs_entry *e = &o->cat->entries[entry];

	return !is_wanted(o, index) || begins_with_zeros(o, entry) ||
	    ofs_entry_is_pickled(o->cat, e, NULL, NULL) ||
	    (e->kind == OFS_ENTRY_TENSOR && s->whole[o->same[e->ref]] != NULL);
}

static bool tensor_lacks(const struct ofs_overlay *o,
    const struct ofs_overlay_file *f, char words[WORDS])
{
	uint64_t total = bytes_of(o, f);

	if (f->lost.n > 0) {
		snprintf(words, WORDS, "%s", optimfs_error_words(&f->why));
		return true;
	}
	if (f->size == total && ofs_ranges_cover(&f->written, 0, total))
		return false;
	snprintf(words, WORDS, "%" PRIu64 " of %" PRIu64 " bytes",
	    ofs_ranges_total(&f->written), total);
	return true;
}

static bool lacks(const struct supply *s, uint32_t index, char words[WORDS])
{
	struct ofs_overlay_file *f = ofs_overlay_file(s->o, index);
	bool bad;

	if (f == NULL || !is_present(s->o, index)) {
		strcpy(words, "not written yet");
		return !is_left_out(s, index);
	}
	pthread_rwlock_rdlock(&f->lock);
	if (f->text) {
		bad = f->unwritten;
		strcpy(words, "nothing was written");
	} else {
		bad = tensor_lacks(s->o, f, words);
	}
	pthread_rwlock_unlock(&f->lock);
	return bad;
}

/* Reports each file that prevents a commit. */
static void each_problem(const struct supply *s,
    void (*say)(void *ctx, const char *path, const char *words), void *ctx)
{
	const struct ofs_overlay *o = s->o;
	char path[8192], words[WORDS], *own;

	for (uint32_t i = 1; i < o->tree->n; i++) {
		if (o->tree->node[i].entry == OFS_NONE || !lacks(s, i, words))
			continue;
		ofs_tree_path(o->tree, i, path, sizeof(path));
		say(ctx, path, words);
	}
	for (uint32_t i = 0; i < o->nmade; i++) {
		const struct ofs_overlay_node *v = o->made[i];

		if (v->dead || v->dir || v->parent == OFS_NONE)
			continue;
		own = ofs_overlay_path(o, v->index, NULL, NULL);
		if (own != NULL)
			say(ctx, own,
			    "the checkpoint that this one is made like has no "
			    "such file");
		free(own);
	}
}

static void put_line(void *ctx, const char *path, const char *words)
{
	ofs_buf_puts(ctx, "OFS301 ");
	ofs_buf_plain(ctx, path, strlen(path));
	ofs_buf_printf(ctx, ": %s\n", words);
}

void ofs_overlay_missing(struct ofs_overlay *o, struct ofs_buf *out)
{
	struct supply s;

	pthread_rwlock_rdlock(&o->names);
	if (supply_init(&s, o, NULL) == 0) {
		each_problem(&s, put_line, out);
		free(s.whole);
	}
	pthread_rwlock_unlock(&o->names);
}

struct tally {
	uint64_t n;
	char first[480];
};

static void count(void *ctx, const char *path, const char *words)
{
	struct tally *t = ctx;

	if (t->n++ == 0)
		snprintf(t->first, sizeof(t->first), "%.80s: %.390s", path,
		    words);
}

static int check_missing(const struct supply *s, struct optimfs_error *err)
{
	struct tally t = { 0 };

	each_problem(s, count, &t);
	if (t.n == 0)
		return 0;
	if (t.n == 1)
		return optimfs_fail(err, EINVAL, "OFS301 %s", t.first);
	return optimfs_fail(err, EINVAL,
	    "OFS301 %s; %" PRIu64 " more: .optimfs/missing lists them", t.first,
	    t.n - 1);
}

/* Before the commit. */

/* Accepts texts that were created empty, where empty is valid. */
static void accept_empty(struct ofs_overlay *o)
{
	pthread_rwlock_rdlock(&o->names);
	for (struct ofs_overlay_file *f = o->files; f != NULL; f = f->next) {
		struct optimfs_error own;

		pthread_rwlock_wrlock(&f->lock);
		if (f->text && f->unwritten) {
			f->draft.len = 0;
			f->has_draft = true;
			if (ofs_overlay_text_accept(o, f, f->index, &own) == -1)
				f->has_draft = false;
		}
		pthread_rwlock_unlock(&f->lock);
	}
	pthread_rwlock_unlock(&o->names);
}

static int differ(const struct ofs_overlay *o, const struct ofs_overlay_file *a,
    const struct ofs_overlay_file *b, const uint8_t *x, const uint8_t *y,
    uint64_t off, struct optimfs_error *err)
{
	enum ofs_dtype dtype =
	    (enum ofs_dtype)ofs_entry_tensor(o->cat, &o->cat->entries[a->entry])
		->dtype;
	char one[4096], other[4096], is[80], was[80];
	bool swap = a->index > b->index;
	uint64_t item = ofs_dtype_size(dtype), at = 0;

	while (memcmp(x + at, y + at, item) == 0)
		at += item;
	is[ofs_dtype_print(dtype, (swap ? y : x) + at, is)] = '\0';
	was[ofs_dtype_print(dtype, (swap ? x : y) + at, was)] = '\0';
	ofs_tree_path(o->tree, (swap ? b : a)->index, one, sizeof(one));
	ofs_tree_path(o->tree, (swap ? a : b)->index, other, sizeof(other));
	return optimfs_fail(err, EINVAL,
	    "OFS828 %.70s and %.70s are one tensor, but element %" PRIu64
	    " is %.20s and %.20s: write the same to both, or one of them",
	    one, other, (off + at) / item, is, was);
}

/* Two names of a tensor, both whole, have the same bytes. */
static int compare(struct ofs_overlay *o, struct ofs_overlay_file *a,
    struct ofs_overlay_file *b, struct optimfs_error *err)
{
	uint8_t *x = ofs_alloc(2, PIECE, err), *y;
	uint64_t n;
	int ret = 0;

	if (x == NULL)
		return -1;
	y = x + PIECE;
	for (uint64_t off = 0; off < a->size && ret == 0; off += n) {
		n = a->size - off < PIECE ? a->size - off : PIECE;
		ret = ofs_overlay_file_apply(o, a, x, off, off + n, 0, err);
		if (ret == 0)
			ret = ofs_overlay_file_apply(o, b, y, off, off + n, 0,
			    err);
		if (ret == 0 && memcmp(x, y, n) != 0)
			ret = differ(o, a, b, x, y, off, err);
	}
	free(x);
	return ret;
}

/* The whole names of a tensor agree; *f gets one of them, if there is any. */
static int agree(struct ofs_overlay *o, uint32_t tensor,
    struct ofs_overlay_file **f, struct optimfs_error *err)
{
	struct ofs_overlay_file *i = o->tensor[tensor];

	for (; i != NULL; i = i->tied) {
		if (!is_whole(o, i))
			continue;
		if (*f == NULL)
			*f = i;
		else if (compare(o, *f, i, err) == -1)
			return -1;
	}
	return 0;
}

/* Gives a tensor that nobody wrote the bytes of another name, or zeros. The file
 * that gets them stays hidden, and begins empty when it is created. */
static int supply(struct ofs_overlay *o, const struct supply *s, uint32_t node,
    struct optimfs_error *err)
{
	const struct ofs_entry *e = ofs_tree_entry(o->tree, o->cat, node);
	struct ofs_overlay_file **f;

	if (e == NULL || e->kind != OFS_ENTRY_TENSOR ||
	    ofs_entry_is_text(o->cat, o->tree->node[node].entry))
		return 0;
	f = &o->supply[e->ref];
	if (*f != NULL)
		return 0;
	if (agree(o, e->ref, f, err) == -1)
		return -1;
	if (*f == NULL)
		*f = s->whole[o->same[e->ref]];
	if (*f != NULL || !begins_with_zeros(o, o->tree->node[node].entry))
		return 0;
	*f = ofs_overlay_file_touch(o, node, err);
	if (*f == NULL)
		return -1;
	ofs_overlay_file_revert(o, *f); /* of a file that was removed */
	return ofs_overlay_file_resize(o, *f, true, bytes_of(o, *f), err);
}

static int complete(struct ofs_overlay *o, const struct supply *s,
    struct optimfs_error *err)
{
	int ret = 0;

	if (check_missing(s, err) == -1)
		return -1;
	o->supply = ofs_alloc(o->cat->ntensors + 1ull,
	    sizeof(struct ofs_overlay_file *), err);
	if (o->supply == NULL)
		return -1;
	for (uint32_t i = 1; i < o->tree->n && ret == 0; i++)
		ret = supply(o, s, i, err);
	return ret;
}

int ofs_overlay_complete(struct ofs_overlay *o, struct optimfs_error *err)
{
	struct supply s;
	int ret;

	accept_empty(o);
	pthread_rwlock_wrlock(&o->names);
	ret = supply_init(&s, o, err);
	if (ret == 0) {
		ret = complete(o, &s, err);
		free(s.whole);
	}
	pthread_rwlock_unlock(&o->names);
	return ret;
}

uint32_t ofs_overlay_whole(struct ofs_overlay *o, uint32_t node)
{
	uint32_t tensor = OFS_NONE;
	struct ofs_overlay_file *f;

	if (!ofs_overlay_hides(o) || node >= o->tree->n)
		return OFS_NONE;
	pthread_rwlock_rdlock(&o->names);
	f = ofs_overlay_file(o, node);
	if (f != NULL && !f->text && is_whole(o, f))
		tensor = o->cat->entries[f->entry].ref;
	pthread_rwlock_unlock(&o->names);
	return tensor;
}

bool ofs_overlay_is_written(struct ofs_overlay *o, uint32_t node)
{
	bool written;

	pthread_rwlock_rdlock(&o->names);
	written = ofs_overlay_file(o, node) != NULL && is_present(o, node);
	pthread_rwlock_unlock(&o->names);
	return written;
}

void ofs_overlay_incomplete(struct ofs_overlay *o)
{
	pthread_rwlock_wrlock(&o->names);
	free(o->supply);
	o->supply = NULL;
	pthread_rwlock_unlock(&o->names);
}
