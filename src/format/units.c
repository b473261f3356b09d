/* units.c - reading units=FILE */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/units.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "canon.h"
#include "checked.h"
#include "format/json.h"

/* A model of 10^5 parameters takes some 20 MB. */
#define MAX_FILE   (1u << 30)
#define MAX_UNITS  (1u << 20)
#define MAX_PARAMS (1u << 24)

/* The file as it is being read. */
struct reading {
	struct ofs_json json;
	struct ofs_units *units;
	struct ofs_unit *unit; /* at hand */
	struct ofs_str *fqn;   /* its parameters' names as they stand */
	uint64_t (*shape)[OFS_MAX_DIMS];
	uint8_t *ndim;
	uint32_t nfqns, nshapes;
	struct optimfs_error *err;
};

static int no_memory(struct reading *r)
{
	return optimfs_fail(r->err, ENOMEM, "%s: out of memory",
	    r->units->path);
}

static int wrong(struct reading *r, const char *what)
{
	return optimfs_fail(r->err, EINVAL,
	    "%s: unit %" PRIu32 ": %s (byte %" PRIu64 ")", r->units->path,
	    r->units->n, what, r->json.at);
}

static enum ofs_json_token next(struct reading *r)
{
	return ofs_json_next(&r->json, r->err);
}

/* items[0..n) with room for one more: amortised, in the arena. */
static void *grow(struct reading *r, void *items, uint32_t n, size_t size)
{
	void *grown;

	if ((n & (n - 1)) != 0)
		return items;
	grown = ofs_arena_alloc(&r->units->arena, (n == 0 ? 1 : 2u * n) * size);
	if (grown == NULL)
		no_memory(r);
	else if (n > 0)
		memcpy(grown, items, n * size);
	return grown;
}

static int read_count(struct reading *r, enum ofs_json_token token, uint64_t *v)
{
	if (token != OFS_JSON_NUMBER || !r->json.is_int || r->json.integer < 0)
		return wrong(r, "not a count");
	*v = (uint64_t)r->json.integer;
	return 0;
}

static int read_string(struct reading *r, enum ofs_json_token token,
    struct ofs_str *s)
{
	if (token != OFS_JSON_STRING)
		return wrong(r, "not a string");
	s->p =
	    ofs_arena_strndup(&r->units->arena, r->json.str.p, r->json.str.len);
	s->len = r->json.str.len;
	return s->p == NULL ? no_memory(r) : 0;
}

static int open_array(struct reading *r, enum ofs_json_token token)
{
	return token == OFS_JSON_ARRAY ? 0 : wrong(r, "not an array");
}

/* An array of counts, n of them in all. */
static int read_counts(struct reading *r, enum ofs_json_token token,
    uint64_t **v, uint32_t *n)
{
	*v = NULL;
	*n = 0;
	if (open_array(r, token) == -1)
		return -1;
	while ((token = next(r)) != OFS_JSON_ARRAY_END) {
		if (token == OFS_JSON_ERROR)
			return -1;
		if (*n == MAX_PARAMS)
			return wrong(r, "too many numbers");
		*v = grow(r, *v, *n, sizeof(**v));
		if (*v == NULL || read_count(r, token, &(*v)[*n]) == -1)
			return -1;
		++*n;
	}
	return 0;
}

/* torch.Size of a flat parameter: one number, in an array. */
static int read_size(struct reading *r, enum ofs_json_token token, uint64_t *v)
{
	uint64_t *list;
	uint32_t n;

	if (token != OFS_JSON_ARRAY)
		return read_count(r, token, v);
	if (read_counts(r, token, &list, &n) == -1)
		return -1;
	if (n != 1)
		return wrong(r, "a flat parameter has one dimension");
	*v = list[0];
	return 0;
}

static int read_fqns(struct reading *r, enum ofs_json_token token)
{
	if (open_array(r, token) == -1)
		return -1;
	for (r->nfqns = 0; (token = next(r)) != OFS_JSON_ARRAY_END;
	     r->nfqns++) {
		if (token == OFS_JSON_ERROR)
			return -1;
		if (r->nfqns == MAX_PARAMS)
			return wrong(r, "too many parameters");
		r->fqn = grow(r, r->fqn, r->nfqns, sizeof(*r->fqn));
		if (r->fqn == NULL ||
		    read_string(r, token, &r->fqn[r->nfqns]) == -1)
			return -1;
	}
	return 0;
}

