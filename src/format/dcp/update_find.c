/* update_find.c - the items of an index, by names and by places */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/search.h"
#include "base/str.h"
#include "catalog/budget.h"
#include "format/dcp/dcp.h"
#include "format/dcp/update.h"

static struct ofs_str name_of(const struct ofs_dcp_commit *d, uint32_t item)
{
	return ofs_pk_str(d->index.doc, d->index.item[item].fqn);
}

static int by_place(const void *a, const void *b, void *ctx)
{
	const struct ofs_dcp_commit *d = ctx;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	if (d->object[x] != d->object[y])
		return d->object[x] < d->object[y] ? -1 : 1;
	if (d->index.item[x].off != d->index.item[y].off)
		return d->index.item[x].off < d->index.item[y].off ? -1 : 1;
	return (x > y) - (x < y);
}

static int by_name(const void *a, const void *b, void *ctx)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	int c = ofs_str_compare(name_of(ctx, x), name_of(ctx, y));

	return c != 0 ? c : (x > y) - (x < y);
}

static void find_objects(struct ofs_dcp_commit *d)
{
	uint32_t last_node = OFS_NONE, last = OFS_NONE;
	char path[8200];

	for (uint32_t i = 0; i < d->index.nitems; i++) {
		uint32_t node = d->index.item[i].path;
		struct ofs_str s = ofs_pk_str(d->index.doc, node);

		if (node != last_node) {
			snprintf(path, sizeof(path), "%s%s%.*s", d->part->rel,
			    *d->part->rel == '\0' ? "" : "/",
			    OFS_STR_ARGS(s, 4096));
			last = ofs_catalog_find_object(d->c->cat, path);
			last_node = node;
		}
		d->object[i] = last;
	}
}

static int sort_all(struct ofs_dcp_commit *d, struct optimfs_error *err)
{
	uint32_t n = d->index.nitems;

	d->object = calloc((size_t)n + 1, sizeof(*d->object));
	d->by_place = calloc((size_t)n + 1, sizeof(*d->by_place));
	d->by_name = calloc((size_t)n + 1, sizeof(*d->by_name));
	d->gone = calloc((size_t)n + 1, sizeof(*d->gone));
	d->dropped = calloc((size_t)n + 1, sizeof(*d->dropped));
	d->moved = calloc((size_t)n + 1, sizeof(*d->moved));
	if (d->object == NULL || d->by_place == NULL || d->by_name == NULL ||
	    d->gone == NULL || d->dropped == NULL || d->moved == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < n; i++) {
		d->by_place[i] = d->by_name[i] = i;
		d->moved[i] = OFS_NONE;
	}
	find_objects(d);
	if (ofs_pk_names_init(&d->keys, d->index.doc, d->index.keys, err) ==
		-1 ||
	    ofs_pk_names_init(&d->plans, d->index.doc, d->index.planner, err) ==
		-1)
		return -1;
	qsort_r(d->by_place, n, sizeof(*d->by_place), by_place, d);
	qsort_r(d->by_name, n, sizeof(*d->by_name), by_name, d);
	return 0;
}

void ofs_dcp_commit_close(struct ofs_dcp_commit *d)
{
	void *tables[] = { d->object, d->by_place, d->by_name, d->moved,
		d->dropped, d->gone };

	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
		free(tables[i]);
	d->object = d->by_place = d->by_name = NULL;
	ofs_pk_names_fini(&d->keys);
	ofs_pk_names_fini(&d->plans);
	d->moved = NULL;
	d->dropped = NULL;
	d->gone = NULL;
	if (d->open)
		ofs_dcp_index_fini(&d->index);
	d->open = false;
}

struct wanted_place {
	const struct ofs_dcp_commit *d;
	uint32_t object;
	uint64_t off;
};

