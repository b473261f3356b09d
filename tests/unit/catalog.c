/* catalog.c - interned names, checks of tensors, errors of single tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "catalog/catalog.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "layout.h"
#include "tap.h"

static uint64_t rng = 88172645463325252;
static char scratch[] = "/tmp/optimfs-catalog-XXXXXX";

static struct ofs_catalog *new_catalog(const char *path)
{
	struct optimfs_error err = { 0 };
	struct ofs_catalog *cat;
	struct ofs_dir dir;

	if (ofs_dir_open(path, &dir, &err) == -1 ||
	    (cat = ofs_catalog_new(&dir, &err)) == NULL)
		bail_out("%s", err.text);
	return cat;
}

static void finish(struct ofs_catalog *cat)
{
	struct optimfs_error err = { 0 };

	if (ofs_catalog_finish(cat, &err) == -1)
		bail_out("%s", err.text);
}

/* Adds a tensor of uint8. Its shards are added next. */
static void add_tensor(struct ofs_catalog *cat, const uint64_t *shape,
    unsigned int ndim, uint32_t nshards)
{
	struct ofs_tensor t = { .ndim = (uint8_t)ndim,
		.grid_ndim = (uint8_t)ndim,
		.dtype = OFS_UINT8,
		.shard = cat->nshards,
		.nshards = nshards,
		.error = OFS_NONE };

	t.shape = t.grid = ofs_catalog_dims(cat, shape, ndim, NULL);
	if (ofs_catalog_tensor(cat, &t, NULL) == OFS_NONE)
		bail_out("no tensor");
}

/* box has offsets, then sizes; NULL is the whole tensor. */
static void add_shard(struct ofs_catalog *cat, const char *file, uint64_t off,
    uint64_t len, const uint64_t *box, unsigned int ndim)
{
	struct ofs_shard s = { .at = { .off = off, .len = len },
		.box = OFS_NONE,
		.view = OFS_NONE };

	s.at.object = ofs_catalog_object(cat, file, -1, NULL);
	if (box != NULL)
		s.box = ofs_catalog_dims(cat, box, 2 * ndim, NULL);
	if (ofs_catalog_shard(cat, &s, NULL) == OFS_NONE)
		bail_out("no shard");
}

static void names(void)
{
	struct ofs_catalog *cat = new_catalog("/");
	uint64_t a[] = { 1, 2, 3 }, b[] = { 2, 3, 4 };
	uint32_t path[2], x, n;
	const uint32_t *got;
	struct optimfs_error why;

	path[0] = ofs_catalog_str(cat, "state", 5, NULL);
	path[1] = ofs_catalog_str(cat, "a\0b", 3, NULL);
	is_u64(ofs_catalog_str(cat, "state", 5, NULL), path[0],
	    "equal strings get one number");
	ok(ofs_catalog_str(cat, "a", 1, NULL) != path[1],
	    "strings with and without a NUL differ");
	ok(ofs_catalog_str(cat, "", 0, NULL) != OFS_NONE,
	    "the empty string is interned");
	is_mem(ofs_catalog_string(cat, path[1] | OFS_PATH_INDEX).p, "a\0b\0", 4,
	    "the string of a list index keeps its embedded NUL");
	x = ofs_catalog_path(cat, path, 2, NULL);
	is_u64(ofs_catalog_path(cat, path, 2, NULL), x,
	    "equal paths get one number");
	ok(ofs_catalog_path(cat, path, 1, NULL) != x,
	    "a path and its prefix differ");
	ok(ofs_catalog_path(cat, path, 0, NULL) != x,
	    "a path and the empty path differ");
	got = ofs_catalog_components(cat, x, &n);
	ok(n == 2 && got[0] == path[0] && got[1] == path[1],
	    "a path gives back its components");
	x = ofs_catalog_dims(cat, a, 3, NULL);
	is_u64(ofs_catalog_dims(cat, a, 3, NULL), x,
	    "equal runs of numbers get one index");
	ok(ofs_catalog_dims(cat, b, 3, NULL) != x,
	    "different runs of numbers get different indexes");
	ok(ofs_catalog_dims(cat, NULL, 0, NULL) != OFS_NONE,
	    "an empty run of numbers is interned");
	is_mem(cat->dims + x, a, sizeof(a),
	    "an interned run keeps its numbers when others are added");
	ofs_catalog_note(cat, OFS_NOTE_WARNING, 5, NULL, "OFS999 %s", "a\nb");
	x = cat->nnotes - 1;
	ofs_catalog_note(cat, OFS_NOTE_WARNING, 5, NULL, "OFS999 a%cb", '?');
	is_u64(cat->nnotes, x + 1, "equal notes are one");
	is_str(cat->notes[x].text, "OFS999 a?b",
	    "control characters in a note are replaced");
	optimfs_fail(&why, 5, "OFS999 a?b");
	ok(ofs_catalog_error(cat, &why, NULL) != x,
	    "notes of different kinds differ");
	ofs_catalog_free(cat);
	ofs_catalog_free(NULL);
}

