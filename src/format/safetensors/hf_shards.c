/* hf_shards.c - safetensors files that hold shards of tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/keys.h"
#include "base/memory.h"
#include "base/str.h"
#include "format/jobs.h"
#include "format/part.h"
#include "format/probe.h"
#include "format/safetensors/safetensors.h"

/* DCP's HuggingFaceStorageWriter with save_distributed (PyTorch 2.8 to 2.11,
 * hf_storage.py): shard-RRRRR-model-IIIII-of-NNNNN.safetensors, where R is the
 * rank plus one. The shape in a header is that of the shard, and its offsets
 * are in DCP_SHARDING_INFO of the header, as JSON text. The shape of the whole
 * tensor is not stored: it is the smallest that contains all shards. */

struct file {
	char *name;
	int rank;        /* from 0 */
	int part, parts; /* from 1; of the rank */
	int64_t mtime_ns;
	uint32_t object;
	struct ofs_safetensors st;
	const uint64_t **offset; /* from ofs_hf_offsets */
};

/* A shard, linked to the next one of the same tensor. */
struct piece {
	uint32_t file, tensor, next;
};

/* The shards of a tensor. */
struct chain {
	uint32_t first, last;
};

struct shards {
	struct ofs_catalog *cat;
	const struct ofs_part *part;
	struct ofs_arena arena; /* for offsets */
	struct file *file;
	uint32_t nfiles;
	struct piece *piece;
	uint32_t npieces, piece_cap;
	struct ofs_keys names; /* of tensors */
	struct chain *chain;   /* of each name */
	uint32_t chain_cap;
	struct optimfs_error *err;
};

bool ofs_hf_shard_name(const char *name, int *rank, int *part, int *parts)
{
	int v[3];

	if (ofs_probe_numbers(name, "shard-#-model-#-of-#.safetensors", v, 3) ==
		-1 ||
	    v[0] == 0 || v[1] == 0 || v[1] > v[2])
		return false;
	*rank = v[0] - 1;
	*part = v[1];
	*parts = v[2];
	return true;
}

/* Files. */

static int open_file(struct shards *s, struct file *f)
{
	char *path = ofs_path_join(s->part->rel, f->name);
	int ret = -1;

	if (path == NULL)
		return ofs_no_memory(s->err);
	if (ofs_safetensors_open_file(&s->cat->dir, path, s->cat->max_metadata,
		&f->st, s->err) == -1)
		goto out;
	f->offset = ofs_hf_offsets(&f->st, &s->arena, s->err);
	if (f->offset == NULL)
		optimfs_fail_in(s->err, "%s", path);
	else
		ret = 0;
out:
	free(path);
	return ret;
}

/* All files of one save say the same number of files. */
static int judge(struct shards *s, const struct ofs_names *names,
    struct ofs_job_file *job, uint32_t *njobs)
{
	int rank, part, parts;

	*njobs = 0;
	for (size_t i = 0; i < names->n; i++) {
		char *path;

		if (!ofs_hf_shard_name(names->name[i], &rank, &part, &parts))
			continue;
		path = ofs_path_join(s->part->rel, names->name[i]);
		if (path == NULL)
			return ofs_no_memory(s->err);
		job[(*njobs)++] = (struct ofs_job_file){
			.rel = names->name[i],
			.rank = part - 1,
			.world = parts,
			.mtime_ns = ofs_jobs_mtime(&s->cat->dir, path),
		};
		free(path);
	}
	return ofs_jobs_judge(job, *njobs, 0, &parts, s->err);
}

static int leave(struct shards *s, const char *name, bool later,
    const char *save)
{
	char *path = ofs_path_join(s->part->rel, name);
	int ret;

	if (path == NULL)
		return ofs_no_memory(s->err);
	ret = ofs_catalog_leave(s->cat, path,
	    later ? OFS_LEFT_UNFINISHED : OFS_LEFT_OLDER, "of another save",
	    s->err);
	free(path);
	return ret == -1
	    ? -1
	    : ofs_catalog_note(s->cat, OFS_NOTE_WARNING, EUCLEAN, s->err,
		  "OFS181 %.200s is left out: it is of a save %s, and the "
		  "others are not%s",
		  name, save, later ? OFS_JOB_LATER : "");
}

static int leave_job(struct shards *s, const struct ofs_job_file *job)
{
	char save[40];

	snprintf(save, sizeof(save), "in %d files a rank", job->world);
	return leave(s, job->rel, job->later, save);
}

