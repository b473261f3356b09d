/* torch_real.c - torch.save files written by PyTorch */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>

#include "format/part.h"
#include "format/torch/torch.h"
#include "mktorch.h"
#include "base/sha256.h"
#include "support/truth.h"
#include "tap.h"

static unsigned nfiles, ntensors;

/* A finished catalog of the file. Its directory is not the temporary one of
 * mktorch_init. */
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

/* Do files of this directory record the number of ranks? */
static bool tells_world(const char *path)
{
	return strstr(path, "/checkpointable_") == NULL;
}

/* All tensors of a file can be read, except unsupported kinds and parts on
 * other ranks. */
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
			ok(cat->notes[t->error].code == EOPNOTSUPP,
			    "%s: an unreadable tensor is unsupported: %s", path,
			    cat->notes[t->error].text);
		else if (mktorch_entry(m, &cat->entries[i], buf, n, &err) == -1)
			ok(err.code == EIO &&
				(cat->world_size > 1 || !tells_world(path)),
			    "%s: unreadable tensor %u is on other ranks: %s",
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
	    /* A rank's flat parameters cannot be read alone; see olmo.c. */
	    strstr(path, "/olmo_local/") != NULL ||
	    !(has_end(path, ".pt") || has_end(path, ".ckpt") ||
		has_end(path, "_fsdp.bin") || has_end(path, "optimizer.bin")))
		return 0;
	nfiles++;
	if (read_real(&m, path, &err) == 0)
		read_tensors(&m, path);
	else /* torch failed to write these: data.pkl is missing */
		ok(strncmp(err.text, "OFS524", 6) == 0 &&
			(has_end(path, "int4.pt") || has_end(path, "size.pt")),
		    "%s: an unreadable file is unfinished: %s", path, err.text);
	ofs_catalog_free(m.h.cat);
	return 0;
}

static void everything(void)
{
	nftw(data_path(""), visit, 16, FTW_PHYS);
	ok(nfiles > 100, "%u files are read", nfiles);
	ok(ntensors > 500, "%u tensors are read", ntensors);
}

/* The path with separators as in truth_read. */
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
		ofs_sha256_of(bytes, t->bytes, hex);
	else
		diag("%s", err.text);
	free(bytes);
	return strcmp(hex, t->sha256) == 0;
}

/* Compares a file of torchsave_full with the manifest of what PyTorch saved. */
static void compare(const char *rel)
{
	struct optimfs_error err;
	struct mktorch m;
	struct truth *truth;
	size_t n, ntrue = 0, wanted = 0;

	truth = truth_read("pytorch/torchsave_full", &n);
	for (size_t i = 0; i < n; i++)
		wanted += truth[i].sha256 != NULL;
	is_int(read_real(&m, data_path(rel), &err), 0, "%s is read", rel);
	for (uint32_t i = 0; i < m.h.cat->nentries; i++) {
		const struct ofs_entry *e = &m.h.cat->entries[i];
		char *path = path_of(m.h.cat, e);
		const struct truth *t = truth_find(truth, n, path);

		if (t == NULL)
			ok(false, "%s: %s is in the manifest", rel, path);
		else if (e->kind != OFS_ENTRY_TENSOR)
			ok(t->sha256 == NULL,
			    "%s: the manifest has a value, not a tensor", path);
		else if (is_true(&m, e, t))
			ntrue++;
		else
			ok(false, "%s: %s has the bytes of the manifest", rel,
			    path);
		free(path);
	}
	ok(wanted > 100, "the manifest has %zu tensors", wanted);
	is_u64(ntrue, wanted, "%s: all tensors of the manifest are equal", rel);
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
