/* units.c - the units= file */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/units.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "buf.h"
#include "canon.h"
#include "checked.h"
#include "format/json.h"
#include "io.h"
#include "map.h"

#define MAX_FILE    (64u << 20)
#define MAX_STRINGS (1u << 22)

/* A list of strings that grows; they lie in the arena. */
struct strings {
	struct ofs_str *v;
	uint32_t n, cap;
};

/* Names of one unit, before they are whole. */
struct draft {
	struct ofs_str prefix, strategy;
	struct strings fqns, shared;
	struct ofs_unit_table shapes;
	struct ofs_unit_record r;
	bool is_unit; /* it has fqns */
};

struct reader {
	struct ofs_units *u;
	struct ofs_json j;
	struct strings order, ids;
	uint32_t cap, tie_cap;
	struct optimfs_error *err;
};

static int no_memory(struct optimfs_error *err)
{
	return optimfs_fail(err, ENOMEM, "OFS443 out of memory for units");
}

/* The JSON is in order, but this is not what stands here. */
static int unexpected(struct reader *r, const char *want)
{
	return optimfs_fail(r->err, EINVAL,
	    "OFS162 units=%.100s: byte %" PRIu64 ": expected %s", r->u->file,
	    r->j.at, want);
}

static enum ofs_json_token next(struct reader *r)
{
	return ofs_json_next(&r->j, r->err);
}

static int wrong(struct reader *r, enum ofs_json_token t, const char *want)
{
	return t == OFS_JSON_ERROR ? -1 : unexpected(r, want);
}

static bool grow(void *array, uint32_t n, uint32_t *cap, size_t size)
{
	void **p = array, *bigger;
	uint32_t want = *cap == 0 ? 16 : *cap * 2;

	if (n < *cap)
		return true;
	if (n >= MAX_STRINGS)
		return false;
	bigger = reallocarray(*p, want, size);
	if (bigger == NULL)
		return false;
	*p = bigger;
	*cap = want;
	return true;
}

static int copy_string(struct reader *r, struct ofs_str *out)
{
	char *p = ofs_arena_strndup(&r->u->arena, r->j.str.p, r->j.str.len);

	if (p == NULL)
		return no_memory(r->err);
	if (memchr(p, '\0', r->j.str.len) != NULL)
		return unexpected(r, "a name without NUL");
	*out = (struct ofs_str){ p, r->j.str.len };
	return 0;
}

static int read_string(struct reader *r, struct ofs_str *out)
{
	enum ofs_json_token t = next(r);

	if (t == OFS_JSON_NULL)
		return 0;
	return t == OFS_JSON_STRING ? copy_string(r, out)
				    : wrong(r, t, "a string");
}

/* A list of strings, or of lists of them: all one after the other. */
static int read_strings(struct reader *r, struct strings *s)
{
	unsigned depth = 0;

	do {
		enum ofs_json_token t = next(r);

		if (t == OFS_JSON_ARRAY && depth < 2) {
			depth++;
		} else if (t == OFS_JSON_ARRAY_END) {
			depth--;
		} else if (t == OFS_JSON_STRING && depth > 0) {
			if (!grow(&s->v, s->n, &s->cap, sizeof(*s->v)))
				return no_memory(r->err);
			if (copy_string(r, &s->v[s->n]) == -1)
				return -1;
			s->n++;
		} else if (t == OFS_JSON_NULL && depth == 0) {
			return 0;
		} else {
			return wrong(r, t, "a list of names");
		}
	} while (depth > 0);
	return 0;
}

static int add_number(struct reader *r, struct ofs_unit_table *t,
    enum ofs_json_token token)
{
	int64_t v = token == OFS_JSON_TRUE ? 1
	    : token == OFS_JSON_NULL       ? -1
					   : 0;

	if (token == OFS_JSON_NUMBER) {
		if (!r->j.is_int || r->j.integer < 0)
			return unexpected(r, "a whole number");
		v = r->j.integer;
	}
	if (!grow(&t->v, t->n, &t->cap, sizeof(*t->v)))
		return no_memory(r->err);
	t->v[t->n++] = v;
	return 0;
}

static int end_row(struct reader *r, struct ofs_unit_table *t)
{
	if (!grow(&t->end, t->nrows, &t->row_cap, sizeof(*t->end)))
		return no_memory(r->err);
	t->end[t->nrows++] = t->n;
	return 0;
}

