/* meta.c - the static files of .optimfs: README, stats, control */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/human.h"
#include "cluster/gpu/gather.h"
#include "cluster/manifest.h"
#include "cluster/transport.h"
#include "fs/fs.h"
#include "fs/view.h"
#include "overlay/overlay.h"

static void put_layouts(struct ofs_buf *out)
{
	const char *name;
	bool ranked;

	for (unsigned i = 0; (name = optimfs_layout(i, &ranked)) != NULL; i++)
		ofs_buf_printf(out, " %s%s", name, ranked ? "@N" : "");
}

static void readme_text(struct ofs_snapshot *snap, struct ofs_buf *out)
{
	const char *where = ofs_fs_place(snap->fs);

	ofs_buf_puts(out, "This is the checkpoint\n\n    ");
	ofs_buf_plain(out, where, strlen(where));
	ofs_buf_printf(out, "\n\nshown by optimfs %s. ", optimfs_version());
	ofs_buf_puts(out,
	    "Beside this directory:\n"
	    "\n"
	    "    optim/state/<fqn>/<name>    exp_avg, exp_avg_sq, step, ...\n"
	    "    optim/param_groups/<i>/...  lr, betas, weight_decay, ...\n"
	    "    model/<fqn>                 parameters and buffers\n"
	    "    extra/...                   everything else\n"
	    "\n"
	    "A tensor file has only the elements: C order, little-endian, "
	    "whatever the\nsharding. All other files are text. "
	    "getfattr -d FILE shows dtype and shape.\n"
	    "In this directory, which listings of the root leave out:\n"
	    "\n"
	    "    info.json      what this is, counts, options\n"
	    "    tensors.tsv    one line per tensor\n"
	    "    npy/...        the tensors for numpy.load(FILE, "
	    "mmap_mode=\"r\")\n"
	    "    npy32/...      bf16, fp16 and fp8 as float32, which NumPy has\n"
	    "    f32/...        all tensors as float32, those of 8 or 4 bits "
	    "unpacked\n"
	    "    layout/...     where each tensor's shards are, as JSON\n"
	    "    rank/<r>/...   what one rank holds\n"
	    "    stat/...       statistics of each tensor\n"
	    "    missing        state that is absent\n"
	    "    warnings       what was repaired, ignored, damaged or lost\n"
	    "    errors         what failed, and why: programs print only "
	    "\"Invalid argument\"\n"
	    "    globals        every global that a pickle names\n"
	    "    stats          counters\n"
	    "    control        the state of the mount\n"
	    "    view/dcp@16/   the checkpoint in another layout, which cp -r "
	    "writes out.\n"
	    "                   Layouts (optimfs info says which of them "
	    "are possible here):\n"
	    "                  ");
	put_layouts(out);
	ofs_buf_puts(out, "\n\noptimfs(5) has the details.\n");
}

static void put_dirty(struct ofs_buf *out, const struct optimfs_status *s)
{
	char bytes[OFS_HUMAN_SIZE];

	ofs_buf_printf(out, "dirty %" PRIu64 " file%s, %s\n", s->files,
	    s->files == 1 ? "" : "s", ofs_human_bytes(s->bytes, bytes));
}

/* With several ranks, one is the writer. */
static void put_writer(const struct ofs_snapshot *snap, struct ofs_buf *out)
{
	const struct ofs_manifest *s;

	if (snap->overlay != NULL || snap->fs->options.group == NULL)
		return;
	s = ofs_manifest_of(snap->cat->dir.names);
	if (s->written)
		ofs_buf_printf(out,
		    "read-only rank 0 (%s) writes; mount again to see what it "
		    "has committed\n",
		    optimfs_group_host(s->group, 0));
}

static void control_text(struct ofs_snapshot *snap, struct ofs_buf *out)
{
	struct optimfs_status s;

	optimfs_status(snap->fs, &s);
	if (s.percent >= 0)
		ofs_buf_printf(out,
		    "committing %d%% %" PRIu64 " %" PRIu64 " %s\n", s.percent,
		    s.done, s.total, s.doing);
	else if (s.files == 0)
		ofs_buf_puts(out, "clean\n");
	else
		put_dirty(out, &s);
	if (s.scratch)
		ofs_buf_puts(out, "scratch\n");
	else if (s.explicit_commit)
		ofs_buf_puts(out, "explicit\n");
	put_writer(snap, out);
	ofs_control_result(snap->fs, out);
}

static void errors_text(struct ofs_snapshot *snap, struct ofs_buf *out)
{
	ofs_failures_text(&snap->fs->failures, out);
}

static void put_stat(struct ofs_buf *out, const char *name, uint64_t v)
{
	ofs_buf_printf(out, "%s %" PRIu64 "\n", name, v);
}

static void put_memory(struct ofs_buf *out)
{
	unsigned long long total, resident;
	FILE *f = fopen("/proc/self/statm", "re");

	if (f == NULL)
		return;
	if (fscanf(f, "%llu %llu", &total, &resident) == 2)
		put_stat(out, "memory.resident",
		    resident * (uint64_t)sysconf(_SC_PAGESIZE));
	fclose(f);
}

