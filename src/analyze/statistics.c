/* statistics.c - statistics of the tensors of a tree, by several threads */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "optimfs/analyze.h"

#include "analyze/known.h"
#include "analyze/pool.h"
#include "analyze/tensors.h"
#include "base/memory.h"
#include "stats/hash.h"
#include "stats/stats.h"

/* Bytes read at once: a part of a processor's second-level cache. */
#define PIECE (256u << 10)

/* The sum over the chunks of a tensor. */
struct sum {
	struct ofs_stats *all;
	struct ofs_stats_hash *hash;
};

struct job {
	struct optimfs *fs;
	const struct ofs_file_list *list;
	size_t *file;  /* of each item: those that are read */
	uint64_t *key; /* by file: of known.h; 0: its result is not kept */
	struct sum *sum; /* by file; empty except for files being read */
	struct optimfs_statistics *result;
	struct optimfs_error *failed; /* by file; valid if code is set */
};

/* Data of a thread: the statistics of a chunk, for each dtype that it met. */
struct mine {
	size_t item; /* of the chunk before */
	struct ofs_stats *of[OFS_NDTYPES];
};

static void mine_fini(void *mine)
{
	struct mine *m = mine;

	for (size_t i = 0; i < OFS_NDTYPES; i++)
		ofs_stats_free(m->of[i]);
}

static int work(void *ctx, void *mine, const struct ofs_pool_chunk *c,
    struct optimfs_error *err)
{
	struct job *job = ctx;
	struct mine *m = mine;
	enum ofs_dtype t = job->list->file[job->file[c->item]].dtype;

	if (m->of[t] == NULL)
		m->of[t] = ofs_stats_new(t, err);
	if (m->of[t] == NULL)
		return -1;
	if (c->first == 0 || m->item != c->item)
		ofs_stats_clear(m->of[t]);
	else if (c->first % ofs_stats_chunk(t) == 0)
		ofs_stats_next(m->of[t]);
	m->item = c->item;
	ofs_stats_add(m->of[t], c->buf[0], c->n);
	return 0;
}

static int begin_sum(struct sum *s, enum ofs_dtype t, struct optimfs_error *err)
{
	s->all = ofs_stats_new(t, err);
	if (s->all == NULL)
		return -1;
	s->hash = ofs_stats_hash_new(err);
	return s->hash == NULL ? -1 : 0;
}

static void end_sum(struct sum *s)
{
	ofs_stats_free(s->all);
	ofs_stats_hash_free(s->hash);
	*s = (struct sum){ 0 };
}

static void keep(struct job *job, size_t file)
{
	struct ofs_buf b = { 0 };

	if (job->key[file] == 0)
		return;
	ofs_stats_pack(&job->result[file], &b);
	ofs_known_put(job->fs, job->key[file], &b);
	ofs_buf_fini(&b);
}

static int join(void *ctx, void *mine, const struct ofs_pool_chunk *c,
    struct optimfs_error *err)
{
	struct job *job = ctx;
	size_t file = job->file[c->item];
	const struct ofs_file_info *f = &job->list->file[file];
	const struct ofs_stats *part = ((struct mine *)mine)->of[f->dtype];
	struct optimfs_statistics *r = &job->result[file];
	size_t bytes = c->n * ofs_dtype_size(f->dtype);
	struct sum *s = &job->sum[file];

	if (c->n == f->elements) { /* most tensors have a single chunk */
		if (ofs_stats_result(part, r, err) == -1)
			return -1;
		r->xxh3 = ofs_stats_hash_of(c->buf[0], bytes);
		keep(job, file);
		return 0;
	}
	if (c->first == 0 && begin_sum(s, f->dtype, err) == -1)
		return -1;
	ofs_stats_hash_add(s->hash, c->buf[0], bytes, c->times);
	ofs_stats_join(s->all, part, c->times);
	if (!c->last)
		return 0;
	if (ofs_stats_result(s->all, r, err) == -1)
		return -1;
	r->xxh3 = ofs_stats_hash_value(s->hash);
	end_sum(s);
	keep(job, file);
	return 0;
}

static void failed(void *ctx, size_t item, const struct optimfs_error *err)
{
	struct job *job = ctx;

	job->failed[job->file[item]] = *err;
	end_sum(&job->sum[job->file[item]]);
}