/* A number, a list of numbers, or a list of lists of them. */
static int read_table(struct reader *r, struct ofs_unit_table *t)
{
	unsigned depth = 0;
	int ret = 0;

	if (t->given)
		return unexpected(r, "each member once");
	do {
		enum ofs_json_token token = next(r);

		switch (token) {
		case OFS_JSON_ARRAY:
			if (++depth > 2)
				return unexpected(r, "at most lists of lists");
			break;
		case OFS_JSON_ARRAY_END:
			if (depth-- == 2)
				ret = end_row(r, t);
			break;
		case OFS_JSON_NULL:
			if (depth == 0)
				return 0;
			/* fall through */
		case OFS_JSON_NUMBER:
		case OFS_JSON_TRUE:
		case OFS_JSON_FALSE:
			ret = add_number(r, t, token);
			break;
		default:
			return wrong(r, token, "numbers");
		}
	} while (ret == 0 && depth > 0);
	t->given = true;
	return ret;
}

static int read_number(struct reader *r, int64_t *v)
{
	enum ofs_json_token t = next(r);

	switch (t) {
	case OFS_JSON_NULL:
		return 0;
	case OFS_JSON_TRUE:
	case OFS_JSON_FALSE:
		*v = t == OFS_JSON_TRUE;
		return 0;
	case OFS_JSON_NUMBER:
		if (r->j.is_int && r->j.integer >= 0) {
			*v = r->j.integer;
			return 0;
		}
		/* fall through */
	default:
		return wrong(r, t, "a whole number");
	}
}

static int read_dtype(struct reader *r, uint32_t *dtype)
{
	struct ofs_str s = { "", 0 };

	if (read_string(r, &s) == -1)
		return -1;
	*dtype = ofs_dtype_of_name(s.p, s.len);
	return 0;
}

static bool key_is(const struct reader *r, const char *key)
{
	return r->j.str.len == strlen(key) &&
	    memcmp(r->j.str.p, key, r->j.str.len) == 0;
}

static int skip_value(struct reader *r)
{
	enum ofs_json_token t = next(r);

	if (t == OFS_JSON_ERROR)
		return -1;
	return ofs_json_skip(&r->j, t, r->err);
}

/* The member whose key was just read. Members that are not known are for
 * people. */
static int read_member(struct reader *r, struct draft *d)
{
	const struct {
		const char *key;
		struct ofs_unit_table *table;
	} tables[] = {
		{ "shapes", &d->shapes },
		{ "numels", &d->r.numels },
		{ "numels_with_padding", &d->r.padded },
		{ "is_padding_mask", &d->r.mask },
		{ "unpadded_unsharded_size", &d->r.size },
		{ "sharded_size", &d->r.sharded },
		{ "shard_numel_padded", &d->r.right },
		{ "shard_param_infos", &d->r.infos },
		{ "contiguities", &d->r.contiguous },
	};

	for (size_t i = 0; i < sizeof(tables) / sizeof(*tables); i++)
		if (key_is(r, tables[i].key))
			return read_table(r, tables[i].table);
	if (key_is(r, "fqns")) {
		if (d->is_unit)
			return unexpected(r, "fqns once");
		d->is_unit = true;
		return read_strings(r, &d->fqns);
	}
	if (key_is(r, "prefix"))
		return read_string(r, &d->prefix);
	if (key_is(r, "shared"))
		return read_strings(r, &d->shared);
	if (key_is(r, "world_size"))
		return read_number(r, &d->r.world);
	if (key_is(r, "rank"))
		return read_number(r, &d->r.rank);
	if (key_is(r, "use_orig_params"))
		return read_number(r, &d->r.orig);
	if (key_is(r, "strategy"))
		return read_string(r, &d->strategy);
	if (key_is(r, "dtype"))
		return read_dtype(r, &d->r.dtype);
	return skip_value(r);
}

static void free_table(struct ofs_unit_table *t)
{
	free(t->v);
	free(t->end);
}

static void free_draft(struct draft *d)
{
	free(d->fqns.v);
	free(d->shared.v);
	free_table(&d->shapes);
	free_table(&d->r.numels);
	free_table(&d->r.padded);
	free_table(&d->r.mask);
	free_table(&d->r.size);
	free_table(&d->r.sharded);
	free_table(&d->r.right);
	free_table(&d->r.infos);
	free_table(&d->r.contiguous);
}

