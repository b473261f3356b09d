/* write_names.c - the calls that change names */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "fs/write_impl.h"

#define PREFIX "user.optimfs."

static bool is_section(const char *name)
{
	return strcmp(name, "optim") == 0 || strcmp(name, "model") == 0 ||
	    strcmp(name, "extra") == 0;
}

/* May name be created in dir? The root has three fixed names. */
static int may_name(struct ofs_at dir, const char *name, bool is_dir,
    struct optimfs_error *err)
{
	if (strlen(name) > OFS_NAME_MAX)
		return optimfs_fail(err, ENAMETOOLONG, "%.80s...: too long",
		    name);
	if (name[0] == '\0' || strchr(name, '/') != NULL ||
	    strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return optimfs_fail(err, EINVAL, "'%s' is not a name", name);
	if (dir.index == 0 && (!is_dir || !is_section(name)))
		return optimfs_fail(err, EPERM,
		    "OFS814 %s: a checkpoint has optim, model and extra; write "
		    "below one of these",
		    name);
	return 0;
}

/* Translates NAME.npy in npy/ to NAME in the tree. */
static int tree_name(struct ofs_at dir, const char *name, bool is_dir,
    char out[OFS_NAME_MAX + 1], struct optimfs_error *err)
{
	if (dir.space != OFS_SPACE_NPY || is_dir)
		strcpy(out, name);
	else if (!ofs_name_bare(name, ofs_space_npy.suffix, out))
		return optimfs_fail(err, EPERM,
		    "OFS814 %s: files of npy are called NAME.npy", name);
	return 0;
}

/* Adds the file; NAME.npy may be written for a NAME that has no type yet. */
static int make_node(struct ofs_overlay *o, struct ofs_at dir, const char *name,
    bool is_dir, uint32_t *index, struct optimfs_error *err)
{
	uint32_t found = ofs_overlay_find(o, dir.index, name);
	struct ofs_overlay_form form;

	if (dir.space == OFS_SPACE_NPY && !is_dir && found != OFS_NONE &&
	    ofs_overlay_is_made(o, found) && !ofs_overlay_is_dir(o, found)) {
		ofs_overlay_form_of(o, found, &form);
		if (form.dtype == OFS_DTYPE_NONE) {
			*index = found;
			return 0;
		}
	}
	return ofs_overlay_make(o, dir.index, name, is_dir, index, err);
}

static int do_create(struct ofs_snapshot *snap, uint64_t dir, const char *name,
    bool is_dir, struct optimfs_attr *attr, struct optimfs_error *err)
{
	char plain[OFS_NAME_MAX + 1];
	struct ofs_at at, made;
	int ret;

	if (ofs_writable_dir(snap, dir, &at, err) == -1 ||
	    may_name(at, name, is_dir, err) == -1 ||
	    tree_name(at, name, is_dir, plain, err) == -1)
		return -1;
	made.space = at.space;
	pthread_rwlock_wrlock(&snap->overlay->names);
	ret = make_node(snap->overlay, at, plain, is_dir, &made.index, err);
	if (ret == 0 && !is_dir &&
	    ofs_overlay_file_touch(snap->overlay, made.index, err) == NULL)
		ret = -1;
	pthread_rwlock_unlock(&snap->overlay->names);
	return ret == 0 ? ofs_at_attr(snap, made, attr, err) : -1;
}

int optimfs_create(struct optimfs *fs, uint64_t dir, const char *name,
    bool is_dir, struct optimfs_attr *attr, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter_write(fs);
	int ret = do_create(snap, dir, name, is_dir, attr, err);
	ofs_leave_write(snap);
	return ret;
}

static int do_remove(struct ofs_snapshot *snap, uint64_t dir, const char *name,
    bool is_dir, struct optimfs_error *err)
{
	struct ofs_at at;
	int ret;

	if (ofs_writable_dir(snap, dir, &at, err) == -1)
		return -1;
	if (at.space != OFS_SPACE_TREE ||
	    (at.index == 0 && strcmp(name, ".optimfs") == 0))
		return ofs_not_writable(snap, at, err);
	pthread_rwlock_wrlock(&snap->overlay->names);
	ret = ofs_overlay_remove(snap->overlay, at.index, name, is_dir, err);
	pthread_rwlock_unlock(&snap->overlay->names);
	return ret;
}

int optimfs_remove(struct optimfs *fs, uint64_t dir, const char *name,
    bool is_dir, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter_write(fs);
	int ret = do_remove(snap, dir, name, is_dir, err);
	ofs_leave_write(snap);
	return ret;
}

static int no_rename(const char *name, const char *why,
    struct optimfs_error *err)
{
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS826 %s cannot be renamed: %s (reshard to dcp@N first)", name,
	    why);
}