/* Strings keep their numbers while the table grows. */
static void many_names(void)
{
	struct ofs_catalog *cat = new_catalog("/");
	uint32_t n = 100000, wrong = 0;
	char name[32];

	for (int round = 0; round < 2; round++)
		for (uint32_t i = 0; i < n; i++) {
			int len = snprintf(name, sizeof(name), "key.%u", i);

			if (ofs_catalog_str(cat, name, (size_t)len, NULL) != i)
				wrong++;
		}
	is_u64(wrong, 0, "100000 strings get the same numbers twice");
	is_u64(cat->nstrs, n, "equal strings are stored once");
	ofs_catalog_free(cat);
}

static void limits(void)
{
	struct ofs_catalog *cat = new_catalog("/");
	struct optimfs_error err = { 0 };
	uint32_t n = 0;

	while (ofs_catalog_doc(cat, NULL, &err) != OFS_NONE)
		n++;
	is_u64(n, 1u << 20, "a catalog takes at most 2^20 documents");
	is_error(err, E2BIG, "OFS624 more than 1048576 docs (limit)",
	    "more documents fail with OFS624");
	err = (struct optimfs_error){ 0 };
	is_u64(ofs_catalog_str(cat, "new", 3, &err), OFS_NONE,
	    "after a failure nothing can be added");
	is_error(err, E2BIG, "OFS624 more than 1048576 docs (limit)",
	    "and the error is that of the first failure");
	is_int(ofs_catalog_add(cat, 0, OFS_ENTRY_VALUE, OFS_NONE, OFS_KEY_FREE,
		   &err),
	    -1, "an entry of what could not be added is not added");
	err = (struct optimfs_error){ 0 };
	is_int(ofs_catalog_finish(cat, &err), -1,
	    "a catalog that lacks something cannot be finished");
	is_error(err, E2BIG, "OFS624 more than 1048576 docs (limit)",
	    "which has the same error");
	ofs_catalog_free(cat);
}

static void many_notes(void)
{
	struct ofs_catalog *cat = new_catalog("/");
	struct optimfs_error err = { 0 };
	uint32_t notes;

	for (uint32_t i = 0; i < 140000; i++)
		ofs_catalog_note(cat, OFS_NOTE_WARNING, EIO, &err, "%u", i);
	notes = cat->nnotes;
	ok(notes < 132000, "the number of notes is limited");
	is_str(cat->notes[notes - 1].text,
	    "OFS629 there are more problems than can be listed",
	    "the last note says that there are more problems");
	ofs_catalog_free(cat);
}

static void put(const char *name, off_t size)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL, 0640);

	if (fd == -1 || ftruncate(fd, size) == -1)
		bail_out("%s: %m", name);
	close(fd);
}

