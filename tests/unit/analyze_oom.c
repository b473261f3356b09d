/* analyze_oom.c - failure of each allocation in statistics, checks,
 * comparisons and lookups */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "optimfs/analyze.h"

#include "oom.h"
#include "support/truth.h"
#include "tap.h"

/* One thread, so that the allocations come in the same order each time. */
static const struct optimfs_scan how = { .jobs = 1 };

struct run {
	struct optimfs *fs;
	uint64_t reported; /* tensors, ranks, parameters, bytes */
	bool wrong;        /* something failed for another reason than memory */
};

static int tensor(void *ctx, const struct optimfs_tensor *t,
    const struct optimfs_statistics *s, const struct optimfs_error *err)
{
	struct run *r = ctx;

	(void)t;
	r->reported++;
	r->wrong |= s == NULL && err->code != ENOMEM;
	return 0;
}

static int all_statistics(struct run *r, struct optimfs_error *err)
{
	return optimfs_statistics_tree(r->fs, "/", false, &how, tensor, r, err);
}

static int by_rank(struct run *r, struct optimfs_error *err)
{
	return optimfs_statistics_tree(r->fs, "model", true, &how, tensor, r,
	    err);
}

static void symptom(void *ctx, const struct optimfs_symptom *s)
{
	struct run *r = ctx;

	diag("%s: %s", s->path, s->text);
	r->wrong = true;
}

static void parameter(void *ctx, const struct optimfs_parameter *p)
{
	struct run *r = ctx;

	(void)p;
	r->reported++;
}

static int check(struct run *r, struct optimfs_error *err)
{
	struct optimfs_checkup out = {
		.symptom = symptom, .parameter = parameter, .ctx = r
	};
	uint64_t n;

	return optimfs_check(r->fs, &how, &out, &n, err);
}

static int compare(struct run *r, struct optimfs_error *err)
{
	struct optimfs_comparison c;
	struct optimfs_attr a, b;

	if (optimfs_resolve(r->fs, "model/layers.0.w1.weight", &a, err) == -1 ||
	    optimfs_resolve(r->fs, "model/layers.1.w1.weight", &b, err) == -1 ||
	    optimfs_compare(r->fs, a.node, r->fs, b.node, NULL, &how, &c,
		err) == -1)
		return -1;
	r->reported += c.differ;
	return 0;
}

static int holding(void *ctx, const struct optimfs_holding *h)
{
	struct run *r = ctx;

	r->reported += h->bytes;
	return 0;
}

static int holdings(struct run *r, struct optimfs_error *err)
{
	return optimfs_holdings(r->fs, "model/layers.0.w1.weight", holding, r,
	    err);
}

static int locate(struct run *r, struct optimfs_error *err)
{
	struct optimfs_location where;

	if (optimfs_locate(r->fs, "model/layers.0.w1.weight", -1, 125, &where,
		err) == -1)
		return -1;
	r->reported += where.offset;
	free(where.file);
	return 0;
}

/* The first lookup in a mirror makes a table of its files. */
static void lookup(struct optimfs *fs)
{
	struct optimfs_error err = { 0 };
	struct optimfs_attr dir, attr;

	if (optimfs_resolve(fs, ".optimfs/npy", &dir, &err) == -1)
		bail_out("%s", err.text);
	left = 1;
	is_int(optimfs_lookup(fs, dir.node, "model", &attr, &err), -1,
	    "a lookup in a mirror fails when an allocation fails");
	left = -1;
	is_error(err, ENOMEM, "OFS443", "with OFS443");
	is_int(optimfs_lookup(fs, dir.node, "model", &attr, &err), 0,
	    "the next lookup succeeds");
}

/* Let allocation 1, 2, 3 ... fail, until the call makes fewer of them. */
static void sweep(struct optimfs *fs, const char *name,
    int (*work)(struct run *r, struct optimfs_error *err))
{
	struct optimfs_error err = { 0 };
	struct run good = { .fs = fs };
	uint64_t wrong = 0, missed = 0;
	long n = 0;

	if (!ok(work(&good, &err) == 0, "%s succeeds when no allocation fails",
		name)) {
		diag("%s", err.text);
		return;
	}
	for (bool failed = true; failed && n < 100000;) {
		struct run r = { .fs = fs };
		int ret;

		err = (struct optimfs_error){ 0 };
		left = ++n;
		ret = work(&r, &err);
		failed = left <= 0;
		left = -1;
		if ((ret == -1 && err.number != 443) || r.wrong) {
			diag("call %ld: %s", n, err.text);
			wrong++;
		}
		missed += ret == 0 && r.reported != good.reported;
	}
	is_u64(wrong, 0,
	    "%s fails with OFS443 for each of %ld failed allocations", name,
	    n - 1);
	is_u64(missed, 0, "%s is complete whenever it reports success", name);
}

int main(void)
{
	struct optimfs_options o = { 0 };
	struct optimfs_error err = { 0 };
	struct optimfs *fs =
	    optimfs_open(data_path("pytorch/dcp_fsdp2_w4/ckpt"), &o, &err);

	if (!ok(fs != NULL, "the sample checkpoint is opened")) {
		diag("%s", err.text);
		return done_testing();
	}
	lookup(fs);
	sweep(fs, "statistics", all_statistics);
	sweep(fs, "statistics by rank", by_rank);
	sweep(fs, "check", check);
	sweep(fs, "compare", compare);
	sweep(fs, "holdings", holdings);
	sweep(fs, "locate", locate);
	optimfs_close(fs);
	return done_testing();
}
