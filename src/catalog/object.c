/* object.c - the files of a checkpoint, as they are at mount */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/checked.h"
#include "base/error.h"
#include "catalog/catalog_impl.h"

static bool same_object(const void *ctx, uint32_t index, const void *key,
    size_t n)
{
	const struct ofs_catalog *cat = ctx;
	const char *path = cat->objects[index].path;

	return strlen(path) == n && memcmp(path, key, n) == 0;
}

struct ofs_stamp ofs_stamp_of(const struct stat *st)
{
	return (struct ofs_stamp){
		.ctime_ns = ofs_time_ns(&st->st_ctim),
		.nlink = (uint32_t)st->st_nlink,
		.mode = st->st_mode,
		.uid = st->st_uid,
		.gid = st->st_gid,
	};
}

/* Users who can read the source may read the mount, others may not: drop the
 * bits of mode (0444) for which this file or directory gives no access. Where
 * owners differ, a class of the first file's owner may be in any class of the
 * other's; the user who mounts has read it. */
static void restrict_to(struct ofs_access *a, const struct stat *st,
    uint32_t bits)
{
	bool user = bits & 0400, group = bits & 0040, other = bits & 0004;
	bool any = group && other;

	if (st->st_gid != a->gid)
		group = other = any;
	if (st->st_uid != a->uid)
		user = any || a->uid == geteuid();
	a->mode &=
	    (user ? 0400u : 0) | (group ? 0040u : 0) | (other ? 0004u : 0);
}

/* Does path below the checkpoint ("" is itself) have a POSIX ACL? Then the bits of
 * the group in its mode are the mask, and say nothing of who may read it. An ACL
 * that says no more than the mode does not exist; one that cannot be read is taken
 * for one. */
static bool has_acl(const struct ofs_catalog *cat, const char *path)
{
	char full[PATH_MAX + 32];
	int n = snprintf(full, sizeof(full), "/proc/self/fd/%d/%s", cat->dir.fd,
	    path);

	if (cat->dir.fd == -1)
		return false; /* on another rank */
	if (n >= (int)sizeof(full))
		return true;
	return getxattr(full, "system.posix_acl_access", NULL, 0) >= 0 ||
	    (errno != ENODATA && errno != EOPNOTSUPP && errno != ENOENT);
}

/* What an ACL allows is narrowed to the owner. */
static uint32_t narrowed(const struct ofs_catalog *cat, const char *path,
    uint32_t bits)
{
	return (bits & 0044) != 0 && has_acl(cat, path) ? bits & 0400 : bits;
}

/* Access to a directory is search permission. */
static void restrict_to_dir(const struct ofs_catalog *cat, const char *path,
    const struct stat *st, struct ofs_access *a)
{
	restrict_to(a, st, narrowed(cat, path, (st->st_mode & 0111) << 2));
}

/* Apply this to the directories between that of the checkpoint and the file.
 * Successive files mostly share theirs. */
static void pass_dirs(const struct ofs_catalog *cat, const char *path,
    struct ofs_passed *p, struct ofs_access *a)
{
	const char *slash = strrchr(path, '/');
	size_t n = slash == NULL ? 0 : (size_t)(slash - path);
	char dir[PATH_MAX];
	struct stat st;

	if (n == 0 || n >= sizeof(dir) ||
	    (n == p->ndir && memcmp(path, p->dir, n) == 0))
		return;
	for (size_t i = 1; i <= n; i++) {
		if (path[i] != '/')
			continue;
		memcpy(dir, path, i);
		dir[i] = '\0';
		if (ofs_dir_stat(&cat->dir, dir, &st))
			restrict_to_dir(cat, dir, &st, a);
	}
	p->dir = path;
	p->ndir = n;
}

/* mode starts from the permissions of the directory. */
static void start(const struct ofs_catalog *cat, const struct stat *owner,
    struct ofs_access *a)
{
	struct stat st;

	*a = (struct ofs_access){
		.uid = owner->st_uid,
		.gid = owner->st_gid,
		.mode = 0444,
	};
	if (cat->dir.fd != -1 && fstat(cat->dir.fd, &st) == 0 &&
	    S_ISDIR(st.st_mode))
		restrict_to_dir(cat, "", &st, a);
}

