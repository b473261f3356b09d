/* optimizer_names.c - the names of optimizers, and hints for unknown ones */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/memory.h"
#include "base/search.h"
#include "naming/naming_impl.h"

/* Below optim/NAME these would read as those of optim itself. */
static bool is_taken(const struct naming *c, uint32_t name)
{
	return ofs_catalog_string_is(c->cat, name, "state") ||
	    ofs_catalog_string_is(c->cat, name, "param_groups");
}

/* Do all optimizers have different names there? */
static bool differ_at(const struct naming *c, uint32_t back, uint32_t *names,
    uint32_t naccepted)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < c->nroots; i++) {
		const struct naming_candidate *r = &c->root[i];

		if (!r->accepted)
			continue;
		if (r->n <= back)
			return false;
		names[n++] = r->c[r->n - 1 - back];
		if (is_taken(c, names[n - 1]))
			return false;
	}
	qsort(names, naccepted, sizeof(*names), ofs_compare_u32);
	for (uint32_t i = 1; i < naccepted; i++)
		if (names[i] == names[i - 1])
			return false;
	return true;
}

void ofs_naming_join(const struct naming *c, const uint32_t *path, uint32_t n,
    char between, struct ofs_buf *b)
{
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_str s = ofs_catalog_string(c->cat, path[i]);

		if (i > 0)
			ofs_buf_putc(b, between);
		ofs_buf_put(b, s.p, s.len);
	}
}

static int name_whole(struct naming *c, struct naming_candidate *r,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };

	/* state.NAME would be a flattened key */
	ofs_naming_join(c, r->c, r->n,
	    r->n > 0 && is_taken(c, r->c[0]) ? '-' : '.', &b);
	ofs_buf_putc(&b, 0);
	if (b.bad)
		r->name = OFS_NONE;
	else
		r->name =
		    ofs_catalog_str(c->cat, (char *)b.data, b.len - 1, err);
	if (b.bad)
		ofs_no_memory(err);
	ofs_buf_fini(&b);
	return r->name == OFS_NONE ? -1 : 0;
}

/* Of a list of optimizers each name is an index, and of a dict it may be a number:
 * programs look for them as what they are. */
static void add_flags(struct naming *c, uint32_t back)
{
	for (uint32_t i = 0; i < c->cat->nentries; i++) {
		const struct naming_slot *slot = &c->slot[i];
		struct naming_candidate *r;
		uint32_t n;

		if (slot->root == OFS_NONE || (slot->at & SLOT_TEXT) != 0)
			continue;
		r = &c->root[slot->root];
		if (!r->accepted)
			continue;
		r->name = ofs_catalog_components(c->cat,
		    c->cat->entries[i].path, &n)[r->n - 1 - back];
	}
}

int ofs_naming_name_roots(struct naming *c, uint32_t naccepted,
    struct optimfs_error *err)
{
	uint32_t *names = calloc(naccepted, sizeof(*names)), back = 0;
	int ret = 0;

	if (names == NULL)
		return ofs_no_memory(err);
	while (back < NAMING_DEPTH && !differ_at(c, back, names, naccepted))
		back++;
	for (uint32_t i = 0; i < c->nroots && ret == 0; i++) {
		struct naming_candidate *r = &c->root[i];

		if (!r->accepted)
			continue;
		if (back < NAMING_DEPTH)
			r->name = r->c[r->n - 1 - back];
		else
			ret = name_whole(c, r, err);
	}
	if (back < NAMING_DEPTH)
		add_flags(c, back);
	free(names);
	return ret;
}

/* List the dotted paths of the optimizers that were found, or else the keys at
 * the top of the checkpoint. */
static void list_candidates(struct naming *c, struct ofs_buf *b)
{
	struct ofs_keys tops = { 0 };
	const char *names[8];
	size_t k = 0;

	for (uint32_t i = 0; i < c->cat->nentries && tops.n < 8; i++) {
		uint32_t n;
		const uint32_t *path =
		    ofs_catalog_components(c->cat, c->cat->entries[i].path, &n);

		if (n > 0 &&
		    ofs_keys_add(&tops,
			ofs_catalog_string(c->cat, OFS_PATH_STR(path[0])),
			NULL) == OFS_NONE)
			break;
	}
	for (; k < tops.n; k++)
		names[k] = tops.v[k].p;
	qsort(names, k, sizeof(*names), ofs_compare_text);
	for (size_t i = 0; i < k; i++) {
		ofs_buf_puts(b, i == 0 ? " at the top: " : ", ");
		ofs_buf_plain(b, names[i], strnlen(names[i], 40));
	}
	ofs_keys_fini(&tops);
}

int ofs_naming_no_such_key(struct naming *c, const char *option,
    const char *key, struct optimfs_error *err)
{
	struct ofs_buf b = { .limit = 4096 };
	const char *sep = " optimizers: ";

	if (ofs_naming_detect(c, err) == -1)
		return -1;
	for (uint32_t i = 0; i < c->nroots && b.len < 200; i++)
		if (c->root[i].accepted && c->root[i].n > 0) {
			ofs_buf_puts(&b, sep);
			ofs_naming_join(c, c->root[i].c, c->root[i].n, '.', &b);
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
