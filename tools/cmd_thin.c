/* cmd_thin.c - optimfs thin: remove checkpoints of a run, or their optimizers */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/human.h"
#include "base/memory.h"
#include "base/step.h"
#include "cli/interrupt.h"
#include "fuse/mountinfo.h"
#include "tools/command.h"

/* What happens to a checkpoint. The names are those of --json. */
enum action { KEEP, REMOVE, REMOVED, DROP, DROPPED, FAILED };
static const char *const actions[] = { "keep", "remove", "removed", "drop",
	"dropped", "failed" };

struct row {
	char *name,
	    *path;    /* path: in the tree of the run; NULL: not in steps/ */
	int64_t step; /* -1: unknown */
	enum action action;
	char why[sizeof(((struct optimfs_error *)0)->text)];
	struct optimfs_run_weight weight; /* unless it is kept */
	uint64_t frees;                   /* bytes; of DROP: about */
};

struct thin {
	struct ofs_command *c;
	uint64_t last, every; /* 0: not given */
	struct row *row;      /* those in steps/ first, ascending */
	size_t n, cap, nsteps;
	unsigned left; /* half deleted ones of an earlier call */
	size_t removed;
	uint64_t bytes;
};

static void thin_fini(struct thin *t)
{
	for (size_t i = 0; i < t->n; i++) {
		free(t->row[i].name);
		free(t->row[i].path);
	}
	free(t->row);
}

static int add_row(void *ctx, const struct optimfs_run_entry *e)
{
	struct thin *t = ctx;
	bool is_step = e->complete && e->why[0] == '\0';
	struct row *r;

	if (ofs_grow(t->row, t->n, t->cap, NULL) == -1)
		return 1;
	r = &t->row[t->n++];
	*r = (struct row){ .name = strdup(e->name), .step = e->step };
	if (is_step)
		r->path = strdup(e->path);
	snprintf(r->why, sizeof(r->why), "%s",
	    is_step                                ? ""
		: e->complete || e->why[0] != '\0' ? e->why
						   : "not finished");
	t->nsteps += is_step;
	return r->name == NULL || (is_step && r->path == NULL);
}

static void keep(struct row *r, const char *why)
{
	r->action = KEEP;
	snprintf(r->why, sizeof(r->why), "%s", why);
}

static void fail(struct row *r, const struct optimfs_error *why)
{
	r->action = FAILED;
	snprintf(r->why, sizeof(r->why), "%s", why->text);
}

/* Keeps the last ones that are whole: a damaged one is kept, too, but does not
 * count, because the job may have to go back to an older one. */
static int keep_last(struct thin *t, struct optimfs_error *err)
{
	uint64_t want = t->last == 0 ? 1 : t->last, have = 0;

	for (size_t i = t->nsteps; i-- > 0 && have < want;) {
		struct optimfs_run_facts facts;
		struct row *r = &t->row[i];
		struct optimfs_error why;

		ofs_progress_step(&t->c->progress, have, want, r->name);
		if (optimfs_run_facts(t->c->fs, r->path, &facts, &why) == -1) {
			if (ofs_must_stop(&why))
				return optimfs_fail_with(err, &why);
			keep(r, "cannot be read, and is not counted");
			continue;
		}
		have += !facts.damaged;
		keep(r,
		    facts.damaged ? "damaged, and not counted"
				  : "one of the last");
		free(facts.problems);
	}
	return 0;
}

/* Is it mounted? Another mount name space is not seen; a mount for writing is
 * known by its lock. */
static bool keep_mounted(const struct thin *t, struct row *r)
{
	char *path, *point = NULL, *real = NULL;

	path = optimfs_run_path(t->c->fs, r->name, NULL);
	if (path != NULL)
		real = realpath(path, NULL);
	if (real != NULL)
		point = ofs_mountinfo_shows(real);
	if (point != NULL)
		snprintf(r->why, sizeof(r->why), "mounted at %.200s", point);
	free(path);
	free(real);
	free(point);
	return point != NULL;
}

static int measure_optim(struct thin *t, struct row *r,
    struct optimfs_error *err)
{
	struct optimfs *fs = optimfs_run_open(t->c->fs, r->path, err);
	int ret = fs == NULL ? -1 : optimfs_run_droppable(fs, &r->frees, err);

	if (ret == 0)
		keep(r, "has no optimizer");
	else if (ret == 1)
		r->action = DROP;
	optimfs_close(fs);
	return ret == -1 ? -1 : 0;
}