/* "prefix.name", or "prefix.module.name", without wrappers. */
static int whole_name(struct ofs_units *u, struct ofs_str prefix,
    struct ofs_str module, struct ofs_str name, struct ofs_str *out,
    struct optimfs_error *err)
{
	const struct ofs_str part[] = { prefix, module, name };
	uint64_t n = (uint64_t)prefix.len + module.len + name.len + 3;
	char *raw = ofs_arena_alloc(&u->arena, n);
	char *clean = ofs_arena_alloc(&u->arena, n);
	size_t len = 0;

	if (raw == NULL || clean == NULL)
		return no_memory(err);
	for (size_t i = 0; i < 3; i++) {
		if (part[i].len == 0)
			continue;
		if (len > 0)
			raw[len++] = '.';
		memcpy(raw + len, part[i].p, part[i].len);
		len += part[i].len;
	}
	len = ofs_clean_fqn(raw, len, clean);
	clean[len] = '\0';
	*out = (struct ofs_str){ clean, (uint32_t)len };
	return 0;
}

static struct ofs_str module_of(struct ofs_str fqn)
{
	const char *dot = fqn.len == 0 ? NULL : memrchr(fqn.p, '.', fqn.len);

	return (struct ofs_str){ fqn.p,
		dot == NULL ? 0 : (uint32_t)(dot - fqn.p) };
}

static int set_shape(struct reader *r, const struct draft *d, uint32_t i,
    struct ofs_unit *unit)
{
	uint32_t from = i == 0 ? 0 : d->shapes.end[i - 1];
	uint32_t n = d->shapes.end[i] - from;
	uint64_t *shape;

	shape = ofs_arena_alloc(&r->u->arena, n * sizeof(*shape));
	if (shape == NULL)
		return no_memory(r->err);
	for (uint32_t k = 0; k < n; k++) {
		if (d->shapes.v[from + k] < 0)
			return unexpected(r, "sizes in shapes");
		shape[k] = (uint64_t)d->shapes.v[from + k];
	}
	if (n > OFS_MAX_DIMS || !ofs_numel(shape, n, &unit->numel[i]))
		return optimfs_fail(r->err, EINVAL,
		    "OFS162 units=%.80s: %.80s: %u dimensions, or too many "
		    "elements",
		    r->u->file, unit->param[i].fqn.p, n);
	unit->param[i].shape = shape;
	unit->param[i].ndim = (uint8_t)n;
	return 0;
}

static int set_params(struct reader *r, const struct draft *d,
    struct ofs_unit *unit)
{
	uint32_t n = d->fqns.n;
	struct ofs_str none = { "", 0 };

	unit->param = ofs_arena_alloc(&r->u->arena, n * sizeof(*unit->param));
	unit->numel = ofs_arena_alloc(&r->u->arena, n * sizeof(*unit->numel));
	if (unit->param == NULL || unit->numel == NULL)
		return no_memory(r->err);
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_unit_param *p = &unit->param[i];

		if (whole_name(r->u, d->prefix, none, d->fqns.v[i], &p->fqn,
			r->err) == -1 ||
		    set_shape(r, d, i, unit) == -1)
			return -1;
	}
	return 0;
}

/* FSDP's records of shared parameters: name and module of the second, then of
 * the first. */
static int add_ties(struct reader *r, const struct draft *d)
{
	struct ofs_units *u = r->u;

	for (uint32_t i = 0; i + 4 <= d->shared.n; i += 4) {
		const struct ofs_str *s = d->shared.v + i;
		struct ofs_unit_tie *t;

		if (!grow(&u->tie, u->nties, &r->tie_cap, sizeof(*u->tie)))
			return no_memory(r->err);
		t = &u->tie[u->nties];
		if (whole_name(u, d->prefix, s[1], s[0], &t->name, r->err) ==
			-1 ||
		    whole_name(u, d->prefix, s[3], s[2], &t->target, r->err) ==
			-1)
			return -1;
		u->nties++;
	}
	return 0;
}

/* The module's name: as that of a parameter in it, less the parameter. */
static int set_prefix(struct reader *r, const struct draft *d,
    struct ofs_unit *unit)
{
	struct ofs_str none = { "", 0 }, some = { "x", 1 };
	char *p;

