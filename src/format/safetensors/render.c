/* render.c - a checkpoint as safetensors files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "archive/safetensors.h"
#include "base/buf.h"
#include "base/cursor.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/json.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "base/str.h"
#include "format/safetensors/safetensors.h"
#include "layout/optim_groups.h"
#include "layout/state_dict.h"
#include "pickle/write.h"
#include "text/text.h"

/* Hugging Face's limit of file size, for ",hf" */
#define SHARD_MAX (UINT64_C(5) << 30)
#define NSECTIONS 3u
/* The largest file that is copied beside weights. */
#define SETTINGS_MAX (UINT64_C(64) << 20)

/* A tensor for a file. */
struct leaf {
	uint32_t entry;
	struct ofs_str key;  /* in the arena */
	uint64_t bytes, off; /* off: relative to the end of the header */
	uint32_t file;
};

struct st_file {
	char name[OFS_FILE_NAME];
	/* the header; a file without leaves is only this */
	struct ofs_buf head;
	uint32_t first, n; /* its run of leaves */
};

struct st_files {
	struct ofs_files files;
	const struct ofs_catalog *cat;
	struct ofs_layout to;
	struct ofs_arena arena;
	struct leaf *leaf;
	uint32_t nleaves;
	struct st_file *file;
	size_t file_cap;
};

/* The state of building a section. */
struct section {
	struct st_files *f;
	const struct ofs_render *from;
	const struct ofs_layout *to;
	const char *name;
	uint32_t first; /* index of its first leaf */
	struct ofs_buf paths, value_paths, values;
	struct optimfs_error *err;
};

static const struct st_files *st_files(const struct ofs_files *f)
{
	return (const struct st_files *)f;
}

/* The key of an entry: its components after the section, joined by dots. */
static int make_key(struct section *s, const struct ofs_entry *e,
    struct ofs_str *out)
{
	uint32_t n;
	const uint32_t *c = ofs_catalog_components(s->f->cat, e->tree, &n);
	struct ofs_buf key = { 0 };
	char *copy = NULL;

	if (n > 1)
		ofs_catalog_join(s->f->cat, c + 1, n - 1, &key);
	if (!key.bad)
		copy = ofs_arena_strndup(&s->f->arena,
		    key.len == 0 ? "" : (char *)key.data, key.len);
	*out = (struct ofs_str){ copy, (uint32_t)key.len };
	ofs_buf_fini(&key);
	return copy == NULL ? ofs_no_memory(s->err) : 0;
}

/* Append "key": ["state", "l.weight", "step"] to the paths, unless the key is
 * the only component. Those of tensors come before those of values, as in the
 * catalog that is read from the file. */
static void note_path(struct section *s, const struct ofs_entry *e,
    struct ofs_str key)
{
	struct ofs_buf *paths =
	    e->kind == OFS_ENTRY_TENSOR ? &s->paths : &s->value_paths;
	uint32_t n;
	const uint32_t *c = ofs_catalog_components(s->f->cat, e->tree, &n);

	if (n == 2 && (c[1] & OFS_PATH_INDEX) == 0)
		return;
	if (paths->len > 0)
		ofs_buf_putc(paths, ',');
	ofs_json_quote(paths, key.p, key.len);
	for (uint32_t i = 1; i < n; i++) {
		struct ofs_str k =
		    ofs_catalog_string(s->f->cat, OFS_PATH_STR(c[i]));

		ofs_buf_puts(paths, i == 1 ? ":[" : ",");
		if ((c[i] & OFS_PATH_INDEX) != 0)
			ofs_buf_put(paths, k.p, k.len);
		else
			ofs_json_quote(paths, k.p, k.len);
	}
	ofs_buf_puts(paths, n == 1 ? ":[]" : "]");
}

/* Is it accepted by the strict reader? Else it is not written. */
static bool is_json(const struct ofs_buf *text)
{
	enum ofs_json_token token;
	struct ofs_json j;

	ofs_json_init(&j, text->data, (uint32_t)text->len);
	do
		token = ofs_json_next(&j, NULL);
	while (token != OFS_JSON_END && token != OFS_JSON_ERROR);
	ofs_json_fini(&j);
	return token == OFS_JSON_END;
}

