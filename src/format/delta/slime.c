/* slime.c - versions of slime: a compressed change for each tensor */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/json.h"
#include "base/keys.h"
#include "base/memory.h"
#include "base/str.h"
#include "format/delta/delta.h"
#include "format/safetensors/safetensors.h"

#define INDEX_MAX (UINT64_C(256) << 20)
/* Of a frame, what its header has at most. */
#define FRAME_HEADER 18

struct version {
	struct ofs_delta_build *d;
	const char *dir; /* "" for that of the catalog */
	uint8_t kind, sum_kind;
	struct ofs_keys names; /* of tensors, in the index */
	struct ofs_keys files;
	uint32_t *file; /* of each name */
	bool *found;    /* in its file */
	uint32_t cap, found_cap;
	struct optimfs_error *err;
};

static int __attribute__((format(printf, 3, 4)))
damaged(const struct version *x, const char *code, const char *fmt, ...)
{
	char what[160];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return optimfs_fail(x->err,
	    strcmp(code, "OFS882") == 0 ? EOPNOTSUPP : EUCLEAN, "%s %s", code,
	    what);
}

/* The index. */

static int set_kind(struct version *x, struct ofs_str s)
{
	if (ofs_str_is(s, "xor"))
		x->kind = OFS_DELTA_XOR;
	else if (ofs_str_is(s, "overwrite"))
		x->kind = OFS_DELTA_BYTES;
	else
		return damaged(x, "OFS882", "its delta_encoding is %.*s",
		    OFS_STR_ARGS(s, 60));
	return 0;
}

/* A checksum of another form is not compared, which a warning says. */
static int set_sum(struct version *x, struct ofs_str s)
{
	if (ofs_str_is(s, "xxh3-128"))
		x->sum_kind = OFS_DELTA_SUM_XXH3_128;
	else if (ofs_str_is(s, "adler32"))
		x->sum_kind = OFS_DELTA_SUM_ADLER32;
	else
		return ofs_catalog_note(x->d->cat, OFS_NOTE_WARNING, 0, x->err,
		    "OFS882 checksums of the form %.*s are not compared",
		    OFS_STR_ARGS(s, 60));
	return 0;
}

static int set_member(struct version *x, const char *key, struct ofs_str s)
{
	struct ofs_delta *c = x->d->changes;

	if (strcmp(key, "delta_encoding") == 0)
		return set_kind(x, s);
	if (strcmp(key, "checksum_format") == 0)
		return set_sum(x, s);
	if (strcmp(key, "compression_format") == 0)
		return ofs_str_is(s, "zstd")
		    ? 0
		    : damaged(x, "OFS882", "its compression_format is %.*s",
			  OFS_STR_ARGS(s, 60));
	if (strcmp(key, "version") == 0 || strcmp(key, "base_version") == 0)
		return ofs_delta_number(s,
			   key[0] == 'v' ? &c->version : &c->base)
		    ? 0
		    : damaged(x, "OFS881", "its %s is no number", key);
	return 0;
}

static int read_metadata(struct version *x, struct ofs_json *j,
    struct optimfs_error *err)
{
	enum ofs_json_token t = ofs_json_next(j, err);
	char key[32];

	if (t != OFS_JSON_OBJECT)
		return ofs_json_fail(j, err, "metadata is not an object");
	while ((t = ofs_json_next(j, err)) == OFS_JSON_KEY) {
		snprintf(key, sizeof(key), "%.*s", OFS_STR_ARGS(j->str, 31));
		t = ofs_json_next(j, err);
		if (t == OFS_JSON_STRING) {
			if (set_member(x, key, j->str) == -1)
				return -1;
		} else if (ofs_json_skip(j, t, err) == -1) {
			return -1;
		}
	}
	return t == OFS_JSON_ERROR ? -1 : 0;
}

static int add_name(struct version *x, struct ofs_str name, uint32_t *i)
{
	uint32_t n = x->names.n;

	if (ofs_grow(x->file, n, x->cap, x->err) == -1 ||
	    ofs_grow(x->found, n, x->found_cap, x->err) == -1)
		return -1;
	*i = ofs_keys_copy(&x->names, name.p, name.len, x->err);
	if (*i == OFS_NONE)
		return -1;
	if (*i < n)
		return damaged(x, "OFS881", "%.*s is in it twice",
		    OFS_STR_ARGS(name, 100));
	x->found[*i] = false;
	return 0;
}

static int read_map(struct version *x, struct ofs_json *j,
    struct optimfs_error *err)
{
	enum ofs_json_token t = ofs_json_next(j, err);
	uint32_t i;