static void objects(void)
{
	struct ofs_catalog *cat = new_catalog(".");
	struct optimfs_error err = { 0 };
	uint32_t a = ofs_catalog_object(cat, "a", -1, &err);
	uint32_t none = ofs_catalog_object(cat, "none", 2, &err);
	uint32_t link = ofs_catalog_object(cat, "link", 0, &err);
	uint32_t deep = ofs_catalog_object(cat, "away/x", 0, &err);
	uint32_t fifo = ofs_catalog_object(cat, "fifo", 0, &err);
	struct stat st;

	stat("a", &st);
	is_u64(ofs_catalog_object(cat, "a", 3, &err), a,
	    "a file that is named twice is one object");
	is_int(cat->objects[a].rank, 3,
	    "an object takes a rank that is given later");
	ok(!cat->objects[a].missing && !cat->objects[a].refused,
	    "an existing file is neither missing nor refused");
	is_u64(cat->objects[a].size, 100, "an object has the size of its file");
	is_u64(cat->objects[a].ino, st.st_ino,
	    "an object has the inode number of its file");
	is_int(cat->objects[a].mtime_ns,
	    st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
	    "an object has the mtime of its file");
	is_u64(cat->access.mode, 0400,
	    "files in a directory of mode 0700 are shown with mode 0400");
	ok(cat->objects[none].missing,
	    "an absent file is an object that is missing");
	ok(cat->objects[link].refused && !cat->objects[link].missing,
	    "a symbolic link is an object that is refused");
	ok(cat->objects[deep].refused,
	    "a file behind a symbolic link is an object that is refused");
	ok(cat->objects[fifo].refused, "a FIFO is an object that is refused");
	is_u64(ofs_catalog_object(cat, "../a", 0, &err), OFS_NONE,
	    "a path outside the directory is no object");
	is_error(err, EPERM, "OFS620 path '../a' leaves",
	    "a path outside the directory fails with OFS620");
	ofs_catalog_free(cat);
}

/* Damaged and hostile tensors: up to four shards in file a of 100 bytes, and
 * the expected result. */
struct fault {
	const char *what;
	unsigned int ndim;
	uint64_t shape[3];
	uint32_t n;
	struct {
		uint64_t off, len, box[6];
	} s[4];
	int code; /* 0: the tensor has no error */
	const char *part;
	uint32_t left; /* the number of shards then */
};

#define BIG UINT64_C(9223372036854775807)

static const struct fault faults[] = {
	{ "tensor without dimensions", 0, { 0 }, 1, { { 0, 1, { 0 } } }, 0, "",
	    1 },
	{ "tensor without elements", 2, { 3, 0 }, 1,
	    { { 0, 0, { 0, 0, 3, 0 } } }, 0, "", 1 },
	{ "two halves", 1, { 4 }, 2, { { 0, 2, { 2, 2 } }, { 2, 2, { 0, 2 } } },
	    0, "", 2 },
	{ "empty shard beside two halves", 1, { 4 }, 3,
	    { { 0, 2, { 2, 2 } }, { 2, 0, { 4, 0 } }, { 2, 2, { 0, 2 } } }, 0,
	    "", 2 },
	{ "shape whose product overflows", 3,
	    { 4194305, 4194305, 211106198978564 }, 1, { { 0, 4, { 0 } } },
	    EUCLEAN, "OFS606", 0 },
	{ "size larger than off_t", 1, { BIG + 1 }, 1, { { 0, 4, { 0 } } },
	    EUCLEAN, "OFS606", 0 },
	{ "offset past the end of the file", 1, { 4 }, 1,
	    { { 101, 4, { 0, 4 } } }, EUCLEAN,
	    "OFS604 a has 100 bytes: the item is past its end", 0 },
	{ "one of two offsets past the end of a truncated file", 1, { 4 }, 2,
	    { { 0, 2, { 0, 2 } }, { 101, 2, { 2, 2 } } }, 0, "", 2 },
	{ "item that ends past the end of the file", 1, { 4 }, 1,
	    { { 98, 4, { 0, 4 } } }, 0, "", 1 },
	{ "offset and length that overflow", 1, { 4 }, 1,
	    { { BIG, 4, { 0, 4 } } }, EUCLEAN, "OFS604", 0 },
	{ "stored length of 0", 1, { 4 }, 1, { { 0, 0, { 0, 4 } } }, EUCLEAN,
	    "OFS605 a: stored length 0", 0 },
	{ "stored length of 2^63", 1, { 4 }, 1, { { 0, BIG + 1, { 0, 4 } } },
	    EUCLEAN, "OFS605", 0 },
	{ "chunk beyond the shape", 1, { 768 }, 1, { { 0, 9, { 512, 512 } } },
	    EUCLEAN, "OFS609 chunk [512:1024) outside dim 0 of 768", 0 },
	{ "chunk whose end overflows", 1, { 768 }, 1,
	    { { 0, 9, { 1, UINT64_MAX } } }, EUCLEAN, "OFS609", 0 },
	{ "empty chunk outside the shape", 1, { 4 }, 2,
	    { { 0, 4, { 0, 4 } }, { 0, 0, { 5, 0 } } }, EUCLEAN, "OFS609", 0 },
	{ "chunks that overlap partly", 2, { 4, 4 }, 2,
	    { { 0, 8, { 0, 0, 2, 4 } }, { 0, 9, { 1, 0, 3, 4 } } }, EUCLEAN,
	    "OFS610 overlap of [0:2, 0:4] and [1:4, 0:4]", 0 },
	{ "overlap and gap of the same size", 2, { 4, 4 }, 2,
	    { { 0, 8, { 0, 0, 2, 4 } }, { 0, 8, { 1, 0, 2, 4 } } }, EUCLEAN,
	    "OFS610", 0 },
	{ "chunk inside another", 2, { 4, 4 }, 2,
	    { { 0, 9, { 0, 0, 4, 4 } }, { 0, 1, { 2, 2, 1, 1 } } }, EUCLEAN,
	    "OFS610", 0 },
	{ "equal chunks", 1, { 4 }, 3,
	    { { 4, 4, { 0, 4 } }, { 0, 4, { 0, 4 } }, { 8, 4, { 0, 4 } } }, 0,
	    "", 1 },
	{ "gap between chunks", 2, { 4, 4 }, 2,
	    { { 0, 8, { 0, 0, 2, 4 } }, { 0, 4, { 3, 0, 1, 4 } } }, 0, "", 2 },
	{ "tensor without chunks", 1, { 4 }, 0, { { 0 } }, 0, "", 0 },
	{ "huge shape with a small chunk", 1, { UINT64_C(1) << 40 }, 1,
	    { { 0, 4, { 0, 4 } } }, 0, "", 1 },
};