	if (whole_name(r->u, d->prefix, none, some, &unit->prefix, r->err) ==
	    -1)
		return -1;
	unit->prefix = module_of(unit->prefix);
	p = ofs_arena_strndup(&r->u->arena, unit->prefix.p, unit->prefix.len);
	if (p == NULL)
		return no_memory(r->err);
	unit->prefix.p = p;
	return 0;
}

static bool ends_with(struct ofs_str s, const char *end)
{
	size_t n = strlen(end);

	return s.len >= n && memcmp(s.p + s.len - n, end, n) == 0;
}

static int add_unit(struct reader *r, const struct draft *d)
{
	struct ofs_units *u = r->u;
	struct ofs_unit *unit;

	if (!d->is_unit || d->shapes.nrows != d->fqns.n || d->r.world < 0)
		return unexpected(r,
		    "a unit with fqns, as many shapes, and world_size");
	if (d->shared.n % 4 != 0)
		return unexpected(r, "four names for each shared parameter");
	if (!grow(&u->unit, u->n, &r->cap, sizeof(*u->unit)))
		return no_memory(r->err);
	unit = &u->unit[u->n++];
	*unit = (struct ofs_unit){ .line = r->j.at,
		.whole = ends_with(d->strategy, "NO_SHARD") };
	if (set_prefix(r, d, unit) == -1 || set_params(r, d, unit) == -1 ||
	    add_ties(r, d) == -1)
		return -1;
	return ofs_unit_layout(unit, d->fqns.n, &d->r, r->err);
}

/* Its opening brace was read. */
static int read_unit(struct reader *r)
{
	struct draft d = { .prefix = { "", 0 },
		.strategy = { "", 0 },
		.r = { .world = -1, .rank = -1, .orig = -1 } };
	enum ofs_json_token t;
	int ret = 0;

	while (ret == 0 && (t = next(r)) == OFS_JSON_KEY)
		ret = read_member(r, &d);
	if (ret == 0)
		ret = t == OFS_JSON_OBJECT_END ? add_unit(r, &d) : -1;
	free_draft(&d);
	return ret;
}

/* Its opening bracket was read. */
static int read_list(struct reader *r)
{
	enum ofs_json_token t;

	while ((t = next(r)) == OFS_JSON_OBJECT)
		if (read_unit(r) == -1)
			return -1;
	return t == OFS_JSON_ARRAY_END ? 0 : wrong(r, t, "a unit");
}

static int read_document(struct reader *r)
{
	enum ofs_json_token t;
	int ret = 0;

	while (ret == 0 && (t = next(r)) == OFS_JSON_KEY) {
		if (key_is(r, "units")) {
			t = next(r);
			ret = t == OFS_JSON_ARRAY ? read_list(r)
						  : wrong(r, t, "a list");
		} else if (key_is(r, "parameters")) {
			ret = read_strings(r, &r->order);
		} else if (key_is(r, "param_groups")) {
			ret = read_strings(r, &r->ids);
		} else {
			ret = skip_value(r);
		}
	}
	return ret == 0 && t == OFS_JSON_OBJECT_END ? 0 : -1;
}

static int read_all(struct reader *r)
{
	enum ofs_json_token t = next(r);
	int ret;

	if (t == OFS_JSON_ARRAY)
		ret = read_list(r);
	else if (t == OFS_JSON_OBJECT)
		ret = read_document(r);
	else
		return wrong(r, t, "a list of units");
	if (ret == 0)
		ret = next(r) == OFS_JSON_END ? 0 : -1;
	if (ret == 0 && r->u->n == 0)
		ret = unexpected(r, "at least one unit");
	return ret;
}

/* Names of the whole model, cleaned, for good. */
static int keep_names(struct reader *r, struct strings *s, struct ofs_str **out,
    uint32_t *n)
{
	struct ofs_str none = { "", 0 };

	if (s->n == 0)
		return 0;
	*out = ofs_arena_alloc(&r->u->arena, s->n * sizeof(**out));
	if (*out == NULL)
		return no_memory(r->err);
	for (uint32_t i = 0; i < s->n; i++)
		if (whole_name(r->u, none, none, s->v[i], &(*out)[i], r->err) ==
		    -1)
			return -1;
	*n = s->n;
	return 0;
}

/* A parameter belongs to one unit. */
struct claims {
	const struct ofs_units *u;
	const struct claim {
		uint32_t unit, param;
	} * v;
};