static const struct ofs_pool_ops ops = { sizeof(struct mine), mine_fini, work,
	join, failed };

/* What an earlier call found out: 1, 0, or -1. */
static int take_known(struct job *job, size_t file, struct optimfs_error *err)
{
	struct ofs_cursor c;
	int ret = ofs_known_find(job->fs, &job->list->file[file],
	    &job->key[file], &c, err);

	return ret == 1 ? ofs_stats_unpack(&c, &job->result[file], err) : ret;
}

static struct ofs_pool_item item_of(struct optimfs *fs,
    const struct ofs_file_info *f)
{
	/* opening what is no tensor says why */
	struct ofs_pool_item item = { .chunk = 1,
		.nfiles = 1,
		.file[0] = { .fs = fs, .node = f->node } };

	if (!ofs_is_tensor(f))
		return item;
	item.elements = f->elements;
	item.chunk = ofs_stats_chunk(f->dtype);
	if (item.chunk > f->elements && f->elements > 0)
		item.chunk = f->elements;
	item.piece = PIECE / ofs_dtype_size(f->dtype);
	item.file[0].size = ofs_dtype_size(f->dtype);
	return item;
}

static int compute_all(struct job *job, const struct optimfs_scan *how,
    struct optimfs_error *err)
{
	size_t n = job->list->n, nitems = 0;
	struct ofs_pool_item *items = calloc(n + 1, sizeof(*items));
	int ret = -1;

	job->file = calloc(n + 1, sizeof(*job->file));
	job->key = calloc(n + 1, sizeof(*job->key));
	job->sum = calloc(n + 1, sizeof(*job->sum));
	job->result = calloc(n + 1, sizeof(*job->result));
	job->failed = calloc(n + 1, sizeof(*job->failed));
	if (items == NULL || job->file == NULL || job->key == NULL ||
	    job->sum == NULL || job->result == NULL || job->failed == NULL) {
		ofs_no_memory(err);
		goto out;
	}
	for (size_t i = 0; i < n; i++) {
		int known = take_known(job, i, err);

		if (known == -1)
			goto out;
		if (known == 1)
			continue;
		job->file[nitems] = i;
		items[nitems++] = item_of(job->fs, &job->list->file[i]);
	}
	ret = ofs_pool_run(items, nitems, how, &ops, job, err);
out:
	free(items);
	return ret;
}

static void job_fini(struct job *job)
{
	for (size_t i = 0; i < job->list->n; i++) {
		if (job->sum != NULL)
			end_sum(&job->sum[i]);
		if (job->result != NULL)
			optimfs_statistics_fini(&job->result[i]);
	}
	free(job->file);
	free(job->key);
	free(job->sum);
	free(job->result);
	free(job->failed);
}

/* Adds the parts of f that ranks hold to the list; f itself if unknown. */
static int add_parts(struct optimfs *fs, const struct ofs_file_info *f,
    struct ofs_file_list *l, struct optimfs_error *err)
{
	bool no_memory = false;
	char *owners = ofs_attribute(fs, f->node, "owners", &no_memory);
	char *p = owners;
	struct ofs_file_info part = *f;
	struct optimfs_attr attr;
	char *path;
	int ret = 0;

	if (no_memory)
		ret = ofs_no_memory(err);
	else if (owners == NULL || *owners == '\0')
		ret = ofs_file_list_add(l, f, err) == NULL ? -1 : 0;
	while (p != NULL && *p != '\0' && ret == 0) {
		long first = strtol(p, &p, 10), last = first;

		if (*p == '-')
			last = strtol(p + 1, &p, 10);
		p += *p == ',';
		for (long r = first; r <= last && ret == 0; r++) {
			if (asprintf(&path, ".optimfs/rank/%ld/%s", r,
				f->path) == -1) {
				ret = ofs_no_memory(err);
				break;
			}
			ret = optimfs_resolve(fs, path, &attr, err);
			free(path);
			part.node = attr.node;
			part.bytes = attr.size;
			part.elements = attr.size / ofs_dtype_size(f->dtype);
			part.rank = (int)r;
			if (ret == 0 &&
			    ofs_file_list_add(l, &part, err) == NULL)
				ret = -1;
		}
	}
	free(owners);
	return ret;
}

