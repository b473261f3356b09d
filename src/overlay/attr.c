/* attr.c - dtype and shape of new files: set by attributes, or derived */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/memory.h"
#include "naming/file_name.h"
#include "overlay/overlay_impl.h"

uint64_t ofs_overlay_form_bytes(const struct ofs_overlay_form *form)
{
	uint64_t n;

	if (!ofs_numel(form->shape, form->ndim, &n) ||
	    !ofs_mul_u64(n, ofs_dtype_size(form->dtype), &n) || n > INT64_MAX)
		return 0;
	return n;
}

void ofs_overlay_form_of_tensor(const struct ofs_catalog *cat,
    const struct ofs_tensor *t, struct ofs_overlay_form *form)
{
	form->dtype = t->dtype;
	form->ndim = t->ndim;
	memcpy(form->shape, ofs_tensor_shape(cat, t),
	    t->ndim * sizeof(*form->shape));
}

static bool form_of_base(const struct ofs_overlay *o, uint32_t base,
    struct ofs_overlay_form *form)
{
	const struct ofs_tensor *t;

	if (base == OFS_NONE || ofs_overlay_is_made(o, base))
		return false;
	t = ofs_tree_tensor(o->tree, o->cat, base);
	if (t != NULL)
		ofs_overlay_form_of_tensor(o->cat, t, form);
	return true;
}

/* The form set for the node itself, or that of the checkpoint's file in its
 * place. */
static bool form_given(const struct ofs_overlay *o, uint32_t index,
    struct ofs_overlay_form *form)
{
	const struct ofs_overlay_file *f = ofs_overlay_file(o, index);
	bool known;

	*form = (struct ofs_overlay_form){ 0 };
	known = form_of_base(o, index, form) ||
	    form_of_base(o, ofs_overlay_stands_for(o, index), form);
	if (f != NULL && f->dtype != OFS_DTYPE_NONE)
		form->dtype = f->dtype;
	if (f != NULL && f->shape != NULL) {
		form->ndim = f->ndim;
		memcpy(form->shape, f->shape, f->ndim * sizeof(*f->shape));
	}
	return known ||
	    (f != NULL && f->dtype != OFS_DTYPE_NONE && f->shape != NULL);
}

/* Derives the form of an added state of a parameter: the shape of the
 * parameter, and the dtype of its other states or of the parameter. */

struct siblings {
	const struct ofs_overlay *o;
	uint32_t index; /* the node itself */
	struct ofs_overlay_form form;
};

static int look_at(void *ctx, uint32_t child, const char *name,
    uint64_t position)
{
	struct siblings *s = ctx;
	struct ofs_overlay_form form;

	(void)name, (void)position;
	if (child == s->index || ofs_overlay_is_dir(s->o, child) ||
	    !form_given(s->o, child, &form) || form.dtype == OFS_DTYPE_NONE ||
	    form.ndim == 0)
		return 0;
	s->form = form;
	return 1;
}

static bool find_param(const struct ofs_overlay *o, const char *fqn,
    struct ofs_overlay_form *form)
{
	uint32_t model = ofs_overlay_find(o, 0, "model"), param;

	if (model == OFS_NONE || !ofs_overlay_is_dir(o, model))
		return false;
	param = ofs_overlay_find(o, model, fqn);
	return param != OFS_NONE && !ofs_overlay_is_dir(o, param) &&
	    form_given(o, param, form) && form->dtype != OFS_DTYPE_NONE;
}

/* Derives a form; among the candidates, the one with the size of the file. */
static bool form_guessed(const struct ofs_overlay *o, uint32_t index,
    uint64_t size, struct ofs_overlay_form *form)
{
	uint32_t param = ofs_overlay_parent(o, index);
	uint32_t state = param == OFS_NONE || param == 0
	    ? OFS_NONE
	    : ofs_overlay_parent(o, param);
	struct siblings s = { .o = o, .index = index };
	struct ofs_overlay_form model;

	if (state == OFS_NONE || state == 0 ||
	    strcmp(ofs_overlay_name(o, state), "state") != 0)
		return false;
	ofs_overlay_children(o, param, 0, look_at, &s);
	if (find_param(o, ofs_overlay_name(o, param), &model)) {
		*form = model;
		if (s.form.dtype != OFS_DTYPE_NONE)
			form->dtype = s.form.dtype;
		if (ofs_overlay_form_bytes(form) == size)
			return true;
		*form = model;
		if (ofs_overlay_form_bytes(form) == size)
			return true;
	}
	*form = s.form;
	return s.form.dtype != OFS_DTYPE_NONE &&
	    ofs_overlay_form_bytes(form) == size;
}

