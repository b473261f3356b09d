/* canon_dotted.c - different paths that are one key once joined by dots */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "buf.h"
#include "canon_impl.h"

/* {'a.b': ..., 'a': {'b': ...}}: here they are two files, but whatever joins
 * keys by dots, as DCP's planner does, takes one for the other. */

struct dotted {
	const struct ofs_catalog *cat;
	struct ofs_buf *a, *b; /* scratch */
	struct ofs_map map;    /* entries by dotted key */
};

static void join(const struct ofs_catalog *cat, uint32_t entry,
    struct ofs_buf *out)
{
	uint32_t n;
	const uint32_t *path =
	    ofs_catalog_components(cat, cat->entries[entry].path, &n);

	out->len = 0;
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_str s = ofs_catalog_string(cat, path[i]);

		if (i > 0)
			ofs_buf_putc(out, '.');
		ofs_buf_put(out, s.p, s.len);
	}
}

static bool same(const void *ctx, uint32_t entry, const void *key, size_t n)
{
	const struct dotted *d = ctx;

	join(d->cat, entry, d->b);
	return d->b->len == n && (n == 0 || memcmp(d->b->data, key, n) == 0);
}

static int see(struct canon *c, struct dotted *d, uint32_t entry,
    struct optimfs_error *err)
{
	uint32_t hash, other;

	join(d->cat, entry, d->a);
	if (d->a->bad || d->b->bad)
		return ofs_canon_no_memory(err);
	hash = ofs_map_hash(d->a->data, d->a->len);
	other = ofs_map_find(&d->map, hash, same, d, d->a->data, d->a->len);
	if (other == UINT32_MAX)
		return ofs_map_add(&d->map, hash, entry)
		    ? 0
		    : ofs_canon_no_memory(err);
	/* one path twice is the reader's business */
	if (c->cat->entries[other].path == c->cat->entries[entry].path)
		return 0;
	if (ofs_catalog_note(c->cat, OFS_NOTE_WARNING, 0,
		"OFS641 '%.*s' is two paths of keys: both are kept, but a "
		"checkpoint whose keys are joined by dots cannot hold both",
		d->a->len < 300 ? (int)d->a->len : 300,
		(const char *)d->a->data) == OFS_NONE)
		return ofs_canon_no_memory(err);
	return 0;
}

int ofs_canon_dotted(struct canon *c, struct optimfs_error *err)
{
	struct ofs_buf a = { 0 }, b = { 0 };
	struct dotted d = { .cat = c->cat, .a = &a, .b = &b };
	int ret = 0;

	/* keys of a DCP index are joined already, and each is there once */
	if (c->cat->format != NULL && strcmp(c->cat->format, "dcp") == 0)
		return 0;
	for (uint32_t i = 0; i < c->cat->nentries && ret == 0; i++)
		ret = see(c, &d, i, err);
	ofs_map_fini(&d.map);
	ofs_buf_fini(&a);
	ofs_buf_fini(&b);
	return ret;
}
