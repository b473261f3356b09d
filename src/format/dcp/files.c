/* files.c - the check that all files of a DCP checkpoint exist */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/checked.h"
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

/* A later save to the same place that was killed leaves some data files of its
 * own, and the index, which is written last, of the one before. Items have the
 * same places in both, so that only times tell. A copy that does not keep times
 * has its own: then no file is older than the index, or each is as much later
 * than the one before as it took to copy it. */
#define COPY_BYTES_PER_S UINT64_C(100000000)
#define COPY_PAUSE_NS    INT64_C(2000000000)

static bool may_be_copied(const struct ofs_object *o, int64_t index)
{
	uint64_t seconds = o->size / COPY_BYTES_PER_S;

	return o->mtime_ns - index <= COPY_PAUSE_NS ||
	    (uint64_t)(o->mtime_ns - index - COPY_PAUSE_NS) / 1000000000 <
	    seconds;
}

/* The data file that was written first after the index; NULL: none was, or all
 * were. *later gets their number. */
static const struct ofs_object *find_later(const struct ofs_dcp *d,
    uint32_t first, int64_t index, uint32_t *later)
{
	const struct ofs_object *o = NULL;
	bool older = false;

	*later = 0;
	for (uint32_t i = first; i < d->cat->nobjects; i++) {
		const struct ofs_object *k = &d->cat->objects[i];

		if (k->missing || k->refused ||
		    !ofs_dcp_is_data(ofs_path_last(k->path)))
			continue;
		if (k->mtime_ns <= index) {
			older = true;
			continue;
		}
		++*later;
		if (o == NULL || k->mtime_ns < o->mtime_ns)
			o = k;
	}
	return older ? o : NULL;
}

static int check_times(struct ofs_dcp *d, uint32_t first,
    struct optimfs_error *err)
{
	char *path = ofs_path_join(d->part->rel, OFS_DCP_INDEX);
	const struct ofs_object *o;
	uint32_t later;
	struct stat st;
	bool found;

	if (path == NULL)
		return ofs_no_memory(err);
	found = ofs_dir_stat(&d->cat->dir, path, &st);
	free(path);
	if (!found)
		return 0;
	o = find_later(d, first, ofs_time_ns(&st.st_mtim), &later);
	if (o == NULL || may_be_copied(o, ofs_time_ns(&st.st_mtim)))
		return 0;
	return ofs_catalog_note(d->cat, OFS_NOTE_WARNING, EUCLEAN, err,
	    "OFS687 %.200s is newer than the index (%" PRIu32 " such file%s), "
	    "and others are not: a later save may have ended before its index",
	    o->path, later, later == 1 ? "" : "s");
}

int ofs_dcp_check_files(struct ofs_dcp *d, const struct ofs_names *names,
    uint32_t first, struct optimfs_error *err)
{
	for (uint32_t i = first; i < d->cat->nobjects; i++)
		if (check_object(d, i, err) == -1)
			return -1;
	if (check_ranks(d, first, err) == -1 ||
	    check_unreferenced(d, names, err) == -1 ||
	    check_times(d, first, err) == -1)
		return -1;
	return check_gaps(d, err);
}