void ofs_access_init(const struct ofs_catalog *cat, struct ofs_access *a)
{
	struct stat st;

	*a = (struct ofs_access){ .mode = 0444 };
	if (cat->dir.fd != -1 && fstat(cat->dir.fd, &st) == 0)
		start(cat, &st, a);
}

static void pass_file(const struct ofs_catalog *cat, const char *path,
    const struct stat *st, struct ofs_passed *p, struct ofs_access *a)
{
	if (!p->owned)
		start(cat, st, a);
	p->owned = true;
	pass_dirs(cat, path, p, a);
	restrict_to(a, st, narrowed(cat, path, st->st_mode & 0444));
}

struct ofs_access ofs_catalog_access(const struct ofs_catalog *cat)
{
	struct ofs_passed passed = { 0 };
	struct ofs_access a;
	struct stat st;

	ofs_access_init(cat, &a);
	for (uint32_t i = 0; i < cat->nobjects; i++)
		if (!cat->objects[i].missing &&
		    ofs_dir_stat(&cat->dir, cat->objects[i].path, &st) &&
		    S_ISREG(st.st_mode))
			pass_file(cat, cat->objects[i].path, &st, &passed, &a);
	a.mode &= ~cat->withheld;
	return a;
}

uint32_t ofs_object_access(const struct ofs_catalog *cat,
    const struct ofs_object *o)
{
	const struct stat st = { .st_mode = o->stamp.mode,
		.st_uid = o->stamp.uid,
		.st_gid = o->stamp.gid };
	struct ofs_passed passed = { 0 };
	struct ofs_access a;

	pass_file(cat, o->path, &st, &passed, &a);
	return a.mode;
}

static int try_open(const struct ofs_catalog *cat, const struct ofs_object *o,
    struct stat *st, struct optimfs_error *why)
{
	struct ofs_input in;

	if (ofs_dir_open_input(&cat->dir, o->path, &in, st, why) == -1)
		return -1;
	ofs_input_close(&in);
	return 0;
}

int ofs_object_opens(const struct ofs_catalog *cat, const struct ofs_object *o,
    struct optimfs_error *why)
{
	return try_open(cat, o, NULL, why);
}

/* Sets what opening it fails with. */
static bool can_open(const struct ofs_catalog *cat, struct ofs_object *o,
    struct stat *st)
{
	struct optimfs_error why = { 0 };

	if (try_open(cat, o, st, &why) == 0)
		return true;
	o->missing = why.code == ENOENT;
	o->refused = !o->missing;
	return false;
}

static void describe_object(struct ofs_catalog *cat, struct ofs_object *o)
{
	struct stat st;

	if (!ofs_dir_stat(&cat->dir, o->path, &st) && !can_open(cat, o, &st))
		return; /* else it was created just now */
	if (!S_ISREG(st.st_mode)) {
		o->refused = true;
		return;
	}
	/* of thousands of files most need not be opened to know it */
	if ((st.st_mode & 0444) != 0444 &&
	    (st.st_uid != geteuid() || (st.st_mode & 0400) == 0))
		can_open(cat, o, NULL);
	o->size = (uint64_t)st.st_size;
	o->mtime_ns = ofs_time_ns(&st.st_mtim);
	o->stamp = ofs_stamp_of(&st);
	o->ino = st.st_ino;
	o->blocks = (uint64_t)st.st_blocks * 512;
	pass_file(cat, o->path, &st, &cat->build->passed, &cat->access);
}

uint32_t ofs_catalog_find_object(const struct ofs_catalog *cat,
    const char *path)
{
	size_t n = strlen(path);

	return ofs_map_find(&cat->by_path, ofs_map_hash(path, n), same_object,
	    cat, path, n);
}

uint32_t ofs_catalog_object(struct ofs_catalog *cat, const char *path, int rank,
    struct optimfs_error *err)
{
	size_t n = strlen(path);
	uint32_t index = ofs_catalog_find_object(cat, path);
	struct ofs_object o = { .rank = rank };

