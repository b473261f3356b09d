/* value.c - the text of values, items and 0-dim tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"
#include "base/memory.h"
#include "fs/fs.h"
#include "overlay/overlay.h"
#include "read/storages.h"
#include "text/id_names.h"
#include "text/text.h"

/* The cache of texts takes at most this share of the budget, and at most
 * TEXTS_MAX. */
#define TEXTS_SHARE 16
#define TEXTS_MAX   (64u << 20)
#define SLOTS_MAX   16384u

int ofs_texts_init(struct ofs_snapshot *snap, struct optimfs_error *err)
{
	struct ofs_texts *t = &snap->texts;

	t->budget = snap->fs->options.cache / TEXTS_SHARE;
	if (t->budget > TEXTS_MAX)
		t->budget = TEXTS_MAX;
	for (t->nslots = 16;
	     t->nslots < snap->cat->nentries && t->nslots < SLOTS_MAX;)
		t->nslots *= 2;
	t->slot = calloc(t->nslots, sizeof(*t->slot));
	t->sizes = calloc((size_t)snap->cat->nentries + 1, sizeof(*t->sizes));
	if (t->slot == NULL || t->sizes == NULL)
		return ofs_no_memory(err);
	return 0;
}

void ofs_texts_fini(struct ofs_snapshot *snap)
{
	struct ofs_texts *t = &snap->texts;

	for (size_t i = 0; t->slot != NULL && i < t->nslots; i++)
		ofs_blob_unref(t->slot[i].blob);
	free(t->slot);
	free(t->sizes);
	t->slot = NULL;
	t->sizes = NULL;
	pthread_mutex_destroy(&t->lock);
}

static struct ofs_text_slot *slot_of(struct ofs_texts *t, uint32_t entry)
{
	return &t->slot[(entry * 2654435761u >> 7) & (t->nslots - 1)];
}

static struct ofs_blob *cached(struct ofs_texts *t, uint32_t entry)
{
	struct ofs_text_slot *slot = slot_of(t, entry);
	struct ofs_blob *blob = NULL;

	pthread_mutex_lock(&t->lock);
	if (slot->blob != NULL && slot->entry == entry)
		blob = ofs_blob_ref(slot->blob);
	pthread_mutex_unlock(&t->lock);
	atomic_fetch_add(blob == NULL ? &t->misses : &t->hits, 1);
	return blob;
}

static void keep(struct ofs_texts *t, uint32_t entry, struct ofs_blob *blob)
{
	struct ofs_text_slot *slot = slot_of(t, entry);
	struct ofs_blob *old;

	pthread_mutex_lock(&t->lock);
	old = slot->blob;
	slot->blob = NULL;
	if (old != NULL)
		t->bytes -= old->len;
	if (blob->len <= t->budget / 4 && t->bytes + blob->len <= t->budget) {
		*slot = (struct ofs_text_slot){ ofs_blob_ref(blob), entry };
		t->bytes += blob->len;
	}
	pthread_mutex_unlock(&t->lock);
	ofs_blob_unref(old);
}

/* A 0-dim tensor has one element, stored once or several times. */

struct copy {
	int rank;
	uint8_t element[16];
};

static int fetch_copy(struct ofs_snapshot *snap, const struct ofs_tensor *t,
    const struct ofs_replica *r, struct copy *c, struct optimfs_error *err)
{
	struct ofs_place *place = ofs_locate_replica(&snap->reader, t, r, err);
	struct ofs_fetch_part part;
	int ret = -1;

	*c = (struct copy){ .rank = snap->cat->objects[r->at.object].rank };
	if (place == NULL)
		return -1;
	if (ofs_fetch_part_init(&part, snap->cat, t, r->shard, place, err) ==
	    0) {
		part.count = 1;
		ret = ofs_fetch_part(&snap->reader, &part, c->element, err);
	}
	free(place);
	return ret;
}

static int fetch_first(struct ofs_snapshot *snap, const struct ofs_tensor *t,
    struct copy *c, struct optimfs_error *err)
{
	*c = (struct copy){ .rank = -1 };
	if (t->nshards > 0)
		c->rank =
		    snap->cat->objects[snap->cat->shards[t->shard].at.object]
			.rank;
	return ofs_fetch_elements(&snap->reader, t, 0, 1, c->element, err);
}

static void put_element(const struct ofs_tensor *t, const struct copy *c,
    struct ofs_buf *out)
{
	char text[80];

