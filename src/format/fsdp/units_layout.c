/* units_layout.c - the layout of a unit, checked against its record */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/dtype.h"
#include "base/memory.h"
#include "format/fsdp/units.h"

/* 16 bytes divided by every possible element size. */
static const uint32_t aligns[] = { OFS_FLAT_PACKED, 1, 2, 4, 8, 16 };
#define NALIGNS (sizeof(aligns) / sizeof(*aligns))

bool ofs_unit_next(struct ofs_unit_pieces *p, uint64_t *len, bool *pad)
{
	uint64_t to =
	    p->param < p->f->nparams ? p->f->start[p->param] : p->f->size;

	*pad = to > p->at;
	if (*pad)
		*len = to - p->at;
	else if (p->param < p->f->nparams)
		*len = p->f->numel[p->param++];
	else
		return false;
	p->at += *len;
	return true;
}

static bool same_padding(const struct ofs_unit_record *r,
    const struct ofs_flat *f)
{
	struct ofs_unit_pieces p = { .f = f };
	uint32_t n = 0;
	uint64_t len;
	bool pad;

	for (; ofs_unit_next(&p, &len, &pad); n++)
		if (n >= r->padded.n || (uint64_t)r->padded.v[n] != len ||
		    (r->mask.given && (n >= r->mask.n || r->mask.v[n] != pad)))
			return false;
	return n == r->padded.n && (!r->mask.given || n == r->mask.n);
}

static bool same_number(const struct ofs_unit_table *t, uint64_t want)
{
	return !t->given ||
	    (t->n == 1 && t->v[0] >= 0 && (uint64_t)t->v[0] == want);
}

/* Does the record of this rank's shard agree? */
static bool same_infos(const struct ofs_unit *unit,
    const struct ofs_unit_record *r, const struct ofs_flat *f)
{
	uint32_t rank = unit->whole ? 0 : (uint32_t)r->rank;

	if (!r->infos.given || r->rank < 0)
		return true;
	if (r->infos.nrows != f->nparams || r->infos.n != 5 * f->nparams)
		return false;
	for (uint32_t i = 0; i < f->nparams; i++) {
		struct ofs_flat_slice s = ofs_flat_slice(f, i, rank);
		const int64_t *v = r->infos.v + 5 * (size_t)i;

		if ((v[0] == 1) != (s.count > 0))
			return false;
		if (s.count > 0 &&
		    ((uint64_t)v[1] != s.at || (uint64_t)v[2] != s.count ||
			(uint64_t)v[3] != s.first ||
			(uint64_t)v[4] != s.first + s.count - 1))
			return false;
	}
	return true;
}

static bool same_shard(const struct ofs_unit *unit,
    const struct ofs_unit_record *r, const struct ofs_flat *f)
{
	uint32_t rank = unit->whole ? 0 : (uint32_t)r->rank;

	return same_number(&r->sharded, f->shard) &&
	    (r->rank < 0 ||
		same_number(&r->right, f->shard - ofs_flat_held(f, rank))) &&
	    same_infos(unit, r, f);
}

/* How far a layout agrees with the record. */
enum agreement { NO_SIZE, NO_PADDING, NO_SLICES, ALL };

static enum agreement agreement(const struct ofs_unit *unit,
    const struct ofs_unit_record *r, uint32_t align, const struct ofs_flat *f)
{
	if (!same_number(&r->size, f->size))
		return NO_SIZE;
	if ((r->padded.given && !same_padding(r, f)) ||
	    (r->orig >= 0 && (r->orig == 1) != (align != OFS_FLAT_PACKED)))
		return NO_PADDING;
	return same_shard(unit, r, f) ? ALL : NO_SLICES;
}

int ofs_unit_lay(const struct ofs_unit *unit, uint32_t n, bool whole,
    uint32_t align, uint32_t world, struct ofs_flat *f,
    struct optimfs_error *err)
{
	if (ofs_flat_init(f, unit->numel, n, align, world, err) == -1)
		return -1;
	if (whole) {
		f->world = 1;
		f->shard = f->size;
	}
	return 0;
}

static void put_table(struct ofs_buf *b, const struct ofs_unit_table *t)
{
	for (uint32_t i = 0; i < t->n && b->len < 80; i++)
		ofs_buf_printf(b, "%s%" PRId64, i > 0 ? "," : "", t->v[i]);
}

static void put_pieces(struct ofs_buf *b, const struct ofs_flat *f)
{
	struct ofs_unit_pieces p = { .f = f };
	uint64_t len;
	bool pad;

	for (bool first = true; b->len < 80 && ofs_unit_next(&p, &len, &pad);
	     first = false)
		ofs_buf_printf(b, "%s%s%" PRIu64, first ? "" : ",",
		    pad ? "pad " : "", len);
}

static int say_padding(const struct ofs_unit *unit,
    const struct ofs_unit_record *r, const struct ofs_flat *f,
    struct optimfs_error *err)
{
	struct ofs_buf a = { 0 }, b = { 0 };

	put_table(&a, &r->padded);
	ofs_buf_putc(&a, '\0');
	put_pieces(&b, f);
	ofs_buf_putc(&b, '\0');
	if (a.bad || b.bad)
		ofs_no_memory(err);
	else
		optimfs_fail(err, EUCLEAN,
		    "OFS161 unit \"%.40s\": padding differs: recorded %s, "
		    "computed %s",
		    unit->prefix.p, (char *)a.data, (char *)b.data);
	ofs_buf_fini(&a);
	ofs_buf_fini(&b);
	return -1;
}

