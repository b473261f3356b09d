/* model_files.c - files that describe a model, in a checkpoint or beside it */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "family/model_files.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "read/fetch.h"

/* The file that the tree has below extra/, as a tensor of bytes; NULL. */
static const struct ofs_tensor *find_file(const struct ofs_catalog *cat,
    const char *name)
{
	for (uint32_t i = 0; i < cat->nentries; i++) {
		const struct ofs_entry *e = &cat->entries[i];
		const struct ofs_tensor *t = ofs_entry_tensor(cat, e);
		const uint32_t *c;
		uint32_t n;

		if (t == NULL || (t->flags & OFS_TENSOR_FILE) == 0 ||
		    e->tree == OFS_NONE)
			continue;
		c = ofs_catalog_components(cat, e->tree, &n);
		if (n >= 2 && ofs_catalog_string_is(cat, c[0], "extra") &&
		    ofs_catalog_string_is(cat, c[n - 1], name))
			return t;
	}
	return NULL;
}

static int read_tensor(struct ofs_reader *r, const struct ofs_tensor *t,
    const char *name, uint64_t max, struct ofs_buf *out,
    struct optimfs_error *err)
{
	uint64_t n = ofs_tensor_bytes(r->cat, t);

	if (n > max)
		return optimfs_fail(err, E2BIG,
		    "OFS440 %s: %" PRIu64 " bytes, limit %" PRIu64, name, n,
		    max);
	if (n == 0)
		return 1;
	ofs_buf_reserve(out, n);
	if (out->bad)
		return ofs_no_memory(err);
	if (ofs_fetch_elements(r, t, 0, n, out->data + out->len, err) == -1)
		return -1;
	out->len += n;
	return 1;
}

static int read_in(const struct ofs_dir *dir, const char *sub, const char *name,
    uint64_t max, struct ofs_buf *out, struct optimfs_error *err)
{
	char rel[256];
	uint8_t *bytes;
	uint64_t n;

	if (dir == NULL)
		return 0;
	snprintf(rel, sizeof(rel), "%s%s", sub, name);
	if (ofs_dir_read_file(dir, rel, max, &bytes, &n, err) == -1)
		return err->code == ENOENT || err->code == ENOTDIR ? 0 : -1;
	ofs_buf_put(out, bytes, n);
	free(bytes);
	return out->bad ? ofs_no_memory(err) : 1;
}

int ofs_model_files_read(const struct ofs_model_files *b, const char *name,
    uint64_t max, struct ofs_buf *out, struct optimfs_error *err)
{
	const struct ofs_dir *own = &b->reader->cat->dir;
	const struct {
		const struct ofs_dir *dir;
		const char *sub;
	} places[] = {
		{ own, "" },
		{ own, "huggingface/" },
		{ b->given, "" },
		{ b->given, "huggingface/" },
	};
	const struct ofs_tensor *t = find_file(b->reader->cat, name);
	int ret = 0;

	err = OFS_SOME_ERROR(err);
	if (t != NULL)
		return read_tensor(b->reader, t, name, max, out, err);
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && ret == 0;
	     i++)
		ret =
		    read_in(places[i].dir, places[i].sub, name, max, out, err);
	return ret;
}
