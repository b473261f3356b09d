/* xattr.c - extended attributes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "fs/fs.h"
#include "fs/view.h"
#include "naming/naming.h"
#include "overlay/overlay.h"
#include "text/text.h"

#define PREFIX "user.optimfs."
/* The kernel's limit for an attribute is 64 KiB. */
#define VALUE_MAX 65536u

struct subject {
	struct ofs_snapshot *snap;
	struct ofs_at at;
	const struct ofs_entry *entry; /* NULL: a directory */
	const struct ofs_tensor *tensor;
	struct ofs_tensor shown;
	    /* in .optimfs/f32 */ /* NULL: something else */
	bool made;                /* added by a writer */
	bool edited;              /* form has its new dtype and shape */
	struct ofs_overlay_form form;
	struct optimfs_error *err;
};

static struct ofs_str key_of(const struct subject *s, uint32_t index)
{
	return ofs_catalog_string(s->snap->cat,
	    ofs_tree_key(&s->snap->tree, s->snap->cat, index));
}

static bool is_state(const struct subject *s, uint32_t index)
{
	return index != 0 &&
	    strcmp(s->snap->tree.node[index].name, "state") == 0;
}

/* The name of the parameter for everything below optim/.../state/<fqn>;
 * elsewhere the key. */
static int get_fqn(const struct subject *s, struct ofs_buf *out)
{
	const struct ofs_tree_node *node = s->snap->tree.node;
	uint32_t index = s->at.index;
	struct ofs_str key;

	if (s->made)
		return ofs_overlay_fqn(s->snap->overlay, index, out);
	if (index == 0)
		return 0;
	for (uint32_t i = index; i != 0; i = node[i].parent)
		if (is_state(s, node[i].parent))
			index = i;
	key = key_of(s, index);
	ofs_buf_put(out, key.p, key.len);
	return 1;
}

/* A directory has attributes only if it is that of a parameter. */
static int list_fqn(const struct subject *s, struct ofs_buf *out)
{
	uint32_t up;

	if (s->made)
		return get_fqn(s, out);
	up = s->snap->tree.node[s->at.index].parent;
	if (s->entry == NULL && !is_state(s, up))
		return 0;
	return get_fqn(s, out);
}

/* The parameter's name in the source, if it differs from the listed one. */
static int get_raw_fqn(const struct subject *s, struct ofs_buf *out)
{
	struct ofs_str raw;

	if (s->entry == NULL || !ofs_raw_fqn(s->snap->cat, s->entry, &raw))
		return 0;
	ofs_buf_put(out, raw.p, raw.len);
	return 1;
}

/* What FSDP1 or DeepSpeed stored about this parameter, or the parameter of this
 * state. */
static const struct ofs_flat_param *flat_of(const struct subject *s)
{
	const struct ofs_tree_node *node = s->snap->tree.node;

	for (uint32_t i = s->at.index; i != 0; i = node[i].parent) {
		uint32_t up = node[i].parent;

		if (is_state(s, up) ||
		    (up != 0 && node[up].parent == 0 &&
			strcmp(node[up].name, "model") == 0))
			return ofs_catalog_flat(s->snap->cat,
			    ofs_tree_key(&s->snap->tree, s->snap->cat, i));
	}
	return NULL;
}

static int get_unit(const struct subject *s, struct ofs_buf *out)
{
	const struct ofs_flat_param *p = flat_of(s);
	struct ofs_str unit;

	if (p == NULL || p->unit == OFS_NONE)
		return 0;
	unit = ofs_catalog_string(s->snap->cat, p->unit);
	ofs_buf_put(out, unit.p, unit.len);
	return 1;
}

static int get_index(const struct subject *s, struct ofs_buf *out)
{
	const struct ofs_flat_param *p = flat_of(s);

	if (p == NULL || p->unit == OFS_NONE)
		return 0;
	ofs_buf_printf(out, "%" PRIu32, p->index);
	return 1;
}