static int open_job(struct shards *s, const struct ofs_job_file *job,
    uint32_t n)
{
	int rank, part, parts;

	for (uint32_t i = 0; i < n; i++) {
		struct file *f = &s->file[s->nfiles];

		if (job[i].left) {
			if (leave_job(s, &job[i]) == -1)
				return -1;
			continue;
		}
		ofs_hf_shard_name(job[i].rel, &rank, &part, &parts);
		f->name = (char *)(uintptr_t)job[i].rel;
		f->rank = rank;
		f->part = part;
		f->parts = parts;
		f->mtime_ns = job[i].mtime_ns;
		s->nfiles++;
		if (open_file(s, f) == -1)
			return -1;
	}
	return 0;
}

static int open_files(struct shards *s, const struct ofs_names *names)
{
	struct ofs_job_file *job = calloc(names->n + 1, sizeof(*job));
	uint32_t n;
	int ret = -1;

	s->file = calloc(names->n + 1, sizeof(*s->file));
	if (s->file == NULL || job == NULL)
		ofs_no_memory(s->err);
	else if (judge(s, names, job, &n) == 0)
		ret = open_job(s, job, n);
	free(job);
	return ret;
}

static int note_gap(struct shards *s, int rank, int part, int parts)
{
	return ofs_catalog_note(s->cat, OFS_NOTE_WARNING, 0, s->err,
	    "OFS184 shard-%05d-model-%05d-of-%05d.safetensors does not exist: "
	    "rank %d had nothing to save, or it is lost",
	    rank + 1, part, parts, rank);
}

/* Ranks have files 1 to n, and names are sorted. PyTorch writes no file where a
 * rank has nothing to save, so that a gap is not always a loss. */
static int check_gaps(struct shards *s)
{
	int want_rank = 0, want_part = 1, parts = 1;

	for (const struct file *f = s->file; f < s->file + s->nfiles; f++) {
		parts = f->parts;
		if ((f->rank != want_rank || f->part != want_part) &&
		    note_gap(s, want_rank, want_part, parts) == -1)
			return -1;
		want_rank = f->part == parts ? f->rank + 1 : f->rank;
		want_part = f->part == parts ? 1 : f->part + 1;
	}
	return want_part == 1 ? 0 : note_gap(s, want_rank, want_part, parts);
}

/* Shards with one name. */

static const struct ofs_safetensors_tensor *tensor_of(const struct shards *s,
    uint32_t piece)
{
	const struct piece *p = &s->piece[piece];

	return &s->file[p->file].st.tensor[p->tensor];
}

static int collect_piece(struct shards *s, uint32_t file, uint32_t tensor)
{
	uint32_t known = s->names.n, me = s->npieces, i;

	if (ofs_grow(s->piece, me, s->piece_cap, s->err) == -1 ||
	    ofs_grow(s->chain, known, s->chain_cap, s->err) == -1)
		return -1;
	i = ofs_keys_add(&s->names, s->file[file].st.tensor[tensor].name,
	    s->err);
	if (i == OFS_NONE)
		return -1;
	s->piece[me] = (struct piece){ file, tensor, OFS_NONE };
	if (i == known)
		s->chain[i].first = me;
	else
		s->piece[s->chain[i].last].next = me;
	s->chain[i].last = me;
	s->npieces++;
	return 0;
}

static int collect(struct shards *s)
{
	for (uint32_t f = 0; f < s->nfiles; f++)
		for (size_t i = 0; i < s->file[f].st.n; i++)
			if (collect_piece(s, f, (uint32_t)i) == -1)
				return -1;
	return 0;
}

/* Extend shape to contain a piece. Returns the fault of the piece, or NULL. */
static const char *enclose(const struct shards *s, uint32_t first,
    uint32_t piece, uint64_t shape[OFS_MAX_DIMS])
{
	const struct ofs_safetensors_tensor *a = tensor_of(s, first),
					    *b = tensor_of(s, piece);
	const struct piece *p = &s->piece[piece];
	const uint64_t *off = s->file[p->file].offset[p->tensor];
	uint64_t end;

	if (a->dtype != b->dtype || a->ndim != b->ndim)
		return "OFS674 its shards differ in dtype or dimensions";
	if (off == ofs_hf_wrong_offsets)
		return "OFS609 a shard does not have as many offsets as dimensions";
	for (unsigned int k = 0; k < b->ndim; k++) {
		if (!ofs_add_u64(off == NULL ? 0 : off[k], b->shape[k], &end))
			return "OFS609 the place of a shard overflows";
		if (shape[k] < end)
			shape[k] = end;
	}
	return NULL;
}

