/* sample.c - a hand-made checkpoint with tensors and values of all kinds */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sample.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "base/dtype.h"
#include "support/listing.h"
#include "tap.h"

/* The contents of a file under construction. */
struct shardfile {
	const char *name;
	int rank;
	uint8_t bytes[256];
	size_t n;
	uint32_t object;
};
enum { R0, R1, SHARED, GONE, NFILES };

struct builder {
	struct sample *s;
	struct ofs_catalog *cat;
	struct shardfile file[NFILES];
	struct optimfs_error err;
};

static uint64_t put(struct shardfile *f, const void *p, size_t n)
{
	uint64_t off = f->n += 3; /* nothing is aligned */

	memcpy(f->bytes + f->n, p, n);
	f->n += n;
	return off;
}

static uint32_t checked(struct builder *b, uint32_t index)
{
	if (index == OFS_NONE)
		bail_out("sample: %s", b->err.text);
	return index;
}

static void entry(struct builder *b, const char *path, int kind, uint32_t ref)
{
	uint32_t component[8];
	struct ofs_entry e = { .kind = (uint8_t)kind, .ref = ref };
	size_t n = 0;

	for (const char *p = path; *p != '\0';) {
		size_t k = strcspn(p, "/");

		component[n++] =
		    checked(b, ofs_catalog_str(b->cat, p, k, &b->err));
		p += k + (p[k] == '/');
	}
	e.path = checked(b, ofs_catalog_path(b->cat, component, n, &b->err));
	e.tree = e.path;
	checked(b, ofs_catalog_entry(b->cat, &e, &b->err));
}

/* Adds a shard with this box: ndim offsets, then ndim sizes. */
static uint32_t shard(struct builder *b, int file, uint64_t off, uint64_t len,
    const uint64_t *box, size_t ndim)
{
	struct ofs_shard s = { .at = { .object = b->file[file].object,
				   .off = off,
				   .len = len },
		.view = OFS_NONE };

	s.box = box == NULL
	    ? OFS_NONE
	    : checked(b, ofs_catalog_dims(b->cat, box, 2 * ndim, &b->err));
	return checked(b, ofs_catalog_shard(b->cat, &s, &b->err));
}

static void tensor(struct builder *b, const char *path, enum ofs_dtype dtype,
    const uint64_t *shape, size_t ndim, uint32_t first)
{
	struct ofs_tensor t = {
		.dtype = (uint8_t)dtype,
		.ndim = (uint8_t)ndim,
		.grid_ndim = (uint8_t)ndim,
		.shard = first,
		.nshards = b->cat->nshards - first,
		.error = OFS_NONE,
		.index = OFS_NONE,
	};

	t.shape = checked(b, ofs_catalog_dims(b->cat, shape, ndim, &b->err));
	t.grid = t.shape;
	entry(b, path, OFS_ENTRY_TENSOR,
	    checked(b, ofs_catalog_tensor(b->cat, &t, &b->err)));
}

static uint32_t next_shard(const struct builder *b)
{
	return b->cat->nshards;
}

struct places {
	uint64_t w0, w1, t0, t1, conj, swap, rep0, rep1, odd0, odd1, exp_avg,
	    step, lr, params;
};

static void fill_files(struct builder *b, struct places *at)
{
	struct sample *s = b->s;
	static const float step = 3.5f;
	/* The pickles of 0.001 and ["w", "t"], in protocol 2. */
	static const char lr[] = "\x80\x02G\x3f\x50\x62\x4d\xd2\xf1\xa9\xfc.";
	static const char params[] = "\x80\x02]q\x00(X\x01\x00\x00\x00wq\x01"
				     "X\x01\x00\x00\x00tq\x02"
				     "e.";
	uint8_t half[2][8], big[12], plain[16];

	for (int row = 0; row < 2; row++)
		for (int side = 0; side < 2; side++)
			memcpy(half[side] + 4 * row, s->t + 8 * row + 4 * side,
			    4);
	for (int i = 0; i < 12; i++)
		big[i] = s->swap[i / 4 * 4 + 3 - i % 4];
	memcpy(plain, s->conj, 16);
	plain[7] ^= 0x80;
	plain[15] ^= 0x80;
	at->w0 = put(&b->file[R0], s->w, 36);
	at->w1 = put(&b->file[R1], s->w + 36, 24);
	at->t0 = put(&b->file[R0], half[0], 8);
	at->t1 = put(&b->file[R1], half[1], 8);
	at->conj = put(&b->file[SHARED], plain, 16);
	at->swap = put(&b->file[SHARED], big, 12);
	at->rep0 = put(&b->file[R0], s->rep, 4);
	at->rep1 = put(&b->file[R1], s->rep, 4);
	at->odd0 = put(&b->file[R0], "abcd", 4);
	at->odd1 = put(&b->file[R1], "abcx", 4);
	at->exp_avg = put(&b->file[R0], s->exp_avg, 8);
	at->step = put(&b->file[R1], &step, 4);
	at->lr = put(&b->file[R1], lr, sizeof(lr) - 1);
	at->params = put(&b->file[R0], params, sizeof(params) - 1);
}

