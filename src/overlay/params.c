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
	struct ofs_str old, name;      /* as a group lists them */
	const char *old_dir, *new_dir; /* as they are called in the tree */
	bool listed; /* some group lists name already: old is not needed */
	struct optimfs_error *err;
};

/* The line at p, with its end in *next. */
static struct ofs_str line_at(const char *p, const char *end, const char **next)
{
	const char *nl = memchr(p, '\n', (size_t)(end - p));

	*next = nl == NULL ? end : nl + 1;
	return (struct ofs_str){ p, (uint32_t)((nl == NULL ? end : nl) - p) };
}

static bool has_line(const struct ofs_blob *text, struct ofs_str name)
{
	const char *p = (const char *)text->bytes, *end = p + text->len;
	bool found = false;

	while (p < end && !found)
		found = ofs_str_equal(line_at(p, end, &p), name);
	return found;
}

/* Copies the lines of text with the new name in place of the old one, or
 * without the old one. Returns whether it is there. */
static bool rename_lines(const struct renaming *r, const struct ofs_blob *text,
    struct ofs_buf *out)
{
	const char *p = (const char *)text->bytes, *end = p + text->len;
	bool found = false;

	while (p < end) {
		const char *begin = p;
		struct ofs_str line = line_at(p, end, &p);

		if (!ofs_str_equal(line, r->old)) {
			ofs_buf_put(out, begin, (size_t)(p - begin));
			continue;
		}
		found = true;
		if (r->listed)
			continue;
		ofs_buf_put(out, r->name.p, r->name.len);
		ofs_buf_put(out, line.p + line.len,
		    (size_t)(p - line.p) - line.len);
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

/* The list of a group, if it is one of the checkpoint; OFS_NONE. */
static uint32_t list_of(const struct ofs_overlay *o, uint32_t group)
{
	uint32_t params;

	if (!ofs_overlay_is_dir(o, group))
		return OFS_NONE;
	params = ofs_overlay_find(o, group, "params");
	if (params == OFS_NONE || ofs_overlay_is_made(o, params) ||
	    ofs_overlay_is_dir(o, params) ||
	    !ofs_tree_is_params(o->tree, params) ||
	    !ofs_entry_is_text(o->cat, o->tree->node[params].entry))
		return OFS_NONE;
	return params;
}

static int find_in_group(void *ctx, uint32_t group, const char *name,
    uint64_t position)
{
	struct renaming *r = ctx;
	uint32_t params = list_of(r->o, group);
	struct ofs_overlay_file *f;
	struct ofs_blob *text;

	(void)name, (void)position;
	if (params == OFS_NONE)
		return 0;
	f = ofs_overlay_file_touch(r->o, params, r->err);
	if (f == NULL)
		return -1;
	pthread_rwlock_wrlock(&f->lock);
	text = ofs_overlay_text_now(r->o, f, r->err);
	pthread_rwlock_unlock(&f->lock);
	if (text == NULL)
		return -1;
	r->listed = r->listed || has_line(text, r->name);
	ofs_blob_unref(text);
	return 0;
}

static int rename_in_group(void *ctx, uint32_t group, const char *name,
    uint64_t position)
{
	const struct renaming *r = ctx;
	uint32_t params = list_of(r->o, group);

	(void)name, (void)position;
	return params == OFS_NONE ? 0 : rename_in_text(r, params);
}

/* With flattened keys each parameter has a group, which is called as it is and
 * lists nothing. */
static int rename_group(const struct renaming *r, uint32_t groups)
{
	uint32_t group = ofs_overlay_find(r->o, groups, r->old_dir);

	if (group == OFS_NONE || !ofs_overlay_is_dir(r->o, group) ||
	    ofs_overlay_find(r->o, group, "params") != OFS_NONE ||
	    ofs_overlay_find(r->o, groups, r->new_dir) != OFS_NONE)
		return 0;
	return ofs_overlay_rename(r->o, groups, r->old_dir, groups, r->new_dir,
	    false, r->err);
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
	r->listed = false;
	if (rename_group(r, groups) == -1 ||
	    ofs_overlay_children(r->o, groups, 0, find_in_group, r) == -1)
		return -1;
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
	struct renaming r = {
		.o = o, .old_dir = name, .new_dir = newname, .err = err
	};
	int ret = 0;

	/* with ids=, a group lists integers and not names */
	if (o->replaying || o->hidden != NULL || o->cat->nid_names > 0 ||
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