/* The smallest shape that contains the pieces of a chain; false: they do not fit
 * each other. */
static bool enclose_all(const struct shards *s, uint32_t first,
    uint64_t shape[OFS_MAX_DIMS])
{
	for (uint32_t p = first; p != OFS_NONE; p = s->piece[p].next)
		if (enclose(s, first, p, shape) != NULL)
			return false;
	return true;
}

/* Files of an older job. */

static bool volume(const uint64_t *shape, unsigned int ndim, uint64_t *v)
{
	*v = 1;
	for (unsigned int i = 0; i < ndim; i++)
		if (!ofs_mul_u64(*v, shape[i], v))
			return false;
	return true;
}

static bool same_box(const struct shards *s, uint32_t a, uint32_t b)
{
	const struct ofs_safetensors_tensor *x = tensor_of(s, a),
					    *y = tensor_of(s, b);
	const struct piece *p = &s->piece[a], *q = &s->piece[b];
	const uint64_t *i = s->file[p->file].offset[p->tensor];
	const uint64_t *k = s->file[q->file].offset[q->tensor];

	for (unsigned int d = 0; d < x->ndim; d++)
		if (x->shape[d] != y->shape[d] ||
		    (i == NULL ? 0 : i[d]) != (k == NULL ? 0 : k[d]))
			return false;
	return true;
}

/* The number of files, from the first on, that fill the tensor; 0: none do. */
static uint32_t files_that_fill(const struct shards *s, uint32_t first)
{
	uint64_t shape[OFS_MAX_DIMS] = { 0 }, all, v, sum = 0;
	uint32_t p = first;

	if (!enclose_all(s, first, shape) ||
	    !volume(shape, tensor_of(s, first)->ndim, &all))
		return 0;
	for (; p != OFS_NONE; p = s->piece[p].next) {
		/* no overflow: a part of what does not */
		volume(tensor_of(s, p)->shape, tensor_of(s, p)->ndim, &v);
		if (v > all - sum)
			return 0;
		sum += v;
		if (sum == all)
			return s->piece[p].file + 1;
	}
	return 0;
}

/* Is a box behind the first n files no copy of one in them? */
static bool cut_otherwise(const struct shards *s, uint32_t first, uint32_t n)
{
	for (uint32_t p = first; p != OFS_NONE; p = s->piece[p].next) {
		uint32_t q = first;

		if (s->piece[p].file < n)
			continue;
		while (s->piece[q].file < n && !same_box(s, p, q))
			q = s->piece[q].next;
		if (s->piece[q].file >= n)
			return true;
	}
	return false;
}

/* The number of files that are read. A job writes files from rank 0 on. If those
 * of the first ranks fill every tensor, and further ones have it cut otherwise,
 * these are left from a job of more ranks. */
static uint32_t files_of_job(const struct shards *s)
{
	bool other = false;
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->names.n; i++) {
		uint32_t fill = files_that_fill(s, s->chain[i].first);

		if (fill == 0)
			return s->nfiles;
		if (n < fill)
			n = fill;
	}
	while (n > 0 && n < s->nfiles && s->file[n].rank == s->file[n - 1].rank)
		n++;
	for (uint32_t i = 0; i < s->names.n && !other; i++)
		other = cut_otherwise(s, s->chain[i].first, n);
	return other ? n : s->nfiles;
}

static void close_file(struct file *f)
{
	ofs_safetensors_fini(&f->st);
	free(f->offset);
}

/* Pieces in files from nfiles on are no longer looked at. */
static int choose_files(struct shards *s)
{
	uint32_t n = files_of_job(s);
	int64_t newest = 0;

	for (uint32_t i = 0; i < n; i++)
		if (s->file[i].mtime_ns > newest)
			newest = s->file[i].mtime_ns;
	for (uint32_t i = n; i < s->nfiles; i++)
		if (leave(s, s->file[i].name, s->file[i].mtime_ns > newest,
			"by more ranks") == -1)
			return -1;
	while (s->nfiles > n)
		close_file(&s->file[--s->nfiles]);
	return 0;
}

static int add_objects(struct shards *s)
{
	for (struct file *f = s->file; f < s->file + s->nfiles; f++) {
		char *path = ofs_path_join(s->part->rel, f->name);

		if (path == NULL)
			return ofs_no_memory(s->err);
		f->object = ofs_catalog_object(s->cat, path, f->rank, s->err);
		free(path);
		if (f->object == OFS_NONE)
			return -1;
		if (s->cat->world_size <= f->rank)
			s->cat->world_size = f->rank + 1;
	}
	return 0;
}