static int value_text(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out, struct optimfs_error *err)
{
	enum ofs_text_kind kind = ofs_text_kind(doc, node);
	bool lossy = kind == OFS_TEXT_OPAQUE || kind == OFS_TEXT_BYTES;
	struct ofs_text_form form = { .lossy = &lossy };
	struct ofs_buf text = { 0 };

	if (!lossy && ofs_text_value(doc, node, &form, &text, err) == -1)
		return -1;
	if (kind == OFS_TEXT_STRING)
		ofs_json_quote(out, text.data, text.len - 1);
	else if (!lossy)
		ofs_buf_put(out, text.data, text.len - 1);
	ofs_buf_fini(&text);
	if (out->bad)
		return ofs_no_memory(err);
	if (lossy || !is_json(out))
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS448 a value that JSON cannot express (the option "
		    "drop=opaque leaves such values out)");
	return 0;
}

/* The text as the tree shows it. A pickle in between replaces IDs by names. */
static int entry_text(struct section *s, const struct ofs_entry *e,
    struct ofs_buf *out)
{
	struct ofs_buf bytes = { 0 };
	struct ofs_pkw w = { .out = &bytes };
	const struct ofs_pickle *doc;
	struct ofs_pickle *again = NULL;
	uint32_t node;
	int ret;

	if (ofs_render_value(s->from, e, &doc, &node, s->err) == -1)
		return -1;
	ofs_pkw_begin(&w);
	ret = ofs_render_put(&w, s->f->cat, e, doc, node, s->err);
	ofs_render_release(s->f->cat, e, doc);
	if (ret == 0)
		ret = ofs_pkw_end(&w, s->err);
	if (ret == 0) {
		again = ofs_pickle_parse(bytes.data, bytes.len, false, NULL,
		    NULL, s->err);
		ret = again == NULL
		    ? -1
		    : value_text(again, ofs_pickle_root(again), out, s->err);
	}
	ofs_pickle_free(again);
	ofs_buf_fini(&bytes);
	return ret;
}

static int add_value(struct section *s, const struct ofs_entry *e,
    struct ofs_str key)
{
	struct ofs_buf text = { 0 };
	int ret = entry_text(s, e, &text);

	if (ret == 0) {
		if (s->values.len > 0)
			ofs_buf_putc(&s->values, ',');
		ofs_json_quote(&s->values, key.p, key.len);
		ofs_buf_putc(&s->values, ':');
		ofs_buf_put(&s->values, text.data, text.len);
	}
	ofs_buf_fini(&text);
	return ret;
}

static int add_tensor(struct section *s, uint32_t entry, struct ofs_str key)
{
	const struct ofs_entry *e = &s->f->cat->entries[entry];
	const struct ofs_tensor *t = &s->f->cat->tensors[e->ref];
	enum ofs_dtype dtype = ofs_render_dtype(s->to, t);

	if (ofs_render_sound(s->f->cat, e, s->err) == -1)
		return -1;
	if (!ofs_safetensors_has(dtype))
		return optimfs_fail(s->err, EOPNOTSUPP,
		    "OFS448 safetensors has no type %s",
		    ofs_dtype_name(t->dtype));
	s->f->leaf[s->f->nleaves++] = (struct leaf){
		.entry = entry,
		.key = key,
		.bytes = ofs_tensor_numel(s->f->cat, t) * ofs_dtype_size(dtype),
	};
	return 0;
}

/* Is it a value that the format cannot hold and drop=opaque leaves out? */
static bool is_dropped(const struct section *s, const struct ofs_entry *e)
{
	return s->to->drop && e->kind != OFS_ENTRY_TENSOR &&
	    (s->err->code == EPERM || s->err->code == EOPNOTSUPP);
}