static void add_files(struct builder *b)
{
	for (int i = 0; i < NFILES; i++) {
		struct shardfile *f = &b->file[i];
		FILE *out;

		if (i != GONE) {
			out = fopen(handmade_path(&b->s->h, f->name), "w");
			if (out == NULL ||
			    fwrite(f->bytes, 1, f->n, out) != f->n ||
			    fclose(out) != 0)
				bail_out("cannot write %s", f->name);
		}
		f->object = checked(b,
		    ofs_catalog_object(b->cat, f->name, f->rank, &b->err));
	}
}

static void add_model(struct builder *b, const struct places *at)
{
	uint32_t first = next_shard(b);

	shard(b, R0, at->w0, 36, (const uint64_t[]){ 0, 0, 3, 3 }, 2);
	shard(b, R1, at->w1, 24, (const uint64_t[]){ 3, 0, 2, 3 }, 2);
	tensor(b, "model/w", OFS_FLOAT32, (const uint64_t[]){ 5, 3 }, 2, first);
	first = next_shard(b);
	shard(b, R1, at->t1, 8, (const uint64_t[]){ 0, 2, 2, 2 }, 2);
	shard(b, R0, at->t0, 8, (const uint64_t[]){ 0, 0, 2, 2 }, 2);
	tensor(b, "model/t", OFS_INT16, (const uint64_t[]){ 2, 4 }, 2, first);
	tensor(b, "model/empty", OFS_FLOAT32, (const uint64_t[]){ 0, 3 }, 2,
	    next_shard(b));
	first = next_shard(b);
	shard(b, R0, at->rep0, 4, (const uint64_t[]){ 0, 4 }, 1);
	shard(b, R1, at->rep1, 4, (const uint64_t[]){ 0, 4 }, 1);
	tensor(b, "model/rep", OFS_UINT8, (const uint64_t[]){ 4 }, 1, first);
	first = next_shard(b);
	shard(b, R0, at->odd0, 4, (const uint64_t[]){ 0, 4 }, 1);
	shard(b, R1, at->odd1, 4, (const uint64_t[]){ 0, 4 }, 1);
	tensor(b, "model/odd", OFS_UINT8, (const uint64_t[]){ 4 }, 1, first);
	first = next_shard(b);
	shard(b, R0, at->odd0, 3, (const uint64_t[]){ 0, 3 }, 1);
	shard(b, R1, at->odd1, 2, (const uint64_t[]){ 2, 2 }, 1);
	tensor(b, "model/bad", OFS_UINT8, (const uint64_t[]){ 4 }, 1, first);
}

static void add_view(struct builder *b, const char *path, enum ofs_dtype dtype,
    uint64_t off, uint64_t n, unsigned fix)
{
	struct ofs_view v = { .numel = n, .fix = (uint8_t)fix };
	uint32_t first = next_shard(b);

	v.stride = checked(b,
	    ofs_catalog_dims(b->cat, (const uint64_t[]){ 1 }, 1, &b->err));
	shard(b, SHARED, off, n * ofs_dtype_size(dtype), NULL, 1);
	b->cat->shards[first].view =
	    checked(b, ofs_catalog_view(b->cat, &v, &b->err));
	tensor(b, path, dtype, &n, 1, first);
}

static void add_item(struct builder *b, const char *path, int file,
    uint64_t off, uint64_t len)
{
	struct ofs_item item = { .at = { .object = b->file[file].object,
				     .off = off,
				     .len = len },
		.error = OFS_NONE };

	entry(b, path, OFS_ENTRY_ITEM,
	    checked(b, ofs_catalog_item(b->cat, &item, &b->err)));
}

