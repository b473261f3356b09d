/* extra.c - fixtures without reference values: everything lists and reads */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "optimfs/optimfs.h"

#include "base/io.h"
#include "support/truth.h"
#include "tap.h"

/* What cannot be opened or read. All other files must be readable. */
static const struct exception {
	const char *name;
	int open; /* errno of opening the checkpoint; 0: of reading a file */
	int code;
} exceptions[] = {
	{ "torch_save/dt_int4.pt", EUCLEAN, 0 }, /* an invalid pickle */
	{ "torch_save/dt_uint4.pt", EUCLEAN, 0 },
	{ "torch_save/size.pt", EUCLEAN, 0 },
	/* one job's state, saved in six ways by rank and once as DCP */
	{ "dcp_variants/fsdp1_uopFalse", ENOENT, 0 },
	{ "dcp_variants/fsdp1_uopTrue", ENOENT, 0 },
	{ "torch_save/meta.pt", 0, EOPNOTSUPP },
	/* readable, but not in every view */
	{ "torch_save/dt_bits8.pt", 0, EOPNOTSUPP },
	{ "torch_save/dt_complex128.pt", 0, EOPNOTSUPP },
	{ "torch_save/dt_complex32.pt", 0, EOPNOTSUPP },
	{ "torch_save/dt_float4_e2m1fn_x2.pt", 0, EOPNOTSUPP },
	{ "torch_save/nested.pt", 0, EOPNOTSUPP },
	{ "torch_save/njt.pt", 0, EPERM },
	{ "torch_save/quant.pt", 0, EOPNOTSUPP },
	{ "torch_save/sparse_coo.pt", 0, EOPNOTSUPP },
	{ "torch_save/sparse_csr.pt", 0, EOPNOTSUPP },
};

struct walk {
	struct optimfs *fs;
	const struct exception *but; /* NULL: none */
	size_t files, bad, refused;
	char path[8192];
};

static void complain(struct walk *w, const char *why)
{
	if (w->bad++ < 5)
		diag("%s: %s", w->path, why);
}

/* Reads a file in pieces of an odd size. */
static const char *read_all(struct optimfs_file *file,
    struct optimfs_error *err)
{
	uint64_t size = optimfs_file_size(file), off = 0;
	char buf[4093];
	ssize_t n;

	while ((n = optimfs_file_read(file, buf, sizeof(buf), off, err)) > 0)
		off += (uint64_t)n;
	if (n == -1)
		return err->text;
	return off == size ? NULL : "the file ends before its size";
}

static const char *check_file(struct walk *w, const struct optimfs_attr *attr,
    struct optimfs_error *err)
{
	struct optimfs_file *file;
	struct optimfs_attr after;
	uint64_t size;
	const char *why;

	if (optimfs_file_open(w->fs, attr->node, &file, err) == -1)
		return err->text;
	size = optimfs_file_size(file);
	why = read_all(file, err);
	optimfs_file_close(file);
	if (why != NULL)
		return why;
	if (attr->exact && attr->size != size)
		return "the size in its attributes is wrong";
	if (optimfs_getattr(w->fs, attr->node, &after, err) == -1)
		return err->text;
	if (strncmp(w->path, ".optimfs/", 9) != 0 &&
	    (!after.exact || after.size != size))
		return "its size is not exact after the file was opened";
	return NULL;
}

/* DeepSpeed formats need a model and an optimizer; few fixtures have both. */
static bool wants_more(const struct walk *w, int code)
{
	static const char *const views[] = { ".optimfs/view/universal",
		".optimfs/view/zero1@8", ".optimfs/view/zero2@8",
		".optimfs/view/zero3@8" };

	for (size_t i = 0; i < sizeof(views) / sizeof(*views); i++)
		if (strcmp(w->path, views[i]) == 0)
			return code == EOPNOTSUPP;
	return false;
}

/* The checksum of an unreadable file has to fail with the same error. */
static void check_same(struct walk *w, uint64_t node, int code)
{
	struct optimfs_error err = { 0 };
	size_t len;
	char *sum;

	if (strncmp(w->path, ".optimfs", 8) == 0)
		return;
	if (optimfs_getxattr(w->fs, node, "user.optimfs.crc32", &sum, &len,
		&err) == 0)
		free(sum);
	if (err.code != code)
		complain(w, "its checksum fails with another error");
}