static int add_entry(struct section *s, uint32_t entry)
{
	const struct ofs_entry *e = &s->f->cat->entries[entry];
	struct ofs_str key;
	int ret;

	if (make_key(s, e, &key) == -1)
		return -1;
	if (e->kind == OFS_ENTRY_TENSOR)
		ret = add_tensor(s, entry, key);
	else
		ret = add_value(s, e, key);
	if (ret == 0)
		note_path(s, e, key);
	else if (is_dropped(s, e))
		ret = ofs_render_report_dropped(s->from, e, s->err);
	return ret == -1 ? ofs_render_fail_in(s->f->cat, e, s->err) : 0;
}

static const struct ofs_tensor *leaf_tensor(const struct st_files *f,
    const struct leaf *l)
{
	return &f->cat->tensors[f->cat->entries[l->entry].ref];
}

static size_t item_size(const struct st_files *f, const struct leaf *l)
{
	return ofs_dtype_size(ofs_render_dtype(&f->to, leaf_tensor(f, l)));
}

/* The widest elements first, so that all are aligned; then by name. */
static int by_place(const void *a, const void *b, void *files)
{
	const struct leaf *x = a, *y = b;
	size_t m = item_size(files, x), n = item_size(files, y);

	if (m != n)
		return m > n ? -1 : 1;
	return ofs_str_compare(x->key, y->key);
}

static int sort_leaves(struct section *s)
{
	struct leaf *v = s->f->leaf + s->first;
	uint32_t n = s->f->nleaves - s->first;

	qsort_r(v, n, sizeof(*v), by_place, s->f);
	for (uint32_t i = 1; i < n; i++)
		if (ofs_str_equal(v[i - 1].key, v[i].key))
			return optimfs_fail(s->err, EUCLEAN,
			    "OFS449 two tensors would have the key '%.120s'",
			    v[i].key.p);
	return 0;
}

/* Assign each tensor a file and an offset; a file ends before it would exceed
 * max bytes. Returns the number of files. */
static uint32_t place_leaves(struct section *s, uint64_t max)
{
	uint64_t off = 0;
	uint32_t file = 0;

	for (uint32_t i = s->first; i < s->f->nleaves; i++) {
		struct leaf *l = &s->f->leaf[i];

		if (off > 0 && l->bytes > max - (off < max ? off : max)) {
			file++;
			off = 0;
		}
		l->file = file;
		l->off = off;
		off += l->bytes;
	}
	return file + 1;
}

static void put_leaf(const struct st_files *f, const struct leaf *l,
    struct ofs_buf *b)
{
	const struct ofs_tensor *t = leaf_tensor(f, l);

	ofs_json_quote(b, l->key.p, l->key.len);
	ofs_buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[",
	    ofs_dtype_safetensors(ofs_render_dtype(&f->to, t)));
	ofs_buf_numbers(b, ofs_tensor_shape(f->cat, t), t->ndim, ",");
	ofs_buf_printf(b, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}",
	    l->off, l->off + l->bytes);
}

/* Append {"paths": ..., "values": ...} as the text of a JSON string. */
static void put_note(const struct section *s, struct ofs_buf *b)
{
	struct ofs_buf note = { 0 };

	ofs_buf_puts(&note, "{\"paths\":{");
	ofs_buf_put(&note, s->paths.data, s->paths.len);
	if (s->paths.len > 0 && s->value_paths.len > 0)
		ofs_buf_putc(&note, ',');
	ofs_buf_put(&note, s->value_paths.data, s->value_paths.len);
	ofs_buf_puts(&note, "},\"values\":{");
	ofs_buf_put(&note, s->values.data, s->values.len);
	ofs_buf_puts(&note, "}}");
	b->bad = b->bad || note.bad || s->paths.bad || s->value_paths.bad ||
	    s->values.bad;
	ofs_buf_puts(b, ",\"" OFS_SAFETENSORS_NOTE "\":");
	ofs_json_quote(b, note.data, note.len);
	ofs_buf_fini(&note);
}

/* The length, then the JSON, padded so that elements begin at a multiple of
 * eight. The note is in the first file of a section. */
