/* combine.c - a checkpoint that is computed from others */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "run/combine.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "derive/round.h"
#include "derive/sum.h"
#include "pickle/write.h"

/* The catalog begins as a copy of that of one of the checkpoints, so that layout,
 * names, groups and values are there. Then, path by path of its tree, the tensors
 * are found in the others and made derived ones. Nothing is read but values. */

/* Longer values are not compared. */
#define TEXT_MAX 65536u

struct combining {
	const struct ofs_combine *how;
	const struct ofs_snapshot *base; /* of how->v[shown] */
	struct ofs_catalog *cat;
	const struct ofs_combination *sum;
	uint32_t *of;    /* the tensors of a path, one of each checkpoint */
	uint32_t *value; /* of each entry: what replaces it; OFS_NONE */
	bool *done;      /* of each tensor */
	bool noted;      /* OFS864 for tensors in few bits */
	char path[PATH_MAX];
	struct optimfs_error *err;
};

static struct ofs_snapshot *snapshot_of(const struct combining *x, uint32_t i)
{
	return x->how->v[i].fs->now; /* they are read-only: it stays */
}

/* The node of the path in checkpoint i; OFS_NONE: it has no such file. */
static uint32_t find_path(const struct combining *x, uint32_t i)
{
	struct ofs_snapshot *snap = snapshot_of(x, i);
	struct ofs_at at;

	if (ofs_resolve(snap, x->path, &at, NULL) == -1 ||
	    at.space != OFS_SPACE_TREE || at.index >= snap->tree.n ||
	    ofs_tree_entry(&snap->tree, snap->cat, at.index) == NULL)
		return OFS_NONE;
	return at.index;
}

/* Gives a tensor an error, with which its reads fail. Returns 0, or -1:
 * ENOMEM. */
static int __attribute__((format(printf, 3, 4)))
condemn(struct combining *x, uint32_t tensor, const char *fmt, ...)
{
	struct optimfs_error why;
	char text[sizeof(why.text)];
	uint32_t note;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	optimfs_fail_as(&why, ENODATA, "%s", text);
	note = ofs_catalog_error(x->cat, &why, x->err);
	x->cat->tensors[tensor].error = note;
	return note == OFS_NONE ? -1 : 0;
}

static int condemn_shape(struct combining *x, uint32_t tensor, uint32_t i)
{
	const struct ofs_catalog *cat = snapshot_of(x, i)->cat;
	const struct ofs_tensor *its = &cat->tensors[x->of[i]],
				*own = &x->cat->tensors[tensor];
	struct ofs_buf text = { 0 };
	int ret;

	ofs_buf_numbers(&text, ofs_tensor_shape(cat, its), its->ndim, ",");
	ofs_buf_printf(&text, " at step %" PRIu64 ", ", x->how->v[i].step);
	ofs_buf_numbers(&text, ofs_tensor_shape(x->cat, own), own->ndim, ",");
	ofs_buf_printf(&text, " at step %" PRIu64,
	    x->how->v[x->how->shown].step);
	ofs_buf_putc(&text, '\0');
	ret = text.bad ? ofs_no_memory(x->err)
		       : condemn(x, tensor, "OFS861 its shape is %s",
			     (const char *)text.data);
	ofs_buf_fini(&text);
	return ret;
}

/* The tensor of the path in checkpoint i, in few bits what it stands for;
 * OFS_NONE: it has none. */
static uint32_t tensor_in(const struct combining *x, uint32_t i)
{
	const struct ofs_snapshot *snap = snapshot_of(x, i);
	uint32_t node = find_path(x, i), entry;
	const struct ofs_low_bit *l;

	if (node == OFS_NONE)
		return OFS_NONE;
	entry = snap->tree.node[node].entry;
	l = ofs_low_bit_of(snap->cat, entry);
	if (l != NULL && l->tensor != OFS_NONE)
		return l->tensor;
	return snap->cat->entries[entry].kind == OFS_ENTRY_TENSOR
	    ? snap->cat->entries[entry].ref
	    : OFS_NONE;
}

/* Finds the tensors of the path: 1; 0: one is missing or differs in shape, which
 * is an error of the tensor; -1. */