/* Is f a tensor, or may it be one? What cannot be read may be. */
static bool is_listed(struct optimfs *fs, const struct ofs_file_info *f,
    bool *no_memory)
{
	char *error = NULL;
	bool yes = ofs_is_tensor(f) || f->unknown ||
	    (error = ofs_attribute(fs, f->node, "error", no_memory)) != NULL;

	free(error);
	return yes;
}

static int list_tensors(struct optimfs *fs, const char *path, bool ranks,
    struct ofs_file_list *l, struct optimfs_error *err)
{
	struct ofs_file_list all = { 0 };
	bool no_memory = false;
	int ret = ofs_files_below(fs, path, &all, err);

	for (size_t i = 0; i < all.n && ret == 0; i++) {
		if (!is_listed(fs, &all.file[i], &no_memory))
			continue;
		if (ranks && ofs_is_tensor(&all.file[i]))
			ret = add_parts(fs, &all.file[i], l, err);
		else if (ofs_file_list_add(l, &all.file[i], err) == NULL)
			ret = -1;
	}
	if (no_memory && ret == 0)
		ret = ofs_no_memory(err);
	ofs_file_list_fini(&all);
	return ret;
}

static void give(const struct job *job, optimfs_tensor_fn *each, void *ctx)
{
	for (size_t i = 0; i < job->list->n; i++) {
		const struct ofs_file_info *f = &job->list->file[i];
		struct optimfs_tensor t = { f->path, f->node,
			ofs_dtype_name(f->dtype),
			f->shape == NULL ? "" : f->shape, f->elements, f->bytes,
			f->rank };
		bool bad = job->failed[i].code != 0;

		if (each(ctx, &t, bad ? NULL : &job->result[i],
			bad ? &job->failed[i] : NULL) != 0)
			return;
	}
}

int optimfs_statistics_tree(struct optimfs *fs, const char *path, bool ranks,
    const struct optimfs_scan *how, optimfs_tensor_fn *each, void *ctx,
    struct optimfs_error *err)
{
	struct ofs_file_list list = { 0 };
	struct job job = { .fs = fs, .list = &list };
	int ret = list_tensors(fs, path, ranks, &list, err);

	if (ret == 0)
		ret = compute_all(&job, how, err);
	if (ret == 0)
		give(&job, each, ctx);
	job_fini(&job);
	ofs_file_list_fini(&list);
	return ret;
}

struct total {
	struct optimfs_statistics *s;
	struct optimfs_error *err;
	int ret;
	size_t n;
};

static int add_total(void *ctx, const struct optimfs_tensor *t,
    const struct optimfs_statistics *s, const struct optimfs_error *err)
{
	struct total *all = ctx;

	all->n++;
	if (s != NULL) {
		all->ret = ofs_stats_merge(all->s, s, all->err);
		return all->ret;
	}
	all->ret = optimfs_fail_with(all->err, err);
	/* a failed read has named the tensor */
	if (optimfs_error_about(err, t->path) == optimfs_error_words(err))
		optimfs_fail_in(all->err, "%s", t->path);
	return all->ret;
}

/* Takes the statistics of one tensor, with hash and histogram. */
static int take_one(void *ctx, const struct optimfs_tensor *t,
    const struct optimfs_statistics *s, const struct optimfs_error *err)
{
	struct total *all = ctx;

	if (add_total(ctx, t, s, err) == -1)
		return -1;
	all->s->first_nan = s->first_nan;
	all->s->first_inf = s->first_inf;
	all->s->xxh3 = s->xxh3;
	return 0;
}

int optimfs_statistics(struct optimfs *fs, const char *path,
    const struct optimfs_scan *how, struct optimfs_statistics *s,
    struct optimfs_error *err)
{
	struct total all = { s, err, 0, 0 };
	struct optimfs_attr attr;

	*s = ofs_stats_none();
	if (optimfs_resolve(fs, path, &attr, err) == -1 ||
	    optimfs_statistics_tree(fs, path, false, how,
		S_ISDIR(attr.mode) ? add_total : take_one, &all, err) == -1)
		return -1;
	if (all.ret == 0 && all.n == 0 && !S_ISDIR(attr.mode))
		all.ret = optimfs_fail(err, EINVAL,
		    "%s: is text, which has no statistics", path);
	if (all.ret == -1)
		optimfs_statistics_fini(s);
	return all.ret;
}