static int put_header(struct section *s, struct st_file *file, bool note)
{
	struct ofs_buf *b = &file->head;
	uint64_t n;

	ofs_buf_put(b, "\0\0\0\0\0\0\0\0", 8);
	ofs_buf_puts(b, "{\"__metadata__\":{\"format\":\"pt\"");
	if (note && (s->paths.len > 0 || s->values.len > 0))
		put_note(s, b);
	ofs_buf_putc(b, '}');
	for (uint32_t i = 0; i < file->n; i++) {
		ofs_buf_putc(b, ',');
		put_leaf(s->f, &s->f->leaf[file->first + i], b);
	}
	ofs_buf_putc(b, '}');
	while (b->len % 8 != 0 && !b->bad)
		ofs_buf_putc(b, ' ');
	if (b->bad)
		return ofs_no_memory(s->err);
	n = b->len - 8;
	if (n > OFS_SAFETENSORS_HEADER_MAX)
		return optimfs_fail(s->err, E2BIG,
		    "OFS652 %s: a header of %" PRIu64 " bytes, more than "
		    "readers accept",
		    file->name, n);
	ofs_put_le(b->data, n, 8);
	return 0;
}

static struct st_file *new_file(struct section *s)
{
	struct st_files *f = s->f;

	if (ofs_grow(f->file, f->files.n, f->file_cap, s->err) == -1)
		return NULL;
	f->file[f->files.n] = (struct st_file){ 0 };
	return &f->file[f->files.n++];
}

/* Build model.safetensors.index.json. */
static int put_index(struct section *s, uint32_t nfiles)
{
	uint64_t total = 0;
	struct st_file *file = new_file(s);
	struct ofs_buf *b;

	if (file == NULL)
		return -1;
	snprintf(file->name, sizeof(file->name), "%s.safetensors.index.json",
	    s->name);
	b = &file->head;
	for (uint32_t i = s->first; i < s->f->nleaves; i++)
		total += s->f->leaf[i].bytes;
	ofs_buf_printf(b,
	    "{\n  \"metadata\": {\n    \"total_size\": %" PRIu64
	    "\n  },\n  \"weight_map\": {",
	    total);
	for (uint32_t i = s->first; i < s->f->nleaves; i++) {
		const struct leaf *l = &s->f->leaf[i];

		ofs_buf_puts(b, i == s->first ? "\n    " : ",\n    ");
		ofs_json_quote(b, l->key.p, l->key.len);
		ofs_buf_printf(b, ": \"%s-%05u-of-%05u.safetensors\"", s->name,
		    l->file + 1, nfiles);
	}
	ofs_buf_puts(b, "\n  }\n}\n");
	return b->bad ? ofs_no_memory(s->err) : 0;
}

static int put_files(struct section *s)
{
	bool shards = s->to->hf && strcmp(s->name, "model") == 0;
	uint32_t n = place_leaves(s, shards ? SHARD_MAX : UINT64_MAX);
	uint32_t at = s->first;

	for (uint32_t i = 0; i < n; i++) {
		struct st_file *file = new_file(s);

		if (file == NULL)
			return -1;
		if (shards)
			snprintf(file->name, sizeof(file->name),
			    "%s-%05u-of-%05u.safetensors", s->name, i + 1, n);
		else
			snprintf(file->name, sizeof(file->name),
			    "%s.safetensors", s->name);
		file->first = at;
		while (at < s->f->nleaves && s->f->leaf[at].file == i)
			at++;
		file->n = at - file->first;
		if (put_header(s, file, i == 0) == -1)
			return -1;
	}
	return shards ? put_index(s, n) : 0;
}

static int add_section(struct st_files *f, const struct ofs_render *from,
    const struct ofs_layout *to, const char *name, struct optimfs_error *err)
{
	struct section s = { f, from, to, name, f->nleaves, { 0 }, { 0 }, { 0 },
		err };
	uint32_t *entries = NULL, n = 0;
	int ret = ofs_render_entries(from, to, name, &entries, &n, err);

	for (uint32_t i = 0; i < n && ret == 0; i++)
		ret = add_entry(&s, entries[i]);
	if (ret == 0 && n > 0)
		ret = sort_leaves(&s);
	if (ret == 0 && n > 0)
		ret = put_files(&s);
	free(entries);
	ofs_buf_fini(&s.paths);
	ofs_buf_fini(&s.value_paths);
	ofs_buf_fini(&s.values);
	return ret;
}