/* Adds the statistics of the mount, if there is one. */
static void put_mount_stats(struct ofs_snapshot *snap, struct ofs_buf *out)
{
	char *lines = ofs_mount_says(snap->fs, &snap->fs->stats);

	if (lines != NULL)
		ofs_buf_puts(out, lines);
	free(lines);
}

static void put_transport(struct ofs_transport *t, struct ofs_buf *out)
{
	const char *name = t->ops->name;
	struct ofs_counters *c = &t->counters;
	const struct {
		const char *name;
		_Atomic uint64_t *v;
	} row[] = {
		{ "requests", &c->requests },
		{ "bytes", &c->bytes },
		{ "reads", &c->reads },
		{ "read_bytes", &c->read_bytes },
		{ "decoded", &c->decoded },
		{ "cache_hits", &c->hits },
		{ "cache_misses", &c->misses },
		{ "cached", &c->cached },
		{ "wait_ns", &c->wait_ns },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(*row); i++)
		ofs_buf_printf(out, "%s.%s %" PRIu64 "\n", name, row[i].name,
		    atomic_load(row[i].v));
}

static void stats_text(struct ofs_snapshot *snap, struct ofs_buf *out)
{
	struct ofs_texts *t = &snap->texts;
	struct ofs_transport *local;

	put_stat(out, "files.opened", atomic_load(&snap->fs->opens));
	put_stat(out, "files.reads", atomic_load(&snap->fs->reads));
	put_stat(out, "files.read_bytes", atomic_load(&snap->fs->read_bytes));
	local = ofs_transport_group_local(snap->reader.transport);
	if (local != NULL)
		put_transport(local, out);
	put_transport(snap->reader.transport, out);
	if (snap->fs->options.group != NULL)
		ofs_gpu_gather_stats(snap->fs->options.group, out);
	put_stat(out, "texts.hits", atomic_load(&t->hits));
	put_stat(out, "texts.misses", atomic_load(&t->misses));
	pthread_mutex_lock(&t->lock);
	put_stat(out, "texts.cached", t->bytes);
	pthread_mutex_unlock(&t->lock);
	put_stat(out, "cache.budget", snap->fs->options.cache);
	put_stat(out, "views.laid_out", ofs_views_laid_out(snap));
	put_stat(out, "failures", ofs_failures_count(&snap->fs->failures));
	put_memory(out);
	put_mount_stats(snap, out);
}

/* Sorted by name, except for the directory itself, which is first. */
const struct ofs_static_node ofs_static_nodes[OFS_NSTATIC] = {
	[OFS_STATIC_TOP] = { .name = ".optimfs" },
	[OFS_STATIC_README] = { .name = "README", .text = readme_text },
	[OFS_STATIC_CONTROL] = { .name = "control",
	    .text = control_text,
	    .live = true },
	[OFS_STATIC_ERRORS] = { .name = "errors",
	    .text = errors_text,
	    .live = true },
	[OFS_STATIC_F32] = { .name = "f32", .space = OFS_SPACE_F32 },
	[OFS_STATIC_GLOBALS] = { .name = "globals",
	    .lines = &ofs_globals_lines },
	[OFS_STATIC_INFO] = { .name = "info.json", .text = ofs_info_json },
	[OFS_STATIC_LAYOUT] = { .name = "layout", .space = OFS_SPACE_LAYOUT },
	[OFS_STATIC_MISSING] = { .name = "missing",
	    .lines = &ofs_missing_lines },
	[OFS_STATIC_NPY] = { .name = "npy", .space = OFS_SPACE_NPY },
	[OFS_STATIC_NPY32] = { .name = "npy32", .space = OFS_SPACE_NPY32 },
	[OFS_STATIC_RANK] = { .name = "rank" },
	[OFS_STATIC_STAT] = { .name = "stat", .space = OFS_SPACE_STAT },
	[OFS_STATIC_STATS] = { .name = "stats",
	    .text = stats_text,
	    .live = true },
	[OFS_STATIC_TENSORS] = { .name = "tensors.tsv",
	    .lines = &ofs_tensors_lines },
	[OFS_STATIC_VIEW] = { .name = "view" },
	[OFS_STATIC_WARNINGS] = { .name = "warnings",
	    .lines = &ofs_warnings_lines },
};

/* Of a new checkpoint: what has not been written yet. */
static void put_unwritten(struct ofs_snapshot *snap, struct ofs_buf *out)
{
	ofs_overlay_missing(snap->overlay, out);
}

const struct ofs_static_node *ofs_static_node(const struct ofs_snapshot *snap,
    uint32_t i)
{
	static const struct ofs_static_node missing = {
		.name = "missing", .text = put_unwritten, .live = true
	};

	return i == OFS_STATIC_MISSING && snap->overlay != NULL &&
		ofs_overlay_hides(snap->overlay)
	    ? &missing
	    : &ofs_static_nodes[i];
}
