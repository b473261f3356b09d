/* object.c - the files of a checkpoint, as they are at mount */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "base/checked.h"
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

static void describe_object(struct ofs_catalog *cat, struct ofs_object *o)
{
	struct ofs_input in;
	struct stat st;

	if (!ofs_dir_stat(&cat->dir, o->path, &st)) {
		struct optimfs_error why = { 0 };

		if (ofs_dir_open_input(&cat->dir, o->path, &in, &st, &why) ==
		    -1) {
			o->missing = why.code == ENOENT;
			o->refused = !o->missing;
			return;
		}
		ofs_input_close(&in); /* it appeared just now */
	}
	if (!S_ISREG(st.st_mode)) {
		o->refused = true;
		return;
	}
	o->size = (uint64_t)st.st_size;
	o->mtime_ns = ofs_time_ns(&st.st_mtim);
	o->stamp = ofs_stamp_of(&st);
	o->ino = st.st_ino;
	o->blocks = (uint64_t)st.st_blocks * 512;
	cat->mode &= st.st_mode & 0777;
	cat->uid = st.st_uid;
	cat->gid = st.st_gid;
}

uint32_t ofs_catalog_object(struct ofs_catalog *cat, const char *path, int rank,
    struct optimfs_error *err)
{
	size_t n = strlen(path);
	uint32_t hash = ofs_map_hash(path, n), index;
	struct ofs_object o = { .rank = rank };

	index =
	    ofs_map_find(&cat->build->objects, hash, same_object, cat, path, n);
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
		return ofs_catalog_no_memory(err);
	describe_object(cat, &o);
	index = ofs_catalog_append(cat, OFS_OBJECTS, &o, 1, err);
	if (index == OFS_NONE)
		return OFS_NONE;
	if (!ofs_map_add(&cat->build->objects, hash, index))
		return ofs_catalog_no_memory(err);
	return index;
}
