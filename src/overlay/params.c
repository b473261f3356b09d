/* params.c - a parameter gets another name: the groups that list it follow */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/memory.h"
#include "overlay/overlay_impl.h"

/* An optimizer finds the state of a parameter by the names that its groups
 * list. They would be wrong after model/NAME or optim/state/NAME was renamed, and
 * who renames one file does not think of them. */
struct renaming {
	struct ofs_overlay *o;
	struct ofs_str old, name;
	struct optimfs_error *err;
};

/* Copies the lines of text with the new name in place of the old one. Returns
 * whether any is. */
static bool rename_lines(const struct renaming *r, const struct ofs_blob *text,
    struct ofs_buf *out)
{
	const char *p = (const char *)text->bytes, *end = p + text->len;
	bool found = false;

	while (p < end) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		size_t n = (size_t)((nl == NULL ? end : nl) - p);

		if (n == r->old.len && memcmp(p, r->old.p, n) == 0) {
			found = true;
			ofs_buf_put(out, r->name.p, r->name.len);
		} else {
			ofs_buf_put(out, p, n);
		}
		if (nl != NULL)
			ofs_buf_putc(out, '\n');
		p += n + (nl != NULL);
	}
	return found;
}

static int rename_in_text(const struct renaming *r, uint32_t params)
{
	struct ofs_overlay_file *f =
	    ofs_overlay_file_touch(r->o, params, r->err);
	struct ofs_buf lines = { 0 };
	struct ofs_blob *text;
	int ret = 0;

	if (f == NULL)
		return -1;
	pthread_rwlock_wrlock(&f->lock);
	text = ofs_overlay_text_now(r->o, f, r->err);
	if (text == NULL)
		ret = -1;
	else if (!rename_lines(r, text, &lines))
		ret = 0;
	else if (lines.bad)
		ret = ofs_no_memory(r->err);
	else if (f->has_draft)
		ret = optimfs_fail(r->err, EBUSY,
		    "OFS257 param_groups/%s/params lists it, and is being "
		    "written: try again when that is done",
		    ofs_overlay_name(r->o, ofs_overlay_parent(r->o, params)));
	else
		ret = ofs_overlay_text_set(r->o, f, params, lines.data,
		    lines.len, r->err);
	pthread_rwlock_unlock(&f->lock);
	ofs_blob_unref(text);
	ofs_buf_fini(&lines);
	return ret;
}

static int rename_in_group(void *ctx, uint32_t group, const char *name,
    uint64_t position)
{
	const struct renaming *r = ctx;
	uint32_t params;

	(void)name, (void)position;
	if (!ofs_overlay_is_dir(r->o, group))
		return 0;
	params = ofs_overlay_find(r->o, group, "params");
	if (params == OFS_NONE || ofs_overlay_is_made(r->o, params) ||
	    ofs_overlay_is_dir(r->o, params) ||
	    !ofs_tree_is_params(r->o->tree, params) ||
	    !ofs_entry_is_text(r->o->cat, r->o->tree->node[params].entry))
		return 0;
	return rename_in_text(r, params);
}

/* In all groups of an optimizer. */
static int rename_in_optimizer(void *ctx, uint32_t optimizer, const char *name,
    uint64_t position)
{
	struct renaming *r = ctx;
	uint32_t groups = ofs_overlay_is_dir(r->o, optimizer)
	    ? ofs_overlay_find(r->o, optimizer, "param_groups")
	    : OFS_NONE;

	(void)name, (void)position;
	if (groups == OFS_NONE || !ofs_overlay_is_dir(r->o, groups))
		return 0;
	return ofs_overlay_children(r->o, groups, 0, rename_in_group, r);
}

static int rename_everywhere(struct renaming *r)
{
	uint32_t optim = ofs_overlay_find(r->o, 0, "optim");

	if (optim == OFS_NONE || !ofs_overlay_is_dir(r->o, optim))
		return 0;
	if (rename_in_optimizer(r, optim, NULL, 0) == -1)
		return -1;
	return ofs_overlay_children(r->o, optim, 0, rename_in_optimizer, r);
}

int ofs_overlay_rename_params(struct ofs_overlay *o, uint32_t index,
    const char *name, const char *newname, struct optimfs_error *err)
{
	uint32_t dir = ofs_overlay_parent(o, index);
	bool model = dir == ofs_overlay_find(o, 0, "model");
	struct ofs_buf from = { 0 }, to = { 0 };
	struct renaming r = { .o = o, .err = err };
	int ret = 0;

	/* with ids=, a group lists integers and not names */
	if (o->replaying || o->ops->hidden || o->cat->ids != NULL ||
	    ofs_overlay_is_made(o, dir) ||
	    (!model && strcmp(ofs_overlay_name(o, dir), "state") != 0) ||
	    ofs_overlay_is_dir(o, index) == model)
		return 0;
	ofs_overlay_key_of(o, dir, name, &from);
	ofs_overlay_key_of(o, dir, newname, &to);
	r.old = (struct ofs_str){ (char *)from.data, (uint32_t)from.len };
	r.name = (struct ofs_str){ (char *)to.data, (uint32_t)to.len };
	if (from.bad || to.bad)
		ret = ofs_no_memory(err);
	else if (from.len == 0 || to.len == 0)
		ret = 0;
	else if (!model)
		ret = rename_in_optimizer(&r, ofs_overlay_parent(o, dir), NULL,
		    0);
	else if (!ofs_str_all_digits(r.old)) /* "7" is an integer in a group */
		ret = rename_everywhere(&r);
	ofs_buf_fini(&from);
	ofs_buf_fini(&to);
	return ret;
}