static bool same_claim(const void *ctx, uint32_t index, const void *key,
    size_t n)
{
	const struct claims *c = ctx;
	const struct claim *at = &c->v[index];
	struct ofs_str s = c->u->unit[at->unit].param[at->param].fqn;

	return s.len == n && memcmp(s.p, key, n) == 0;
}

static int claim_all(const struct ofs_units *u, struct claim *v,
    struct ofs_map *map, struct optimfs_error *err)
{
	struct claims c = { u, v };
	uint32_t n = 0;

	for (uint32_t i = 0; i < u->n; i++)
		for (uint32_t k = 0; k < u->unit[i].flat.nparams; k++) {
			struct ofs_str s = u->unit[i].param[k].fqn;
			uint32_t hash = ofs_map_hash(s.p, s.len);
			uint32_t old =
			    ofs_map_find(map, hash, same_claim, &c, s.p, s.len);

			if (old != UINT32_MAX)
				return optimfs_fail(err, EUCLEAN,
				    "OFS163 %.100s is in two units, \"%.50s\" "
				    "and \"%.50s\"",
				    s.p, u->unit[v[old].unit].prefix.p,
				    u->unit[i].prefix.p);
			v[n] = (struct claim){ i, k };
			if (!ofs_map_add(map, hash, n++))
				return no_memory(err);
		}
	return 0;
}

static int check_claims(const struct ofs_units *u, struct optimfs_error *err)
{
	struct ofs_map map = { 0 };
	struct claim *v;
	uint64_t n = 0;
	int ret;

	for (uint32_t i = 0; i < u->n; i++)
		n += u->unit[i].flat.nparams;
	v = calloc(n + 1, sizeof(*v));
	ret = v == NULL ? no_memory(err) : claim_all(u, v, &map, err);
	free(v);
	ofs_map_fini(&map);
	return ret;
}

int ofs_units_parse(struct ofs_units *u, const char *file, const void *text,
    uint32_t n, struct optimfs_error *err)
{
	struct reader r = { .u = u, .err = err };
	int ret;

	*u = (struct ofs_units){ .file = file };
	ofs_json_init(&r.j, text, n);
	ret = read_all(&r);
	if (ret == 0)
		ret = keep_names(&r, &r.order, &u->order, &u->norder);
	if (ret == 0)
		ret = keep_names(&r, &r.ids, &u->ids, &u->nids);
	if (ret == 0)
		ret = check_claims(u, err);
	ofs_json_fini(&r.j);
	free(r.order.v);
	free(r.ids.v);
	if (ret == -1)
		ofs_units_fini(u);
	return ret;
}

void ofs_units_fini(struct ofs_units *u)
{
	for (uint32_t i = 0; i < u->n; i++)
		ofs_flat_fini(&u->unit[i].flat);
	free(u->unit);
	free(u->tie);
	ofs_arena_fini(&u->arena);
	*u = (struct ofs_units){ 0 };
}

/* The bytes of a file the user named; a link there is the user's. */
static int read_bytes(const char *file, uint8_t **p, uint32_t *n,
    struct optimfs_error *err)
{
	int fd = open(file, O_RDONLY | O_CLOEXEC), ret = -1;
	uint8_t *buf = NULL;
	struct stat st;

	if (fd == -1)
		return optimfs_fail(err, errno == ENOENT ? ENOENT : EINVAL,
		    "OFS162 units=%s: %m", file);
	if (fstat(fd, &st) == -1 || !S_ISREG(st.st_mode) ||
	    st.st_size > MAX_FILE) {
		optimfs_fail(err, EINVAL,
		    "OFS162 units=%s: not a file of at most 64 MiB", file);
		goto out;
	}
	buf = malloc((size_t)st.st_size + 1);
	if (buf == NULL) {
		no_memory(err);
		goto out;
	}
	if (ofs_pread_all(fd, buf, (size_t)st.st_size, 0, err) == -1)
		goto out;
	*p = buf;
	buf = NULL;
	*n = (uint32_t)st.st_size;
	ret = 0;
out:
	free(buf);
	close(fd);
	return ret;
}

int ofs_units_read(struct ofs_units *u, const char *file,
    struct optimfs_error *err)
{
	uint8_t *p = NULL;
	uint32_t n = 0;
	int ret;

	if (read_bytes(file, &p, &n, err) == -1)
		return -1;
	ret = ofs_units_parse(u, file, p, n, err);
	free(p);
	return ret;
}
