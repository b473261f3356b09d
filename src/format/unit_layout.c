/* unit_layout.c - where a unit's parameters lie, and does its file agree? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "format/units.h"

#define MAX_FILE (1u << 30)

/* path is the user's, not the checkpoint's: it may be anywhere. */
int ofs_units_read(const char *path, struct ofs_units *units,
    struct optimfs_error *err)
{
	struct ofs_buf bytes = { .limit = MAX_FILE };
	char piece[65536];
	FILE *f = fopen(path, "re");
	size_t n;
	int ret = -1;

	*units = (struct ofs_units){ .path = path };
	if (f == NULL)
		return optimfs_fail(err, errno, "units=%s: %m", path);
	while ((n = fread(piece, 1, sizeof(piece), f)) > 0)
		ofs_buf_put(&bytes, piece, n);
	if (ferror(f))
		optimfs_fail(err, EIO, "units=%s: %m", path);
	else if (bytes.bad)
		optimfs_fail(err, E2BIG, "units=%s: more than %u bytes", path,
		    MAX_FILE);
	else
		ret = ofs_units_parse(bytes.data, bytes.len, path, units, err);
	fclose(f);
	ofs_buf_fini(&bytes);
	return ret;
}

void ofs_units_fini(struct ofs_units *units)
{
	ofs_arena_fini(&units->arena);
	units->unit = NULL;
	units->n = 0;
}

int ofs_unit_flat(const struct ofs_unit *unit, uint32_t align,
    struct ofs_flat *flat, struct optimfs_error *err)
{
	if (ofs_flat_init(flat, unit->numel, unit->nparams, align, unit->world,
		err) == -1)
		return -1;
	if (unit->no_shard) {
		flat->world = 1;
		flat->shard = flat->size;
	}
	return 0;
}

static bool differ(const struct ofs_units *units, uint32_t unit,
    const char *what, uint64_t given, uint64_t computed,
    struct optimfs_error *err)
{
	optimfs_fail(err, EUCLEAN,
	    "OFS160 %s: unit %" PRIu32 " (%.100s): %s is %" PRIu64
	    ", its shapes give %" PRIu64,
	    units->path, unit,
	    units->unit[unit].prefix.len > 0 ? units->unit[unit].prefix.p
					     : "root",
	    what, given, computed);
	return false;
}

/* The i-th of parameters and gaps as the file lists them, in order. */
static bool padding_agrees(const struct ofs_units *units, uint32_t unit,
    const struct ofs_flat *f, struct optimfs_error *err)
{
	const struct ofs_unit *u = &units->unit[unit];
	uint64_t at = 0, end;
	uint32_t k = 0;

	for (uint32_t i = 0; i <= u->nparams; i++) {
		end = i < u->nparams ? f->start[i] : f->size;
		if (end > at) {
			if (k == u->npadded || u->padded[k] != end - at)
				return differ(units, unit,
				    "a gap of numels_with_padding",
				    k < u->npadded ? u->padded[k] : 0, end - at,
				    err);
			k++;
		}
		if (i == u->nparams)
			break;
		if (k == u->npadded || u->padded[k] != u->numel[i])
			return differ(units, unit, "one of numels_with_padding",
			    k < u->npadded ? u->padded[k] : 0, u->numel[i],
			    err);
		k++;
		at = end + u->numel[i];
	}
	if (k != u->npadded)
		return differ(units, unit, "the count of numels_with_padding",
		    u->npadded, k, err);
	return true;
}

bool ofs_unit_agrees(const struct ofs_units *units, uint32_t unit,
    uint32_t align, struct optimfs_error *err)
{
	const struct ofs_unit *u = &units->unit[unit];
	struct ofs_flat f;
	bool good = true;

	if (ofs_unit_flat(u, align, &f, err) == -1)
		return false;
	if (u->padded != NULL)
		good = padding_agrees(units, unit, &f, err);
	if (good && u->size != UINT64_MAX && u->size != f.size)
		good = differ(units, unit, "unpadded_unsharded_size", u->size,
		    f.size, err);
	if (good && u->shard != UINT64_MAX && u->shard != f.shard)
		good =
		    differ(units, unit, "sharded_size", u->shard, f.shard, err);
	ofs_flat_fini(&f);
	return good;
}