static int read_shapes(struct reading *r, enum ofs_json_token token)
{
	uint64_t *dims;
	uint32_t n;

	if (open_array(r, token) == -1)
		return -1;
	for (r->nshapes = 0; (token = next(r)) != OFS_JSON_ARRAY_END;
	     r->nshapes++) {
		if (token == OFS_JSON_ERROR)
			return -1;
		if (r->nshapes == MAX_PARAMS)
			return wrong(r, "too many shapes");
		r->shape = grow(r, r->shape, r->nshapes, sizeof(*r->shape));
		r->ndim = grow(r, r->ndim, r->nshapes, sizeof(*r->ndim));
		if (r->shape == NULL || r->ndim == NULL ||
		    read_counts(r, token, &dims, &n) == -1)
			return -1;
		if (n > OFS_MAX_DIMS)
			return wrong(r, "a shape of more than 64 dimensions");
		if (n > 0)
			memcpy(r->shape[r->nshapes], dims, n * sizeof(*dims));
		r->ndim[r->nshapes] = (uint8_t)n;
	}
	return 0;
}

static int read_world(struct reading *r, enum ofs_json_token token)
{
	uint64_t v = 0;

	if (read_count(r, token, &v) == -1)
		return -1;
	if (v == 0 || v > INT32_MAX)
		return wrong(r, "a world size is 1 at least");
	r->unit->world = (uint32_t)v;
	return 0;
}

static int read_strategy(struct reading *r, enum ofs_json_token token)
{
	struct ofs_str s = { 0 };

	if (read_string(r, token, &s) == -1)
		return -1;
	r->unit->no_shard =
	    s.len >= 8 && memcmp(s.p + s.len - 8, "NO_SHARD", 8) == 0;
	return 0;
}

static int read_prefix(struct reading *r, enum ofs_json_token token)
{
	return read_string(r, token, &r->unit->prefix);
}

static int read_padded(struct reading *r, enum ofs_json_token token)
{
	return read_counts(r, token, &r->unit->padded, &r->unit->npadded);
}

static int read_unsharded(struct reading *r, enum ofs_json_token token)
{
	return read_size(r, token, &r->unit->size);
}

static int read_sharded(struct reading *r, enum ofs_json_token token)
{
	return read_size(r, token, &r->unit->shard);
}

/* Those that must be there come first. */
#define NREQUIRED 4
static const struct {
	const char *key;
	int (*read)(struct reading *r, enum ofs_json_token token);
} members[] = {
	{ "prefix", read_prefix },
	{ "fqns", read_fqns },
	{ "shapes", read_shapes },
	{ "world_size", read_world },
	{ "strategy", read_strategy },
	{ "numels_with_padding", read_padded },
	{ "unpadded_unsharded_size", read_unsharded },
	{ "sharded_size", read_sharded },
};
#define NMEMBERS (sizeof(members) / sizeof(*members))

/* The member whose key was just read; others are somebody else's. */
static int read_member(struct reading *r, unsigned *seen)
{
	struct ofs_str key = r->json.str;
	size_t i = 0;

	while (i < NMEMBERS &&
	    (strlen(members[i].key) != key.len ||
		memcmp(members[i].key, key.p, key.len) != 0))
		i++;
	if (i == NMEMBERS)
		return ofs_json_skip(&r->json, next(r), r->err);
	if (*seen & 1u << i)
		return wrong(r, "a key that was there before");
	*seen |= 1u << i;
	return members[i].read(r, next(r));
}

/* "layers.0" and "wq.weight", wrappers removed from both. */
static int full_name(struct reading *r, struct ofs_str fqn, struct ofs_str *out)
{
	struct ofs_str prefix = r->unit->prefix;
	char *p =
	    ofs_arena_alloc(&r->units->arena, (size_t)prefix.len + fqn.len + 2);
	size_t n = 0;

	if (p == NULL)
		return no_memory(r);
	if (prefix.len > 0) {
		memcpy(p, prefix.p, prefix.len);
		n = prefix.len;
		p[n++] = '.';
	}
	n += ofs_clean_fqn(fqn.p, fqn.len, p + n);
	p[n] = '\0';
	out->p = p;
	out->len = (uint32_t)n;
	return 0;
}

static int clean_prefix(struct reading *r)
{
	struct ofs_str *prefix = &r->unit->prefix;
	char *p = ofs_arena_alloc(&r->units->arena, (size_t)prefix->len + 3);
	size_t n;

	if (p == NULL)
		return no_memory(r);
	/* the name of a parameter there, without its last part again */
	memcpy(p, prefix->p, prefix->len);
	memcpy(p + prefix->len, ".x", 2);
	n = ofs_clean_fqn(p, (size_t)prefix->len + 2, p) - 1;
	n -= n > 0;
	p[n] = '\0';
	prefix->p = p;
	prefix->len = (uint32_t)n;
	return 0;
}

static int finish_params(struct reading *r)
{
	struct ofs_unit *u = r->unit;

	u->nparams = r->nfqns;
	u->param = ofs_arena_alloc(&r->units->arena,
	    (size_t)u->nparams * sizeof(*u->param));
	u->numel = ofs_arena_alloc(&r->units->arena,
	    (size_t)u->nparams * sizeof(*u->numel));
	if (u->param == NULL || u->numel == NULL || clean_prefix(r) == -1)
		return no_memory(r);
	for (uint32_t i = 0; i < u->nparams; i++) {
		struct ofs_unit_param *p = &u->param[i];

		p->ndim = r->ndim[i];
		memcpy(p->shape, r->shape[i], sizeof(p->shape));
		if (!ofs_numel(p->shape, p->ndim, &u->numel[i]))
			return wrong(r, "a shape of too many elements");
		if (full_name(r, r->fqn[i], &p->fqn) == -1)
			return -1;
	}
	return 0;
}