/* What is in use is kept. -1: the whole work must stop. */
static int measure(struct thin *t, struct row *r, struct optimfs_error *err)
{
	struct optimfs_error why;
	int ret;

	if (keep_mounted(t, r))
		return 0;
	ret = optimfs_run_weigh(t->c->fs, r->name, &r->weight, &why);
	if (ret == 0 && t->c->drop != NULL)
		ret = measure_optim(t, r, &why);
	else if (ret == 0) {
		r->action = REMOVE;
		r->frees = r->weight.bytes;
	}
	if (ret == 0)
		return 0;
	if (ofs_must_stop(&why))
		return optimfs_fail_with(err, &why);
	keep(r, why.text);
	return 0;
}

/* One that is not among the last ones. */
static int decide_one(struct thin *t, struct row *r, struct optimfs_error *err)
{
	int tracked = optimfs_run_tracked(t->c->fs, r->name, err);

	if (tracked == -1)
		return -1;
	if (tracked == 1)
		keep(r, "the job continues with it");
	else if (tracked == 2 && t->c->drop == NULL)
		keep(r, "a link leads to it");
	else if (t->every != 0 && (uint64_t)r->step % t->every == 0)
		keep(r, "its step is a multiple");
	else
		return measure(t, r, err);
	return 0;
}

/* Decides about all. */
static int decide(struct thin *t, struct optimfs_error *err)
{
	int ret;

	/* what is left of an earlier call keeps others from looking */
	if (optimfs_run_sweep(t->c->fs, (t->c->flags & OFS_YES) == 0, &t->left,
		err) == -1)
		return -1;
	ret = keep_last(t, err);
	for (size_t i = 0; ret == 0 && i < t->nsteps; i++) {
		struct row *r = &t->row[i];

		ofs_progress_step(&t->c->progress, i, t->nsteps, r->name);
		if (r->why[0] == '\0')
			ret = decide_one(t, r, err);
	}
	return ret;
}

static int drop_one(struct thin *t, struct row *r, struct optimfs_error *err)
{
	struct optimfs_run_weight now;

	if (optimfs_run_drop(t->c->fs, r->name, &r->weight, err) == -1)
		return -1;
	if (optimfs_run_weigh(t->c->fs, r->name, &now, NULL) == 0)
		r->frees = r->weight.bytes > now.bytes
		    ? r->weight.bytes - now.bytes
		    : 0;
	return 0;
}

/* One that cannot be removed does not end the work. */
static int remove_all(struct thin *t, struct optimfs_error *err)
{
	for (size_t i = 0; i < t->nsteps; i++) {
		struct row *r = &t->row[i];
		struct optimfs_error why;

		if (r->action != REMOVE && r->action != DROP)
			continue;
		ofs_progress_step(&t->c->progress, i, t->nsteps, r->name);
		if (ofs_interrupted(NULL))
			return optimfs_fail(err, ECANCELED, "interrupted");
		if ((r->action == DROP ? drop_one(t, r, &why)
				       : optimfs_run_remove(t->c->fs, r->name,
					     &r->weight, &why)) == 0) {
			r->action = r->action == DROP ? DROPPED : REMOVED;
			continue;
		}
		fail(r, &why);
	}
	return 0;
}

static void count(struct thin *t)
{
	for (size_t i = 0; i < t->nsteps; i++)
		if (t->row[i].action != KEEP && t->row[i].action != FAILED) {
			t->removed++;
			ofs_sum_u64(&t->bytes, t->row[i].frees);
		}
}

static void print_json(const struct thin *t)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	ofs_json_begin(&w, &b, "optimfs.thin");
	ofs_json_put_string(&w, "source", t->c->checkpoint);
	ofs_json_put_bool(&w, "done", (t->c->flags & OFS_YES) != 0);
	ofs_json_put_u64(&w, t->c->drop != NULL ? "dropped" : "removed",
	    t->removed);
	ofs_json_put_u64(&w, "bytes", t->bytes);
	ofs_json_open(&w, "checkpoints", '[');
	for (size_t i = 0; i < t->n; i++) {
		const struct row *r = &t->row[i];

		ofs_json_open(&w, NULL, '{');
		ofs_json_put_string(&w, "name", r->name);
		ofs_json_put_rank(&w, "step", r->step);
		ofs_json_put_string(&w, "action", actions[r->action]);
		ofs_json_put_string(&w, "why",
		    r->why[0] == '\0' ? NULL : r->why);
		if (r->action != KEEP)
			ofs_json_put_u64(&w, "bytes", r->frees);
		ofs_json_close(&w, '}');
	}
	ofs_json_close(&w, ']');
	ofs_json_print(&w);
}