	if (t != OFS_JSON_OBJECT)
		return ofs_json_fail(j, err, "weight_map is not an object");
	while ((t = ofs_json_next(j, err)) == OFS_JSON_KEY) {
		if (add_name(x, j->str, &i) == -1)
			return -1;
		if (ofs_json_next(j, err) != OFS_JSON_STRING)
			return ofs_json_fail(j, err, "not a file name");
		x->file[i] =
		    ofs_keys_copy(&x->files, j->str.p, j->str.len, err);
		if (x->file[i] == OFS_NONE)
			return -1;
	}
	return t == OFS_JSON_ERROR ? -1 : 0;
}

static int read_text(struct version *x, struct ofs_json *j)
{
	enum ofs_json_token t = ofs_json_next(j, x->err);
	int ret = 0;

	if (t != OFS_JSON_OBJECT)
		return t == OFS_JSON_ERROR
		    ? -1
		    : ofs_json_fail(j, x->err, "an index is an object");
	while (ret == 0 && (t = ofs_json_next(j, x->err)) == OFS_JSON_KEY) {
		if (ofs_str_is(j->str, "metadata"))
			ret = read_metadata(x, j, x->err);
		else if (ofs_str_is(j->str, "weight_map"))
			ret = read_map(x, j, x->err);
		else
			ret =
			    ofs_json_skip(j, ofs_json_next(j, x->err), x->err);
	}
	return ret == -1 || t == OFS_JSON_ERROR ? -1 : 0;
}

static char *path_of(const struct version *x, const char *name)
{
	char *path = ofs_path_join(x->dir, name);

	if (path == NULL)
		ofs_no_memory(x->err);
	return path;
}

static int read_index(struct version *x)
{
	char *path = path_of(x, OFS_SLIME_INDEX);
	struct ofs_json j;
	uint8_t *bytes;
	uint64_t n;
	int ret = -1;

	if (path == NULL)
		return -1;
	if (ofs_dir_read_file(&x->d->cat->dir, path, INDEX_MAX, &bytes, &n,
		x->err) == 0) {
		ofs_json_init(&j, bytes, (uint32_t)n);
		ret = read_text(x, &j);
		ofs_json_fini(&j);
		free(bytes);
		if (ret == -1)
			optimfs_fail_in(x->err, "%s", path);
	}
	if (ret == 0 &&
	    ofs_catalog_object(x->d->cat, path, -1, x->err) == OFS_NONE)
		ret = -1;
	free(path);
	return ret;
}

/* The files. */

struct file {
	const char *rel;
	struct ofs_input in;
	struct ofs_safetensors st;
	uint32_t object;
};

/* The number of bytes that a zstd frame says it holds. */
static bool frame_size(struct ofs_cursor c, uint64_t *size)
{
	static const unsigned ids[] = { 0, 1, 2, 4 };
	uint32_t magic = ofs_cursor_le32(&c);
	uint8_t d = ofs_cursor_u8(&c);
	unsigned flag = d >> 6, single = d >> 5 & 1;
	const unsigned lengths[] = { single, 2, 4, 8 };
	const uint8_t *at;

	(void)ofs_cursor_take(&c, !single);
	(void)ofs_cursor_take(&c, ids[d & 3]);
	at = ofs_cursor_take(&c, lengths[flag]);
	if (at == NULL || magic != 0xfd2fb528u || lengths[flag] == 0)
		return false;
	*size = ofs_get_le(at, lengths[flag]) + (flag == 1 ? 256 : 0);
	return true;
}

static int fail_change(const struct file *f, struct ofs_str name,
    const char *what, struct optimfs_error *why)
{
	return optimfs_fail(why, EUCLEAN, "OFS881 %.200s: %.*s %s", f->rel,
	    OFS_STR_ARGS(name, 200), what);
}

/* The decoded size of a change. A failure concerns this tensor only. */
static int decoded_size(const struct file *f,
    const struct ofs_safetensors_tensor *t, uint64_t *size,
    struct optimfs_error *why)
{
	uint8_t head[FRAME_HEADER];
	uint64_t n = t->len < sizeof(head) ? t->len : sizeof(head);

	if (t->dtype != OFS_UINT8 || t->ndim != 1)
		return fail_change(f, t->name, "is no compressed change", why);
	if (ofs_input_read(&f->in, head, n, t->off, why) == -1)
		return optimfs_fail_in(why, "%s", f->rel);
	if (!frame_size(ofs_cursor_of(head, n), size))
		return fail_change(f, t->name,
		    "is not compressed with zstd, or does not say its size",
		    why);
	return 0;
}

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0'
	    : c >= 'a' && c <= 'f'  ? c - 'a' + 10
				    : -1;
}