static void file_name(const struct ofs_files *files, uint32_t file,
    char name[OFS_FILE_NAME])
{
	strcpy(name, st_files(files)->file[file].name);
}

/* The ref of a span is an offset in the header or a leaf; base decides. */
static int spans(const struct ofs_files *files, uint32_t file,
    struct ofs_spans *out, struct optimfs_error *err)
{
	const struct st_files *f = st_files(files);
	const struct st_file *s = &f->file[file];

	if (ofs_spans_add_bytes(out, s->head.len, 0, err) == -1)
		return -1;
	for (uint32_t i = 0; i < s->n; i++)
		if (ofs_spans_add(out, f->leaf[s->first + i].bytes,
			s->first + i, 1, err) == -1)
			return -1;
	return 0;
}

static int make(const struct ofs_files *files, uint32_t file,
    const struct ofs_span *span, uint64_t at, struct ofs_composition *c,
    struct optimfs_error *err)
{
	const struct st_files *f = st_files(files);

	if (span->base == 0)
		return ofs_composition_bytes(c,
		    f->file[file].head.data + span->ref, span->end - at, err);
	return ofs_composition_box(c, f->cat,
	    f->cat->entries[f->leaf[span->ref].entry].ref, NULL, err);
}

static void files_free(struct ofs_files *files)
{
	struct st_files *f = (struct st_files *)files;

	for (uint32_t i = 0; i < files->n; i++)
		ofs_buf_fini(&f->file[i].head);
	ofs_arena_fini(&f->arena);
	free(f->file);
	free(f->leaf);
	free(f);
}

/* The files of the Hub beside weights. */
static const char *const settings[] = { "config.json",
	"generation_config.json", "tokenizer.json", "tokenizer_config.json",
	"tokenizer.model", "special_tokens_map.json", "added_tokens.json",
	"vocab.json", "merges.txt", "chat_template.jinja" };

/* A model under the names of its family is complete with those that there are:
 * they are copied. */
static int add_settings(struct section *s)
{
	for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++) {
		struct ofs_buf bytes = { 0 };
		struct st_file *file;
		int ret = ofs_model_files_read(s->from->beside, settings[i],
		    SETTINGS_MAX, &bytes, s->err);

		file = ret == 1 ? new_file(s) : NULL;
		if (file != NULL) {
			strcpy(file->name, settings[i]);
			file->head = bytes;
			continue;
		}
		ofs_buf_fini(&bytes);
		if (ret != 0)
			return -1;
	}
	return 0;
}

static int check_ids(const struct ofs_render *from, const struct ofs_layout *to,
    struct optimfs_error *err)
{
	struct ofs_state s;
	int ret;

	if (ofs_state_build(&s, from, to, "optim", err) == -1)
		return -1;
	ret = ofs_optim_groups_check(&s, from, err);
	ofs_state_fini(&s);
	return ret;
}

static int lay(struct ofs_files *files, const struct ofs_render *from,
    const struct ofs_layout *to, struct optimfs_error *err)
{
	static const char *const sections[NSECTIONS] = { "extra", "model",
		"optim" };
	struct st_files *f = (struct st_files *)files;

	err = OFS_SOME_ERROR(err);
	f->cat = from->cat;
	f->to = *to;
	f->leaf =
	    ofs_alloc((size_t)from->cat->nentries + 1, sizeof(*f->leaf), err);
	if (f->leaf == NULL)
		return -1;
	for (unsigned i = 0; i < NSECTIONS; i++)
		if (add_section(f, from, to, sections[i], err) == -1)
			return -1;
	if (to->names.lean && from->beside != NULL &&
	    add_settings(&(struct section){
		.f = f, .from = from, .to = to, .err = err }) == -1)
		return -1;
	return check_ids(from, to, err);
}

const struct ofs_files_ops ofs_safetensors_render = {
	.size = sizeof(struct st_files),
	.lay = lay,
	.name = file_name,
	.spans = spans,
	.make = make,
	.free = files_free,
};
