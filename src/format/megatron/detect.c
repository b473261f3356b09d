/* detect.c - detection of Megatron-Core checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/step.h"
#include "base/str.h"
#include "format/dcp/dcp.h"
#include "format/dcp/update.h"
#include "format/megatron/megatron.h"
#include "format/probe.h"

/* Is want the string at name in a JSON object? 1, 0; -1: ENOMEM. */
static int json_says(const uint8_t *p, uint64_t n, const char *name,
    const char *want, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	enum ofs_json_token value;
	bool mine, found = false;
	struct ofs_json j;

	ofs_json_init(&j, p, (uint32_t)n);
	if (ofs_json_next(&j, &why) != OFS_JSON_OBJECT)
		goto out;
	while (ofs_json_next(&j, &why) == OFS_JSON_KEY) {
		mine = ofs_str_is(j.str, name);
		value = ofs_json_next(&j, &why);
		if (mine && value == OFS_JSON_STRING)
			found = ofs_str_is(j.str, want);
		if (ofs_json_skip(&j, value, &why) == -1)
			break;
	}
out:
	ofs_json_fini(&j);
	return why.code == ENOMEM ? ofs_no_memory(err) : found;
}

/* Does metadata.json name this backend? 1, 0 and -1, as
 * ofs_probe_text. */
static int has_backend(const struct ofs_dir *dir, const char *backend,
    struct optimfs_error *err)
{
	uint8_t *bytes;
	uint64_t n;
	int ret =
	    ofs_probe_text(dir, "metadata.json", 65536, &bytes, &n, err);

	if (ret != 1)
		return ret;
	ret = json_says(bytes, n, "sharded_backend", backend, err);
	free(bytes);
	return ret;
}

/* Until Megatron-Core 0.12 a tensor could be a zarr directory. */
static int refuse_zarr(const struct ofs_dir *dir, struct optimfs_error *err)
{
	int zarr = has_backend(dir, "zarr", err);

	if (zarr != 1)
		return zarr;
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS650 %s: Megatron-Core's zarr format is not supported: load it "
	    "and save it as torch_dist",
	    dir->path);
}

static int bid(const struct ofs_dir *dir, const struct ofs_names *names,
    struct optimfs_error *err)
{
	int here;

	if (ofs_dcp_sure(names) == 0)
		return refuse_zarr(dir, err);
	here = ofs_probe_is_file(dir, OFS_MEGATRON_FILE)
	    ? 1
	    : has_backend(dir, "torch_dist", err);
	if (here == -1)
		return -1;
	return here == 1 ? 100 : OFS_BID_ASKED;
}

/* The component "optimizer" of the common state in the path of a change; 0: it is
 * none of the optimizer's. */
static uint32_t common_optim(const struct ofs_commit_task *t)
{
	uint32_t at = ofs_str_is(t->path[0].s, OFS_MEGATRON_COMMON) ? 1 : 2;

	return ofs_str_begins(t->path[0].s, OFS_MEGATRON_COMMON) &&
		t->npath > at && ofs_str_is(t->path[at].s, "optimizer")
	    ? at
	    : 0;
}

/* Without the optimizer, the common state has nothing of it: it is removed as one,
 * with its tensors, of which no path in the source is known. (Those that are not
 * in the common state are removed with their keys.) */
static void drop_common_optim(struct ofs_commit *c)
{
	const struct ofs_commit_task *one = NULL;

	for (size_t i = 0; i < c->ntasks; i++) {
		struct ofs_commit_task *t = &c->task[i];
		uint32_t at = t->op == OFS_TASK_DROP ? common_optim(t) : 0;

		if (at == 0)
			continue;
		t->npath = at + 1;
		one = t;
	}
	for (size_t i = 0; one != NULL && i < c->ntasks; i++) {
		struct ofs_commit_task *t = &c->task[i];

		if (t->op != OFS_TASK_DROP ||
		    t->entry->kind != OFS_ENTRY_TENSOR)
			continue;
		t->path = one->path;
		t->npath = one->npath;
	}
}

static int update(struct ofs_commit *c, const struct ofs_part *part,
    struct optimfs_error *err)
{
	if (ofs_commit_drops_optim(c, NULL))
		drop_common_optim(c);
	return ofs_dcp_update(c, part, err);
}

/* How the optimizer is divided, and its groups of other ranks. */
static const char *const optim[] = { "extra/distributed",
	"extra/chained_*/distributed", NULL };

const struct ofs_format ofs_format_megatron = {
	.name = "megatron",
	.title = "Megatron-Core torch_dist (megatron)",
	.bid = bid,
	.trainer = "Megatron-Core",
	.beside = OFS_MEGATRON_FILE,
	.beside_prefix = OFS_MEGATRON_COMMON,
	.read = ofs_dcp_read,
	.join = ofs_megatron_join,
	.update = update,
	.fixed_names = true,
	.optim = optim,
	.holes = true,
};