static int read_sum(const struct version *x, const struct file *f,
    struct ofs_str name, struct ofs_delta_part *c, struct optimfs_error *why)
{
	struct ofs_str text = { NULL, 0 };
	uint32_t n = x->sum_kind == OFS_DELTA_SUM_XXH3_128 ? 16 : 4;
	bool good;

	c->sum_kind = x->sum_kind;
	if (c->sum_kind == OFS_DELTA_SUM_NONE)
		return 0;
	for (size_t i = 0; i < f->st.nmetadata; i++)
		if (ofs_str_equal(f->st.metadata[2 * i], name))
			text = f->st.metadata[2 * i + 1];
	good = text.len == 2 * n;
	for (uint32_t i = 0; good && i < n; i++) {
		int hi = hex(text.p[2 * i]), lo = hex(text.p[2 * i + 1]);

		good = hi >= 0 && lo >= 0;
		c->sum[i] = (uint8_t)(hi << 4 | lo);
	}
	return good
	    ? 0
	    : fail_change(f, name, "has no checksum, or no valid one", why);
}

/* The stored bytes, as the store will decode them. */
static int add_change(const struct version *x, const struct file *f,
    const struct ofs_safetensors_tensor *t)
{
	struct ofs_delta_part c = { .kind = x->kind };
	struct ofs_catalog *cat = x->d->cat;
	struct ofs_safetensors_tensor decoded = *t;
	uint32_t path = ofs_delta_path(cat, t->name, x->err);
	struct optimfs_error why = { 0 };
	uint64_t size = 0;

	if (decoded_size(f, t, &size, &why) == 0)
		(void)read_sum(x, f, t->name, &c, &why);
	decoded.shape = &size;
	decoded.ndim = 1;
	decoded.dtype = OFS_UINT8;
	if (path == OFS_NONE ||
	    ofs_safetensors_add(cat, f->object, &decoded, path, x->err) == -1)
		return -1;
	cat->shards[cat->nshards - 1].at.codec = OFS_ZSTD;
	c.at = cat->ntensors - 1;
	if (why.code != 0) {
		cat->tensors[c.at].error = ofs_catalog_error(cat, &why, x->err);
		if (cat->tensors[c.at].error == OFS_NONE)
			return -1;
	}
	return ofs_delta_add(x->d, t->name, &c, x->err);
}

static int add_file(struct version *x, uint32_t i, const struct file *f)
{
	for (size_t k = 0; k < f->st.n; k++) {
		const struct ofs_safetensors_tensor *t = &f->st.tensor[k];
		uint32_t name =
		    ofs_keys_find(&x->names, t->name.p, t->name.len);

		if (name == OFS_NONE || x->file[name] != i)
			return damaged(x, "OFS881",
			    "%.60s: the index does not say that it has %.*s",
			    f->rel, OFS_STR_ARGS(t->name, 60));
		x->found[name] = true;
		if (add_change(x, f, t) == -1)
			return -1;
	}
	return 0;
}

static int read_file(struct version *x, uint32_t i)
{
	struct ofs_catalog *cat = x->d->cat;
	char *rel = path_of(x, x->files.v[i].p);
	struct file f = { .rel = rel };
	int ret = -1;

	if (rel == NULL)
		return -1;
	if (ofs_safetensors_open_file(&cat->dir, rel, cat->max_metadata, &f.st,
		x->err) == 0) {
		f.object = ofs_catalog_object(cat, rel, -1, x->err);
		if (f.object != OFS_NONE &&
		    ofs_dir_open_input(&cat->dir, rel, &f.in, NULL, x->err) ==
			0) {
			ret = add_file(x, i, &f);
			ofs_input_close(&f.in);
		}
		ofs_safetensors_fini(&f.st);
	}
	free(rel);
	return ret;
}

/* A change that is lost would be one that nobody misses. */
static int check_found(const struct version *x)
{
	for (uint32_t i = 0; i < x->names.n; i++)
		if (!x->found[i])
			return damaged(x, "OFS881",
			    "%.60s: the index says that it has %.*s",
			    x->files.v[x->file[i]].p,
			    OFS_STR_ARGS(x->names.v[i], 60));
	return 0;
}

int ofs_slime_read(struct ofs_delta_build *d, const char *dir,
    struct optimfs_error *err)
{
	struct version x = { .d = d, .dir = dir, .err = err };
	int ret = read_index(&x);

	for (uint32_t i = 0; i < x.files.n && ret == 0; i++)
		ret = read_file(&x, i);
	if (ret == 0)
		ret = check_found(&x);
	ofs_keys_fini(&x.names);
	ofs_keys_fini(&x.files);
	free(x.file);
	free(x.found);
	return ret;
}