	if (index != OFS_NONE) {
		if (cat->objects[index].rank == -1)
			cat->objects[index].rank = rank;
		return index;
	}
	if (!ofs_path_stays(path, n)) {
		optimfs_fail(err, EPERM,
		    "OFS620 path '%.300s' leaves the checkpoint", path);
		return OFS_NONE;
	}
	o.path = ofs_arena_strndup(&cat->arena, path, n);
	if (o.path == NULL)
		return ofs_catalog_no_memory(cat, err);
	describe_object(cat, &o);
	index = ofs_catalog_append(cat, OFS_OBJECTS, &o, 1, err);
	if (index == OFS_NONE)
		return OFS_NONE;
	if (!ofs_map_add(&cat->by_path, ofs_map_hash(path, n), index))
		return ofs_catalog_no_memory(cat, err);
	return index;
}

void ofs_catalog_examine(struct ofs_catalog *cat, uint32_t object)
{
	struct ofs_object *o = &cat->objects[object];
	uint8_t head[64];
	struct ofs_input in;

	if (o->examined)
		return;
	o->examined = true;
	if (o->size < sizeof(head) || o->size > OFS_LFS_MAX ||
	    ofs_dir_open_input(&cat->dir, o->path, &in, NULL, NULL) == -1)
		return;
	o->pointer = ofs_input_read(&in, head, sizeof(head), 0, NULL) == 0 &&
	    ofs_is_lfs_pointer(head, sizeof(head));
	ofs_input_close(&in);
}

bool ofs_object_pointer(const struct ofs_object *o, struct optimfs_error *err)
{
	if (o->pointer)
		ofs_fail_lost(err, EIO, OPTIMFS_LOST_SHORT, "OFS666", o->path,
		    ": a pointer of Git LFS, not the file itself");
	return o->pointer;
}

bool ofs_extent_lost(const struct ofs_catalog *cat, const struct ofs_extent *at,
    struct optimfs_error *why)
{
	const struct ofs_object *o = &cat->objects[at->object];

	if (o->missing) {
		ofs_fail_lost(why, EIO, OPTIMFS_LOST_MISSING, "OFS140", o->path,
		    " is missing");
		return true;
	}
	if (o->refused)
		return ofs_object_opens(cat, o, why) == -1;
	if (at->off <= o->size && at->len <= o->size - at->off)
		return false;
	if (!ofs_object_pointer(o, why))
		ofs_fail_lost(why, EIO, OPTIMFS_LOST_SHORT, "OFS603", o->path,
		    " has %" PRIu64 " bytes", o->size);
	return true;
}

bool ofs_entry_lost(const struct ofs_catalog *cat, const struct ofs_entry *e,
    struct optimfs_error *why)
{
	const struct ofs_extent *at;

	for (uint32_t i = 0; (at = ofs_entry_extent(cat, e, i)) != NULL; i++)
		if (ofs_extent_lost(cat, at, why))
			return true;
	return false;
}

/* v begins with two places for the hash so far. */
static void mix(struct ofs_identity *id, uint64_t *v, size_t size,
    int64_t changed_ns)
{
	XXH128_hash_t hash;

	memcpy(v, id->hash, sizeof(id->hash));
	hash = XXH3_128bits(v, size);
	id->hash[0] = hash.low64;
	id->hash[1] = hash.high64;
	if (changed_ns > id->changed_ns)
		id->changed_ns = changed_ns;
}

struct ofs_identity ofs_catalog_identity(const struct ofs_catalog *cat)
{
	struct ofs_identity id = cat->from;

	for (uint32_t i = 0; i < cat->nobjects; i++) {
		const struct ofs_object *o = &cat->objects[i];
		uint64_t v[] = { 0, 0, o->size, (uint64_t)o->mtime_ns,
			(uint64_t)o->stamp.ctime_ns, o->ino, o->missing,
			o->refused, XXH3_64bits(o->path, strlen(o->path)) };

		mix(&id, v, sizeof(v), o->stamp.ctime_ns);
	}
	return id;
}

void ofs_catalog_from(struct ofs_catalog *cat, const struct ofs_catalog *other,
    double weight)
{
	const struct ofs_identity id = ofs_catalog_identity(other);
	uint64_t v[5] = { 0, 0, id.hash[0], id.hash[1] };

	memcpy(&v[4], &weight, sizeof(weight));
	mix(&cat->from, v, sizeof(v), id.changed_ns);
}