static void fault(const struct fault *f)
{
	struct ofs_catalog *cat = new_catalog(".");
	const struct ofs_tensor *t;
	struct optimfs_error err = { 0 };
	uint64_t whole[] = { 1 };

	add_tensor(cat, f->shape, f->ndim, f->n);
	for (uint32_t i = 0; i < f->n; i++)
		add_shard(cat, "a", f->s[i].off, f->s[i].len, f->s[i].box,
		    f->ndim);
	add_tensor(cat, whole, 1, 1);
	add_shard(cat, "a", 0, 1, NULL, 1);
	finish(cat);
	t = cat->tensors;
	if (t->error != OFS_NONE)
		ofs_catalog_fail(cat, t->error, &err);
	if (f->code == 0) {
		is_u64(t->error, OFS_NONE, "%s: the tensor has no error",
		    f->what);
		is_u64(t->nshards, f->left, "%s: number of shards", f->what);
	} else {
		is_error(err, f->code, f->part,
		    "%s: the tensor has the expected error", f->what);
	}
	is_u64(t[1].error, OFS_NONE, "%s: the next tensor has no error",
	    f->what);
	if (strncmp(f->part, "OFS606", 6) == 0)
		is_u64(ofs_tensor_bytes(cat, t), 0, "%s: the tensor has size 0",
		    f->what);
	ofs_catalog_free(cat);
}

static uint32_t notes_with(const struct ofs_catalog *cat,
    enum ofs_note_kind kind, const char *part)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < cat->nnotes; i++)
		n += cat->notes[i].kind == kind &&
		    strstr(cat->notes[i].text, part) != NULL;
	return n;
}

static void gap_is_named(void)
{
	struct ofs_catalog *cat = new_catalog(".");
	uint64_t shape[] = { 4 }, box[] = { 1, 2 };
	struct ofs_entry e = { .kind = OFS_ENTRY_TENSOR };
	uint32_t path[2];

	add_tensor(cat, shape, 1, 1);
	add_shard(cat, "a", 0, 2, box, 1);
	path[0] = ofs_catalog_str(cat, "optim", 5, NULL);
	path[1] = ofs_catalog_str(cat, "w.m", 3, NULL);
	e.path = ofs_catalog_path(cat, path, 2, NULL);
	ofs_catalog_entry(cat, &e, NULL);
	finish(cat);
	is_u64(notes_with(cat, OFS_NOTE_MISSING,
		   "OFS607 optim.w.m: 2 of 4 elements are in no chunk"),
	    1, "a gap is noted with the name of the tensor");
	ofs_catalog_free(cat);
}