static int read_unit(struct reading *r)
{
	enum ofs_json_token token;
	unsigned seen = 0;

	*r->unit = (struct ofs_unit){ .size = UINT64_MAX, .shard = UINT64_MAX };
	while ((token = next(r)) == OFS_JSON_KEY)
		if (read_member(r, &seen) == -1)
			return -1;
	if (token != OFS_JSON_OBJECT_END)
		return -1;
	for (size_t i = 0; i < NREQUIRED; i++)
		if (!(seen & 1u << i))
			return optimfs_fail(r->err, EINVAL,
			    "%s: unit %" PRIu32 " lacks \"%s\"", r->units->path,
			    r->units->n, members[i].key);
	if (r->nfqns != r->nshapes)
		return optimfs_fail(r->err, EINVAL,
		    "%s: unit %" PRIu32 " has %" PRIu32 " fqns and %" PRIu32
		    " shapes",
		    r->units->path, r->units->n, r->nfqns, r->nshapes);
	/* older files have no strategy, but both sizes */
	r->unit->no_shard |= r->unit->world > 1 && r->unit->size > 1 &&
	    r->unit->shard == r->unit->size && r->unit->shard != UINT64_MAX;
	return finish_params(r);
}

static int read_units(struct reading *r)
{
	struct ofs_units *units = r->units;
	enum ofs_json_token token = next(r);

	if (token != OFS_JSON_ARRAY)
		return token == OFS_JSON_ERROR ? -1 : wrong(r, "not an array");
	while ((token = next(r)) == OFS_JSON_OBJECT) {
		if (units->n == MAX_UNITS)
			return wrong(r, "too many units");
		units->unit =
		    grow(r, units->unit, units->n, sizeof(*units->unit));
		if (units->unit == NULL)
			return -1;
		r->unit = &units->unit[units->n];
		r->fqn = NULL;
		r->shape = NULL;
		r->ndim = NULL;
		if (read_unit(r) == -1)
			return -1;
		units->n++;
	}
	if (token != OFS_JSON_ARRAY_END)
		return token == OFS_JSON_ERROR ? -1 : wrong(r, "not an object");
	if (units->n == 0)
		return wrong(r, "there is no unit");
	return next(r) == OFS_JSON_END ? 0 : -1;
}

struct owner {
	struct ofs_str fqn;
	uint32_t unit;
};

static int by_name(const void *va, const void *vb)
{
	const struct owner *a = va, *b = vb;
	uint32_t n = a->fqn.len < b->fqn.len ? a->fqn.len : b->fqn.len;
	int order = memcmp(a->fqn.p, b->fqn.p, n);

	return order != 0
	    ? order
	    : (a->fqn.len > b->fqn.len) - (a->fqn.len < b->fqn.len);
}

/* A parameter belongs to one unit. */
static int check_owners(struct reading *r)
{
	const struct ofs_units *units = r->units;
	struct owner *all;
	size_t n = 0, k = 0;
	int ret = 0;

	for (uint32_t u = 0; u < units->n; u++)
		n += units->unit[u].nparams;
	all = malloc(n * sizeof(*all) + 1);
	if (all == NULL)
		return no_memory(r);
	for (uint32_t u = 0; u < units->n; u++)
		for (uint32_t i = 0; i < units->unit[u].nparams; i++)
			all[k++] =
			    (struct owner){ units->unit[u].param[i].fqn, u };
	qsort(all, n, sizeof(*all), by_name);
	for (size_t i = 1; i < n && ret == 0; i++)
		if (by_name(&all[i - 1], &all[i]) == 0)
			ret = optimfs_fail(r->err, EUCLEAN,
			    "OFS160 %s: %.200s is in unit %" PRIu32
			    " and in unit %" PRIu32,
			    units->path, all[i].fqn.p, all[i - 1].unit,
			    all[i].unit);
	free(all);
	return ret;
}

int ofs_units_parse(const void *p, uint64_t n, const char *path,
    struct ofs_units *units, struct optimfs_error *err)
{
	struct reading r = { .units = units, .err = err };
	int ret;

	*units = (struct ofs_units){ .path = path };
	if (n > MAX_FILE)
		return optimfs_fail(err, E2BIG, "%s: %" PRIu64 " bytes", path,
		    n);
	ofs_json_init(&r.json, p, (uint32_t)n);
	ret = read_units(&r);
	if (ret == 0)
		ret = check_owners(&r);
	ofs_json_fini(&r.json);
	if (ret == -1)
		ofs_units_fini(units);
	return ret;
}