static int visit(void *ctx, const struct optimfs_dirent *e)
{
	struct walk *w = ctx;
	size_t n = strlen(w->path);
	struct optimfs_error err = { 0 };
	const char *why = NULL;

	snprintf(w->path + n, sizeof(w->path) - n, "%s%s", n == 0 ? "" : "/",
	    e->name);
	if (e->mode == S_IFDIR) {
		if (optimfs_readdir(w->fs, e->attr->node, 0, true, visit, w,
			&err) == -1)
			why = err.text;
	} else {
		w->files++;
		why = check_file(w, e->attr, &err);
	}
	if (why != NULL && e->mode != S_IFDIR)
		check_same(w, e->attr->node, err.code);
	if (why != NULL && wants_more(w, err.code))
		why = NULL;
	if (why != NULL && w->but != NULL && w->but->code == err.code)
		w->refused++;
	else if (why != NULL)
		complain(w, why);
	w->path[n] = '\0';
	return 0;
}

static void walk_all(struct optimfs *fs, const char *name,
    const struct exception *but)
{
	struct walk w = { .fs = fs, .but = but };
	struct optimfs_error err = { 0 };
	struct optimfs_attr top;

	if (optimfs_readdir(fs, OPTIMFS_ROOT, 0, true, visit, &w, &err) == -1)
		complain(&w, err.text);
	ok(w.files > 0, "%s has files", name);
	strcpy(w.path, ".optimfs");
	if (optimfs_resolve(fs, ".optimfs", &top, &err) == -1 ||
	    optimfs_readdir(fs, top.node, 0, true, visit, &w, &err) == -1)
		complain(&w, err.text);
	is_u64(w.bad, 0, "%s: every file reads, below .optimfs too", name);
	ok((w.refused > 0) == (but != NULL),
	    "%s: only the known exceptions fail", name);
}

static void check(const char *name)
{
	struct optimfs_error err = { 0 };
	const struct exception *but = NULL;
	struct optimfs *fs;
	char path[600];

	for (size_t i = 0; i < sizeof(exceptions) / sizeof(*exceptions); i++)
		if (strcmp(name, exceptions[i].name) == 0)
			but = &exceptions[i];
	snprintf(path, sizeof(path), "extra/%s", name);
	fs = optimfs_open(data_path(path), NULL, &err);
	if (but != NULL && but->open != 0) {
		ok(fs == NULL && err.code == but->open, "%s cannot be opened",
		    name);
		diag("%s", err.text);
	} else if (ok(fs != NULL, "%s opens", name)) {
		walk_all(fs, name, but);
	} else {
		diag("%s", err.text);
	}
	optimfs_close(fs);
}

static void check_folder(const char *folder)
{
	struct optimfs_error err;
	struct ofs_names names;
	struct ofs_dir dir;
	char name[512];

	snprintf(name, sizeof(name), "extra/%s", folder);
	if (ofs_dir_open(data_path(name), &dir, &err) == -1 ||
	    ofs_dir_list(&dir, &names, &err) == -1)
		bail_out("%s", err.text);
	ok(names.n > 0, "tests/data/extra/%s has checkpoints", folder);
	for (size_t i = 0; i < names.n; i++) {
		snprintf(name, sizeof(name), "%s/%s", folder, names.name[i]);
		check(name);
	}
	ofs_names_free(&names);
	ofs_dir_close(&dir);
}

static void is_attribute(struct optimfs *fs, uint64_t node, const char *path,
    const char *name, const char *want)
{
	struct optimfs_error err;
	char *value = NULL;
	size_t len;

	if (optimfs_getxattr(fs, node, name, &value, &len, &err) == -1)
		is_error(err, ENODATA, want, "%s has no %s", path, name);
	else
		is_str(value, want, "%s has the right %s", path, name);
	free(value);
}

/* Scale and zero point of quantized tensors, where the checkpoint has them. */
static void check_scale(const char *path, const char *tensor, const char *scale,
    const char *zero_point)
{
	struct optimfs_error err;
	struct optimfs *fs = optimfs_open(data_path(path), NULL, &err);
	struct optimfs_attr attr;

	if (fs == NULL || optimfs_resolve(fs, tensor, &attr, &err) == -1)
		bail_out("%s", err.text);
	is_attribute(fs, attr.node, path, "user.optimfs.scale", scale);
	is_attribute(fs, attr.node, path, "user.optimfs.zero_point",
	    zero_point);
	optimfs_close(fs);
}

int main(void)
{
	check_scale("extra/torch_save/quant.pt", "model/tensor", "0.1", "0");
	check_scale("extra/torch_save/plain.pt", "model/a", "no attribute",
	    "no attribute");
	check_scale("pytorch/dtypes_new/ckpt", "model/t.quint8", "no attribute",
	    "no attribute");
	check_folder("dcp_variants");
	check_folder("trainers");
	check_folder("torch_save");
	return done_testing();
}
