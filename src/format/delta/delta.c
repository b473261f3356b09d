/* delta.c - detection of versions that are changes, and what both forms share */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/delta/delta.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "format/part.h"
#include "format/probe.h"

/* Detection: by the first bytes of the index, or of the header of a file. */

static bool has_word(const uint8_t *p, size_t n, const char *word)
{
	return memmem(p, n, word, strlen(word)) != NULL;
}

static int bid(const struct ofs_dir *dir, const struct ofs_names *names,
    struct optimfs_error *err)
{
	uint8_t head[1024];
	size_t n;
	int ret;

	if (!ofs_probe_has(names, OFS_SLIME_INDEX))
		return 0;
	/* metadata comes before the map */
	ret =
	    ofs_probe_start(dir, OFS_SLIME_INDEX, head, sizeof(head), &n, err);
	if (ret != 1)
		return ret;
	return has_word(head, n, "\"delta_encoding\"") ? 95 : 0;
}

/* Members of __metadata__ are short, but for a list of names, which has a name
 * that only patches have. */
static int bid_file(const struct ofs_file_head *h, struct optimfs_error *err)
{
	size_t n = h->n < 8 ? 0 : h->n - 8;
	const uint8_t *p = h->p + 8;

	(void)err;
	if (n == 0 || p[0] != '{' || has_word(p, n, "\"sparse\":\"False\""))
		return 0;
	return has_word(p, n, "\"sparse\":\"True\"") ||
		has_word(p, n, "\"changed_params\":")
	    ? 101
	    : 0;
}

/* What both forms share. */

bool ofs_delta_number(struct ofs_str s, uint64_t *v)
{
	*v = 0;
	for (uint32_t i = 0; i < s.len; i++) {
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
		*v = *v * 10 + (uint64_t)(s.p[i] - '0');
	}
	return s.len > 0 && s.len <= 18;
}

uint32_t ofs_delta_path(struct ofs_catalog *cat, struct ofs_str name,
    struct optimfs_error *err)
{
	uint32_t c[2] = { ofs_catalog_str(cat, "changes", 7, err),
		ofs_catalog_str(cat, name.p, name.len, err) };

	return ofs_catalog_path(cat, c, 2, err);
}

int ofs_delta_add(struct ofs_delta_build *d, struct ofs_str name,
    const struct ofs_delta_part *change, struct optimfs_error *err)
{
	char *copy = ofs_arena_strndup(&d->cat->arena, name.p, name.len);

	if (copy == NULL)
		return ofs_no_memory(err);
	if (ofs_grow(d->v, d->n, d->cap, err) == -1)
		return -1;
	d->v[d->n] = *change;
	d->v[d->n++].name = (struct ofs_str){ copy, name.len };
	return 0;
}

static int keep(struct ofs_delta_build *d, const char *rel,
    struct optimfs_error *err)
{
	struct ofs_delta *c = d->changes;
	struct ofs_delta_part *v =
	    ofs_arena_alloc(&d->cat->arena, d->n * sizeof(*v) + 1);

	if (v == NULL)
		return ofs_no_memory(err);
	if (d->n > 0)
		memcpy(v, d->v, d->n * sizeof(*v));
	if (c->base >= c->version)
		return optimfs_fail(err, EUCLEAN,
		    "OFS881 %s: version %" PRIu64
		    " cannot be made from version %" PRIu64,
		    rel[0] == '\0' ? OFS_SLIME_INDEX : rel, c->version,
		    c->base);
	c->v = v;
	c->n = d->n;
	d->cat->delta = c;
	return ofs_catalog_note(d->cat, OFS_NOTE_WARNING, 0, err,
	    "OFS885 this is no state, but what version %" PRIu64
	    " changes in version %" PRIu64
	    ": open the directory of the versions as a run (-o run=yes), and "
	    "there steps/%" PRIu64,
	    c->version, c->base, c->version);
}

static int read_changes(struct ofs_catalog *cat, const struct ofs_part *part,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	struct ofs_delta_build d = { .cat = cat };
	bool dir =
	    part->rel[0] == '\0' || !ofs_probe_is_file(&cat->dir, part->rel);
	int ret;

	(void)opt;
	if (cat->delta != NULL)
		return optimfs_fail(err, ENOENT,
		    "OFS886 %s: changes of several versions, which are a run "
		    "together with the states they change: give the directory "
		    "that has both, or one of the files",
		    cat->dir.path);
	d.changes = ofs_arena_alloc(&cat->arena, sizeof(*d.changes));
	if (d.changes == NULL)
		return ofs_no_memory(err);
	*d.changes = (struct ofs_delta){ .n = 0 };
	ret = dir ? ofs_slime_read(&d, part->rel, err)
		  : ofs_trl_read(&d, part->rel, err);
	if (ret == 0)
		ret = keep(&d, part->rel, err);
	free(d.v);
	return ret;
}

static const char *const extensions[] = { ".safetensors", NULL };

const struct ofs_format ofs_format_delta = {
	.name = "delta",
	.title = "changes of a checkpoint",
	.extensions = extensions,
	.bid_file = bid_file,
	.bid = bid,
	.read = read_changes,
	.changes = true,
	.read_only = true,
};