void ofs_overlay_form_of(const struct ofs_overlay *o, uint32_t index,
    struct ofs_overlay_form *form)
{
	struct ofs_overlay_file *f = ofs_overlay_file(o, index);
	uint64_t size = 0;

	if (form_given(o, index, form))
		return;
	if (f != NULL) {
		pthread_rwlock_rdlock(&f->lock);
		size = f->size;
		pthread_rwlock_unlock(&f->lock);
	}
	if (size == 0 || !form_guessed(o, index, size, form))
		*form = (struct ofs_overlay_form){ 0 };
}

void ofs_overlay_form(struct ofs_overlay *o, uint32_t index,
    struct ofs_overlay_form *form)
{
	pthread_rwlock_rdlock(&o->names);
	ofs_overlay_form_of(o, index, form);
	pthread_rwlock_unlock(&o->names);
}

uint64_t ofs_overlay_limit(const struct ofs_overlay *o, uint32_t index)
{
	struct ofs_overlay_form form;

	if (!form_given(o, index, &form) || form.dtype == OFS_DTYPE_NONE ||
	    form.ndim == 0)
		return UINT64_MAX;
	return ofs_overlay_form_bytes(&form);
}

/* "4096,14336"; empty for 0 dimensions. */
static int parse_shape(const char *text, size_t n, uint64_t *shape,
    uint8_t *ndim, struct optimfs_error *err)
{
	struct ofs_str rest = { text, (uint32_t)n };
	unsigned k = 0;

	while (rest.len > 0) {
		if (k == OFS_MAX_DIMS ||
		    !ofs_str_take_number(&rest, &shape[k++]))
			goto bad;
		if (rest.len > 0 && !ofs_str_take(&rest, ","))
			goto bad;
	}
	*ndim = (uint8_t)k;
	return 0;
bad:
	return optimfs_fail(err, EINVAL, "OFS816 '%.*s' is not a shape",
	    (int)(n < 80 ? n : 80), text);
}

bool ofs_overlay_same_shape(const struct ofs_overlay_form *a,
    const struct ofs_overlay_form *b)
{
	return a->ndim == b->ndim &&
	    memcmp(a->shape, b->shape, a->ndim * sizeof(*a->shape)) == 0;
}

static int record_attr(struct ofs_overlay *o, uint32_t index, const char *name,
    const char *value, size_t n, struct optimfs_error *err)
{
	char *path = ofs_overlay_path(o, index, NULL, NULL);
	struct ofs_buf b = { 0 };
	struct ofs_record r = { .type = OFS_REC_ATTR };
	int ret = 0;

	ofs_buf_put(&b, name, strlen(name) + 1);
	ofs_buf_put(&b, value, n);
	r.a = path;
	r.b = b.data;
	r.nb = b.len;
	if (b.bad)
		ret = ofs_no_memory(err);
	else if (path != NULL)
		ret = ofs_overlay_record(o, &r, err);
	ofs_buf_fini(&b);
	free(path);
	return ret;
}

static int keep_attr(struct ofs_overlay *o, uint32_t index,
    const struct ofs_overlay_form *form, bool dtype, struct optimfs_error *err)
{
	struct ofs_overlay_file *f = ofs_overlay_file_touch(o, index, err);
	size_t n = form->ndim * sizeof(*form->shape);
	uint64_t *shape = NULL;

	if (f == NULL)
		return -1;
	if (!dtype) {
		shape = malloc(n + 1);
		if (shape == NULL)
			return ofs_no_memory(err);
		memcpy(shape, form->shape, n);
	}
	pthread_rwlock_wrlock(&f->lock);
	if (dtype) {
		f->dtype = form->dtype;
	} else {
		free(f->shape);
		f->shape = shape;
		f->ndim = form->ndim;
	}
	pthread_rwlock_unlock(&f->lock);
	ofs_overlay_changed(o, true);
	return 0;
}

const char *ofs_overlay_form_text(const struct ofs_overlay_form *form,
    char text[OFS_FORM_TEXT])
{
	struct ofs_buf b = { .limit = OFS_FORM_TEXT - 1 };

	ofs_buf_printf(&b, "%s [", ofs_dtype_name(form->dtype));
	ofs_buf_numbers(&b, form->shape, form->ndim, ",");
	ofs_buf_puts(&b, "]");
	memcpy(text, b.data == NULL ? (uint8_t *)"" : b.data, b.len);
	text[b.len] = '\0';
	ofs_buf_fini(&b);
	return text;
}