/* The order of shards, and the choice among replicas. */
static void replicas(void)
{
	struct ofs_catalog *cat = new_catalog(".");
	uint64_t shape[] = { 4 }, lo[] = { 0, 2 }, hi[] = { 2, 2 };
	const struct ofs_shard *s;

	add_tensor(cat, shape, 1, 5);
	add_shard(cat, "b", 7, 2, hi, 1);
	add_shard(cat, "a", 9, 2, hi, 1);
	add_shard(cat, "a", 5, 2, hi, 1);
	add_shard(cat, "a", 101, 2, lo, 1); /* past the end of the file */
	add_shard(cat, "b", 1, 2, lo, 1);
	finish(cat);
	s = cat->shards;
	is_u64(cat->tensors[0].nshards, 2,
	    "five shards of two boxes become two shards");
	is_u64(cat->nreplicas, 3, "shards with equal boxes become replicas");
	is_u64(s[0].at.off, 1,
	    "a readable shard is preferred to one past the end");
	is_u64(s[1].at.off, 5,
	    "the shard with the first file and offset is preferred");
	ok(cat->replicas[0].shard == 0 && cat->replicas[0].at.off == 101 &&
		cat->replicas[1].shard == 1 && cat->replicas[1].at.off == 9 &&
		cat->replicas[2].shard == 1 && cat->replicas[2].at.off == 7,
	    "replicas are sorted by shard, readable ones by file and offset");
	is_u64(notes_with(cat, OFS_NOTE_WARNING,
		   "OFS611 3 duplicate chunks in 1 tensor ("),
	    1, "replicas are noted once");
	ofs_catalog_free(cat);
}

static void other_faults(void)
{
	struct ofs_catalog *cat = new_catalog(".");
	struct ofs_item good = { .at.len = 4, .error = OFS_NONE }, bad = good,
			was;
	uint64_t shape[] = { 4 }, grid[] = { 2, 3 };
	struct optimfs_error err = { 0 };

	bad.at.len = 0;
	was = bad;
	optimfs_fail(&err, EIO, "before");
	was.error = ofs_catalog_error(cat, &err, NULL);
	good.at.object = bad.at.object = ofs_catalog_object(cat, "a", 0, NULL);
	ofs_catalog_item(cat, &good, NULL);
	ofs_catalog_item(cat, &bad, NULL);
	ofs_catalog_item(cat, &was, NULL);
	for (int i = 0; i < 3; i++)
		add_tensor(cat, shape, 1, 0);
	cat->tensors[0].dtype = OFS_DTYPE_NONE;
	cat->tensors[1].grid = ofs_catalog_dims(cat, grid, 2, NULL);
	cat->tensors[1].grid_ndim = 2;
	cat->tensors[2].error = was.error;
	finish(cat);
	is_u64(cat->items[0].error, OFS_NONE, "a sound item has no error");
	ofs_catalog_fail(cat, cat->items[1].error, &err);
	is_error(err, EUCLEAN, "OFS605",
	    "an item of 0 bytes fails with OFS605");
	is_u64(cat->items[2].error, was.error,
	    "an item keeps the error that it was added with");
	ofs_catalog_fail(cat, cat->tensors[0].error, &err);
	is_error(err, EOPNOTSUPP, "OFS616",
	    "a tensor of unknown dtype fails with OFS616");
	is_u64(ofs_tensor_bytes(cat, cat->tensors), 0,
	    "a tensor of unknown dtype has size 0");
	ofs_catalog_fail(cat, cat->tensors[1].error, &err);
	is_error(err, EUCLEAN, "OFS608",
	    "chunks of another shape than the tensor's fail with OFS608");
	is_u64(cat->tensors[2].error, was.error,
	    "a tensor keeps the error that it was added with");
	ofs_catalog_free(cat);
}

static bool inside(const struct layout *l, const struct layout_box *b,
    uint64_t element)
{
	for (unsigned int k = l->ndim; k-- > 0;) {
		uint64_t c = element % l->shape[k];

		element /= l->shape[k];
		if (c < b->lo[k] || c - b->lo[k] >= b->size[k])
			return false;
	}
	return true;
}