static int get_requires_grad(const struct subject *s, struct ofs_buf *out)
{
	const struct ofs_flat_param *p = flat_of(s);

	if (p == NULL || p->grad == -1)
		return 0;
	ofs_buf_puts(out, p->grad == 1 ? "true" : "false");
	return 1;
}

static int get_dtype(const struct subject *s, struct ofs_buf *out)
{
	uint8_t dtype;

	if (s->tensor == NULL && s->form.dtype == OFS_DTYPE_NONE)
		return 0;
	dtype = s->edited ? s->form.dtype : s->tensor->dtype;
	ofs_buf_puts(out, ofs_dtype_name(dtype));
	return 1;
}

static int get_shape(const struct subject *s, struct ofs_buf *out)
{
	if (s->tensor == NULL && s->form.dtype == OFS_DTYPE_NONE)
		return 0;
	if (!s->edited)
		ofs_buf_numbers(out, ofs_tensor_shape(s->snap->cat, s->tensor),
		    s->tensor->ndim, ",");
	ofs_buf_numbers(out, s->form.shape, s->form.ndim, ",");
	return 1;
}

/* The kind of an item is only known after reading it, so it is not reported. */
static int get_kind(const struct subject *s, struct ofs_buf *out)
{
	const struct ofs_value *v;

	if (s->made && s->form.dtype != OFS_DTYPE_NONE)
		ofs_buf_puts(out, s->form.ndim == 0 ? "scalar" : "tensor");
	if (s->entry == NULL)
		return s->form.dtype != OFS_DTYPE_NONE;
	if (s->tensor != NULL) {
		ofs_buf_puts(out, s->tensor->ndim == 0 ? "scalar" : "tensor");
	} else if (s->entry->kind == OFS_ENTRY_ITEM) {
		ofs_buf_puts(out, "object");
	} else {
		v = &s->snap->cat->values[s->entry->ref];
		ofs_buf_puts(out,
		    ofs_text_kind_name(ofs_text_kind(v->doc, v->node)));
	}
	return 1;
}

/* The same, but an item is read for it. */
static int get_value_kind(const struct subject *s, struct ofs_buf *out)
{
	struct ofs_snapshot *snap = s->snap;
	struct ofs_pickle *doc;

	if (s->entry == NULL || s->entry->kind != OFS_ENTRY_ITEM)
		return get_kind(s, out);
	doc = ofs_locate_item(&snap->reader, &snap->cat->items[s->entry->ref],
	    s->err);
	if (doc == NULL)
		return -1;
	ofs_buf_puts(out,
	    ofs_text_kind_name(ofs_text_kind(doc, ofs_pickle_root(doc))));
	ofs_pickle_free(doc);
	return 1;
}

static int get_shards(const struct subject *s, struct ofs_buf *out)
{
	if (s->tensor == NULL)
		return 0;
	ofs_buf_printf(out, "%" PRIu32, s->tensor->nshards);
	return 1;
}

static int get_owners(const struct subject *s, struct ofs_buf *out)
{
	if (s->tensor == NULL)
		return 0;
	ofs_owners(s->snap->cat, s->tensor, out);
	return 1;
}

static void put_source(const struct subject *s, const struct ofs_extent *at,
    struct ofs_buf *out)
{
	const char *path = s->snap->cat->objects[at->object].path;

	if (out->len > 0)
		ofs_buf_putc(out, '\n');
	ofs_buf_plain(out, path, strlen(path));
	ofs_buf_printf(out, ":%" PRIu64 "+%" PRIu64, at->off, at->len);
}

/* file:offset+length, one per line. */
static int get_source(const struct subject *s, struct ofs_buf *out)
{
	const struct ofs_catalog *cat = s->snap->cat;
	const struct ofs_extent *at;

	if (s->entry == NULL || s->entry->kind == OFS_ENTRY_VALUE)
		return 0;
	for (uint32_t i = 0; (at = ofs_entry_extent(cat, s->entry, i)) != NULL;
	     i++) {
		size_t before = out->len;

		put_source(s, at, out);
		if (s->tensor != NULL && out->len > VALUE_MAX - 64) {
			out->len = before;
			ofs_buf_printf(out, "\nand %" PRIu32 " more",
			    s->tensor->nshards - i);
			break;
		}
	}
	return 1;
}

