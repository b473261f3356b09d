/* verify.c - read back the new files before they are published */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/map.h"
#include "base/memory.h"
#include "base/search.h"
#include "rewrite/rewrite_impl.h"
#include "text/text.h"

/* The new files, over the old ones, are opened by our own reader. It must find
 * exactly the expected files, tensors of the same form, and values that are
 * unchanged or have their new contents. (shared.c checks the elements of
 * tensors; the format's update operations check items that are values.) */
struct verify {
	const struct ofs_commit *c;
	struct ofs_catalog *now;
	bool *gone;                          /* removed entries */
	const struct ofs_commit_task **task; /* changed values, by entry */
	struct ofs_map by_path; /* remaining entries, by tree path */
	struct ofs_buf a, b;
	struct optimfs_error *err;
};

/* The tree path of an entry, as one string. */
static void join(const struct ofs_catalog *cat, const struct ofs_entry *e,
    struct ofs_buf *out)
{
	uint32_t n;
	const uint32_t *v = ofs_catalog_components(cat, e->tree, &n);

	out->len = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_str s = ofs_catalog_string(cat, OFS_PATH_STR(v[i]));

		ofs_buf_put(out, s.p, s.len);
		ofs_buf_putc(out, '\0');
	}
}

/* Sorts the changes by what they affect. */
static int sort_changes(struct verify *v)
{
	const struct ofs_commit *c = v->c;

	v->gone = calloc((size_t)c->cat->nentries + 1, sizeof(*v->gone));
	v->task = calloc((size_t)c->cat->nentries + 1, sizeof(*v->task));
	if (v->gone == NULL || v->task == NULL)
		return ofs_no_memory(v->err);
	for (size_t i = 0; i < c->changes->n; i++)
		if (c->changes->v[i].kind == OFS_CHANGE_REMOVE)
			v->gone[c->changes->v[i].entry] = true;
	for (size_t i = 0; i < c->ntasks; i++)
		if (c->task[i].op == OFS_TASK_SET)
			v->task[c->task[i].entry - c->cat->entries] =
			    &c->task[i];
	return 0;
}

/* Sums the hashes of the expected paths. */
static int sum_wanted(struct verify *v, uint64_t *sum, uint64_t *n)
{
	const struct ofs_commit *c = v->c;

	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		uint64_t hash;

		if (c->cat->entries[i].tree == OFS_NONE || v->gone[i])
			continue;
		join(c->cat, &c->cat->entries[i], &v->a);
		hash = ofs_hash64(v->a.data, v->a.len);
		if (!ofs_map_add(&v->by_path, (uint32_t)hash, i))
			return ofs_no_memory(v->err);
		*sum += hash;
		++*n;
	}
	for (size_t i = 0; i < c->changes->n; i++) {
		const struct ofs_change *ch = &c->changes->v[i];

		if (ch->kind != OFS_CHANGE_ADD)
			continue;
		v->a.len = 0;
		for (uint32_t k = 0; k < ch->nkeys; k++)
			ofs_buf_put(&v->a, ch->key[k], strlen(ch->key[k]) + 1);
		*sum += ofs_hash64(v->a.data, v->a.len);
		++*n;
	}
	return v->a.bad ? ofs_no_memory(v->err) : 0;
}

static bool same_path(const void *ctx, uint32_t index, const void *key,
    size_t n)
{
	struct verify *v = (struct verify *)(uintptr_t)ctx;

	join(v->c->cat, &v->c->cat->entries[index], &v->b);
	return v->b.len == n && memcmp(v->b.data, key, n) == 0;
}

/* A path in readable form. */
static const char *shown(struct ofs_buf *path)
{
	for (size_t i = 0; i + 1 < path->len; i++)
		if (path->data[i] == '\0')
			path->data[i] = '/';
	return (const char *)path->data;
}

/* The first file that would no longer be there, a tensor if one is among them,
 * goes to v->a. */