static int find_tensors(struct combining *x, uint32_t tensor)
{
	const struct ofs_tensor *own = &x->cat->tensors[tensor];

	for (uint32_t i = 0; i < x->how->n; i++) {
		const struct ofs_catalog *cat = snapshot_of(x, i)->cat;

		x->of[i] = i == x->how->shown ? tensor : tensor_in(x, i);
		if (i == x->how->shown)
			continue;
		if (x->of[i] == OFS_NONE)
			return condemn(x, tensor,
			    "OFS861 step %" PRIu64 " has no such tensor",
			    x->how->v[i].step);
		if (!ofs_tensor_has_shape(cat, &cat->tensors[x->of[i]],
			ofs_tensor_shape(x->cat, own), own->ndim))
			return condemn_shape(x, tensor, i);
	}
	return 1;
}

static enum ofs_dtype type_in(const struct combining *x, uint32_t i)
{
	return snapshot_of(x, i)->cat->tensors[x->of[i]].dtype;
}

/* The type of the difference of two tensors. */
static enum ofs_dtype delta_type(enum ofs_dtype a, enum ofs_dtype b)
{
	if (ofs_dtype_is_complex(a))
		return a == OFS_COMPLEX128 || b == OFS_COMPLEX128
		    ? OFS_COMPLEX128
		    : OFS_COMPLEX64;
	if (ofs_rounds_to(a))
		return a == OFS_FLOAT64 || b == OFS_FLOAT64 ? OFS_FLOAT64
							    : OFS_FLOAT32;
	return OFS_INT64;
}

/* Is the tensor of the path left as it is? An average of integers, of steps or of
 * the state of a scaler would be of no use. */
static bool stays(const struct combining *x, const struct ofs_tensor *t)
{
	return t->error != OFS_NONE ||
	    (!x->how->delta &&
		(!ofs_rounds_to(t->dtype) ||
		    (t->ndim == 0 && strncmp(x->path, "model/", 6) != 0)));
}

static int combine_tensor(struct combining *x, uint32_t tensor)
{
	struct ofs_tensor *t = &x->cat->tensors[tensor];
	enum ofs_dtype to = t->dtype;
	int found;

	if (x->done[tensor] || stays(x, t))
		return 0;
	x->done[tensor] = true;
	found = find_tensors(x, tensor);
	if (found != 1)
		return found;
	if (x->how->delta)
		to = delta_type(type_in(x, 0), type_in(x, 1));
	for (uint32_t i = 0; i < x->how->n; i++)
		if (!ofs_sum_fits(type_in(x, i), to))
			return condemn(x, tensor,
			    "OFS861 %s at step %" PRIu64
			    " cannot be combined with %s",
			    ofs_dtype_name(type_in(x, i)), x->how->v[i].step,
			    ofs_dtype_name(type_in(x, i == 0)));
	t->dtype = (uint8_t)to;
	return ofs_sum_derive(x->cat, tensor, x->sum, x->of, x->err);
}

/* Of a tensor in few bits, what it stands for is combined. Its parts stay as they
 * are: a sum of codes would mean nothing with a sum of scales. */
static int combine_low_bit(struct combining *x, const struct ofs_low_bit *l)
{
	if (!x->noted &&
	    ofs_catalog_note(x->cat, OFS_NOTE_WARNING, 0, x->err,
		"OFS864 tensors in few bits, as %s, are stored as in step "
		"%" PRIu64 ": .optimfs/f32 and views with dequantize have what "
		"is computed",
		x->path, x->how->v[x->how->shown].step) == -1)
		return -1;
	x->noted = true;
	return l->tensor == OFS_NONE ? 0 : combine_tensor(x, l->tensor);
}

/* Values. */

/* The text of the path in checkpoint i; NULL: it has none, or it is not compared.
 * Where the text cannot be read, reading the value says why. */
static struct ofs_blob *text_in(const struct combining *x, uint32_t i)
{
	struct ofs_snapshot *snap = snapshot_of(x, i);
	uint32_t node = find_path(x, i);
	uint64_t size;
	bool exact;

	if (node == OFS_NONE ||
	    !ofs_entry_is_text(snap->cat, snap->tree.node[node].entry) ||
	    ofs_entry_text_size(snap, node, &size, &exact, NULL) == -1 ||
	    size > TEXT_MAX)
		return NULL;
	return ofs_entry_text_base(snap, node, NULL);
}

