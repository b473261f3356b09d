/* mirror_name.c - order and length of the names of .npy files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fs/fs.h"
#include "handmade.h"
#include "naming/file_name.h"
#include "tap.h"

static struct handmade h;
static struct optimfs *fs;

static uint32_t path_of(const char *key)
{
	uint32_t c[2];

	c[0] = ofs_catalog_str(h.cat, "model", 5, NULL);
	c[1] = ofs_catalog_str(h.cat, key, strlen(key), NULL);
	return ofs_catalog_path(h.cat, c, 2, NULL);
}

/* An empty tensor: this test reads no data. */
static void add(const char *key)
{
	static const uint64_t none;
	struct ofs_tensor t = { .dtype = OFS_UINT8,
		.ndim = 1,
		.grid_ndim = 1,
		.error = OFS_NONE,
		.index = OFS_NONE };
	struct ofs_entry e = { .kind = OFS_ENTRY_TENSOR };

	t.shape = t.grid = ofs_catalog_dims(h.cat, &none, 1, NULL);
	e.path = e.tree = path_of(key);
	e.ref = ofs_catalog_tensor(h.cat, &t, NULL);
	if (e.path == OFS_NONE || e.ref == OFS_NONE ||
	    ofs_catalog_entry(h.cat, &e, NULL) == OFS_NONE)
		bail_out("no memory");
}

static void long_name(char *name, char last)
{
	memset(name, 'x', 254);
	name[254] = last;
	name[255] = '\0';
}

struct listed {
	char last[OFS_NAME_MAX + 2];
	int n, unsorted, lost;
	uint64_t dir;
};

static int check_one(void *ctx, const struct optimfs_dirent *e)
{
	struct listed *l = ctx;
	struct optimfs_attr attr;

	l->n++;
	l->unsorted += strcmp(l->last, e->name) >= 0;
	l->lost += strlen(e->name) > OFS_NAME_MAX ||
	    optimfs_lookup(fs, l->dir, e->name, &attr, NULL) == -1 ||
	    attr.ino != e->ino;
	snprintf(l->last, sizeof(l->last), "%s", e->name);
	return 0;
}

static void listing(const char *path, int n)
{
	struct listed l = { .n = 0 };
	struct optimfs_attr dir;

	if (optimfs_resolve(fs, path, &dir, NULL) == -1)
		bail_out("%s", path);
	l.dir = dir.node;
	optimfs_readdir(fs, dir.node, 0, false, check_one, &l, NULL);
	is_int(l.n, n, "%s lists all its entries", path);
	is_int(l.unsorted, 0, "the entries are sorted by name");
	is_int(l.lost, 0, "lookup finds each listed name");
}

static void lookups(void)
{
	struct optimfs_attr attr;
	struct optimfs_error err;
	char name[OFS_NAME_MAX + 2], cut[OFS_NAME_MAX + 1];
	uint64_t model, npy;

	optimfs_resolve(fs, "model", &attr, NULL);
	model = attr.node;
	optimfs_resolve(fs, ".optimfs/npy/model", &attr, NULL);
	npy = attr.node;
	memset(name, 'x', 256);
	name[256] = '\0';
	is_int(optimfs_lookup(fs, model, name, &attr, &err), -1,
	    "lookup of a name of 256 bytes fails");
	is_int(err.code, ENAMETOOLONG,
	    "lookup of a name of 256 bytes fails with ENAMETOOLONG");
	is_int(optimfs_resolve(fs, name, &attr, &err), -1,
	    "resolving a path with a name of 256 bytes fails");
	is_int(err.code, ENAMETOOLONG,
	    "resolving a name of 256 bytes fails with ENAMETOOLONG");
	long_name(name, 'c');
	is_int(optimfs_lookup(fs, model, name, &attr, &err), -1,
	    "lookup of an absent name of 255 bytes fails");
	is_int(err.code, ENOENT,
	    "lookup of an absent name of 255 bytes fails with ENOENT");
	ofs_name_suffix(name, ".npy", cut);
	is_int(optimfs_lookup(fs, npy, cut, &attr, &err), -1,
	    "lookup of an absent .npy name that was shortened fails");
	is_int(err.code, ENOENT,
	    "lookup of an absent shortened .npy name fails with ENOENT");
	is_int(optimfs_lookup(fs, npy, "gone.npy", &attr, &err), -1,
	    "lookup of the .npy file of an absent tensor fails");
	is_int(err.code, ENOENT,
	    "lookup of the .npy file of an absent tensor fails with ENOENT");
	is_int(optimfs_lookup(fs, npy, "gone", &attr, &err), -1,
	    "lookup of a tensor that was deliberately not saved fails");
	is_error(err, ENODATA, "OFS642 ",
	    "a tensor that was deliberately not saved fails with ENODATA");
	is_int(optimfs_resolve(fs, "model/gone/exp_avg", &attr, &err), -1,
	    "resolving a path below a tensor that was not saved fails");
	is_error(err, ENODATA, "OFS642 model/gone/exp_avg",
	    "a path below a tensor that was not saved fails with ENODATA");
	is_int(optimfs_resolve(fs, "model/a/gone", &attr, &err), -1,
	    "resolving a path below a file fails");
	is_int(err.code, ENOTDIR,
	    "resolving a path below a file fails with ENOTDIR");
}

int main(void)
{
	static const char *const keys[] = { "a", "a-b", "a.b", "a b", "", ".",
		"..", "%", "z" };
	struct optimfs_options options = { 0 };
	char name[OFS_NAME_MAX + 1];

	handmade_init(&h);
	for (size_t i = 0; i < sizeof(keys) / sizeof(*keys); i++)
		add(keys[i]);
	long_name(name, 'b');
	add(name);
	long_name(name, 'a');
	add(name);
	name[251] = '\0'; /* short enough for its suffix */
	add(name);
	name[250] = '%';
	add(name);
	ofs_catalog_alias(h.cat, path_of("gone"), OFS_NONE, NULL);
	h.cat->format = "handmade";
	if (ofs_catalog_finish(h.cat, NULL) == -1)
		bail_out("catalog");
	fs = ofs_fs_new(h.cat, h.dir, &options, NULL);
	h.cat = NULL; /* owned by fs */
	if (fs == NULL)
		bail_out("fs");
	listing("model", 13);
	listing(".optimfs/npy/model", 13);
	lookups();
	optimfs_close(fs);
	handmade_fini(&h);
	return done_testing();
}
