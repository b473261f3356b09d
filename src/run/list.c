/* list.c - the checkpoints of a run, as a list and in words */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/checked.h"
#include "base/error.h"
#include "base/human.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "base/step.h"
#include "run/places.h"
#include "run/run.h"

/* Why a member is not in steps/. */
static void put_why(const struct ofs_run_member *m, char *why, size_t size)
{
	if (m->found.kind == OFS_RUN_UNFINISHED)
		snprintf(why, size, "%s", m->found.why);
	else if (m->twice)
		snprintf(why, size,
		    "another checkpoint has step %" PRIu64
		    ", too: this one is by-name/%s",
		    m->step, ofs_path_last(m->name));
	else if (m->count == OFS_RUN_NOTHING)
		snprintf(why, size, "its name tells no step");
	else if (!m->told)
		snprintf(why, size,
		    "the number in its name counts something else than those "
		    "of the other names");
	else
		why[0] = '\0';
}

static int give_member(const struct ofs_run_member *m,
    optimfs_run_entry_fn *each, void *ctx)
{
	char why[400], path[300];
	struct optimfs_run_entry e = {
		.name = m->name,
		.step = m->count == OFS_RUN_NOTHING ? -1 : (int64_t)m->step,
		.complete = m->found.kind == OFS_RUN_COMPLETE,
		.format = m->found.format,
		.mtime_ns = m->found.mtime_ns,
		.why = why,
	};

	put_why(m, why, sizeof(why));
	if (why[0] == '\0')
		snprintf(path, sizeof(path), "steps/%" PRIu64, m->step);
	else
		snprintf(path, sizeof(path), "by-name/%s",
		    ofs_path_last(m->name));
	if (e.complete)
		e.path = path;
	if (e.complete && !m->told)
		e.step = -1;
	return each(ctx, &e);
}

int optimfs_run_list(struct optimfs *fs, optimfs_run_entry_fn *each, void *ctx,
    struct optimfs_error *err)
{
	struct ofs_run_members *members;
	struct ofs_run_member m;
	uint64_t from = 0;
	int ret = 0;

	if (fs->run == NULL)
		return optimfs_fail(err, EINVAL, "%s is not a run", fs->source);
	members = &fs->run->members;
	if (ofs_run_refresh(members, err) == -1)
		return -1;
	while (ret == 0 &&
	    ofs_run_member(members, ofs_run_member_from(members, from), &m)) {
		ret = give_member(&m, each, ctx);
		from = m.step + 1;
	}
	for (uint32_t i = 0; ret == 0 && ofs_run_member(members, i, &m); i++)
		if (!m.gone && m.known && m.found.kind != OFS_RUN_OTHER &&
		    (!m.told || m.twice))
			ret = give_member(&m, each, ctx);
	return ret;
}

/* What a run is. */

struct run_counts {
	uint32_t steps, others, unfinished;
	int64_t first, last;
};

static int count_entry(void *ctx, const struct optimfs_run_entry *e)
{
	struct run_counts *c = ctx;

	if (!e->complete) {
		c->unfinished++;
	} else if (e->why[0] != '\0') {
		c->others++;
	} else {
		c->first = c->steps == 0 ? e->step : c->first;
		c->last = e->step;
		c->steps++;
	}
	return 0;
}

static void put_line(const struct run_counts *c, struct ofs_buf *out)
{
	ofs_buf_printf(out, "%u checkpoint%s", c->steps + c->others,
	    c->steps + c->others == 1 ? "" : "s");
	if (c->steps == 1)
		ofs_buf_printf(out, ", step %" PRId64, c->last);
	else if (c->steps > 1)
		ofs_buf_printf(out, ", steps %" PRId64 " to %" PRId64, c->first,
		    c->last);
	if (c->others > 0 && c->steps > 0)
		ofs_buf_printf(out, "; %u only in by-name/", c->others);
	if (c->unfinished > 0)
		ofs_buf_printf(out, "; %u not finished", c->unfinished);
}

static void count_files(const struct ofs_catalog *cat,
    struct optimfs_run_facts *facts)
{
	if (cat->computed == NULL)
		facts->format = cat->format;
	for (uint32_t i = 0; i < cat->nnotes; i++)
		facts->damaged |= cat->notes[i].kind == OFS_NOTE_ERROR ||
		    ofs_note_is_loss(&cat->notes[i]);
	facts->ranks = cat->world_size > 0 ? (uint32_t)cat->world_size : 0;
	facts->bytes = cat->own;
	for (uint32_t i = 0; i < cat->nobjects; i++) {
		const struct ofs_object *o = &cat->objects[i];

		if (cat->computed == NULL)
			ofs_sum_u64(&facts->bytes, o->size);
		facts->damaged |=
		    o->missing || o->examined || o->refused || o->damaged;
		if (cat->world_size <= 0 && o->rank >= 0 &&
		    (uint32_t)o->rank >= facts->ranks)
			facts->ranks = (uint32_t)o->rank + 1;
	}
}