static int other_form(const struct ofs_overlay *o,
    const struct ofs_overlay_form *now, const struct ofs_overlay_form *form,
    struct optimfs_error *err)
{
	char a[OFS_FORM_TEXT], b[OFS_FORM_TEXT];

	return optimfs_fail(err, EINVAL,
	    "OFS816 the %s %s here, not %s: copy from a view that converts "
	    "(dtype=)%s",
	    o->hidden != NULL ? "source has" : "files of this checkpoint keep",
	    ofs_overlay_form_text(now, a), ofs_overlay_form_text(form, b),
	    o->hidden != NULL ? "" : ", or reshard to dcp@N first");
}

bool ofs_overlay_keeps_form(const struct ofs_overlay *o, uint32_t base)
{
	uint32_t entry = o->tree->node[base].entry;

	return entry != OFS_NONE && !ofs_entry_is_text(o->cat, entry) &&
	    (o->cat->fixed_forms || o->cat->entries[entry].key != OFS_KEY_FREE);
}

/* The form of a file that the source of a new checkpoint has, and of one that a commit
 * can only overwrite, cannot change. cp ignores that its attributes were refused, so
 * bytes that it has written before are marked: closing and committing the file fail. */
static int refuse(const struct ofs_overlay *o, uint32_t index,
    const struct ofs_overlay_form *now, const struct ofs_overlay_form *form,
    struct optimfs_error *err)
{
	struct ofs_overlay_file *f = ofs_overlay_file(o, index);

	err = OFS_SOME_ERROR(err);
	other_form(o, now, form, err);
	if (f == NULL || f->text)
		return -1;
	pthread_rwlock_wrlock(&f->lock);
	ofs_overlay_file_lose(f, 0, f->size, err);
	pthread_rwlock_unlock(&f->lock);
	return -1;
}

int ofs_overlay_fits(const struct ofs_overlay *o,
    const struct ofs_overlay_file *from, uint32_t index,
    struct optimfs_error *err)
{
	struct ofs_overlay_form now, form;

	form_given(o, index, &now);
	form = now;
	if (from->dtype != OFS_DTYPE_NONE)
		form.dtype = from->dtype;
	if (from->shape != NULL) {
		form.ndim = from->ndim;
		memcpy(form.shape, from->shape,
		    from->ndim * sizeof(*from->shape));
	}
	if (form.dtype == now.dtype && ofs_overlay_same_shape(&form, &now))
		return 0;
	return other_form(o, &now, &form, err);
}

/* May a file of the checkpoint get this form? What was written to it stays what
 * it is, elements or a text. */
static int may_change(const struct ofs_overlay *o, uint32_t index,
    const struct ofs_overlay_form *now, const struct ofs_overlay_form *form,
    struct optimfs_error *err)
{
	bool made = ofs_overlay_is_made(o, index);
	uint32_t base = made ? ofs_overlay_stands_for(o, index) : index;

	if (o->hidden != NULL)
		return made ? 0 : refuse(o, index, now, form, err);
	if (base != OFS_NONE && !o->replaying &&
	    ofs_overlay_keeps_form(o, base))
		return refuse(o, index, now, form, err);
	if (made)
		return 0;
	if (ofs_entry_is_text(o->cat, o->tree->node[index].entry))
		return optimfs_fail(err, EINVAL,
		    "OFS816 a text of the checkpoint cannot become a tensor: "
		    "remove it first");
	if (form->ndim == 0)
		return optimfs_fail(err, EINVAL,
		    "OFS816 a tensor of the checkpoint cannot lose all its "
		    "dimensions: remove it first");
	return 0;
}