static int compare_place(const void *key, const void *item)
{
	const struct wanted_place *w = key;
	uint32_t i = *(const uint32_t *)item, object = w->d->object[i];
	uint64_t off = w->d->index.item[i].off;

	if (w->object != object)
		return w->object < object ? -1 : 1;
	return (w->off > off) - (w->off < off);
}

/* The first position in by_place at or after (object, off). */
static uint32_t lower(const struct ofs_dcp_commit *d, uint32_t object,
    uint64_t off)
{
	struct wanted_place key = { d, object, off };

	return (uint32_t)ofs_lower_bound(&key, d->by_place, d->index.nitems,
	    sizeof(*d->by_place), compare_place);
}

/* Are any tensors of this index in blobs? */
static bool has_blobs(const struct ofs_dcp_commit *d)
{
	const struct ofs_catalog *cat = d->c->cat;

	for (uint32_t i = 0; i < cat->nshards; i++) {
		const struct ofs_extent *at = &cat->shards[i].at;
		uint32_t k;

		if (at->encoding != OFS_RAW || at->codec != OFS_PLAIN)
			continue;
		k = lower(d, at->object, 0);
		if (k < d->index.nitems &&
		    d->object[d->by_place[k]] == at->object)
			return true;
	}
	return false;
}

int ofs_dcp_commit_bytes(const struct ofs_dcp_commit *d, uint8_t **bytes,
    uint64_t *len, struct optimfs_error *err)
{
	return ofs_dir_read_file(&d->c->cat->dir, d->name,
	    ofs_metadata_max(d->c->cat), bytes, len, err);
}

int ofs_dcp_commit_open(struct ofs_dcp_commit *d, struct optimfs_error *err)
{
	const struct ofs_pickle_limits limits = {
		.memory = d->c->job->options->parse_mem
	};
	uint8_t *bytes;
	uint64_t len;

	if (ofs_dcp_commit_bytes(d, &bytes, &len, err) == -1)
		return -1;
	d->modern = len > 1 && bytes[1] > 2;
	if (ofs_dcp_index_open(&d->index, bytes, len, &limits, err) == -1)
		return -1;
	d->open = true;
	if (ofs_dcp_index_items(&d->index, err) == -1 || sort_all(d, err) == -1)
		return -1;
	d->blobs = has_blobs(d);
	return 0;
}

bool ofs_dcp_commit_at(const struct ofs_dcp_commit *d, uint32_t object,
    uint64_t off, uint32_t *first, uint32_t *n)
{
	*first = lower(d, object, off);
	for (*n = 0; *first + *n < d->index.nitems; ++*n) {
		uint32_t i = d->by_place[*first + *n];

		if (d->object[i] != object || d->index.item[i].off != off)
			break;
	}
	return *n > 0;
}

uint32_t ofs_dcp_commit_around(const struct ofs_dcp_commit *d, uint32_t object,
    uint64_t off)
{
	uint32_t at = lower(d, object, off + 1), i;

	if (at == 0)
		return OFS_NONE;
	i = d->by_place[at - 1];
	if (d->object[i] != object ||
	    off - d->index.item[i].off >= d->index.item[i].len)
		return OFS_NONE;
	return i;
}

struct wanted_name {
	const struct ofs_dcp_commit *d;
	struct ofs_str name;
};

static int compare_item(const void *key, const void *item)
{
	const struct wanted_name *w = key;

	return ofs_str_compare(w->name, name_of(w->d, *(const uint32_t *)item));
}

void ofs_dcp_commit_named(const struct ofs_dcp_commit *d, struct ofs_str name,
    uint32_t *first, uint32_t *n)
{
	struct wanted_name key = { d, name };

	*first = (uint32_t)ofs_lower_bound(&key, d->by_name, d->index.nitems,
	    sizeof(*d->by_name), compare_item);
	for (*n = 0; *first + *n < d->index.nitems &&
	     ofs_str_equal(name_of(d, d->by_name[*first + *n]), name);)
		++*n;
}
