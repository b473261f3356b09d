/* torch_real.c - files that PyTorch wrote */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/format.h"
#include "format/json.h"
#include "mktorch.h"
#include "sha256.h"
#include "tap.h"

static unsigned nfiles, ntensors;

static char *data_path(const char *rel)
{
	const char *top = getenv("TOP_SRCDIR");
	char *path;

	if (asprintf(&path, "%s/tests/data/%s", top == NULL ? "." : top, rel) ==
	    -1)
		bail_out("out of memory");
	return path;
}

/* A catalog of the file, finished; ends the test when it cannot be made. The
 * directory in m is not the one that mktorch_init makes. */
static int read_real(struct mktorch *m, const char *path,
    struct optimfs_error *err)
{
	char *dir = strdup(path), *name;
	struct ofs_part part = { .rank = -1 };
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

static const char *next_line(const char *text, char line[4096])
{
	size_t n = strcspn(text, "\n");

	snprintf(line, 4096, "%.*s", (int)n, text);
	return text + n + (text[n] == '\n');
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
			ok(false, "%s: tensor %u: %s", path, i, err.text);
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
	int ret;

	(void)st;
	(void)ftw;
	if (type != FTW_F || strstr(path, "/expected/") != NULL ||
	    !(has_end(path, ".pt") || has_end(path, ".ckpt") ||
		has_end(path, "_fsdp.bin") || has_end(path, "optimizer.bin")))
		return 0;
	ret = read_real(&m, path, &err);
	nfiles++;
	if (ret == 0)
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
	char *dir = data_path("");

	nftw(dir, visit, 16, FTW_PHYS);
	ok(nfiles > 100, "%u files were read", nfiles);
	ok(ntensors > 500, "with %u tensors", ntensors);
	free(dir);
}

/* The manifest of what PyTorch held when it wrote the files: a list of
 * {"path": [keys], "bytes": how many, "sha256": their digest}, or values. */
struct manifest {
	struct ofs_json j;
	struct optimfs_error err;
	char path[4096], digest[65];
	size_t bytes;
};

static void read_path(struct manifest *mf)
{
	size_t n = 0;

	ofs_json_next(&mf->j, &mf->err);
	while (ofs_json_next(&mf->j, &mf->err) != OFS_JSON_ARRAY_END)
		n += (size_t)snprintf(mf->path + n, sizeof(mf->path) - n,
		    "%s%.*s", n == 0 ? "" : "/", (int)mf->j.str.len,
		    mf->j.str.p);
}

/* The member whose key was just read. */
static void read_member(struct manifest *mf)
{
	char key[16];

	snprintf(key, sizeof(key), "%.*s", (int)mf->j.str.len, mf->j.str.p);
	if (strcmp(key, "path") == 0) {
		read_path(mf);
		return;
	}
	ofs_json_skip(&mf->j, ofs_json_next(&mf->j, &mf->err), &mf->err);
	if (strcmp(key, "bytes") == 0)
		mf->bytes = (size_t)mf->j.integer;
	if (strcmp(key, "sha256") == 0)
		snprintf(mf->digest, sizeof(mf->digest), "%.*s",
		    (int)mf->j.str.len, mf->j.str.p);
}

/* The next leaf that is a tensor; false at the end. */
static bool next_leaf(struct manifest *mf)
{
	enum ofs_json_token t = ofs_json_next(&mf->j, &mf->err);

	for (mf->digest[0] = '\0'; t != OFS_JSON_ARRAY_END;
	     t = ofs_json_next(&mf->j, &mf->err)) {
		if (t == OFS_JSON_ERROR || t == OFS_JSON_END)
			bail_out("manifest: %s", mf->err.text);
		if (t == OFS_JSON_OBJECT_END && mf->digest[0] != '\0')
			return true;
		if (t == OFS_JSON_KEY)
			read_member(mf);
	}
	return false;
}

static uint8_t *read_file(const char *path, size_t *n)
{
	FILE *f = fopen(path, "re");
	uint8_t *p = malloc(1 << 20);

	if (f == NULL || p == NULL)
		bail_out("%s: %s", path, strerror(errno));
	*n = fread(p, 1, 1 << 20, f);
	fclose(f);
	return p;
}

/* "a/#0/b" and "a/0/b" are the same here. */
static const struct ofs_entry *find(const struct mktorch *m, const char *path)
{
	const char *text = mktorch_paths(m);
	char line[4096], plain[4096];

	for (uint32_t i = 0; *text != '\0'; i++) {
		size_t n = 0;

		text = next_line(text, line);
		for (const char *c = line + 2; *c != '\0'; c++)
			if (*c != '#')
				plain[n++] = *c;
		plain[n] = '\0';
		if (line[0] == 'T' && strcmp(plain, path) == 0)
			return &m->h.cat->entries[i];
	}
	return NULL;
}

static bool is_same(const struct mktorch *m, const struct manifest *mf,
    const char *name)
{
	const struct ofs_entry *e = find(m, mf->path);
	uint8_t *got = malloc(mf->bytes + 1);
	struct optimfs_error err;
	char hex[65] = "";

	if (e == NULL)
		ok(false, "%s: %s is not there", name, mf->path);
	else if (mktorch_entry(m, e, got, mf->bytes, &err) == -1)
		ok(false, "%s: %s: %s", name, mf->path, err.text);
	else
		sha256_hex(got, mf->bytes, hex);
	if (hex[0] != '\0' && strcmp(hex, mf->digest) != 0)
		ok(false, "%s: %s has other bytes", name, mf->path);
	free(got);
	return strcmp(hex, mf->digest) == 0;
}

static void compare(const char *name)
{
	char *list = data_path("pytorch/torchsave_full/expected/manifest.json");
	char *dir = data_path("pytorch/torchsave_full/ckpt/"), file[4096];
	struct manifest mf = { 0 };
	struct optimfs_error err;
	struct mktorch m;
	size_t n, count = 0;
	uint8_t *text = read_file(list, &n);

	ofs_json_init(&mf.j, text, (uint32_t)n);
	ofs_json_next(&mf.j, &mf.err);
	snprintf(file, sizeof(file), "%s%s", dir, name);
	is_int(read_real(&m, file, &err), 0, "%s", name);
	while (next_leaf(&mf))
		count += is_same(&m, &mf, name);
	ok(count > 100, "%s: %zu tensors are what they were", name, count);
	ofs_json_fini(&mf.j);
	ofs_catalog_free(m.h.cat);
	free(text);
	free(list);
	free(dir);
}

int main(void)
{
	char hex[65];

	sha256_hex("abc", 3, hex);
	is_str(hex,
	    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	    "the digest of FIPS 180-4");
	everything();
	compare("state.pt");
	compare("state_legacy.pt");
	return done_testing();
}