/* A node that is to be renamed. */
struct renamed {
	const struct ofs_catalog *cat;
	const char *name;
	uint32_t key;   /* the component that it has its name from */
	uint32_t depth; /* the number of components of its path in the tree */
	bool across;    /* it gets into another directory */
};

/* Is v[i], a component of the path of e, the key of a dict? */
static int may_change(const struct renamed *r, const struct ofs_entry *e,
    const uint32_t *v, uint32_t i, struct optimfs_error *err)
{
	if (OFS_PATH_STR(v[i]) != r->key)
		return 0;
	if (i < e->nfile)
		return no_rename(r->name,
		    "it is the name of a file of the checkpoint", err);
	return (v[i] & OFS_PATH_INDEX) != 0
	    ? no_rename(r->name, "it is an item of a list", err)
	    : 0;
}

/* The key may occur several times in the path of e, as in
 * optimizer_states/0/state/0. Where the last components are those of the tree, it
 * is known which one has the name; otherwise each must be one that can change. */
static int may_change_key(const struct renamed *r, const struct ofs_entry *e,
    struct optimfs_error *err)
{
	uint32_t n, ntree, below;
	const uint32_t *v = ofs_catalog_components(r->cat, e->path, &n);

	ofs_catalog_components(r->cat, e->tree, &ntree);
	below = ntree - r->depth;
	if (below < n && OFS_PATH_STR(v[n - below - 1]) == r->key)
		return may_change(r, e, v, n - below - 1, err);
	for (uint32_t i = 0; i < n; i++)
		if (may_change(r, e, v, i, err) == -1)
			return -1;
	return 0;
}

/* Can a commit give the entry another path? */
static int may_move(const struct renamed *r, const struct ofs_entry *e,
    struct optimfs_error *err)
{
	if (e->key == OFS_KEY_FIXED)
		return no_rename(r->name,
		    "a commit cannot change names in files of this kind", err);
	if (r->across && e->key == OFS_KEY_STAYS)
		return no_rename(r->name,
		    "a commit cannot move tensors of files of this kind to "
		    "another directory",
		    err);
	return r->across ? 0 : may_change_key(r, e, err);
}

/* Fails where it is known that no commit can do it. What is only possible for
 * several files together, such as a state of all parameters of a universal
 * checkpoint, is left to the commit. */
static int may_rename(struct ofs_snapshot *snap, struct ofs_at at, bool across,
    const char *name, struct optimfs_error *err)
{
	const struct ofs_tree *tree = &snap->tree;
	struct renamed r = { .cat = snap->cat, .name = name, .across = across };

	if (at.index >= tree->n)
		return 0;
	r.key = ofs_tree_key(tree, snap->cat, at.index);
	for (uint32_t i = at.index; i != 0; i = tree->node[i].parent)
		r.depth++;
	/* of FSDP1's flat parameters names are in the units, of DeepSpeed's
	 * flat groups in lists that keep their order */
	if (ofs_catalog_flat(snap->cat, r.key) != NULL)
		return no_rename(name,
		    "it is a part of a flat parameter or group, and its name "
		    "is not stored with its elements",
		    err);
	for (uint32_t i = at.index; i != OFS_NONE;
	     i = ofs_tree_after(tree, at.index, i))
		if (tree->node[i].entry != OFS_NONE &&
		    may_move(&r, &snap->cat->entries[tree->node[i].entry],
			err) == -1)
			return -1;
	return 0;
}

static int do_rename(struct ofs_snapshot *snap, uint64_t dir, const char *name,
    uint64_t newdir, const char *newname, bool replace,
    struct optimfs_error *err)
{
	struct ofs_at at, to, child;
	uint32_t node = OFS_NONE;
	int ret;

