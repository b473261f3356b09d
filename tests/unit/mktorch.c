/* mktorch.c - pickles and torch.save files made by hand, for tests */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "mktorch.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/part.h"
#include "format/torch/torch.h"
#include "mkzip.h"
#include "plan/plan.h"
#include "read/fetch.h"
#include "store/local.h"
#include "tap.h"

static const float floats[] = { 0, 1, 2, 3 };

void mk_begin(struct ofs_buf *b)
{
	ofs_buf_put(b, "\x80\x02", 2);
}

void mk_end(struct ofs_buf *b)
{
	ofs_buf_putc(b, '.');
	if (b->bad)
		bail_out("out of memory");
}

void mk_ops(struct ofs_buf *b, const char *ops)
{
	ofs_buf_puts(b, ops);
}

void mk_int(struct ofs_buf *b, int64_t v)
{
	ofs_buf_put(b, "\x8a\x08", 2);
	for (int i = 0; i < 8; i++)
		ofs_buf_putc(b, (int)((uint64_t)v >> 8 * i & 0xff));
}

void mk_str(struct ofs_buf *b, const char *s)
{
	size_t n = strlen(s);

	ofs_buf_putc(b, 'X');
	for (int i = 0; i < 4; i++)
		ofs_buf_putc(b, (int)(n >> 8 * i & 0xff));
	ofs_buf_put(b, s, n);
}

void mk_global(struct ofs_buf *b, const char *module, const char *name)
{
	ofs_buf_printf(b, "c%s\n%s\n", module, name);
}

void mk_tuple(struct ofs_buf *b, size_t n, const int64_t *v)
{
	ofs_buf_putc(b, '(');
	for (size_t i = 0; i < n; i++)
		mk_int(b, v[i]);
	ofs_buf_putc(b, 't');
}

void mk_storage(struct ofs_buf *b, const char *type, const char *key,
    int64_t numel)
{
	ofs_buf_putc(b, '(');
	mk_str(b, "storage");
	mk_global(b,
	    strcmp(type, "UntypedStorage") == 0 ? "torch.storage" : "torch",
	    type);
	mk_str(b, key);
	mk_str(b, "cpu");
	mk_int(b, numel);
	mk_ops(b, "tQ");
}

void mk_tensor(struct ofs_buf *b, const struct mk_tensor *t)
{
	mk_global(b, "torch._utils",
	    t->dtype ? "_rebuild_tensor_v3" : "_rebuild_tensor_v2");
	ofs_buf_putc(b, '(');
	mk_storage(b, t->type ? t->type : "FloatStorage", t->key ? t->key : "0",
	    t->numel);
	mk_int(b, t->offset);
	mk_tuple(b, t->ndim, t->shape);
	mk_tuple(b, t->nstride ? t->nstride : t->ndim, t->stride);
	ofs_buf_putc(b, 0x89);
	mk_global(b, "collections", "OrderedDict");
	mk_ops(b, ")R");
	if (t->dtype != NULL)
		mk_global(b, "torch", t->dtype);
	if (t->flag != NULL) {
		mk_ops(b, "}");
		mk_str(b, t->flag);
		ofs_buf_putc(b, 0x88);
		mk_ops(b, "s");
	}
	mk_ops(b, "tR");
}

void mk_good(struct ofs_buf *b, const char *key)
{
	mk_tensor(b,
	    &(struct mk_tensor){ .key = key,
		.numel = 4,
		.ndim = 1,
		.shape = { 4 },
		.stride = { 1 } });
}

struct line {
	const char *at;
	struct ofs_buf *b;
};

static void put_value(struct line *l);

static void put_word(struct line *l)
{
	char word[64];
	size_t n = strcspn(l->at, ",:{}[]");

	snprintf(word, sizeof(word), "%.*s", (int)n, l->at);
	l->at += n;
	if (isdigit((unsigned char)word[0]))
		mk_int(l->b, atoi(word));
	else if (strcmp(word, "t") == 0)
		mk_good(l->b, "0");
	else if (strcmp(word, "T") == 0)
		mk_tensor(l->b,
		    &(struct mk_tensor){ .numel = 4,
			.ndim = 2,
			.shape = { 2, 2 },
			.stride = { 2, 1 } });
	else
		mk_str(l->b, word);
}

static void put_items(struct line *l, char close, bool keys)
{
	while (*++l->at != close) {
		if (keys) {
			put_word(l);
			l->at++;
		}
		put_value(l);
		if (*l->at == close)
			break;
	}
	l->at++;
}

static void put_value(struct line *l)
{
	bool dict = *l->at == '{';

	if (!dict && *l->at != '[') {
		put_word(l);
		return;
	}
	mk_ops(l->b, dict ? "}(" : "](");
	put_items(l, dict ? '}' : ']', dict);
	mk_ops(l->b, dict ? "u" : "e");
}

void mk_line(struct ofs_buf *b, const char *line)
{
	struct line l = { .at = line, .b = b };

	put_value(&l);
}

void mktorch_init(struct mktorch *m)
{
	*m = (struct mktorch){ .storage = { floats },
		.size = { sizeof(floats) } };
	handmade_init(&m->h);
	mk_begin(&m->pickle);
}

void mktorch_fini(struct mktorch *m)
{
	ofs_buf_fini(&m->pickle);
	handmade_fini(&m->h);
}

int mktorch_read_bytes(struct mktorch *m, const struct ofs_format *format,
    const char *name, const void *p, size_t n, const char *prefix,
    struct optimfs_error *err)
{
	struct ofs_part part = { .format = format, .rank = -1 };