static bool find_missing(struct verify *v)
{
	uint32_t n = v->c->cat->nentries;
	bool *seen = calloc((size_t)n + 1, sizeof(*seen));
	const struct ofs_entry *found = NULL;

	for (uint32_t k = 0; seen != NULL && k < v->now->nentries; k++) {
		uint32_t i;

		join(v->now, &v->now->entries[k], &v->a);
		i = ofs_map_find(&v->by_path, ofs_map_hash(v->a.data, v->a.len),
		    same_path, v, v->a.data, v->a.len);
		seen[i == OFS_NONE ? n : i] = true;
	}
	for (uint32_t k = n; seen != NULL && k-- > 0;) {
		const struct ofs_entry *e = &v->c->cat->entries[k];

		if (!seen[k] && !v->gone[k] && e->tree != OFS_NONE &&
		    (e->kind == OFS_ENTRY_TENSOR || found == NULL ||
			found->kind != OFS_ENTRY_TENSOR))
			found = e;
	}
	free(seen);
	if (found == NULL)
		return false;
	join(v->c->cat, found, &v->a);
	return !v->a.bad;
}

/* What else decides where a file lies: the end of a message. */
static const char *why(const struct ofs_catalog *cat)
{
	return cat->nid_names > 0
	    ? "; with ids=, a parameter is renamed below model and below "
	      "optim/state"
	    : cat->found.proved > 0
	    ? "; state in buckets is found by its weights: change a weight "
	      "and its fp32 together"
	    : "";
}

/* Compares the paths found with those expected. */
static int check_paths(struct verify *v)
{
	uint64_t want = 0, nwant = 0, got = 0, ngot = 0;
	bool missing;

	if (sum_wanted(v, &want, &nwant) == -1)
		return -1;
	for (uint32_t i = 0; i < v->now->nentries; i++) {
		if (v->now->entries[i].tree == OFS_NONE)
			continue;
		join(v->now, &v->now->entries[i], &v->a);
		got += ofs_hash64(v->a.data, v->a.len);
		ngot++;
	}
	if (v->a.bad)
		return ofs_no_memory(v->err);
	if (got == want && ngot == nwant)
		return 0;
	missing = find_missing(v);
	return optimfs_fail(v->err, EINVAL,
	    "OFS827 with these changes the checkpoint would be read "
	    "differently: %.120s%s%s",
	    missing ? shown(&v->a) : "there would be more files",
	    missing ? " would not be there" : "", why(v->c->cat));
}

static bool same_form(const struct verify *v, const struct ofs_entry *was,
    const struct ofs_entry *is)
{
	const struct ofs_catalog *old = v->c->cat, *new = v->now;
	const struct ofs_tensor *a = &old->tensors[was->ref],
				*b = &new->tensors[is->ref];

	return a->dtype == b->dtype &&
	    ofs_tensor_has_shape(old, a, ofs_tensor_shape(new, b), b->ndim);
}

static int text_of(const struct verify *v, const struct ofs_pickle *doc,
    uint32_t node, struct ofs_buf *out)
{
	out->len = 0;
	if (ofs_text_value(doc, node, NULL, out, v->err) == -1)
		return -1;
	return out->bad ? ofs_no_memory(v->err) : 0;
}

/* Several paths may lead to one place in a pickle. */
static int check_value(struct verify *v, uint32_t entry,
    const struct ofs_entry *is)
{
	const struct ofs_catalog *old = v->c->cat;
	const struct ofs_value *was = &old->values[old->entries[entry].ref];
	const struct ofs_value *now = &v->now->values[is->ref];
	const struct ofs_commit_task *task = v->task[entry];

	if (text_of(v, task != NULL ? task->doc : was->doc,
		task != NULL ? ofs_pickle_root(task->doc) : was->node,
		&v->a) == -1 ||
	    text_of(v, now->doc, now->node, &v->b) == -1)
		return -1;
	if (v->a.len == v->b.len &&
	    (v->a.len == 0 || memcmp(v->a.data, v->b.data, v->a.len) == 0))
		return 0;
	join(old, &old->entries[entry], &v->a);
	return optimfs_fail(v->err, EINVAL,
	    "OFS828 %.200s would change with another file: both show one "
	    "stored value; write the same to both",
	    shown(&v->a));
}

