/* olmo.c - OLMo's local checkpoints, which need no units= option */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "optimfs/optimfs.h"

#include "mktorch.h"
#include "support/listing.h"
#include "support/truth.h"
#include "tap.h"

/* The parameters of tests/data/extra/olmo_local/make.py. */
static const struct {
	const char *name;
	unsigned n;
} params[] = { { "wte.weight", 15 }, { "ln.bias", 3 },
	{ "blocks.0.att.weight", 9 }, { "blocks.0.b", 2 },
	{ "blocks.0.c", 7 } };

static bool is(struct optimfs *fs, const char *path, unsigned n, float first)
{
	struct optimfs_error err;
	float v[32];
	ssize_t got = listing_read_at(fs, path, v, sizeof(v), 0, &err);

	if (got != (ssize_t)(n * sizeof(*v))) {
		diag("%s: %zd bytes %s", path, got, err.text);
		return false;
	}
	for (unsigned i = 0; i < n; i++)
		if (v[i] != first + (float)i)
			return false;
	return true;
}

static void check(const char *name)
{
	struct optimfs_options o = { .strict = true };
	struct optimfs_error err = { 0 };
	struct optimfs_attr attr;
	struct optimfs *fs = optimfs_open(data_path(name), &o, &err);
	char path[128];

	if (!ok(fs != NULL, "%s opens without units=: %s", name, err.text))
		return;
	for (unsigned i = 0; i < sizeof(params) / sizeof(*params); i++) {
		snprintf(path, sizeof(path), "model/%s", params[i].name);
		ok(is(fs, path, params[i].n, 1000.f * (float)i),
		    "%s: values of %s", name, path);
		snprintf(path, sizeof(path), "optim/state/%s/exp_avg",
		    params[i].name);
		ok(is(fs, path, params[i].n, 1000.f * (float)i + .5f),
		    "%s: values of %s", name, path);
		snprintf(path, sizeof(path), "optim/state/%s/step",
		    params[i].name);
		ok(optimfs_resolve(fs, path, &attr, &err) == 0, "%s: %s exists",
		    name, path);
	}
	ok(optimfs_resolve(fs, "model/modules", &attr, &err) == -1,
	    "%s: the flat parameters' handles are not in the tree", name);
	optimfs_close(fs);
}

/* metadata.yaml gives the number of ranks, even if their files are missing. */
static void lost_rank(void)
{
	struct optimfs_options o = { 0 };
	struct optimfs_error err = { 0 };
	struct handmade h;
	struct optimfs *fs;
	struct optimfs_attr attr;
	char command[1024];

	handmade_init(&h);
	snprintf(command, sizeof(command),
	    "cp -r %s/model %s && rm %s/model/rank1.pt",
	    data_path("extra/olmo_local/new"), h.dir, h.dir);
	if (system(command) != 0)
		bail_out("%s", command);
	handmade_file(&h, "metadata.yaml",
	    "local_world_size: 1\nworld_size: 2\n", 34);
	fs = optimfs_open(h.dir, &o, &err);
	ok(fs != NULL &&
		optimfs_resolve(fs, "model/wte.weight", &attr, &err) == 0,
	    "the job's world_size in metadata.yaml is found: %s", err.text);
	optimfs_close(fs);
	handmade_fini(&h);
}

/* A list of n references to memo entry i, which becomes entry i + 1. */
static void put_list(struct ofs_buf *b, char i, unsigned n)
{
	mk_ops(b, "](");
	while (n-- > 0) {
		ofs_buf_putc(b, 'h');
		ofs_buf_putc(b, i);
	}
	mk_ops(b, "eq");
	ofs_buf_putc(b, i + 1);
}

/* Lists that are in others many times would become gigabytes of text. */
static void unfolds(void)
{
	struct optimfs_error err;
	struct mktorch m;

	mktorch_init(&m);
	mk_line(&m.pickle, "x");
	mk_ops(&m.pickle,
	    "q\1"
	    "0");
	put_list(&m.pickle, 1, 20000);
	mk_ops(&m.pickle, "0");
	put_list(&m.pickle, 2, 20000);
	mk_ops(&m.pickle, "0}(");
	mk_str(&m.pickle, "modules");
	mk_ops(&m.pickle, "](}(");
	mk_str(&m.pickle, "handles");
	mk_ops(&m.pickle, "](}(");
	mk_str(&m.pickle, "flat_param.data");
	mk_good(&m.pickle, "0");
	mk_str(&m.pickle, "flat_param._numels");
	mk_tuple(&m.pickle, 1, (int64_t[]){ 4 });
	mk_str(&m.pickle, "flat_param._fqns");
	mk_ops(&m.pickle, "h\3ueueu");
	mk_end(&m.pickle);
	is_int(mktorch_read(&m, NULL, &err), -1,
	    "handles whose lists unfold without bound are refused");
	is_error(err, EUCLEAN, "OFS162", "the error for such handles");
	ok(strstr(err.text, "more than 64 MiB") != NULL,
	    "it names the limit: %s", err.text);
	mktorch_fini(&m);
}

int main(void)
{
	check("extra/olmo_local/new");
	check("extra/olmo_local/old");
	check("extra/olmo_local/noshard");
	check("extra/olmo_local/hybrid");
	lost_rank();
	unfolds();
	return done_testing();
}