/* Make a tensor unreadable because of a piece. */
static int spoil(struct shards *s, uint32_t piece, const char *why,
    struct ofs_tensor *t)
{
	struct optimfs_error e;
	struct ofs_str name = tensor_of(s, piece)->name;

	optimfs_fail_as(&e, EUCLEAN, "%s, in %.100s", why,
	    s->file[s->piece[piece].file].name);
	if (e.number == 674)
		e.code = EPROTO;
	optimfs_fail_in(&e, "%.*s", OFS_STR_ARGS(name, 200));
	t->error = ofs_catalog_error(s->cat, &e, s->err);
	return t->error == OFS_NONE ? -1 : 0;
}

static int add_shard(struct shards *s, uint32_t piece)
{
	const struct ofs_safetensors_tensor *t = tensor_of(s, piece);
	const struct piece *p = &s->piece[piece];
	const struct file *f = &s->file[p->file];
	const uint64_t *off = f->offset[p->tensor];
	uint64_t box[2 * OFS_MAX_DIMS] = { 0 };
	struct ofs_shard shard = {
		.at = { .off = t->off, .len = t->len, .object = f->object },
		.view = OFS_NONE,
	};

	if (off != NULL)
		memcpy(box, off, t->ndim * sizeof(*box));
	if (t->ndim > 0)
		memcpy(box + t->ndim, t->shape, t->ndim * sizeof(*box));
	shard.box = ofs_catalog_dims(s->cat, box, 2 * (size_t)t->ndim, s->err);
	return ofs_catalog_shard(s->cat, &shard, s->err) == OFS_NONE ? -1 : 0;
}

static int add_entry(struct shards *s, uint32_t first,
    const struct ofs_tensor *t)
{
	uint32_t prefix[OFS_PART_PREFIX];
	size_t n;

	if (ofs_part_prefix(s->cat, s->part, prefix, &n, s->err) == -1)
		return -1;
	return ofs_catalog_add(s->cat,
	    ofs_catalog_below(s->cat, prefix, n, tensor_of(s, first)->name,
		s->err),
	    OFS_ENTRY_TENSOR, ofs_catalog_tensor(s->cat, t, s->err),
	    OFS_KEY_FREE, s->err);
}

static int add_tensor(struct shards *s, uint32_t first)
{
	const struct ofs_safetensors_tensor *from = tensor_of(s, first);
	uint64_t shape[OFS_MAX_DIMS] = { 0 };
	struct ofs_tensor t = {
		.ndim = from->ndim,
		.grid_ndim = from->ndim,
		.dtype = from->dtype,
		.shard = s->cat->nshards,
		.error = OFS_NONE,
	};

	for (uint32_t p = first; p != OFS_NONE && s->piece[p].file < s->nfiles;
	     p = s->piece[p].next) {
		const char *why = enclose(s, first, p, shape);

		if (why != NULL && spoil(s, p, why, &t) == -1)
			return -1;
		if (why != NULL)
			break;
		if (add_shard(s, p) == -1)
			return -1;
		t.nshards++;
	}
	t.shape = t.grid = ofs_catalog_dims(s->cat, shape, t.ndim, s->err);
	return t.shape == OFS_NONE ? -1 : add_entry(s, first, &t);
}

static int add_tensors(struct shards *s)
{
	for (uint32_t i = 0; i < s->names.n; i++)
		if (add_tensor(s, s->chain[i].first) == -1)
			return -1;
	return 0;
}

static void fini(struct shards *s)
{
	for (uint32_t i = 0; i < s->nfiles; i++)
		close_file(&s->file[i]);
	free(s->file);
	free(s->piece);
	free(s->chain);
	ofs_keys_fini(&s->names);
	ofs_arena_fini(&s->arena);
}

int ofs_hf_shards_read(struct ofs_catalog *cat, const struct ofs_part *part,
    struct optimfs_error *err)
{
	struct shards s = { .cat = cat, .part = part, .err = err };
	struct ofs_names names;
	int ret = -1;

	if (ofs_dir_list_sub(&cat->dir, part->rel, &names, err) == -1)
		return -1;
	if (open_files(&s, &names) == 0 && collect(&s) == 0 &&
	    choose_files(&s) == 0 && add_objects(&s) == 0 &&
	    check_gaps(&s) == 0)
		ret = add_tensors(&s);
	if (ret == 0 && cat->writer == NULL)
		cat->writer = "PyTorch 2.8 or later";
	fini(&s);
	ofs_names_free(&names);
	return ret;
}