static int check_entry(struct verify *v, const struct ofs_entry *is)
{
	const struct ofs_entry *was;
	uint32_t i;

	join(v->now, is, &v->a);
	i = ofs_map_find(&v->by_path, ofs_map_hash(v->a.data, v->a.len),
	    same_path, v, v->a.data, v->a.len);
	if (i == OFS_NONE)
		return 0; /* added */
	was = &v->c->cat->entries[i];
	if (was->kind == OFS_ENTRY_VALUE && is->kind == OFS_ENTRY_VALUE)
		return check_value(v, i, is);
	if (was->kind != is->kind ||
	    (is->kind == OFS_ENTRY_TENSOR && !same_form(v, was, is)))
		return optimfs_fail(v->err, EUCLEAN,
		    "OFS829 %.200s would be different", shown(&v->a));
	return 0;
}

/* Does a note say that the disk failed (OFS755), not that a file is wrong or
 * missing? */
static bool is_of_disk(const struct ofs_note *note)
{
	return note->number == 755 || note->code == ESTALE;
}

/* Hashes of the problems that existed before. */
static uint64_t *old_damage(const struct verify *v, size_t *n)
{
	const struct ofs_catalog *cat = v->c->cat;
	uint64_t *sum = calloc((size_t)cat->nnotes + 1, sizeof(*sum));

	*n = 0;
	for (uint32_t i = 0; sum != NULL && i < cat->nnotes; i++)
		if (cat->notes[i].kind == OFS_NOTE_ERROR ||
		    is_of_disk(&cat->notes[i]))
			sum[(*n)++] = ofs_hash64(cat->notes[i].text,
			    strlen(cat->notes[i].text));
	if (*n > 0)
		qsort(sum, *n, sizeof(*sum), ofs_compare_u64);
	return sum;
}

/* Files that could not be read for the moment are missing in v->now, and nothing
 * can be said about what others show: that is told first. */
static int check_damage(const struct verify *v, bool of_disk)
{
	size_t n;
	uint64_t *old = old_damage(v, &n);
	int ret = old == NULL ? ofs_no_memory(v->err) : 0;

	for (uint32_t i = 0; i < v->now->nnotes && ret == 0; i++) {
		const struct ofs_note *note = &v->now->notes[i];
		uint64_t sum = ofs_hash64(note->text, strlen(note->text));

		if (is_of_disk(note) != of_disk ||
		    (note->kind != OFS_NOTE_ERROR && !of_disk) ||
		    ofs_search(&sum, old, n, sizeof(sum), ofs_compare_u64) !=
			NULL)
			continue;
		ret = of_disk
		    ? optimfs_fail(v->err, note->code, "%.400s", note->text)
		    : optimfs_fail(v->err, EUCLEAN,
			  "OFS829 the new files are damaged: %.300s",
			  note->text);
	}
	free(old);
	return ret;
}

static int check_all(struct verify *v)
{
	if (sort_changes(v) == -1 || check_damage(v, true) == -1 ||
	    check_paths(v) == -1)
		return -1;
	for (uint32_t i = 0; i < v->now->nentries; i++)
		if (v->now->entries[i].tree != OFS_NONE &&
		    check_entry(v, &v->now->entries[i]) == -1)
			return -1;
	return check_damage(v, false);
}

int ofs_commit_verify(const struct ofs_commit *c, struct optimfs_error *err)
{
	struct verify v = { .c = c, .err = err };
	const char **gone;
	size_t n;
	int ret;

	gone = ofs_publish_gone(c->publish, &n);
	v.now = c->job->reread(c->job->ctx, ofs_publish_new(c->publish), gone,
	    n, err);
	free(gone);
	if (v.now == NULL)
		return optimfs_fail_in(err, "what was about to be published");
	ret = check_all(&v);
	ofs_catalog_free(v.now);
	free(v.gone);
	free(v.task);
	ofs_map_fini(&v.by_path);
	ofs_buf_fini(&v.a);
	ofs_buf_fini(&v.b);
	return ret;
}
