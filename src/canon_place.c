/* canon_place.c - which entries are which optimizer's, and its name */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "buf.h"
#include "canon_roots.h"

/* The longest accepted root that path[0..n) lies below. The empty root, a
 * file that is an optimizer's state dict, has state and groups and no more. */
static uint32_t root_of_path(const struct canon *c, const struct canon_parts *p,
    uint32_t n, uint32_t *at)
{
	uint32_t len = n - 1 < CANON_DEPTH ? n - 1 : CANON_DEPTH, found;

	for (uint32_t i = len + 1; i-- > 0;) {
		if (!c->length[i])
			continue;
		if (i == 0 && c->opt->optim_key == NULL &&
		    (ofs_canon_word(c, p->c[0]) & WORD_ROOTED) == 0)
			continue;
		found = ofs_root_find(c, p->c, i);
		if (found == UINT32_MAX || !c->root[found].accepted)
			continue;
		*at = i;
		return found;
	}
	return OFS_NONE;
}

static int root_of_text(struct canon *c, struct ofs_str text,
    struct canon_spot *spot, struct optimfs_error *err)
{
	size_t at = ofs_root_token(text, 0);
	uint32_t found;
	struct canon_parts p;
	bool fits;

	for (int k = 0; at < text.len && k < ROOT_TOKENS;
	     at = ofs_root_token(text, at + 1), k++) {
		if (ofs_root_cut(c, text, at == 0 ? 0 : at - 1, &p, &fits,
			err) == -1)
			return -1;
		if (!fits)
			return 0;
		found = ofs_root_find(c, p.c, p.n);
		if (found == UINT32_MAX || !c->root[found].accepted)
			continue;
		*spot = (struct canon_spot){ found, SPOT_TEXT | (uint32_t)at };
		return 0;
	}
	return 0;
}

static int place(struct canon *c, uint32_t entry, struct optimfs_error *err)
{
	struct canon_spot *spot = &c->spot[entry];
	struct canon_parts p;
	uint32_t n = ofs_root_head(c, entry, &p);

	if (n == 0)
		return 0;
	spot->root = root_of_path(c, &p, n, &spot->at);
	if (spot->root != OFS_NONE || n > 1 ||
	    (ofs_canon_word(c, p.c[0]) & WORD_TOKEN) == 0)
		return 0;
	return root_of_text(c, ofs_root_text(c, &p), spot, err);
}

uint32_t ofs_canon_match(const struct canon *c, const uint32_t *path,
    uint32_t n, const char *key)
{
	size_t left = strlen(key);

	if (left == 0)
		return 0;
	for (uint32_t i = 0; i + 1 < n; i++) {
		struct ofs_str s = ofs_catalog_string(c->cat, path[i]);

		if (s.len > left || memcmp(s.p, key, s.len) != 0)
			return OFS_NONE;
		if (s.len == left)
			return i + 1;
		if (key[s.len] != '.')
			return OFS_NONE;
		key += s.len + 1;
		left -= s.len + 1;
	}
	return OFS_NONE;
}

/* The only component begins with optim_key and a dot. */
static bool text_below(struct ofs_str text, const char *key)
{
	size_t n = strlen(key);

	return n > 0 && text.len > n + 1 && memcmp(text.p, key, n) == 0 &&
	    text.p[n] == '.';
}

/* optim_key=: one optimizer, where the user says. */
static int place_given(struct canon *c, uint32_t entry,
    struct optimfs_error *err)
{
	const char *key = c->opt->optim_key;
	struct canon_parts p;
	uint32_t n = ofs_root_head(c, entry, &p), at;
	struct canon_root *r;
	bool fits = true;

	if (n == 0)
		return 0;
	at = ofs_canon_match(c, p.c, n < CANON_DEPTH ? n : CANON_DEPTH, key);
	if (at == OFS_NONE && n == 1 && text_below(ofs_root_text(c, &p), key)) {
		at = SPOT_TEXT | (uint32_t)(strlen(key) + 1);
		if (ofs_root_cut(c, ofs_root_text(c, &p), strlen(key), &p,
			&fits, err) == -1)
			return -1;
	}
	if (at == OFS_NONE || !fits)
		return 0;
	r = ofs_root_get(c, p.c, (at & SPOT_TEXT) != 0 ? p.n : at, err);
	if (r == NULL)
		return -1;
	r->accepted = true;
	c->spot[entry] = (struct canon_spot){ (uint32_t)(r - c->root), at };
	return 0;
}

/* Names of several optimizers: the last components in which all differ. */
static int compare_strs(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

static bool differ_at(const struct canon *c, uint32_t back, uint32_t *names,
    uint32_t naccepted)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->nroots; i++) {
		const struct canon_root *r = &c->root[i];

		if (!r->accepted)
			continue;
		if (r->n <= back)
			return false;
		names[n++] = r->c[r->n - 1 - back];
	}
	qsort(names, naccepted, sizeof(*names), compare_strs);
	for (uint32_t i = 1; i < naccepted; i++)
		if (names[i] == names[i - 1])
			return false;
	return true;
}

