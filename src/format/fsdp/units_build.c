/* units_build.c - units from their drafts */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/str.h"
#include "format/fsdp/units_impl.h"
#include "naming/naming.h"

/* "prefix.name" or "prefix.module.name", without wrappers. */
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
		return ofs_no_memory(err);
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

static int set_shape(struct ofs_units_reader *r,
    const struct ofs_units_draft *d, uint32_t i, struct ofs_unit *unit)
{
	uint32_t from = i == 0 ? 0 : d->shapes.end[i - 1];
	uint32_t n = d->shapes.end[i] - from;
	uint64_t *shape;

	shape = ofs_arena_alloc(&r->u->arena, n * sizeof(*shape));
	if (shape == NULL)
		return ofs_no_memory(r->err);
	for (uint32_t k = 0; k < n; k++) {
		if (d->shapes.v[from + k] < 0)
			return ofs_units_unexpected(r, "sizes in shapes");
		shape[k] = (uint64_t)d->shapes.v[from + k];
	}
	if (n > OFS_MAX_DIMS || !ofs_numel(shape, n, &unit->numel[i]))
		return optimfs_fail(r->err, EINVAL,
		    "OFS162 %.80s: %u dimensions, or too many elements",
		    unit->param[i].fqn.p, n);
	unit->param[i].shape = shape;
	unit->param[i].ndim = (uint8_t)n;
	return 0;
}

static int set_params(struct ofs_units_reader *r,
    const struct ofs_units_draft *d, struct ofs_unit *unit)
{
	uint32_t n = d->fqns.n;
	struct ofs_str none = { "", 0 };

	unit->param = ofs_arena_alloc(&r->u->arena, n * sizeof(*unit->param));
	unit->numel = ofs_arena_alloc(&r->u->arena, n * sizeof(*unit->numel));
	if (unit->param == NULL || unit->numel == NULL)
		return ofs_no_memory(r->err);
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_unit_param *p = &unit->param[i];

		p->grad = d->grad.n == 0 ? -1 : (int8_t)d->grad.v[i];
		if (whole_name(r->u, d->prefix, none, d->fqns.v[i], &p->fqn,
			r->err) == -1 ||
		    set_shape(r, d, i, unit) == -1)
			return -1;
	}
	return 0;
}

/* Adds FSDP's records of shared parameters: name and module of the second use,
 * then of the first. */
static int add_ties(struct ofs_units_reader *r, const struct ofs_units_draft *d)
{
	struct ofs_units *u = r->u;

	for (uint32_t i = 0; i + 4 <= d->shared.n; i += 4) {
		const struct ofs_str *s = d->shared.v + i;
		struct ofs_unit_tie *t;

		if (ofs_grow(u->tie, u->nties, r->tie_cap, NULL) == -1)
			return ofs_no_memory(r->err);
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

/* Sets the module's name: that of a parameter in it, without the last
 * component. */
static int set_prefix(struct ofs_units_reader *r,
    const struct ofs_units_draft *d, struct ofs_unit *unit)
{
	struct ofs_str none = { "", 0 }, some = { "x", 1 };
	char *p;

	if (whole_name(r->u, d->prefix, none, some, &unit->prefix, r->err) ==
	    -1)
		return -1;
	unit->prefix = module_of(unit->prefix);
	p = ofs_arena_strndup(&r->u->arena, unit->prefix.p, unit->prefix.len);
	if (p == NULL)
		return ofs_no_memory(r->err);
	unit->prefix.p = p;
	return 0;
}

int ofs_units_add(struct ofs_units_reader *r, const struct ofs_units_draft *d)
{
	struct ofs_units *u = r->u;
	struct ofs_unit *unit;

	if (!d->is_unit || d->shapes.nrows != d->fqns.n || d->r.world < 0)
		return ofs_units_unexpected(r,
		    "a unit with fqns, as many shapes, and world_size");
	if (d->grad.n != 0 && d->grad.n != d->fqns.n)
		return ofs_units_unexpected(r,
		    "requires_grad of as many parameters as fqns");
	for (uint32_t i = 0; i < d->grad.n; i++)
		if (d->grad.v[i] > 1)
			return ofs_units_unexpected(r,
			    "true or false in requires_grad");
	if (d->shared.n % 4 != 0)
		return ofs_units_unexpected(r,
		    "four names for each shared parameter");
	if (ofs_grow(u->unit, u->n, r->cap, NULL) == -1)
		return ofs_no_memory(r->err);
	unit = &u->unit[u->n++];
	*unit =
	    (struct ofs_unit){ .whole = ofs_str_ends(d->strategy, "NO_SHARD"),
		    .first_tie = u->nties,
		    .nties = d->shared.n / 4 };
	if (set_prefix(r, d, unit) == -1 || set_params(r, d, unit) == -1 ||
	    add_ties(r, d) == -1)
		return -1;
	return ofs_unit_layout(unit, d->fqns.n, &d->r, r->err);
}

int ofs_units_keep(struct ofs_units_reader *r,
    const struct ofs_units_strings *s, struct ofs_str **out, uint32_t *n)
{
	struct ofs_str none = { "", 0 };

	if (s->n == 0)
		return 0;
	*out = ofs_arena_alloc(&r->u->arena, s->n * sizeof(**out));
	if (*out == NULL)
		return ofs_no_memory(r->err);
	for (uint32_t i = 0; i < s->n; i++)
		if (whole_name(r->u, none, none, s->v[i], &(*out)[i], r->err) ==
		    -1)
			return -1;
	*n = s->n;
	return 0;
}
