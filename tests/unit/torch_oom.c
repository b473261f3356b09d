/* torch_oom.c - reading torch.save files with each allocation failing */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "format/part.h"
#include "format/torch/torch.h"
#include "mktorch.h"
#include "mkzip.h"
#include "oom.h"
#include "tap.h"

/* Dicts, lists, values, a view, a damaged tensor, a hidden one, a duplicate
 * key, a call of an unknown class. */
static void put_object(struct ofs_buf *b)
{
	mk_ops(b, "}(");
	mk_str(b, "view");
	mk_tensor(b,
	    &(struct mk_tensor){
		.numel = 4, .ndim = 2, .shape = { 2, 2 }, .stride = { 1, 2 } });
	mk_str(b, "list");
	mk_ops(b, "](](");
	mk_good(b, "0");
	mk_ops(b, "eNe");
	mk_str(b, "damaged");
	mk_good(b, "9");
	mk_str(b, "again");
	mk_ops(b, "N");
	mk_str(b, "again");
	mk_ops(b, "N");
	mk_str(b, "hidden");
	mk_global(b, "my.package", "Thing");
	ofs_buf_put(b, ")\x81}", 3);
	mk_str(b, "weight");
	mk_good(b, "0");
	mk_ops(b, "sbu");
}

static void put_archive(struct ofs_buf *out)
{
	struct mkzip z = { 0 };
	struct ofs_buf b = { 0 };

	mk_begin(&b);
	put_object(&b);
	mk_end(&b);
	mkzip_add(&z, "x/data.pkl", b.data, b.len);
	mkzip_add(&z, "x/data/0", "0123456789abcdef", 16);
	mkzip_add(&z, "x/code/a.py", "", 0);
	mkzip_add(&z, "x/code/", "", 0);
	mkzip_add(&z, "x/version", "3\n", 2);
	mkzip_end(&z);
	ofs_buf_put(out, z.b.data, z.b.len);
	ofs_buf_fini(&b);
	mkzip_fini(&z);
}

static void put_legacy(struct ofs_buf *out)
{
	ofs_buf_put(out,
	    "\x80\2\x8a\12\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19."
	    "\x80\2M\xe9\3.\x80\2}X\15\0\0\0little_endian\x88s.",
	    15 + 6 + 24);
	mk_begin(out);
	put_object(out);
	mk_end(out);
	mk_begin(out);
	mk_ops(out, "](U\0010U\0019e");
	mk_end(out);
	ofs_buf_put(out, "\4\0\0\0\0\0\0\0000123456789abcdef\4", 25);
}

/* The catalog is made before allocations fail; catalog.c tests that. */
static int attempt(const char *dir, const char *name, long n, bool *reached,
    uint32_t *entries, struct optimfs_error *err)
{
	char path[256];
	struct ofs_part part = { .format = &ofs_format_torch, .rank = -1 };
	struct ofs_catalog *cat;
	struct ofs_dir d;
	int ret;

	strcpy(path, name);
	part.rel = path;
	*err = (struct optimfs_error){ 0 };
	if (ofs_dir_open(dir, &d, err) == -1)
		bail_out("%s", err->text);
	cat = ofs_catalog_new(&d, err);
	left = n;
	ret = ofs_format_torch.read(cat, &part, NULL, err);
	*reached = left == 0;
	left = -1;
	*entries = cat->nentries;
	ofs_catalog_free(cat);
	return ret;
}

static void sweep(const char *what, void (*put)(struct ofs_buf *out))
{
	struct ofs_buf out = { 0 };
	struct optimfs_error err;
	struct handmade h;
	uint32_t all, entries;
	size_t wrong = 0;
	bool reached;
	long n;

	put(&out);
	handmade_init(&h);
	handmade_file(&h, "x.pt", out.data, out.len);
	is_int(attempt(h.dir, "x.pt", -1, &reached, &all, &err), 0,
	    "%s is read", what);
	for (n = 1; n < 5000; n++) {
		int ret = attempt(h.dir, "x.pt", n, &reached, &entries, &err);

		if (!reached)
			break;
		/* A failed realloc that shrinks memory does no harm. */
		if (ret == 0 && entries == all)
			continue;
		if (ret == 0 || err.code != ENOMEM) {
			diag("call %ld: %d %s", n, ret, err.text);
			wrong++;
		}
	}
	ok(n > 10 && n < 5000,
	    "%s: reading makes %ld allocations that can fail", what, n);
	is_u64(wrong, 0, "%s: each failed allocation gives ENOMEM", what);
	handmade_fini(&h);
	ofs_buf_fini(&out);
}

int main(void)
{
	sweep("an archive", put_archive);
	sweep("a stream", put_legacy);
	return done_testing();
}