static int get_crc32(const struct subject *s, struct ofs_buf *out)
{
	uint64_t off = 0;
	size_t chunk = 1 << 20;
	unsigned long crc = 0;
	struct optimfs_file *file;
	uint8_t *buf;
	ssize_t n = 0;

	if (s->entry == NULL && !s->edited)
		return 0;
	if (ofs_file_open(s->snap, s->at, &file, s->err) == -1)
		return -1;
	buf = malloc(chunk);
	if (buf == NULL)
		n = ofs_no_memory(s->err);
	while (n != -1) {
		n = ofs_file_read(file, buf, chunk, off, s->err);
		if (n <= 0)
			break;
		crc = ofs_crc32(crc, buf, (unsigned)n);
		off += (uint64_t)n;
	}
	free(buf);
	optimfs_file_close(file);
	ofs_buf_printf(out, "%08lx", crc);
	return n == -1 ? -1 : 1;
}

static int find_scale(const struct subject *s, struct ofs_scale *scale)
{
	return s->tensor == NULL
	    ? 0
	    : ofs_locate_scale(&s->snap->reader, s->entry->ref, scale, s->err);
}

static int get_scale(const struct subject *s, struct ofs_buf *out)
{
	struct ofs_scale scale;
	char text[80];
	int has = find_scale(s, &scale);

	if (has == 1)
		ofs_buf_put(out, text, ofs_print_double(scale.scale, text));
	return has;
}

static int get_zero_point(const struct subject *s, struct ofs_buf *out)
{
	struct ofs_scale scale;
	int has = find_scale(s, &scale);

	if (has == 1)
		ofs_buf_printf(out, "%" PRId64, scale.zero_point);
	return has;
}

static int get_error(const struct subject *s, struct ofs_buf *out)
{
	struct optimfs_error known;

	if (ofs_failures_last(&s->snap->fs->failures,
		ofs_node_of(s->at.space, s->at.index), out))
		return 1;
	if (s->entry == NULL ||
	    ofs_entry_sound(s->snap->cat, s->entry, &known) == 0)
		return 0;
	ofs_buf_puts(out, known.text);
	return 1;
}

/* 1: out has the value; 0: no such attribute; -1: failed (s->err). */
typedef int get_fn(const struct subject *s, struct ofs_buf *out);

static const struct attribute {
	const char *name;
	get_fn *get;
	get_fn *
	    list; /* as get, but decides whether it is listed; NULL: not listed */
	bool of_content; /* only for files with the contents of the tree */
} attributes[] = {
	{ "fqn", get_fqn, list_fqn, false },
	{ "dtype", get_dtype, get_dtype, true },
	{ "shape", get_shape, get_shape, true },
	{ "kind", get_kind, get_kind, true },
	{ "shards", get_shards, NULL, true },
	{ "owners", get_owners, NULL, true },
	{ "source", get_source, NULL, true },
	{ "value_kind", get_value_kind, NULL, true },
	{ "crc32", get_crc32, NULL, false },
	{ "error", get_error, NULL, false },
	{ "scale", get_scale, NULL, true },
	{ "zero_point", get_zero_point, NULL, true },
	{ "raw_fqn", get_raw_fqn, NULL, false },
	{ "unit", get_unit, NULL, false },
	{ "index", get_index, NULL, false },
	{ "requires_grad", get_requires_grad, NULL, false },
};
#define NATTRIBUTES (sizeof(attributes) / sizeof(*attributes))

/* What .optimfs/f32 shows has another dtype, and may have another shape. */
static void show_f32(struct subject *s)
{
	enum ofs_dtype dtype;
	const struct ofs_tensor *t =
	    ofs_f32_tensor(s->snap, s->at.index, &dtype);

	if (t == NULL)
		return;
	s->shown = *t;
	s->shown.dtype = (uint8_t)dtype;
	s->tensor = &s->shown;
}