static void join(const struct canon *c, const uint32_t *path, uint32_t n,
    struct ofs_buf *b)
{
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_str s = ofs_catalog_string(c->cat, path[i]);

		if (i > 0)
			ofs_buf_putc(b, '.');
		ofs_buf_put(b, s.p, s.len);
	}
}

static int name_whole(struct canon *c, struct canon_root *r,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };

	join(c, r->c, r->n, &b);
	ofs_buf_putc(&b, 0);
	if (b.bad)
		r->name = OFS_NONE;
	else
		r->name =
		    ofs_catalog_str(c->cat, (char *)b.data, b.len - 1, err);
	if (b.bad)
		ofs_canon_no_memory(err);
	ofs_buf_fini(&b);
	return r->name == OFS_NONE ? -1 : 0;
}

static int name_roots(struct canon *c, uint32_t naccepted,
    struct optimfs_error *err)
{
	uint32_t *names = calloc(naccepted, sizeof(*names)), back = 0;
	int ret = 0;

	if (names == NULL)
		return ofs_canon_no_memory(err);
	while (back < CANON_DEPTH && !differ_at(c, back, names, naccepted))
		back++;
	for (uint32_t i = 0; i < c->nroots && ret == 0; i++) {
		struct canon_root *r = &c->root[i];

		if (!r->accepted)
			continue;
		if (back < CANON_DEPTH)
			r->name = r->c[r->n - 1 - back];
		else
			ret = name_whole(c, r, err);
	}
	free(names);
	return ret;
}

static int compare_text(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The dotted paths of the optimizers that would have been found, or else what
 * the checkpoint has at its top. */
static void list_candidates(struct canon *c, struct ofs_buf *b)
{
	struct canon_set tops = { 0 };
	const char *names[8];
	struct canon_parts p;
	size_t k = 0;

	for (uint32_t i = 0; i < c->cat->nentries && tops.n < 8; i++)
		if (ofs_root_head(c, i, &p) > 0 &&
		    ofs_canon_set_add(&tops, ofs_root_text(c, &p), NULL) == -1)
			break;
	for (; k < tops.n; k++)
		names[k] = tops.v[k].p;
	qsort(names, k, sizeof(*names), compare_text);
	for (size_t i = 0; i < k; i++) {
		ofs_buf_puts(b, i == 0 ? " at the top: " : ", ");
		ofs_buf_plain(b, names[i], strnlen(names[i], 40));
	}
	ofs_canon_set_fini(&tops);
}

int ofs_canon_no_such_key(struct canon *c, const char *option, const char *key,
    struct optimfs_error *err)
{
	struct ofs_buf b = { .limit = 4096 };
	const char *sep = " optimizers: ";

	if (ofs_root_detect(c, err) == -1)
		return -1;
	for (uint32_t i = 0; i < c->nroots && b.len < 200; i++)
		if (c->root[i].accepted && c->root[i].n > 0) {
			ofs_buf_puts(&b, sep);
			join(c, c->root[i].c, c->root[i].n, &b);
			sep = ", ";
		}
	if (b.len > 0)
		ofs_buf_putc(&b, ';');
	list_candidates(c, &b);
	ofs_buf_putc(&b, 0);
	optimfs_fail(err, ENOENT,
	    "OFS632 %s=%s names nothing in the checkpoint;%s", option, key,
	    b.bad ? "" : (char *)b.data);
	ofs_buf_fini(&b);
	return -1;
}

int ofs_canon_roots(struct canon *c, struct optimfs_error *err)
{
	uint32_t naccepted = 0;
	bool given = c->opt->optim_key != NULL;

	c->spot = malloc(c->cat->nentries * sizeof(*c->spot) + 1);
	if (c->spot == NULL)
		return ofs_canon_no_memory(err);
	if (!given && ofs_root_detect(c, err) == -1)
		return -1;
	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		c->spot[i] = (struct canon_spot){ OFS_NONE, 0 };
		if ((given ? place_given(c, i, err) : place(c, i, err)) == -1)
			return -1;
		if (c->spot[i].root != OFS_NONE &&
		    (c->spot[i].at & SPOT_TEXT) != 0)
			c->ntext++;
	}
	for (uint32_t i = 0; i < c->nroots; i++)
		naccepted += c->root[i].accepted;
	if (given && naccepted == 0)
		return ofs_canon_no_such_key(c, "optim_key", c->opt->optim_key,
		    err);
	if (naccepted > 1 && !given)
		return name_roots(c, naccepted, err);
	return 0;
}

struct canon_rest ofs_canon_rest(const struct canon *c, uint32_t entry)
{
	struct canon_spot spot = c->spot[entry];
	struct canon_rest rest = { 0 };
	uint32_t n;
	const uint32_t *path =
	    ofs_catalog_components(c->cat, c->cat->entries[entry].path, &n);

	if ((spot.at & SPOT_TEXT) != 0) {
		rest.text = ofs_canon_after(ofs_catalog_string(c->cat, path[0]),
		    spot.at & ~SPOT_TEXT);
		return rest;
	}
	rest.c = path + spot.at;
	rest.n = n - spot.at;
	return rest;
}
