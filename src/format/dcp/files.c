/* files.c - the check that all files of a DCP checkpoint exist */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "format/dcp/dcp.h"

/* Note a missing file, and update the world size. */
static int check_object(struct ofs_dcp *d, uint32_t i,
    struct optimfs_error *err)
{
	const struct ofs_object *o = &d->cat->objects[i];
	struct optimfs_error why;

	if (d->cat->world_size <= o->rank)
		d->cat->world_size = o->rank + 1;
	if (!o->missing)
		return 0;
	ofs_fail_lost(&why, EIO, OPTIMFS_LOST_MISSING, "OFS140", o->path,
	    " is missing: reading its data fails (EIO)");
	return ofs_catalog_note_as(d->cat, OFS_NOTE_MISSING, &why, err);
}

/* Note ranks whose files are all missing: "rank 8 to 63 of 64". */
static int check_ranks(struct ofs_dcp *d, uint32_t first,
    struct optimfs_error *err)
{
	int n = d->cat->world_size, from;
	uint8_t *seen;
	int ret = 0;

	/* 1: it has a file; 2: the file exists */
	seen = calloc((size_t)n + 1, 1);
	if (seen == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = first; i < d->cat->nobjects; i++) {
		const struct ofs_object *o = &d->cat->objects[i];

		if (o->rank >= 0)
			seen[o->rank] |= o->missing ? 1 : 2;
	}
	for (int r = 0; r < n && ret == 0; r++) {
		if (seen[r] != 1)
			continue;
		for (from = r; r + 1 < n && seen[r + 1] == 1; r++)
			;
		ret = from == r
		    ? ofs_catalog_note(d->cat, OFS_NOTE_MISSING, EIO, err,
			  "OFS180 no file of rank %d of %d is there", r, n)
		    : ofs_catalog_note(d->cat, OFS_NOTE_MISSING, EIO, err,
			  "OFS180 no file of ranks %d to %d of %d is there",
			  from, r, n);
	}
	free(seen);
	return ret;
}

/* Data files that the index does not name are left from an earlier save with
 * more ranks: saves overwrite files but do not remove them. Ranks without data
 * write empty files. */
static int check_unreferenced(struct ofs_dcp *d, const struct ofs_names *names,
    struct optimfs_error *err)
{
	struct stat st;
	int ret = 0;

	for (size_t i = 0; i < names->n && ret == 0; i++) {
		char *path;

		if (!ofs_dcp_is_data(names->name[i]))
			continue;
		path = ofs_path_join(d->part->rel, names->name[i]);
		if (path == NULL)
			ret = ofs_no_memory(err);
		else if (ofs_catalog_find_object(d->cat, path) == OFS_NONE &&
		    ofs_dir_stat(&d->cat->dir, path, &st) && st.st_size > 0)
			ret = ofs_catalog_note(d->cat, OFS_NOTE_WARNING, 0, err,
			    "OFS622 %.300s (%jd bytes) is not part of the "
			    "checkpoint: left from an earlier save?",
			    path, (intmax_t)st.st_size);
		free(path);
	}
	return ret;
}

/* Saves without collectives write an index for each rank. Nothing records the
 * number of ranks, but gaps show missing ones. */
static int check_gaps(struct ofs_dcp *d, struct optimfs_error *err)
{
	int expected = 0;

	for (uint32_t i = 0; i < d->nindex; i++) {
		if (d->index[i].rank > expected &&
		    ofs_catalog_note(d->cat, OFS_NOTE_MISSING, EIO, err,
			"OFS180 no index of ranks %d to %d: data that only "
			"they have is not shown",
			expected, d->index[i].rank - 1) == -1)
			return -1;
		expected = d->index[i].rank + 1;
	}
	if (d->cat->world_size < expected)
		d->cat->world_size = expected;
	if (d->nrepeated > 0 &&
	    ofs_catalog_note(d->cat, OFS_NOTE_WARNING, 0, err,
		"OFS627 %" PRIu32
		" value%s saved by several ranks each: the value of the lowest rank is shown",
		d->nrepeated, d->nrepeated == 1 ? " was" : "s were") == -1)
		return -1;
	return 0;
}

int ofs_dcp_check_files(struct ofs_dcp *d, const struct ofs_names *names,
    uint32_t first, struct optimfs_error *err)
{
	for (uint32_t i = first; i < d->cat->nobjects; i++)
		if (check_object(d, i, err) == -1)
			return -1;
	if (check_ranks(d, first, err) == -1 ||
	    check_unreferenced(d, names, err) == -1)
		return -1;
	return check_gaps(d, err);
}