/* false: the node has no attributes. */
static int find_subject(struct ofs_snapshot *snap, uint64_t node,
    struct subject *s, struct optimfs_error *err)
{
	struct ofs_at at;

	if (ofs_node_at(snap, node, &at, err) == -1)
		return -1;
	*s = (struct subject){ .snap = snap, .at = at, .err = err };
	if (ofs_at_static(snap, at))
		return 0;
	if (ofs_at_is_view(at))
		return 1;
	s->made = ofs_at_made(snap, at);
	s->entry = ofs_at_entry(snap, at);
	s->tensor = ofs_entry_tensor(snap->cat, s->entry);
	if (at.space == OFS_SPACE_F32 && s->entry != NULL)
		show_f32(s);
	s->edited = snap->overlay != NULL && !ofs_at_is_dir(snap, at) &&
	    (s->made || s->tensor != NULL);
	if (s->edited)
		ofs_overlay_form(snap->overlay, at.index, &s->form);
	return 1;
}

static bool applies(const struct subject *s, const struct attribute *a)
{
	if (ofs_at_is_view(s->at))
		return a->get == get_error;
	return !a->of_content || s->snap->space[s->at.space].ops->attributes;
}

static int no_data(const char *name, struct optimfs_error *err)
{
	return optimfs_fail(err, ENODATA, "no attribute %s", name);
}

static int do_getxattr(struct ofs_snapshot *snap, uint64_t node,
    const char *name, char **value, size_t *len, struct optimfs_error *err)
{
	struct ofs_buf out = { 0 };
	struct subject s;
	int has = find_subject(snap, node, &s, err);

	if (has == -1)
		return -1;
	if (has == 0 || strncmp(name, PREFIX, strlen(PREFIX)) != 0)
		return no_data(name, err);
	has = 0;
	for (size_t i = 0; i < NATTRIBUTES; i++)
		if (strcmp(name + strlen(PREFIX), attributes[i].name) == 0 &&
		    applies(&s, &attributes[i]))
			has = attributes[i].get(&s, &out);
	if (has != 1) {
		ofs_buf_fini(&out);
		return has == -1 ? -1 : no_data(name, err);
	}
	ofs_buf_putc(&out, '\0');
	if (out.bad) {
		ofs_buf_fini(&out);
		return ofs_no_memory(err);
	}
	*value = (char *)out.data;
	*len = out.len - 1;
	return 0;
}

int ofs_node_getxattr(struct optimfs *fs, uint64_t node, const char *name,
    char **value, size_t *len, struct optimfs_error *err)
{
	struct ofs_snapshot *snap;
	int ret;

	do {
		snap = ofs_enter(fs);
		ret = do_getxattr(snap, node, name, value, len, err);
	} while (ofs_leave_again(snap, ret == -1));
	return ret;
}

static int do_listxattr(struct ofs_snapshot *snap, uint64_t node, char **names,
    size_t *len, struct optimfs_error *err)
{
	struct ofs_buf out = { 0 }, value = { 0 };
	struct subject s;
	int has = find_subject(snap, node, &s, err);

	if (has == -1)
		return -1;
	for (size_t i = 0; has == 1 && i < NATTRIBUTES; i++) {
		const struct attribute *a = &attributes[i];

		if (a->list == NULL || !applies(&s, a) ||
		    a->list(&s, &value) != 1)
			continue;
		ofs_buf_puts(&out, PREFIX);
		ofs_buf_put(&out, a->name, strlen(a->name) + 1);
	}
	ofs_buf_fini(&value);
	*len = out.len;
	ofs_buf_putc(&out, '\0'); /* never NULL */
	if (out.bad) {
		ofs_buf_fini(&out);
		return ofs_no_memory(err);
	}
	*names = (char *)out.data;
	return 0;
}

int ofs_node_listxattr(struct optimfs *fs, uint64_t node, char **names,
    size_t *len, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter(fs);
	int ret = do_listxattr(snap, node, names, len, err);
	ofs_leave(snap);
	return ret;
}