	ofs_buf_put(out, text, ofs_dtype_print(t->dtype, c->element, text));
}

/* Appends the value and rank of each copy, up to a maximal length. */
static int disagree(struct ofs_snapshot *snap, const struct ofs_tensor *t,
    const struct copy *first, struct optimfs_error *err)
{
	const struct ofs_replica *r;
	struct ofs_buf text = { 0 };
	struct copy c;
	uint32_t n;

	r = ofs_replicas(snap->cat, t->shard, &n);
	put_element(t, first, &text);
	ofs_buf_printf(&text, " (rank %d)", first->rank);
	for (uint32_t i = 0; i < n && text.len < 300; i++) {
		if (fetch_copy(snap, t, &r[i], &c, NULL) == -1)
			continue;
		ofs_buf_puts(&text, ", ");
		put_element(t, &c, &text);
		ofs_buf_printf(&text, " (rank %d)", c.rank);
	}
	ofs_buf_putc(&text, '\0');
	optimfs_fail(err, EPROTO,
	    "OFS674 ranks disagree: %s; .optimfs/rank/ has what each says",
	    text.bad ? "" : (char *)text.data);
	ofs_buf_fini(&text);
	return -1;
}

/* A copy that cannot be read is ignored. */
static int read_copies(struct ofs_snapshot *snap, const struct ofs_tensor *t,
    struct copy *first, struct optimfs_error *err)
{
	const struct ofs_replica *r;
	struct copy c;
	uint32_t n = 0;

	if (fetch_first(snap, t, first, err) == -1)
		return -1;
	r = t->nshards == 0 ? NULL : ofs_replicas(snap->cat, t->shard, &n);
	for (uint32_t i = 0; i < n; i++)
		if (fetch_copy(snap, t, &r[i], &c, NULL) == 0 &&
		    memcmp(c.element, first->element, sizeof(c.element)) != 0)
			return disagree(snap, t, first, err);
	return 0;
}

/* Are all copies of both the same bytes of the same files? */
static bool same_copies(const struct ofs_catalog *cat,
    const struct ofs_tensor *a, const struct ofs_tensor *b)
{
	const struct ofs_shard *s = &cat->shards[a->shard],
			       *t = &cat->shards[b->shard];
	const struct ofs_replica *p, *q;
	uint32_t n, m;

	if (a->dtype != b->dtype || a->nshards != 1 || b->nshards != 1 ||
	    s->view != t->view || memcmp(&s->at, &t->at, sizeof(s->at)) != 0)
		return false;
	p = ofs_replicas(cat, a->shard, &n);
	q = ofs_replicas(cat, b->shard, &m);
	if (n != m)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (p[i].view != q[i].view ||
		    memcmp(&p[i].at, &q[i].at, sizeof(p[i].at)) != 0)
			return false;
	return true;
}

/* All parameters of a flat parameter have its step, which each rank has: it is
 * read for the first of them. */
static int scalar_text(struct ofs_snapshot *snap, const struct ofs_tensor *t,
    struct ofs_buf *out, struct optimfs_error *err)
{
	struct ofs_texts *known = &snap->texts;
	struct copy c;
	bool same;

	pthread_mutex_lock(&known->lock);
	same = known->last != NULL && same_copies(snap->cat, known->last, t);
	if (same)
		memcpy(c.element, known->element, sizeof(c.element));
	pthread_mutex_unlock(&known->lock);
	if (!same) {
		if (read_copies(snap, t, &c, err) == -1)
			return -1;
		pthread_mutex_lock(&known->lock);
		known->last = t;
		memcpy(known->element, c.element, sizeof(c.element));
		pthread_mutex_unlock(&known->lock);
	}
	put_element(t, &c, out);
	ofs_buf_putc(out, '\n');
	return 0;
}

/* As above, for the copy of one rank. */
static int rank_scalar_text(struct ofs_snapshot *snap,
    const struct ofs_tensor *t, int rank, struct ofs_buf *out,
    struct optimfs_error *err)
{
	const struct ofs_replica *r;
	struct copy c = { .rank = -1 };
	uint32_t n = 0;
	bool found = false;

	r = t->nshards == 0 ? NULL : ofs_replicas(snap->cat, t->shard, &n);
	for (uint32_t i = 0; i < n && !found; i++) {
		found = snap->cat->objects[r[i].at.object].rank == rank;
		if (found && fetch_copy(snap, t, &r[i], &c, err) == -1)
			return -1;
	}
	if (!found && fetch_first(snap, t, &c, err) == -1)
		return -1;
	put_element(t, &c, out);
	ofs_buf_putc(out, '\n');
	return 0;
}

