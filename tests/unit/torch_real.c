/* torch_real.c - files that PyTorch wrote */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/part.h"
#include "format/torch/torch.h"
#include "mktorch.h"
#include "support/sha256.h"
#include "support/truth.h"
#include "tap.h"

static unsigned nfiles, ntensors;

/* A finished catalog of the file, whose directory is not the one that
 * mktorch_init makes. */
static int read_real(struct mktorch *m, const char *path,
    struct optimfs_error *err)
{
	char *dir = strdup(path), *name;
	struct ofs_part part = { .format = &ofs_format_torch, .rank = -1 };
	struct ofs_dir d;
	int ret = -1;

	*m = (struct mktorch){ 0 };
	if (dir == NULL)
		bail_out("out of memory");
	name = strrchr(dir, '/');
	*name++ = '\0';
	part.rel = name;
	if (ofs_dir_open(dir, &d, err) == 0) {
		m->h.cat = ofs_catalog_new(&d, err);
		ret = ofs_format_torch.read(m->h.cat, &part, NULL, err);
	}
	if (ret == 0)
		ret = ofs_catalog_finish(m->h.cat, err);
	free(dir);
	return ret;
}

/* Does what a rank saved there say how many ranks there were? */
static bool tells_world(const char *path)
{
	return strstr(path, "/checkpointable_") == NULL;
}

/* Every tensor of a file reads; those of some kinds say why they do not. */
static void read_tensors(const struct mktorch *m, const char *path)
{
	const struct ofs_catalog *cat = m->h.cat;

	for (uint32_t i = 0; i < cat->nentries; i++) {
		const struct ofs_tensor *t;
		struct optimfs_error err;
		uint64_t n;
		void *buf;

		if (cat->entries[i].kind != OFS_ENTRY_TENSOR)
			continue;
		t = &cat->tensors[cat->entries[i].ref];
		n = ofs_tensor_bytes(cat, t);
		buf = malloc(n + 1);
		if (t->error != OFS_NONE)
			ok(strncmp(cat->notes[t->error].text, "OFS533", 6) == 0,
			    "%s: %s", path, cat->notes[t->error].text);
		else if (mktorch_entry(m, &cat->entries[i], buf, n, &err) == -1)
			ok(err.code == EIO &&
				(cat->world_size > 1 || !tells_world(path)),
			    "%s: tensor %u, of which other ranks have the "
			    "rest: %s",
			    path, i, err.text);
		else
			ntensors++;
		free(buf);
	}
}

static bool has_end(const char *path, const char *end)
{
	size_t n = strlen(path), m = strlen(end);

	return n > m && strcmp(path + n - m, end) == 0;
}

static int visit(const char *path, const struct stat *st, int type,
    struct FTW *ftw)
{
	struct optimfs_error err = { 0 };
	struct mktorch m;

	(void)st;
	(void)ftw;
	if (type != FTW_F ||
	    /* one rank's flat parameters are nothing alone: olmo.c */
	    strstr(path, "/olmo_local/") != NULL ||
	    !(has_end(path, ".pt") || has_end(path, ".ckpt") ||
		has_end(path, "_fsdp.bin") || has_end(path, "optimizer.bin")))
		return 0;
	nfiles++;
	if (read_real(&m, path, &err) == 0)
		read_tensors(&m, path);
	else /* what torch gave up while writing it has no data.pkl */
		ok(strncmp(err.text, "OFS524", 6) == 0 &&
			(has_end(path, "int4.pt") || has_end(path, "size.pt")),
		    "%s: %s", path, err.text);
	ofs_catalog_free(m.h.cat);
	return 0;
}

static void everything(void)
{
	nftw(data_path(""), visit, 16, FTW_PHYS);
	ok(nfiles > 100, "%u files were read", nfiles);
	ok(ntensors > 500, "with %u tensors", ntensors);
}

/* The path as truth_read joins it. */
static char *path_of(const struct ofs_catalog *cat, const struct ofs_entry *e)
{
	struct ofs_buf b = { 0 };
	uint32_t n;
	const uint32_t *c = ofs_catalog_components(cat, e->path, &n);

	for (uint32_t i = 0; i < n; i++) {
		struct ofs_str s = ofs_catalog_string(cat, c[i]);

		if (i > 0)
			ofs_buf_puts(&b, TRUTH_SEP);
		ofs_buf_put(&b, s.p, s.len);
	}
	ofs_buf_putc(&b, '\0');
	return (char *)b.data;
}

static bool is_true(const struct mktorch *m, const struct ofs_entry *e,
    const struct truth *t)
{
	uint8_t *bytes = malloc(t->bytes + 1);
	struct optimfs_error err;
	char hex[65] = "";

	if (mktorch_entry(m, e, bytes, t->bytes, &err) == 0)
		sha256_hex(bytes, t->bytes, hex);
	else
		diag("%s", err.text);
	free(bytes);
	return strcmp(hex, t->sha256) == 0;
}

/* A file of torchsave_full against what PyTorch held when it wrote it. */
static void compare(const char *rel)
{
	struct optimfs_error err;
	struct mktorch m;
	struct truth *truth;
	size_t n, ntrue = 0, wanted = 0;

	truth = truth_read("pytorch/torchsave_full", &n);
	for (size_t i = 0; i < n; i++)
		wanted += truth[i].sha256 != NULL;
	is_int(read_real(&m, data_path(rel), &err), 0, "%s", rel);
	for (uint32_t i = 0; i < m.h.cat->nentries; i++) {
		const struct ofs_entry *e = &m.h.cat->entries[i];
		char *path = path_of(m.h.cat, e);
		const struct truth *t = truth_find(truth, n, path);

		if (t == NULL)
			ok(false, "%s: %s is new", rel, path);
		else if (e->kind != OFS_ENTRY_TENSOR)
			ok(t->sha256 == NULL, "%s: a value", path);
		else if (is_true(&m, e, t))
			ntrue++;
		else
			ok(false, "%s: %s has other bytes", rel, path);
		free(path);
	}
	ok(wanted > 100, "a manifest of %zu tensors", wanted);
	is_u64(ntrue, wanted, "%s: all are what they were", rel);
	ofs_catalog_free(m.h.cat);
	truth_free(truth, n);
}

int main(void)
{
	everything();
	compare("pytorch/torchsave_full/ckpt/state.pt");
	compare("pytorch/torchsave_full/ckpt/state_legacy.pt");
	return done_testing();
}