int ofs_overlay_set_attr(struct ofs_overlay *o, uint32_t index,
    const char *name, const char *value, size_t n, struct optimfs_error *err)
{
	struct ofs_overlay_form now, form;
	bool dtype = strcmp(name, "dtype") == 0, known;

	if (!dtype && strcmp(name, "shape") != 0)
		return 0; /* copied by cp -a; derived anyway */
	known = form_given(o, index, &now);
	form = now;
	if (dtype) {
		form.dtype = (uint8_t)ofs_dtype_of_name(value, n);
		if (form.dtype == OFS_DTYPE_NONE)
			return optimfs_fail(err, EINVAL,
			    "OFS816 '%.*s' is not a type of elements",
			    (int)(n < 80 ? n : 80), value);
	} else if (parse_shape(value, n, form.shape, &form.ndim, err) == -1) {
		return -1;
	}
	if (form.dtype != OFS_DTYPE_NONE && form.ndim > 0 &&
	    ofs_overlay_form_bytes(&form) == 0 && form.shape[0] != 0) {
		uint64_t numel;

		if (!ofs_numel(form.shape, form.ndim, &numel) || numel != 0)
			return optimfs_fail(err, EINVAL,
			    "OFS816 a tensor of that shape is too large");
	}
	if (known && now.dtype != OFS_DTYPE_NONE && form.dtype == now.dtype &&
	    ofs_overlay_same_shape(&form, &now))
		return 0;
	if (may_change(o, index, &now, &form, err) == -1 ||
	    record_attr(o, index, name, value, n, err) == -1)
		return -1;
	return keep_attr(o, index, &form, dtype, err);
}

int ofs_overlay_set_mtime(struct ofs_overlay *o, uint32_t index,
    int64_t mtime_ns, struct optimfs_error *err)
{
	struct ofs_record r = { .type = OFS_REC_TIME,
		.num = { (uint64_t)mtime_ns } };
	struct ofs_overlay_node *v = ofs_overlay_touch(o, index, err);
	struct ofs_overlay_file *f;
	char *path;
	int ret;

	if (v == NULL)
		return -1;
	path = ofs_overlay_path(o, index, NULL, NULL);
	r.a = path;
	ret = path == NULL ? 0 : ofs_overlay_record(o, &r, err);
	free(path);
	if (ret == -1)
		return -1;
	v->mtime_ns = mtime_ns;
	f = v->dir ? NULL : ofs_overlay_file(o, index);
	if (f != NULL) {
		pthread_rwlock_wrlock(&f->lock);
		f->mtime_ns = 0;
		pthread_rwlock_unlock(&f->lock);
	}
	return 0;
}

bool ofs_overlay_key_of(const struct ofs_overlay *o, uint32_t dir,
    const char *name, struct ofs_buf *out)
{
	uint32_t node =
	    dir == OFS_NONE ? OFS_NONE : ofs_tree_lookup(o->tree, dir, name);
	char key[OFS_NAME_MAX + 1];
	struct ofs_str s = { key, 0 };
	size_t n = 0;

	if (node != OFS_NONE)
		s = ofs_catalog_string(o->cat,
		    ofs_tree_key(o->tree, o->cat, node));
	else if (!ofs_name_decode(name, strlen(name), key, &n))
		return false;
	ofs_buf_put(out, s.p, node != OFS_NONE ? s.len : n);
	return true;
}

bool ofs_overlay_key(const struct ofs_overlay *o, uint32_t index,
    struct ofs_buf *out)
{
	const struct ofs_tree *tree = o->tree;
	uint32_t base = ofs_overlay_is_made(o, index)
	    ? ofs_overlay_base_place(o, index)
	    : index;
	uint32_t model = ofs_tree_lookup(tree, 0, "model");
	const char *name = ofs_overlay_name(o, index);
	struct ofs_str s;

	if (name == NULL)
		return false;
	if (!ofs_overlay_is_made(o, index) &&
	    strcmp(name, tree->node[index].name) != 0)
		base = OFS_NONE; /* it was renamed */
	if (model != OFS_NONE && tree->node[model].entry != OFS_NONE)
		model = OFS_NONE;
	if (base == OFS_NONE)
		return ofs_overlay_key_of(o, model, name, out);
	s = ofs_catalog_string(o->cat, ofs_tree_key(tree, o->cat, base));
	ofs_buf_put(out, s.p, s.len);
	return true;
}

int ofs_overlay_fqn(struct ofs_overlay *o, uint32_t index, struct ofs_buf *out)
{
	uint32_t at = index, up;
	int ret;

	pthread_rwlock_rdlock(&o->names);
	for (uint32_t i = index; i != 0 && i != OFS_NONE; i = up) {
		up = ofs_overlay_parent(o, i);
		if (up != 0 && up != OFS_NONE &&
		    strcmp(ofs_overlay_name(o, up), "state") == 0)
			at = i;
	}
	ret = ofs_overlay_key(o, at, out);
	pthread_rwlock_unlock(&o->names);
	return ret;
}