/* Fails because no layout agrees; f is the likely one. */
static int say_nothing_fits(const struct ofs_unit *unit,
    const struct ofs_unit_record *r, const struct ofs_flat *f,
    enum agreement best, struct optimfs_error *err)
{
	if (best == NO_SIZE)
		return optimfs_fail(err, EUCLEAN,
		    "OFS160 unit \"%.80s\": its shapes need %" PRIu64
		    " elements, unpadded_unsharded_size says %" PRId64,
		    unit->prefix.p, f->size, r->size.n > 0 ? r->size.v[0] : -1);
	if (best == NO_PADDING)
		return say_padding(unit, r, f, err);
	return optimfs_fail(err, EUCLEAN,
	    "OFS160 unit \"%.80s\": %" PRIu64 " elements over %" PRIu32
	    " ranks are %" PRIu64 " each; sharded_size or shard_param_infos "
	    "say otherwise (sharded_size %" PRId64 ")",
	    unit->prefix.p, f->size, f->world, f->shard,
	    r->sharded.n > 0 ? r->sharded.v[0] : -1);
}

/* The alignment that the record suggests, for messages. */
static uint32_t likely_align(const struct ofs_unit_record *r)
{
	size_t size = ofs_dtype_size(r->dtype);

	if (r->orig == 0 || size == 0 || size > 16)
		return OFS_FLAT_PACKED;
	for (uint32_t i = 0; r->orig < 0 && i < r->mask.n; i++)
		if (r->mask.v[i] == 1)
			return 16 / (uint32_t)size;
	return r->orig == 1 ? 16 / (uint32_t)size : OFS_FLAT_PACKED;
}

static int say_why(const struct ofs_unit *unit, uint32_t n,
    const struct ofs_unit_record *r, enum agreement best,
    struct optimfs_error *err)
{
	struct ofs_flat f;

	if (ofs_unit_lay(unit, n, unit->whole, likely_align(r),
		(uint32_t)r->world, &f, err) == -1)
		return -1;
	say_nothing_fits(unit, r, &f, best, err);
	ofs_flat_fini(&f);
	return -1;
}

static bool same_places(const struct ofs_flat *a, const struct ofs_flat *b)
{
	return a->shard == b->shard &&
	    (a->nparams == 0 ||
		memcmp(a->start, b->start, a->nparams * sizeof(*a->start)) ==
		    0);
}

/* f agrees with the record: keeps it, unless another layout agrees, too. */
static int keep(struct ofs_unit *unit, uint32_t align, struct ofs_flat *f,
    struct optimfs_error *err)
{
	bool same;

	if (unit->flat.start == NULL) {
		unit->flat = *f;
		unit->align = align;
		unit->orig = align != OFS_FLAT_PACKED;
		return 0;
	}
	if (unit->align == OFS_FLAT_PACKED)
		unit->orig = -1;
	same = same_places(&unit->flat, f);
	ofs_flat_fini(f);
	if (same)
		return 0;
	return optimfs_fail(err, EINVAL,
	    "OFS162 unit \"%.80s\": numels_with_padding or use_orig_params is "
	    "needed to tell where its parameters begin",
	    unit->prefix.p);
}

static int try_layouts(struct ofs_unit *unit, uint32_t n,
    const struct ofs_unit_record *r, enum agreement *best,
    struct optimfs_error *err)
{
	for (size_t i = 0; i < NALIGNS; i++) {
		struct ofs_flat f;
		enum agreement a;

		if (ofs_unit_lay(unit, n, unit->whole, aligns[i],
			(uint32_t)r->world, &f, err) == -1)
			return -1;
		a = agreement(unit, r, aligns[i], &f);
		if (a > *best)
			*best = a;
		if (a != ALL)
			ofs_flat_fini(&f);
		else if (keep(unit, aligns[i], &f, err) == -1)
			return -1;
	}
	return 0;
}

static int check_numels(const struct ofs_unit *unit, uint32_t n,
    const struct ofs_unit_record *r, struct optimfs_error *err)
{
	if (r->numels.given && r->numels.n != n)
		return optimfs_fail(err, EUCLEAN,
		    "OFS160 unit \"%.80s\": %" PRIu32
		    " parameters, but %" PRIu32 " numels",
		    unit->prefix.p, n, r->numels.n);
	for (uint32_t i = 0; i < n && r->numels.given; i++)
		if ((uint64_t)r->numels.v[i] != unit->numel[i])
			return optimfs_fail(err, EUCLEAN,
			    "OFS160 %.120s: its shape has %" PRIu64
			    " elements, numels says %" PRId64,
			    unit->param[i].fqn.p, unit->numel[i],
			    r->numels.v[i]);
	/* a parameter in another memory format would be permuted */
	for (uint32_t i = 0; i < r->contiguous.n; i++)
		if (r->contiguous.v[i] == 0)
			return optimfs_fail(err, EOPNOTSUPP,
			    "OFS162 unit \"%.80s\": parameter %" PRIu32
			    " was not flattened in C order",
			    unit->prefix.p, i);
	return 0;
}

int ofs_unit_layout(struct ofs_unit *unit, uint32_t nparams,
    const struct ofs_unit_record *r, struct optimfs_error *err)
{
	enum agreement best = NO_SIZE;

	if (r->world < 1 || r->world > INT32_MAX || r->rank > INT32_MAX ||
	    (!unit->whole && r->rank >= r->world))
		return optimfs_fail(err, EINVAL,
		    "OFS162 unit \"%.80s\": rank %" PRId64
		    " of world_size %" PRId64,
		    unit->prefix.p, r->rank, r->world);
	if (check_numels(unit, nparams, r, err) == -1 ||
	    try_layouts(unit, nparams, r, &best, err) == -1)
		return -1;
	unit->dtype = r->dtype;
	return best == ALL ? 0 : say_why(unit, nparams, r, best, err);
}