static bool same_text(const struct ofs_blob *a, const struct ofs_blob *b)
{
	return a != NULL && b != NULL && a->len == b->len &&
	    memcmp(a->bytes, b->bytes, a->len) == 0;
}

/* A text without its last newline; bytes that are no text, as their length. */
static void put_text(const struct ofs_blob *b, struct ofs_buf *out)
{
	size_t n = b == NULL ? 0 : b->len, k;

	if (b == NULL) {
		ofs_buf_puts(out, "none");
		return;
	}
	if (n > 0 && b->bytes[n - 1] == '\n')
		n--;
	for (size_t i = 0; i < n; i += k) {
		k = ofs_utf8_length(b->bytes + i, n - i);
		if (k == 0) {
			ofs_buf_printf(out, "%zu bytes", n);
			return;
		}
	}
	ofs_buf_put(out, b->bytes, n);
}

/* "old -> new" as a value of the catalog. */
static int change_value(struct combining *x, uint32_t entry,
    const struct ofs_blob *old, const struct ofs_blob *new)
{
	struct ofs_buf text = { 0 }, bytes = { 0 };
	struct ofs_pkw w = { .out = &bytes };

	put_text(old, &text);
	ofs_buf_puts(&text, " -> ");
	put_text(new, &text);
	ofs_pkw_begin(&w);
	ofs_pkw_str(&w, (const char *)text.data, text.len);
	if (text.bad || ofs_pkw_end(&w, x->err) == -1) {
		ofs_buf_fini(&bytes);
		ofs_buf_fini(&text);
		return ofs_no_memory(x->err);
	}
	x->value[entry] =
	    ofs_catalog_pickle(x->cat, bytes.data, bytes.len, x->err);
	ofs_buf_fini(&text);
	return x->value[entry] == OFS_NONE ? -1 : 0;
}

/* One warning for each value that differs. */
static int compare_value(struct combining *x, const struct ofs_blob *shown)
{
	for (uint32_t i = 0; shown != NULL && i < x->how->n; i++) {
		struct ofs_blob *its =
		    i == x->how->shown ? NULL : text_in(x, i);
		bool differs = its != NULL && !same_text(its, shown);

		ofs_blob_unref(its);
		if (differs)
			return ofs_catalog_note(x->cat, OFS_NOTE_WARNING, 0,
			    x->err,
			    "OFS864 %s differs between the steps: it is that of "
			    "step %" PRIu64,
			    x->path, x->how->v[x->how->shown].step);
	}
	return 0;
}

static int combine_value(struct combining *x, uint32_t entry)
{
	struct ofs_blob *shown = text_in(x, x->how->shown), *old;
	int ret = 0;

	if (!x->how->delta) {
		ret = compare_value(x, shown);
	} else {
		old = text_in(x, 0);
		if (shown != NULL && !same_text(old, shown))
			ret = change_value(x, entry, old, shown);
		ofs_blob_unref(old);
	}
	ofs_blob_unref(shown);
	return ret;
}

/* All of it. */

static int combine_node(struct combining *x, uint32_t node)
{
	const struct ofs_tree *tree = &x->base->tree;
	const struct ofs_entry *e = ofs_tree_entry(tree, x->base->cat, node);
	const struct ofs_low_bit *l;

	if (e == NULL)
		return 0;
	if (!ofs_tree_path(tree, node, x->path, sizeof(x->path)))
		return optimfs_fail(x->err, ENAMETOOLONG, "%s: too long",
		    x->path);
	l = ofs_low_bit_of(x->base->cat, tree->node[node].entry);
	if (l != NULL)
		return combine_low_bit(x, l);
	return e->kind == OFS_ENTRY_TENSOR
	    ? combine_tensor(x, e->ref)
	    : combine_value(x, tree->node[node].entry);
}

/* Notes what checkpoint i has and the shown one has not. */
static int note_others(struct combining *x, uint32_t i)
{
	const struct ofs_snapshot *snap = snapshot_of(x, i);
	int ret = 0;

	for (uint32_t k = 0; k < snap->tree.n && ret == 0; k++) {
		if (ofs_tree_entry(&snap->tree, snap->cat, k) == NULL ||
		    !ofs_tree_path(&snap->tree, k, x->path, sizeof(x->path)) ||
		    find_path(x, x->how->shown) != OFS_NONE)
			continue;
		ret = ofs_catalog_note(x->cat, OFS_NOTE_MISSING, ENODATA,
		    x->err,
		    "OFS862 %s: step %" PRIu64 " has it, step %" PRIu64
		    " has not: it is left out",
		    x->path, x->how->v[i].step, x->how->v[x->how->shown].step);
	}
	return ret;
}