int optimfs_run_facts(struct optimfs *run, const char *name,
    struct optimfs_run_facts *facts, struct optimfs_error *err)
{
	struct optimfs *fs = optimfs_run_open(run, name, err);
	struct optimfs_run_facts found = { 0 };

	if (fs == NULL)
		return -1;
	found.problems = optimfs_summary(fs, "", OPTIMFS_SUMMARY_PROBLEMS, err);
	if (found.problems != NULL) {
		count_files(fs->now->cat, &found);
		*facts = found;
	}
	optimfs_close(fs);
	return found.problems == NULL ? -1 : 0;
}

/* One row of the table: an entry, and what its index says. */
struct run_row {
	struct optimfs_run_facts facts;
	bool read;
	struct optimfs_error why; /* it cannot be read */
};

struct run_table {
	struct ofs_run_dir *run;
	struct ofs_buf *out;
	struct ofs_json_writer *w; /* NULL: as text */
	bool read;                 /* indexes, too */
	struct optimfs_error *err;
};

/* Opens what the entry is. -1: ENOMEM. */
static int read_row(const struct run_table *t,
    const struct optimfs_run_entry *e, struct run_row *row)
{
	*row = (struct run_row){ .read = t->read && e->complete };
	if (!row->read ||
	    optimfs_run_facts(t->run->fs, e->path, &row->facts, &row->why) ==
		0) {
		if (row->facts.format == NULL)
			row->facts.format = e->format;
		return 0;
	}
	row->facts.format = e->format;
	row->facts.damaged = true;
	return ofs_must_stop(&row->why) ? optimfs_fail_with(t->err, &row->why)
					: 0;
}

/* What is wrong with it, in words; "": nothing. */
static const char *wrong(const struct run_row *row)
{
	return row->why.code != 0         ? row->why.text
	    : row->facts.problems == NULL ? ""
					  : row->facts.problems;
}

static void put_json_row(struct ofs_json_writer *w,
    const struct optimfs_run_entry *e, const struct run_row *row)
{
	ofs_json_open(w, NULL, '{');
	ofs_json_put_string(w, "name", e->name);
	ofs_json_put_rank(w, "step", e->step);
	ofs_json_put_string(w, "path", e->path);
	ofs_json_put_bool(w, "complete", e->complete);
	ofs_json_put_string(w, "why", e->why[0] == '\0' ? NULL : e->why);
	ofs_json_put_string(w, "format", row->facts.format);
	ofs_json_put_i64(w, "mtime_ns", e->mtime_ns);
	if (row->read) {
		ofs_json_put_rank(w, "ranks",
		    row->facts.ranks == 0 ? -1 : (int64_t)row->facts.ranks);
		ofs_json_put_u64(w, "bytes", row->facts.bytes);
		ofs_json_put_bool(w, "damaged", row->facts.damaged);
		ofs_json_put_string(w, "problems",
		    wrong(row)[0] == '\0' ? NULL : wrong(row));
	}
	ofs_json_close(w, '}');
}

static void put_text_row(struct ofs_buf *out, const struct optimfs_run_entry *e,
    const struct run_row *row)
{
	time_t when = (time_t)(e->mtime_ns / 1000000000);
	char date[32], size[OFS_HUMAN_SIZE], step[24] = "-", ranks[16] = "-";
	struct tm tm;

	strftime(date, sizeof(date), "%Y-%m-%d %H:%M", localtime_r(&when, &tm));
	if (e->step >= 0)
		snprintf(step, sizeof(step), "%" PRId64, e->step);
	if (row->facts.ranks > 0)
		snprintf(ranks, sizeof(ranks), "%u", row->facts.ranks);
	ofs_buf_printf(out, "%10s  %-16s  %-11s  %5s  %9s  %s", step, date,
	    row->facts.format == NULL ? "-" : row->facts.format, ranks,
	    row->facts.problems == NULL
		? "-"
		: ofs_human_bytes(row->facts.bytes, size),
	    !e->complete             ? "unfinished"
		: row->facts.damaged ? "damaged"
				     : "complete");
	ofs_buf_puts(out, "  ");
	ofs_buf_plain(out, e->name, strlen(e->name));
	if (e->why[0] != '\0')
		ofs_buf_printf(out, ": %s", e->why);
	if (wrong(row)[0] != '\0')
		ofs_buf_printf(out, ": %s", wrong(row));
	ofs_buf_putc(out, '\n');
}