/* A value of the pickle that doc is; storages may be NULL. */
struct shown {
	const struct ofs_pickle *doc;
	uint32_t node;
	const struct ofs_text_storages *storages;
};

static int put_shown(struct ofs_snapshot *snap, uint32_t index,
    const struct shown *v, struct ofs_buf *out, struct optimfs_error *err)
{
	struct ofs_text_form form = {
		.lines = ofs_tree_is_params(&snap->tree, index),
		.storages = v->storages,
	};

	if (form.lines &&
	    ofs_id_names_put(snap->cat,
		ofs_id_names_of(snap->cat,
		    ofs_tree_entry(&snap->tree, snap->cat, index)),
		v->doc, v->node, out))
		return 0;
	return ofs_text_value(v->doc, v->node, &form, out, err);
}

int ofs_value_text(struct ofs_snapshot *snap, uint32_t index,
    const struct ofs_pickle *doc, uint32_t node, struct ofs_buf *out,
    struct optimfs_error *err)
{
	return put_shown(snap, index, &(struct shown){ doc, node, NULL }, out,
	    err);
}

/* With item NULL, the storages of the value are tensors of the catalog. */
static int put_stored(struct ofs_snapshot *snap, uint32_t index,
    const struct ofs_item *item, struct shown v, struct ofs_buf *out,
    struct optimfs_error *err)
{
	struct ofs_storages held = { .reader = &snap->reader, .item = item };
	struct ofs_text_storages storages = { ofs_storages_hash,
		ofs_storages_read, &held };
	int ret;

	v.storages = &storages;
	ret = put_shown(snap, index, &v, out, err);
	ofs_storages_fini(&held);
	return ret;
}

static int item_text(struct ofs_snapshot *snap, uint32_t index,
    const struct ofs_item *item, struct ofs_buf *out, struct optimfs_error *err)
{
	struct ofs_pickle *doc = ofs_locate_item(&snap->reader, item, err);
	int ret;

	if (doc == NULL)
		return -1;
	ret = put_stored(snap, index, item,
	    (struct shown){ .doc = doc, .node = ofs_pickle_root(doc) }, out,
	    err);
	ofs_pickle_free(doc);
	return ret;
}

static int make_text(struct ofs_snapshot *snap, uint32_t index, uint8_t kind,
    uint32_t ref, struct ofs_buf *out, struct optimfs_error *err)
{
	const struct ofs_value *v;

	switch (kind) {
	case OFS_ENTRY_TENSOR:
		return scalar_text(snap, &snap->cat->tensors[ref], out, err);
	case OFS_ENTRY_ITEM:
		return item_text(snap, index, &snap->cat->items[ref], out, err);
	default:
		v = &snap->cat->values[ref];
		return put_stored(snap, index, NULL,
		    (struct shown){ .doc = v->doc, .node = v->node }, out, err);
	}
}

/* The text that a writer stored; NULL: none. */
static struct ofs_blob *text_accepted(struct ofs_snapshot *snap, uint32_t index)
{
	return snap->overlay == NULL
	    ? NULL
	    : ofs_overlay_accepted(snap->overlay, index);
}

struct ofs_blob *ofs_rank_text(struct ofs_snapshot *snap, uint32_t index,
    int rank, const struct ofs_variant *v, struct optimfs_error *err)
{
	const struct ofs_entry *e =
	    ofs_tree_entry(&snap->tree, snap->cat, index);
	struct ofs_entry its = v == NULL
	    ? *e
	    : (struct ofs_entry){ .kind = v->kind, .ref = v->ref };
	struct ofs_blob *accepted = text_accepted(snap, index);
	struct ofs_buf out = { 0 };
	int ret;

	if (accepted != NULL)
		return accepted;
	ret = ofs_entry_sound(snap->cat, &its, err);
	if (ret == 0 && its.kind == OFS_ENTRY_TENSOR)
		ret = rank_scalar_text(snap, &snap->cat->tensors[its.ref], rank,
		    &out, err);
	else if (ret == 0)
		ret = make_text(snap, index, its.kind, its.ref, &out, err);
	if (ret == 0)
		return ofs_blob_of(&out, err);
	ofs_buf_fini(&out);
	return NULL;
}

