/* files.c - the generated files in .optimfs of a run */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "run/run.h"

/* A path or name in a line of text. */
static void put_plain(struct ofs_buf *out, const char *s)
{
	ofs_buf_plain(out, s, strlen(s));
}

static void readme_text(struct ofs_run_dir *run, struct ofs_buf *out)
{
	ofs_buf_puts(out, "These are the checkpoints in\n\n    ");
	put_plain(out, ofs_fs_place(run->fs));
	ofs_buf_printf(out, "\n\nshown by optimfs %s. ", optimfs_version());
	ofs_buf_puts(out,
	    "Beside this directory:\n"
	    "\n"
	    "    steps/<step>/     what the checkpoint of this step shows, as "
	    "if it were\n"
	    "                      mounted alone, with its .optimfs\n"
	    "    latest, first     links to the last and the first of them\n"
	    "    by-name/<name>    the names of the directory: links, and what "
	    "is not in\n"
	    "                      steps/, because its name tells no step, or "
	    "the same step\n"
	    "                      as another\n"
	    "    delta/<a>..<b>    step b less step a\n"
	    "    avg/<steps>       the average of 1000,2000 or 1000-5000 or "
	    "last5\n"
	    "    ema/<d>@<steps>   their exponential moving average\n"
	    "    lerp/<a>,<b>@<t>  (1 - t) times step a and t times step b\n"
	    "\n"
	    "A checkpoint appears when it is complete. It is read when "
	    "something in it is\nused. In this directory, which listings of "
	    "the root leave out:\n"
	    "\n"
	    "    steps.tsv         one line per checkpoint, unfinished ones, "
	    "too\n"
	    "    warnings          what is not in steps/, and why\n"
	    "    errors            what failed, and why\n"
	    "    info.json         what this is, options\n"
	    "    stats             counters\n"
	    "\n"
	    "Without a mount: optimfs info RUN, optimfs ls RUN:latest, "
	    "optimfs diff RUN:1000 RUN:latest.\n");
}

static int put_line(void *ctx, const struct optimfs_run_entry *e)
{
	struct ofs_buf *out = ctx;

	if (e->step < 0)
		ofs_buf_puts(out, "-\t");
	else
		ofs_buf_printf(out, "%" PRId64 "\t", e->step);
	put_plain(out, e->name);
	ofs_buf_printf(out, "\t%s\t%s\t%" PRId64 ".%09d\t",
	    e->complete ? "complete" : "unfinished",
	    e->format == NULL ? "-" : e->format, e->mtime_ns / 1000000000,
	    (int)(e->mtime_ns % 1000000000));
	put_plain(out, e->why[0] == '\0' ? "-" : e->why);
	ofs_buf_putc(out, '\n');
	return 0;
}

static void steps_text(struct ofs_run_dir *run, struct ofs_buf *out)
{
	ofs_buf_puts(out, "step\tname\tstate\tformat\tmtime\twhy\n");
	(void)optimfs_run_list(run->fs, put_line, out, NULL);
}

static int put_warning(void *ctx, const struct optimfs_run_entry *e)
{
	struct ofs_buf *out = ctx;

	if (e->why[0] == '\0')
		return 0;
	put_plain(out, e->name);
	ofs_buf_puts(out, e->complete ? ": " : ": not finished: ");
	put_plain(out, e->why);
	ofs_buf_putc(out, '\n');
	return 0;
}

static void warnings_text(struct ofs_run_dir *run, struct ofs_buf *out)
{
	(void)optimfs_run_list(run->fs, put_warning, out, NULL);
}

static void errors_text(struct ofs_run_dir *run, struct ofs_buf *out)
{
	ofs_failures_text(&run->fs->failures, out);
}

static void info_text(struct ofs_run_dir *run, struct ofs_buf *out)
{
	(void)ofs_run_info(run, out, NULL);
}

static void stats_text(struct ofs_run_dir *run, struct ofs_buf *out)
{
	char *more = ofs_mount_says(run->fs, &run->fs->stats);

	ofs_buf_printf(out,
	    "open_checkpoints %" PRIu32 "\nfailures %" PRIu64 "\n",
	    ofs_run_nopen(&run->trees), ofs_failures_count(&run->fs->failures));
	if (more != NULL)
		ofs_buf_puts(out, more);
	free(more);
}

const struct ofs_run_file ofs_run_files[] = {
	{ "README", readme_text },
	{ "errors", errors_text },
	{ "info.json", info_text },
	{ "stats", stats_text },
	{ "steps.tsv", steps_text },
	{ "warnings", warnings_text },
};
const uint32_t ofs_run_nfiles =
    sizeof(ofs_run_files) / sizeof(ofs_run_files[0]);