static bool is_copy(const struct layout *l, uint32_t i)
{
	for (uint32_t j = 0; j < i; j++)
		if (memcmp(&l->box[i], &l->box[j], sizeof(*l->box)) == 0)
			return true;
	return false;
}

/* Counts the boxes that each element of a small tensor is in. Equal boxes count
 * once. */
static void count_cells(const struct layout *l, unsigned int *times)
{
	uint64_t n = layout_numel(l->shape, l->ndim);

	memset(times, 0, n * sizeof(*times));
	for (uint32_t i = 0; i < l->n; i++) {
		if (is_copy(l, i))
			continue;
		for (uint64_t e = 0; e < n; e++)
			times[e] += inside(l, &l->box[i], e);
	}
}

/* Shifts, stretches or removes a box, inside the tensor. */
static void damage(struct layout *l)
{
	struct layout_box *b;
	unsigned int k;

	if (l->n == 0 || l->ndim == 0)
		return;
	b = &l->box[tap_below(&rng, l->n)];
	k = (unsigned int)tap_below(&rng, l->ndim);
	switch (tap_below(&rng, 4)) {
	case 0:
		if (b->lo[k] > 0)
			b->lo[k]--;
		break;
	case 1:
		if (b->lo[k] + b->size[k] < l->shape[k])
			b->size[k]++;
		break;
	case 2:
		*b = l->box[--l->n];
		break;
	default:
		break;
	}
}

static bool verdict_is_right(const struct layout *l)
{
	unsigned int times[4096], most = 0, least = UINT32_MAX;
	struct ofs_catalog *cat = new_catalog(".");
	uint64_t n = layout_numel(l->shape, l->ndim);
	bool right, overlap, gap;

	count_cells(l, times);
	for (uint64_t i = 0; i < n; i++) {
		most = times[i] > most ? times[i] : most;
		least = times[i] < least ? times[i] : least;
	}
	add_tensor(cat, l->shape, l->ndim, l->n);
	for (uint32_t i = 0; i < l->n; i++) {
		uint64_t box[2 * LAYOUT_DIMS];

		memcpy(box, l->box[i].lo, l->ndim * sizeof(*box));
		memcpy(box + l->ndim, l->box[i].size, l->ndim * sizeof(*box));
		add_shard(cat, "a", 0, 1, box, l->ndim);
	}
	finish(cat);
	overlap = most > 1;
	gap = least == 0 && n > 0;
	if (overlap)
		right = notes_with(cat, OFS_NOTE_ERROR, "OFS610") == 1;
	else
		right = cat->tensors[0].error == OFS_NONE &&
		    notes_with(cat, OFS_NOTE_MISSING, "OFS607") == gap;
	ofs_catalog_free(cat);
	return right;
}

static void verdicts(void)
{
	int good = 0, rounds = 3000;

	for (int i = 0; i < rounds; i++) {
		struct layout l = { 0 };

		do {
			layout_fini(&l);
			layout_shape(&l, &rng);
		} while (layout_numel(l.shape, l.ndim) > 2000);
		layout_cut(&l, (enum layout_kind)(i % LAYOUT_KINDS), &rng);
		for (uint64_t k = tap_below(&rng, 3); k > 0; k--)
			damage(&l);
		good += verdict_is_right(&l);
		layout_fini(&l);
	}
	is_int(good, rounds,
	    "random layouts have the overlaps and gaps that counting finds");
}

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static char said[300];

/* Seconds of a processor, also with a sanitizer. Comparing each pair of a
 * million boxes takes an hour. */
#define MOST 120

/* Checks n boxes of a tensor [side, side] that make gives, in limited time.
 * said is the error's text. */
static uint32_t timed(const char *what, uint32_t n, uint64_t side,
    void (*make)(uint32_t i, uint64_t box[4]))
{
	struct ofs_catalog *cat = new_catalog(".");
	uint64_t shape[2] = { side, side }, box[4];
	double start;
	uint32_t error;

	add_tensor(cat, shape, 2, n);
	for (uint32_t i = 0; i < n; i++) {
		make(i, box);
		add_shard(cat, "a", 0, 1, box, 2);
	}
	start = seconds();
	finish(cat);
	ok(seconds() - start < MOST, "%s: checking takes %.2f s for %u boxes",
	    what, seconds() - start, n);
	error = cat->tensors[0].error;
	snprintf(said, sizeof(said), "%s",
	    error == OFS_NONE ? "" : cat->notes[error].text);
	error = error == OFS_NONE ? 0 : (uint32_t)cat->notes[error].code;
	ofs_catalog_free(cat);
	return error;
}