struct ofs_blob *ofs_entry_text(struct ofs_snapshot *snap, uint32_t index,
    struct optimfs_error *err)
{
	struct ofs_blob *accepted = text_accepted(snap, index);

	return accepted != NULL ? accepted
				: ofs_entry_text_base(snap, index, err);
}

struct ofs_blob *ofs_entry_text_base(struct ofs_snapshot *snap, uint32_t index,
    struct optimfs_error *err)
{
	uint32_t entry = snap->tree.node[index].entry;
	const struct ofs_entry *e = &snap->cat->entries[entry];
	bool costly = e->kind != OFS_ENTRY_VALUE;
	struct ofs_blob *blob = costly ? cached(&snap->texts, entry) : NULL;
	struct ofs_buf out = { 0 };

	if (blob != NULL)
		return blob;
	if (ofs_entry_sound(snap->cat, e, err) == -1)
		return NULL;
	if (make_text(snap, index, e->kind, e->ref, &out, err) == -1) {
		ofs_buf_fini(&out);
		return NULL;
	}
	blob = ofs_blob_of(&out, err);
	if (blob == NULL)
		return NULL;
	atomic_store_explicit(&snap->texts.sizes[entry], blob->len + 1,
	    memory_order_relaxed);
	if (costly)
		keep(&snap->texts, entry, blob);
	return blob;
}

/* The length of the longest text of a type, with newline. */
static uint64_t longest(enum ofs_dtype t)
{
	return ofs_dtype_is_complex(t) ? 80 : 32;
}

/* All hashes have one length. A number is shorter than the JSON that replaces
 * it here. */
struct guess {
	const struct ofs_catalog *cat;
	bool numbers; /* there may be some */
};

static int no_hash(void *ctx, const struct ofs_pickle *doc, uint32_t node,
    uint64_t *hash, struct optimfs_error *err)
{
	const struct guess *guess = ctx;

	(void)err;
	*hash = 0;
	return ofs_catalog_inner_tensor(guess->cat, doc, node) != OFS_NONE;
}

static int no_element(void *ctx, const struct ofs_pickle *doc, uint32_t node,
    uint64_t off, uint64_t n, void *buf, struct optimfs_error *err)
{
	struct guess *guess = ctx;

	(void)doc, (void)node, (void)off, (void)n, (void)buf, (void)err;
	guess->numbers = true;
	return 0;
}

static int value_size(struct ofs_snapshot *snap, uint32_t index, uint64_t *size,
    bool *exact, struct optimfs_error *err)
{
	uint32_t entry = snap->tree.node[index].entry;
	const struct ofs_value *v =
	    &snap->cat->values[snap->cat->entries[entry].ref];
	struct guess guess = { .cat = snap->cat };
	const struct ofs_text_storages storages = { no_hash, no_element,
		&guess };
	struct shown shown = { v->doc, v->node, &storages };
	struct ofs_buf out = { 0 };
	int ret = put_shown(snap, index, &shown, &out, err);

	if (ret == 0) {
		*size = out.len;
		*exact = !guess.numbers;
	}
	if (ret == 0 && *exact)
		atomic_store_explicit(&snap->texts.sizes[entry], out.len + 1,
		    memory_order_relaxed);
	ofs_buf_fini(&out);
	return ret;
}

int ofs_entry_text_size(struct ofs_snapshot *snap, uint32_t index,
    uint64_t *size, bool *exact, struct optimfs_error *err)
{
	uint32_t entry = snap->tree.node[index].entry;
	const struct ofs_entry *e = &snap->cat->entries[entry];
	uint64_t known = atomic_load_explicit(&snap->texts.sizes[entry],
	    memory_order_relaxed);
	struct ofs_blob *blob = text_accepted(snap, index);

	*exact = true;
	if (blob != NULL) {
		*size = blob->len;
		ofs_blob_unref(blob);
		return 0;
	}
	if (known != 0) {
		*size = known - 1;
		return 0;
	}
	if (e->kind == OFS_ENTRY_VALUE)
		return value_size(snap, index, size, exact, err);
	*exact = false;
	if (e->kind == OFS_ENTRY_TENSOR) {
		*size = longest(snap->cat->tensors[e->ref].dtype);
		return 0;
	}
	*size = snap->cat->items[e->ref].at.len;
	if (*size < 4096)
		*size = 4096;
	return 0;
}
