/* olmo.c - OLMo's local checkpoints, which need no units= option */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>

#include "optimfs/optimfs.h"

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
	struct optimfs_error err = { 0 };
	struct optimfs_file *file;
	struct optimfs_attr attr;
	float v[32];
	ssize_t got;

	if (optimfs_resolve(fs, path, &attr, &err) == -1 ||
	    optimfs_file_open(fs, attr.node, &file, &err) == -1) {
		diag("%s: %s", path, err.text);
		return false;
	}
	got = optimfs_file_read(file, v, sizeof(v), 0, &err);
	optimfs_file_close(file);
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

int main(void)
{
	check("extra/olmo_local/new");
	check("extra/olmo_local/old");
	check("extra/olmo_local/noshard");
	check("extra/olmo_local/hybrid");
	return done_testing();
}