static void add_optim(struct builder *b, const struct places *at)
{
	uint32_t first = next_shard(b);

	shard(b, R0, at->exp_avg, 8, (const uint64_t[]){ 0, 2 }, 1);
	shard(b, GONE, 0, 8, (const uint64_t[]){ 2, 2 }, 1);
	tensor(b, "optim/state/w/exp_avg", OFS_FLOAT32, (const uint64_t[]){ 4 },
	    1, first);
	first = next_shard(b);
	shard(b, R1, at->step, 4, NULL, 0);
	tensor(b, "optim/state/w/step", OFS_FLOAT32, (const uint64_t[]){ 0 }, 0,
	    first);
	add_item(b, "optim/param_groups/0/lr", R1, at->lr, 12);
	add_item(b, "optim/param_groups/0/params", R0, at->params, 24);
}

static void add_value(struct builder *b, const char *path, const char *pickle,
    size_t n)
{
	struct ofs_pickle *doc = ofs_pickle_parse((const uint8_t *)pickle, n,
	    false, NULL, NULL, &b->err);

	if (doc == NULL)
		bail_out("sample: %s", b->err.text);
	checked(b, ofs_catalog_doc(b->cat, doc, &b->err));
	entry(b, path, OFS_ENTRY_VALUE,
	    checked(b,
		ofs_catalog_value(b->cat, doc, ofs_pickle_root(doc), &b->err)));
}

void sample_init(struct sample *s, const struct optimfs_options *options,
    struct optimfs_error *err)
{
	static const struct optimfs_options none;
	struct builder b = { .s = s,
		.file = { { .name = "r0.bin", .rank = 0 },
		    { .name = "r1.bin", .rank = 1 },
		    { .name = "s.bin", .rank = -1 },
		    { .name = "gone.bin", .rank = 2 } } };
	struct places at;

	*s = (struct sample){ .fs = NULL };
	handmade_init(&s->h);
	b.cat = s->h.cat;
	handmade_fill(s->w, sizeof(s->w), 1);
	handmade_fill(s->t, sizeof(s->t), 2);
	handmade_fill(s->conj, sizeof(s->conj), 3);
	handmade_fill(s->swap, sizeof(s->swap), 4);
	handmade_fill(s->rep, sizeof(s->rep), 5);
	handmade_fill(s->exp_avg, sizeof(s->exp_avg), 6);
	fill_files(&b, &at);
	add_files(&b);
	add_model(&b, &at);
	add_view(&b, "model/conj", OFS_COMPLEX64, at.conj, 2, OFS_FIX_CONJ);
	add_view(&b, "model/swap", OFS_INT32, at.swap, 3, OFS_FIX_SWAP);
	add_optim(&b, &at);
	add_value(&b, "extra/note", "\x80\x02X\x02\x00\x00\x00hiq\x00.", 12);
	add_value(&b, "extra/epoch", "\x80\x02K\x03.", 5);
	b.cat->format = "sample";
	b.cat->world_size = 3;
	if (ofs_catalog_note(b.cat, OFS_NOTE_MISSING, EIO, &b.err,
		"OFS140 gone.bin is missing") == -1 ||
	    ofs_catalog_finish(b.cat, &b.err) == -1)
		bail_out("sample: %s", b.err.text);
	s->h.cat = NULL; /* the file system owns it now */
	s->fs = ofs_open_catalog(b.cat, s->h.dir,
	    options == NULL ? &none : options, err);
}

void sample_fini(struct sample *s)
{
	optimfs_close(s->fs);
	handmade_fini(&s->h);
}

uint64_t sample_node(struct sample *s, const char *path)
{
	return listing_node(s->fs, path);
}

char *sample_read(struct sample *s, const char *path, size_t *len,
    struct optimfs_error *err)
{
	struct optimfs_file *file;
	size_t size;
	ssize_t n;
	char *text;

	if (optimfs_file_open(s->fs, sample_node(s, path), &file, err) == -1)
		return NULL;
	size = optimfs_file_size(file);
	text = calloc(1, size + 1);
	if (text == NULL)
		bail_out("no memory");
	n = optimfs_file_read(file, text, size + 1, 0, err);
	optimfs_file_close(file);
	if (n != (ssize_t)size) {
		free(text);
		return NULL;
	}
	if (len != NULL)
		*len = size;
	return text;
}

uint64_t sample_stat(struct sample *s, const char *name)
{
	char *text = sample_read(s, ".optimfs/stats", NULL, NULL);
	uint64_t v = UINT64_MAX;

	for (char *line = strtok(text, "\n"); line != NULL;
	     line = strtok(NULL, "\n"))
		if (strncmp(line, name, strlen(name)) == 0 &&
		    line[strlen(name)] == ' ')
			v = strtoull(line + strlen(name), NULL, 10);
	free(text);
	return v;
}