static void element(uint32_t i, uint64_t box[4])
{
	box[0] = i / 1000;
	box[1] = i % 1000;
	box[2] = box[3] = 1;
}

/* Each box overlaps all others. */
static void nested(uint32_t i, uint64_t box[4])
{
	box[0] = box[1] = i;
	box[2] = box[3] = 2000000 - 2 * (uint64_t)i;
}

/* Columns in random order that start one row below another and all end at the
 * bottom. Each passes all that start after it; none overlap. */
static void stairs(uint32_t i, uint64_t box[4])
{
	box[0] = i;
	box[1] = (uint64_t)i * 77773 % 200000;
	box[2] = 200000 - i;
	box[3] = 1;
}

static void same(uint32_t i, uint64_t box[4])
{
	(void)i;
	box[0] = box[1] = 0;
	box[2] = box[3] = 1000;
}

/* Row D20: so many chunks that comparing each pair would never end. */
static void attacks(void)
{
	is_u64(timed("elements", 1000000, 1000, element), 0,
	    "a million single elements have no error");
	is_u64(timed("elements with a gap", 999999, 1000, element), 0,
	    "a million single elements but one have no error");
	is_u64(timed("nested boxes", 1000000, 2000000, nested), EUCLEAN,
	    "a million nested boxes are found to overlap");
	is_u64(timed("equal boxes", 1000000, 1000, same), 0,
	    "a million equal boxes have no error");
	is_u64(timed("stairs", 40000, 200000, stairs), E2BIG,
	    "40000 stairs are refused as too irregular");
	ok(strncmp(said, "OFS623 40000 chunks", 19) == 0,
	    "too irregular chunks fail with OFS623: %s", said);
	is_u64(timed("few stairs", 2000, 200000, stairs), 0,
	    "2000 stairs have no error");
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
# define MEASURED 0
#elif defined(__has_feature)
# if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#  define MEASURED 0
# endif
#endif
#ifndef MEASURED
# define MEASURED 1
#endif

static size_t heap(void)
{
	struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* n parameters of three states each, with names of 50 bytes. */
static struct ofs_catalog *optimizer(uint32_t n, uint32_t shards)
{
	static const char *const state[] = { "exp_avg", "exp_avg_sq", "step" };
	struct ofs_catalog *cat = new_catalog(".");
	uint64_t shape[] = { 4096, 4096 }, box[] = { 0, 0, 0, 4096 };
	struct ofs_entry e = { .kind = OFS_ENTRY_TENSOR };
	uint32_t path[4];
	char name[64];

	box[2] = shape[0] / shards;
	path[0] = ofs_catalog_str(cat, "optim", 5, NULL);
	path[1] = ofs_catalog_str(cat, "state", 5, NULL);
	for (uint32_t i = 0; i < n * 3; i++) {
		int len = snprintf(name, sizeof(name),
		    "model.layers.%07u.self_attention.q_proj.weight", i / 3);

		path[2] = ofs_catalog_str(cat, name, (size_t)len, NULL);
		path[3] = ofs_catalog_str(cat, state[i % 3],
		    strlen(state[i % 3]), NULL);
		e.path = e.tree = ofs_catalog_path(cat, path, 4, NULL);
		add_tensor(cat, shape, 2, shards);
		for (uint32_t k = 0; k < shards; k++) {
			box[0] = k * box[2];
			add_shard(cat, "a", k, 1, shards == 1 ? NULL : box, 2);
		}
		e.ref = i;
		ofs_catalog_entry(cat, &e, NULL);
	}
	finish(cat);
	return cat;
}

static void memory(void)
{
	uint32_t n = 100000;
	struct ofs_catalog *cat;
	size_t before = heap(), one, four;

	if (!MEASURED) {
		skip(2, "memory is not measured under a sanitizer");
		return;
	}
	cat = optimizer(n, 1);
	one = heap() - before;
	ofs_catalog_free(cat);
	cat = optimizer(n, 4);
	four = heap() - before;
	ofs_catalog_free(cat);
	ok(one / (3 * n) <= 120,
	    "a tensor takes at most 120 bytes of memory (%zu)", one / (3 * n));
	ok((four - one) / (9 * n) <= 33,
	    "a further shard takes at most 33 bytes of memory (%zu)",
	    (four - one) / (9 * n));
}

static void give(mode_t dir, mode_t sub, mode_t file)
{
	if (chmod("modes", dir) == -1 || chmod("modes/sub", sub) == -1 ||
	    chmod("modes/sub/f", file) == -1)
		bail_out("chmod: %m");
}

/* The mount never shows a file to more users than the source does. */
static void modes(void)
{
	static const struct {
		mode_t dir, sub, file;
		uint32_t mode;
	} cases[] = {
		{ 0755, 0755, 0644, 0444 },
		{ 0755, 0755, 0600, 0400 },
		{ 0700, 0755, 0644, 0400 },
		{ 0755, 0700, 0644, 0400 },
		{ 0750, 0755, 0644, 0440 },
		{ 0711, 0755, 0644, 0444 },
		{ 0744, 0755, 0644, 0400 },
	};
	struct optimfs_error err = { 0 };

	if (mkdir("modes", 0755) == -1 || mkdir("modes/sub", 0755) == -1)
		bail_out("mkdir: %m");
	put("modes/f", 1);
	put("modes/sub/f", 1);
	chmod("modes/f", 0644);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct ofs_catalog *cat;

		give(cases[i].dir, cases[i].sub, cases[i].file);
		cat = new_catalog("modes");
		ok(ofs_catalog_object(cat, "f", -1, &err) != OFS_NONE &&
			ofs_catalog_object(cat, "sub/f", -1, &err) != OFS_NONE,
		    "objects are added: directories %o and %o, file %o",
		    cases[i].dir, cases[i].sub, cases[i].file);
		is_u64(cat->access.mode, cases[i].mode,
		    "mode of the mount: directories %o and %o, file %o",
		    cases[i].dir, cases[i].sub, cases[i].file);
		give(0755, 0755, 0644);
		is_u64(ofs_catalog_access(cat).mode, 0444,
		    "it can be taken again when they have changed");
		give(cases[i].dir, cases[i].sub, cases[i].file);
		is_u64(ofs_catalog_access(cat).mode, cases[i].mode,
		    "and again");
		ofs_catalog_free(cat);
	}
	unlink("modes/sub/f");
	unlink("modes/f");
	rmdir("modes/sub");
	rmdir("modes");
}

/* The groups of two files differ: a member of one group may not be in the
 * other. */
static void owners(void)
{
	struct optimfs_error err = { 0 };
	struct ofs_catalog *cat;

	if (mkdir("modes", 0755) == -1)
		bail_out("mkdir: %m");
	put("modes/f", 1);
	put("modes/g", 1);
	if (chmod("modes/f", 0640) == -1 || chmod("modes/g", 0640) == -1 ||
	    chown("modes/g", (uid_t)-1, getegid() + 1) == -1) {
		skip(1, "may not give a file away");
	} else {
		cat = new_catalog("modes");
		(void)ofs_catalog_object(cat, "f", -1, &err);
		(void)ofs_catalog_object(cat, "g", -1, &err);
		is_u64(cat->access.mode, 0400,
		    "files of two groups are shown with mode 0400");
		ofs_catalog_free(cat);
	}
	unlink("modes/f");
	unlink("modes/g");
	rmdir("modes");
}

int main(void)
{
	if (mkdtemp(scratch) == NULL || chdir(scratch) == -1)
		bail_out("%s: %m", scratch);
	put("a", 100);
	put("b", 100);
	if (symlink("a", "link") == -1 || symlink("/", "away") == -1 ||
	    mkfifo("fifo", 0600) == -1)
		bail_out("%s: %m", scratch);
	names();
	many_names();
	limits();
	many_notes();
	objects();
	modes();
	owners();
	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
		fault(&faults[i]);
	gap_is_named();
	replicas();
	other_faults();
	verdicts();
	attacks();
	memory();
	unlink("a");
	unlink("b");
	unlink("link");
	unlink("away");
	unlink("fifo");
	if (chdir("/") == -1 || rmdir(scratch) == -1)
		diag("%s is left", scratch);
	return done_testing();
}