	if (ofs_writable_dir(snap, dir, &at, err) == -1 ||
	    ofs_writable_dir(snap, newdir, &to, err) == -1)
		return -1;
	if (at.space != OFS_SPACE_TREE)
		return ofs_not_writable(snap, at, err);
	if (to.space != OFS_SPACE_TREE)
		return ofs_not_writable(snap, to, err);
	if (ofs_lookup(snap, dir, name, &child, err) == -1 ||
	    may_name(to, newname, ofs_at_is_dir(snap, child), err) == -1)
		return -1;
	if (ofs_at_static(snap, child))
		return ofs_not_writable(snap, child, err);
	if (may_rename(snap, child, at.index != to.index, name, err) == -1) {
		optimfs_log_error(snap->fs, err);
		return -1;
	}
	pthread_rwlock_wrlock(&snap->overlay->names);
	ret = ofs_overlay_rename(snap->overlay, at.index, name, to.index,
	    newname, replace, err);
	if (ret == 0)
		node = ofs_overlay_find(snap->overlay, to.index, newname);
	pthread_rwlock_unlock(&snap->overlay->names);
	if (ret == -1)
		optimfs_log_error(snap->fs, err);
	else
		ofs_tell_whole(snap, node);
	return ret;
}

int optimfs_rename(struct optimfs *fs, uint64_t dir, const char *name,
    uint64_t newdir, const char *newname, bool replace,
    struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter_write(fs);
	int ret = do_rename(snap, dir, name, newdir, newname, replace, err);
	ofs_leave_write(snap);
	return ret;
}

static int do_truncate(struct ofs_snapshot *snap, uint64_t node, uint64_t size,
    struct optimfs_error *err)
{
	struct optimfs_file *file;
	int ret;

	if (ofs_file_open_write(snap, node, false, &file, err) == -1)
		return -1;
	ret = ofs_file_truncate(file, size, err);
	if (ret == 0)
		ret = ofs_file_flush(file, err);
	optimfs_file_close(file);
	return ret;
}

int optimfs_truncate(struct optimfs *fs, uint64_t node, uint64_t size,
    struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter_write(fs);
	int ret = do_truncate(snap, node, size, err);
	ofs_leave_write(snap);
	return ret;
}

int optimfs_set_mtime(struct optimfs *fs, uint64_t node, int64_t mtime_ns,
    struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter_write(fs);
	struct ofs_at at;
	int ret = ofs_writable_at(snap, node, &at, err);

	if (ret == 0) {
		pthread_rwlock_wrlock(&snap->overlay->names);
		ret = ofs_overlay_set_mtime(snap->overlay, at.index, mtime_ns,
		    err);
		pthread_rwlock_unlock(&snap->overlay->names);
	}
	ofs_leave_write(snap);
	return ret;
}

static bool is_listed(const char *name)
{
	static const char *const names[] = { "fqn", "kind", "raw_fqn", "shape",
		"dtype" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return false;
}

static int do_setxattr(struct ofs_snapshot *snap, uint64_t node,
    const char *name, const char *value, size_t len, struct optimfs_error *err)
{
	struct ofs_at at;
	int ret;

	if (ofs_writable_at(snap, node, &at, err) == -1)
		return -1;
	if (strncmp(name, PREFIX, strlen(PREFIX)) != 0 ||
	    !is_listed(name + strlen(PREFIX)))
		return optimfs_fail(err, EOPNOTSUPP,
		    "attribute %s cannot be stored in a checkpoint", name);
	if (ofs_at_is_dir(snap, at))
		return 0;
	pthread_rwlock_wrlock(&snap->overlay->names);
	ret = ofs_overlay_set_attr(snap->overlay, at.index,
	    name + strlen(PREFIX), value, len, err);
	pthread_rwlock_unlock(&snap->overlay->names);
	return ret == 0 ? 0 : ofs_file_failed(snap, at, 0, 0, err);
}

int optimfs_setxattr(struct optimfs *fs, uint64_t node, const char *name,
    const char *value, size_t len, struct optimfs_error *err)
{
	struct ofs_snapshot *snap = ofs_enter_write(fs);
	int ret = do_setxattr(snap, node, name, value, len, err);
	ofs_leave_write(snap);
	return ret;
}
