/* claims.c - tensors of which an index claims more than anybody could store */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "optimfs/analyze.h"

#include "support/dcp_writer.h"
#include "tap.h"

/* Each case has a tensor "big", of which its index claims 2^53 elements and four
 * exist, and a sound one, "good". Work on all of them never ends. */
enum { WITHOUT_END_S = 300 };

static const float data[4] = { 1, 2, 3, 4 };
static const struct mk_dims four = { 1, { 4 } }, zero = { 1, { 0 } };

static const struct claim {
	const char *name;
	struct mk_dims size, chunk;
	const char *fill; /* -o fill= */
} claims[] = {
	{ "a long tensor without most of its shards",
	    { 1, { INT64_C(1) << 53 } }, { 1, { 4 } }, NULL },
	{ "a long tensor in one shard", { 1, { INT64_C(1) << 53 } },
	    { 1, { INT64_C(1) << 53 } }, NULL },
	{ "a wide tensor without most of its shards",
	    { 2, { 2, INT64_C(1) << 52 } }, { 2, { 2, 2 } }, NULL },
	{ "a long moment without most of its shards, which are zeros",
	    { 1, { INT64_C(1) << 53 } }, { 1, { 4 } }, "zero" },
};

static void write_checkpoint(const char *dir, const struct claim *c)
{
	static const char *const key[] = { "big", "good" };
	struct mk_index index = { .ntensors = 2 };
	struct ofs_buf file = { 0 }, pk = { 0 };

	for (int i = 0; i < 2; i++) {
		struct mk_tensor *t = &index.tensor[i];

		*t = (struct mk_tensor){ .key = key[i],
			.path = { "optim", "state", key[i], "exp_avg" },
			.dtype = "float32",
			.size = i == 0 ? c->size : four,
			.nchunks = 1 };
		t->chunk[0].size = i == 0 ? c->chunk : four;
		t->chunk[0].off =
		    i == 0 ? (struct mk_dims){ c->size.n, { 0 } } : zero;
		t->chunk[0].at.file = "__0_0.distcp";
		t->chunk[0].at.off = (int64_t)file.len;
		t->chunk[0].at.len = (int64_t)mk_write_tensor(&file,
		    "FloatStorage", &t->chunk[0].size, data, sizeof(data));
	}
	mk_write_index(&pk, &index);
	mk_file(dir, ".metadata", pk.data, pk.len);
	mk_file(dir, "__0_0.distcp", file.data, file.len);
	ofs_buf_fini(&pk);
	ofs_buf_fini(&file);
}

struct seen {
	unsigned good, bad, zeros;
};

static int see(void *ctx, const struct optimfs_tensor *t,
    const struct optimfs_statistics *s, const struct optimfs_error *err)
{
	struct seen *seen = ctx;

	(void)err;
	seen->good += s != NULL && strstr(t->path, "good") != NULL;
	seen->bad += s == NULL && strstr(t->path, "big") != NULL;
	seen->zeros +=
	    s != NULL && s->sum == 10 && s->zeros == ((uint64_t)1 << 53) - 4;
	return 0;
}

static void symptom(void *ctx, const struct optimfs_symptom *s)
{
	(void)ctx;
	(void)s;
}

static void parameter(void *ctx, const struct optimfs_parameter *p)
{
	(void)ctx;
	(void)p;
}

static void try(const struct claim *c, unsigned jobs)
{
	const struct optimfs_scan how = { .jobs = jobs };
	struct optimfs_checkup out = { .symptom = symptom,
		.parameter = parameter };
	struct seen seen = { 0 };
	struct optimfs_error err;
	struct optimfs *fs;
	uint64_t n;
	char dir[64];

	mk_dir(dir);
	write_checkpoint(dir, c);
	fs = optimfs_open(dir, &(struct optimfs_options){ .fill = c->fill },
	    &err);
	if (fs == NULL)
		bail_out("%s: %s", c->name, err.text);
	is_int(optimfs_statistics_tree(fs, "/", false, &how, see, &seen, &err),
	    0, "%s: statistics by %u threads end", c->name, jobs);
	is_int((int)seen.bad, c->fill == NULL, "%s: it is reported once",
	    c->name);
	is_int((int)seen.zeros, c->fill != NULL, "%s: zeros are counted",
	    c->name);
	is_int((int)seen.good, 1, "%s: a sound tensor has statistics", c->name);
	is_int(optimfs_check(fs, &how, &out, &n, &err), 0, "%s: a check ends",
	    c->name);
	optimfs_close(fs);
	mk_remove(dir);
}

int main(void)
{
	alarm(WITHOUT_END_S);
	for (size_t i = 0; i < sizeof(claims) / sizeof(claims[0]); i++) {
		try(&claims[i], 1);
		try(&claims[i], 4);
	}
	return done_testing();
}