	*err = (struct optimfs_error){ 0 };
	handmade_file(&m->h, name, p, n);
	part.rel = (char *)(uintptr_t)name;
	part.prefix[0] = (char *)(uintptr_t)prefix;
	if (format->read(m->h.cat, &part, NULL, err) == -1)
		return -1;
	return ofs_catalog_finish(m->h.cat, err);
}

int mktorch_read(struct mktorch *m, const char *prefix,
    struct optimfs_error *err)
{
	struct mkzip z = { 0 };
	int ret;

	mkzip_add(&z, "x/data.pkl", m->pickle.data, m->pickle.len);
	if (m->byteorder != NULL)
		mkzip_add(&z, "x/byteorder", m->byteorder,
		    strlen(m->byteorder));
	for (int i = 0; i < 4 && m->record[i] != NULL; i++)
		mkzip_add(&z, m->record[i], m->content[i],
		    strlen(m->content[i]));
	for (int i = 0; i < 8; i++) {
		char name[32];

		snprintf(name, sizeof(name), "x/data/%d", i);
		if (m->storage[i] != NULL)
			mkzip_add(&z, name, m->storage[i], m->size[i]);
	}
	if (m->version == NULL)
		mkzip_add(&z, "x/version", "3\n", 2);
	else if (m->version[0] != '-')
		mkzip_add(&z, "x/version", m->version, strlen(m->version));
	mkzip_end(&z);
	ret = mktorch_read_bytes(m, &ofs_format_torch, "x.pt", z.b.data,
	    z.b.len, prefix, err);
	mkzip_fini(&z);
	return ret;
}

static void path_text(const struct ofs_catalog *cat, uint32_t path,
    struct ofs_buf *out)
{
	uint32_t n;
	const uint32_t *c = ofs_catalog_components(cat, path, &n);

	for (uint32_t i = 0; i < n; i++) {
		struct ofs_str s = ofs_catalog_string(cat, c[i]);

		if (i > 0)
			ofs_buf_putc(out, '/');
		if ((c[i] & OFS_PATH_INDEX) != 0)
			ofs_buf_putc(out, '#');
		ofs_buf_put(out, s.p, s.len);
	}
}

const struct ofs_entry *mktorch_find(const struct mktorch *m, const char *path)
{
	const struct ofs_entry *found = NULL;
	struct ofs_buf b = { 0 };

	for (uint32_t i = 0; i < m->h.cat->nentries && found == NULL; i++) {
		b.len = 0;
		path_text(m->h.cat, m->h.cat->entries[i].path, &b);
		ofs_buf_putc(&b, '\0');
		if (strcmp((char *)b.data, path) == 0)
			found = &m->h.cat->entries[i];
	}
	ofs_buf_fini(&b);
	return found;
}

const char *mktorch_paths(const struct mktorch *m)
{
	static char text[65536];
	struct ofs_buf b = { 0 };

	for (uint32_t i = 0; i < m->h.cat->nentries; i++) {
		ofs_buf_printf(&b, "%c ", "TVI"[m->h.cat->entries[i].kind]);
		path_text(m->h.cat, m->h.cat->entries[i].path, &b);
		ofs_buf_putc(&b, '\n');
	}
	snprintf(text, sizeof(text), "%.*s", (int)b.len, (char *)b.data);
	ofs_buf_fini(&b);
	return text;
}

static int read_all(const struct mktorch *m, const struct ofs_tensor *t,
    void *p, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = m->h.cat;
	struct ofs_reader r;
	int ret = ofs_reader_init(&r, cat,
	    ofs_transport_local(cat, 1 << 20, err), err);

	if (ret == 0)
		ret = ofs_fetch_elements(&r, t, 0, ofs_tensor_numel(cat, t), p,
		    err);
	ofs_reader_fini(&r);
	return ret;
}

int mktorch_entry(const struct mktorch *m, const struct ofs_entry *e, void *p,
    size_t n, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = m->h.cat;
	const struct ofs_tensor *t;
	uint32_t error;

	*err = (struct optimfs_error){ 0 };
	error = e->kind == OFS_ENTRY_TENSOR ? cat->tensors[e->ref].error
					    : cat->items[e->ref].error;
	if (error != OFS_NONE)
		return optimfs_fail_as(err, cat->notes[error].code, "%s",
		    cat->notes[error].text);
	t = &cat->tensors[e->ref];
	if (ofs_tensor_bytes(cat, t) != n)
		return optimfs_fail(err, EINVAL, "it has %ju bytes",
		    (uintmax_t)ofs_tensor_bytes(cat, t));
	return n == 0 ? 0 : read_all(m, t, p, err);
}

int mktorch_bytes(const struct mktorch *m, const char *path, void *p, size_t n,
    struct optimfs_error *err)
{
	const struct ofs_entry *e = mktorch_find(m, path);

	if (e == NULL || e->kind == OFS_ENTRY_VALUE)
		return optimfs_fail(err, ENOENT, "%s is no tensor", path);
	return mktorch_entry(m, e, p, n, err);
}

bool mktorch_noted(const struct mktorch *m, enum ofs_note_kind kind,
    const char *text)
{
	for (uint32_t i = 0; i < m->h.cat->nnotes; i++)
		if (m->h.cat->notes[i].kind == kind &&
		    strncmp(m->h.cat->notes[i].text, text, strlen(text)) == 0)
			return true;
	return false;
}
