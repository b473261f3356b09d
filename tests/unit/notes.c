/* notes.c - notes about a checkpoint in the files of .optimfs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimfs/optimfs.h"

#include "mktorch.h"
#include "mkzip.h"
#include "support/listing.h"
#include "tap.h"

/* The text of a file, in a static buffer; "" if there is no such file. */
static const char *text_of(struct optimfs *fs, const char *path)
{
	static char text[65536];
	ssize_t n = listing_read_at(fs, path, text, sizeof(text) - 1, 0, NULL);

	text[n < 0 ? 0 : n] = '\0';
	return text;
}

static void says(const char *path, const char *units, const char *where,
    const char *words)
{
	struct optimfs_options o = { .units = units };
	struct optimfs_error err = { 0 };
	struct optimfs *fs = optimfs_open(path, &o, &err);

	ok(fs != NULL && strstr(text_of(fs, where), words) != NULL,
	    "%s of %s has \"%s\" %s", where, path, words, err.text);
	optimfs_close(fs);
}

/* Checkpoints of tests/data. */
static void real(const char *data)
{
	static const struct {
		const char *name, *units, *where, *words;
	} cases[] = {
		{ "pytorch/fsdp1_local_orig_fullshard_w2/ckpt",
		    "pytorch/fsdp1_local_orig_fullshard_w2/units.json",
		    ".optimfs/warnings", "OFS167" },
		{ "deepspeed/v0.19.6_z1_ws2_elastic/ckpt", NULL,
		    ".optimfs/missing", "OFS697" },
		{ "deepspeed/z3_ws2_bf16/ckpt", NULL, ".optimfs/warnings",
		    "OFS698" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char path[512], units[512];

		snprintf(path, sizeof(path), "%s/%s", data, cases[i].name);
		snprintf(units, sizeof(units), "%s/%s", data,
		    cases[i].units == NULL ? "" : cases[i].units);
		says(path, cases[i].units == NULL ? NULL : units,
		    cases[i].where, cases[i].words);
	}
}

static void put_line(struct handmade *h, const char *name, const char *line)
{
	static const float floats[4];
	struct ofs_buf b = { 0 };
	struct mkzip z = { 0 };

	mk_begin(&b);
	mk_line(&b, line);
	mk_end(&b);
	mkzip_add(&z, "x/data.pkl", b.data, b.len);
	mkzip_add(&z, "x/data/0", floats, sizeof(floats));
	mkzip_add(&z, "x/version", "3\n", 2);
	mkzip_end(&z);
	handmade_file(h, name, z.b.data, z.b.len);
	mkzip_fini(&z);
	ofs_buf_fini(&b);
}

/* One file has the optimizer's state by name, another by number. */
static void twice(void)
{
	struct optimfs_error err = { 0 };
	struct optimfs_attr attr;
	struct optimfs *fs;
	struct handmade h;

	handmade_init(&h);
	put_line(&h, "named.pt",
	    "{state:{a:{exp_avg:t},b:{exp_avg:T}},"
	    "param_groups:[{lr:1,params:[a,b]}]}");
	put_line(&h, "numbers.pt",
	    "{state:{0:{exp_avg:t},1:{exp_avg:T}},"
	    "param_groups:[{lr:1,params:[0,1]}]}");
	fs = optimfs_open(h.dir, NULL, &err);
	ok(fs != NULL, "two files of one optimizer open: %s", err.text);
	if (fs == NULL)
		bail_out("%s", err.text);
	ok(strstr(text_of(fs, ".optimfs/warnings"), "OFS643 'numbers'") != NULL,
	    "the state by number is reported as a duplicate");
	is_int(optimfs_resolve(fs, "optim/state/b/exp_avg", &attr, &err), 0,
	    "the state by name is in the tree");
	is_int(optimfs_resolve(fs, "optim/state/1", &attr, &err), -1,
	    "the state by number is not in the tree");
	optimfs_close(fs);
	handmade_fini(&h);
}

int main(void)
{
	const char *top = getenv("TOP_SRCDIR");
	char data[256];

	snprintf(data, sizeof(data), "%s/tests/data", top == NULL ? "." : top);
	real(data);
	twice();
	return done_testing();
}