static int copy_entries(struct combining *x)
{
	const struct ofs_catalog *base = x->base->cat;

	for (uint32_t i = 0; i < base->nentries; i++) {
		struct ofs_entry e = base->entries[i];

		if (x->value[i] != OFS_NONE) {
			e.kind = OFS_ENTRY_VALUE;
			e.ref = x->value[i];
		}
		if (ofs_catalog_entry(x->cat, &e, x->err) == OFS_NONE)
			return -1;
	}
	for (uint32_t i = 0; i < base->nvariants; i++)
		if (ofs_catalog_variant(x->cat, &base->variants[i], x->err) ==
		    OFS_NONE)
			return -1;
	return 0;
}

static int combine_all(struct combining *x)
{
	const struct ofs_catalog *base = x->base->cat;

	x->of = ofs_alloc(x->how->n, sizeof(*x->of), x->err);
	x->value = ofs_alloc(base->nentries + 1ul, sizeof(*x->value), x->err);
	x->done = ofs_alloc(base->ntensors + 1ul, sizeof(*x->done), x->err);
	if (x->of == NULL || x->value == NULL || x->done == NULL)
		return -1;
	memset(x->value, 0xff, base->nentries * sizeof(*x->value));
	for (uint32_t i = 0; i < x->base->tree.n; i++)
		if (combine_node(x, i) == -1)
			return -1;
	for (uint32_t i = 0; i < x->how->n; i++)
		if (i != x->how->shown && note_others(x, i) == -1)
			return -1;
	return copy_entries(x);
}

static void close_step(void *fs)
{
	optimfs_close(fs);
}

/* What the sums of the catalog share, in its arena; the checkpoints stay open as
 * long as it. */
static int make_sum(struct combining *x)
{
	const struct ofs_combine *how = x->how;
	struct ofs_arena *arena = &x->cat->arena;
	struct ofs_combination *sum = ofs_arena_alloc(arena, sizeof(*sum));
	struct ofs_summand *s = ofs_arena_alloc(arena, how->n * sizeof(*s));
	char name[40];

	if (sum == NULL || s == NULL)
		return ofs_no_memory(x->err);
	for (uint32_t i = 0; i < how->n; i++) {
		int n = snprintf(name, sizeof(name), "step %" PRIu64,
		    how->v[i].step);

		s[i] = (struct ofs_summand){
			.reader = &snapshot_of(x, i)->reader,
			.name = ofs_arena_strndup(arena, name, (size_t)n),
			.weight = how->v[i].weight,
		};
		if (s[i].name == NULL)
			return ofs_no_memory(x->err);
		if (ofs_catalog_keep(x->cat, ofs_fs_ref(how->v[i].fs),
			close_step, x->err) == -1)
			return -1;
		ofs_catalog_from(x->cat, snapshot_of(x, i)->cat,
		    how->v[i].weight / how->divisor);
		x->cat->withheld |= 0444 & ~snapshot_of(x, i)->access.now.mode;
	}
	*sum = (struct ofs_combination){ how->divisor, how->n, s };
	x->sum = sum;
	x->cat->access.mode &= ~x->cat->withheld;
	x->cat->computed =
	    ofs_arena_strndup(arena, how->what, strlen(how->what));
	return x->cat->computed == NULL ? ofs_no_memory(x->err) : 0;
}

struct optimfs *ofs_combine(const struct ofs_combine *how, const char *source,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	struct combining x = { .how = how, .err = err };
	int ret = -1;

	x.base = snapshot_of(&x, how->shown);
	x.cat = ofs_catalog_copy(x.base->cat, err);
	if (x.cat != NULL && make_sum(&x) == 0)
		ret = combine_all(&x);
	free(x.of);
	free(x.value);
	free(x.done);
	if (ret == -1) {
		ofs_catalog_free(x.cat);
		return NULL;
	}
	ofs_catalog_seal(x.cat);
	return ofs_fs_new(x.cat, source, options, err);
}