static void print_row(const struct row *r)
{
	char size[OFS_HUMAN_SIZE] = "-", step[24] = "-";
	struct ofs_buf b = { 0 };

	if (r->step >= 0)
		snprintf(step, sizeof(step), "%" PRId64, r->step);
	if (r->action != KEEP)
		ofs_human_bytes(r->frees, size);
	ofs_buf_printf(&b, "%10s  %9s  %-7s  ", step, size, actions[r->action]);
	ofs_buf_plain(&b, r->name, strlen(r->name));
	if (r->why[0] != '\0') {
		ofs_buf_puts(&b, ": ");
		ofs_buf_plain(&b, r->why, strlen(r->why));
	}
	ofs_buf_putc(&b, '\n');
	ofs_print_buf(&b);
}

static void print_text(const struct thin *t)
{
	bool done = (t->c->flags & OFS_YES) != 0, drop = t->c->drop != NULL;
	char size[OFS_HUMAN_SIZE];

	printf("%10s  %9s\n", "step", drop ? "frees" : "size");
	for (size_t i = 0; i < t->n; i++)
		print_row(&t->row[i]);
	printf("%zu of %zu checkpoints %s, which free%s %s%s%s\n", t->removed,
	    t->n,
	    drop ? done ? "lost their optimizer" : "would lose their optimizer"
		: done ? "were removed"
		       : "would be removed",
	    done ? "d" : "s", drop && !done ? "about " : "",
	    ofs_human_bytes(t->bytes, size),
	    done || t->removed + t->left == 0 ? ""
		: drop                        ? "; --yes drops it"
					      : "; --yes removes them");
	if (t->left > 0)
		printf("%u that an interrupted thin had removed %s\n", t->left,
		    done ? "were deleted" : "are still to be deleted");
}

static int parse(struct thin *t, const struct ofs_verb *verb)
{
	struct ofs_command *c = t->c;
	int status = OFS_EXIT_OK;

	if (c->drop != NULL && strcmp(c->drop, "optim") != 0)
		return ofs_tool_usage(verb, "--drop %s: there is --drop optim",
		    c->drop);
	if (c->keep_last == NULL && c->keep_every == NULL)
		return ofs_tool_usage(verb,
		    "which are kept? --keep-last NUMBER, --keep-every STEPS");
	if (c->keep_last != NULL)
		(void)ofs_command_number(verb, "--keep-last", c->keep_last,
		    UINT32_MAX, &t->last, &status);
	if (status == OFS_EXIT_OK && c->keep_every != NULL)
		(void)ofs_command_number(verb, "--keep-every", c->keep_every,
		    INT64_MAX, &t->every, &status);
	return status;
}

static int thin(struct thin *t, struct optimfs_error *err)
{
	if (ofs_command_list_run(t->c, add_row, t, &t->n, err) == -1 ||
	    decide(t, err) == -1)
		return -1;
	if ((t->c->flags & OFS_YES) != 0 && remove_all(t, err) == -1)
		return -1;
	return 0;
}

static int run_thin(const struct ofs_verb *verb, int argc, char **argv)
{
	struct ofs_command c;
	struct thin t = { .c = &c };
	struct optimfs_error err;
	int status;

	if (ofs_command_init(&c, verb, argc, argv,
		OFS_RUNS | OFS_THIN | OFS_DROP | OFS_YES | OFS_JSON, 0, 0,
		&status) == -1)
		return status;
	status = parse(&t, verb);
	if (status == OFS_EXIT_OK) {
		ofs_interrupt_catch();
		if (thin(&t, &err) == -1)
			status = ofs_command_stopped(&c, &err,
			    "each checkpoint is there or gone, or has lost its optimizer");
		ofs_progress_clear(&c.progress);
		count(&t);
	}
	if (status == OFS_EXIT_OK)
		(c.flags & OFS_JSON) != 0 ? print_json(&t) : print_text(&t);
	for (size_t i = 0; status == OFS_EXIT_OK && i < t.n; i++)
		if (t.row[i].action == FAILED)
			status = OFS_EXIT_IO;
	thin_fini(&t);
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_thin = {
	.name = "thin",
	.synopsis = "[--keep-last NUMBER] [--keep-every STEPS] [--drop optim]\n"
		    "           [--yes] [--json] [-o OPTION] RUN",
	.summary = "say which checkpoints of a run would be removed, or remove "
		   "them",
	.options =
	    "  --keep-last NUMBER  keep so many of the last ones that are whole\n"
	    "  --keep-every STEPS  keep those whose step is a multiple of STEPS\n"
	    "  --drop optim        only take the optimizer of the others\n"
	    "  --yes               remove the others; without it nothing is\n"
	    "                      changed\n"
	    "  --json              print a JSON object\n",
	.run = run_thin,
};