static int put_row(void *ctx, const struct optimfs_run_entry *e)
{
	struct run_table *t = ctx;
	struct run_row row;

	if (read_row(t, e, &row) == -1)
		return -1;
	if (t->w != NULL)
		put_json_row(t->w, e, &row);
	else
		put_text_row(t->out, e, &row);
	free(row.facts.problems);
	return 0;
}

static int put_json(struct ofs_run_dir *run, bool read, struct ofs_buf *out,
    struct optimfs_error *err)
{
	struct ofs_json_writer w = { out, " ", false };
	struct run_table table = { run, out, &w, read, err };
	char *mount = ofs_mount_says(run->fs, &run->fs->mount_info);
	int ret;

	ofs_json_open(&w, NULL, '{');
	ofs_json_put_string(&w, "schema", "optimfs.info.run");
	ofs_json_put_u64(&w, "v", 1);
	ofs_json_put_string(&w, "kind", "run");
	ofs_json_put_string(&w, "source", run->fs->source);
	ofs_json_put_string(&w, "format", "run");
	ofs_json_open(&w, "checkpoints", '[');
	ret = optimfs_run_list(run->fs, put_row, &table, err);
	ofs_json_close(&w, ']');
	ofs_json_open(&w, "options", '{');
	ofs_json_put_string(&w, "run", "yes");
	ofs_info_meaning(&run->options, &w);
	ofs_json_close(&w, '}');
	if (mount != NULL)
		ofs_json_put_raw(&w, "mount", mount);
	ofs_json_close(&w, '}');
	ofs_buf_putc(out, '\n');
	free(mount);
	return ret;
}

int ofs_run_info(struct ofs_run_dir *run, struct ofs_buf *out,
    struct optimfs_error *err)
{
	return put_json(run, false, out, err);
}

static int put_text(struct ofs_run_dir *run, struct ofs_buf *out,
    struct optimfs_error *err)
{
	struct run_table table = { run, out, NULL, true, err };
	struct run_counts c = { 0 };

	if (optimfs_run_list(run->fs, count_entry, &c, err) == -1)
		return -1;
	ofs_buf_printf(out, "%s\na run of ", run->fs->source);
	put_line(&c, out);
	ofs_buf_printf(out, "\n%10s  %-16s  %-11s  %5s  %9s\n", "step", "date",
	    "format", "ranks", "size");
	return optimfs_run_list(run->fs, put_row, &table, err);
}

static int put_summary(struct ofs_run_dir *run, enum optimfs_summary_form form,
    struct ofs_buf *out, struct optimfs_error *err)
{
	struct run_counts c = { 0 };
	int ret = 0;

	switch (form) {
	case OPTIMFS_SUMMARY_PROBLEMS:
		return 0;
	case OPTIMFS_SUMMARY_LINE:
		ret = optimfs_run_list(run->fs, count_entry, &c, err);
		put_line(&c, out);
		return ret;
	case OPTIMFS_SUMMARY_JSON:
		return put_json(run, true, out, err);
	case OPTIMFS_SUMMARY_BOTH:
		ret = put_json(run, true, out, err);
		/* fallthrough */
	case OPTIMFS_SUMMARY_TEXT:
		return ret == -1 ? -1 : put_text(run, out, err);
	}
	return ret;
}

/* Of a path in a tree of the run, the tree's own summary. */
static char *summary_below(struct ofs_run_dir *run, const char *path,
    enum optimfs_summary_form form, struct optimfs_error *err)
{
	struct ofs_run_found found;
	struct optimfs *fs = NULL;
	const char *rest;
	char *text = NULL;
	int ret = ofs_run_resolve_name(run, path, &rest, &found, err);

	if (ret == 0)
		optimfs_fail(err, EINVAL,
		    "OFS851 %.200s: of a run, only its checkpoints have a "
		    "summary",
		    path);
	else if (ret == 1)
		fs = ofs_run_tree_open(&run->trees, found.tree, err);
	if (fs != NULL)
		text = optimfs_summary(fs, rest, form, err);
	optimfs_close(fs);
	return text;
}

char *ofs_run_summary(struct optimfs *fs, const char *path,
    enum optimfs_summary_form form, struct optimfs_error *err)
{
	struct ofs_buf out = { 0 };
	int ret;

	path += strspn(path, "/");
	if (path[0] != '\0')
		return summary_below(fs->run, path, form, err);
	ret = put_summary(fs->run, form, &out, err);
	if (ret == 0)
		return ofs_buf_text(&out, err);
	ofs_buf_fini(&out);
	return NULL;
}
