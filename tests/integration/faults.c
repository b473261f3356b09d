/* faults.c - a writer is killed, or told of an error, at every system call */
/* SPDX-License-Identifier: Apache-2.0 */

/* The program runs itself as the victim (tests/support/victim.h). A first run
 * under tests/support/faultlib.c records the system calls and their order, which
 * must be safe against a power failure (faultlog.h). In each further run, one of
 * the calls kills the victim, fails, or is the first that meets a full disk.
 * After each run the checkpoint must be the old one or the new one, undamaged:
 * the new one if the victim reported success, the old one if it reported a
 * failure. The next writer commits whatever was staged, and nothing else
 * remains. Finally, the victim is stopped before each call: readers see the old
 * or the new checkpoint, and a second writer is refused.
 *
 * A normal run selects some calls of each kind and file. "make check-faults"
 * uses all calls; OPTIMFS_FAULTS=SCENE those of one scene, and with
 * OPTIMFS_FAULTS_EVERY=N every Nth of them. */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "support/faultlog.h"
#include "support/faultrun.h"
#include "support/truth.h"
#include "support/victim.h"
#include "tap.h"

#define RANKS "pytorch/fsdp1_sharded_orig_fullshard_w2/ckpt_rankfiles"
#define DCP   "pytorch/dcp_fsdp2_w2/ckpt"
#define SMALL "pytorch/hf_storage_w2/ckpt"
#define SGD   "pytorch/dcp_opt_sgd_w2/ckpt"

#define ZERO1     "deepspeed/z1_ws2_bf16/ckpt"
#define ZERO3     "deepspeed/z3_ws2_bf16/ckpt"
#define UNIVERSAL "deepspeed/z2_ws2_bf16/ckpt_universal"
#define MEGATRON  "megatron/llama_dp2/dp_reshardable"

struct scene {
	const char *name, *data; /* below tests/data */
	const char *verb;
	const char *to;    /* a layout: a new checkpoint is written */
	const char *first; /* the verb of an earlier victim */
};

static const struct scene scenes[] = {
	{ "dcp", DCP, "edit", NULL, NULL },
	{ "zstd", "pytorch/dcp_fsdp2_zstd_w2/ckpt", "edit", NULL, NULL },
	{ "safetensors", SMALL, "edit", NULL, NULL },
	{ "torch", "pytorch/torchsave_full/ckpt/state.pt", "edit", NULL, NULL },
	{ "ranks", RANKS, "edit", NULL, NULL },
	{ "zero1", ZERO1, "edit", NULL, NULL },
	{ "zero3", ZERO3, "edit", NULL, NULL },
	{ "universal", UNIVERSAL, "edit", NULL, NULL },
	{ "megatron", MEGATRON, "edit", NULL, NULL },
	{ "recover-dcp", DCP, "recover", NULL, "stage" },
	{ "recover-safetensors", SMALL, "recover", NULL, "stage" },
	{ "recover-ranks", RANKS, "recover", NULL, "stage" },
	{ "reshard-dcp", DCP, "reshard", "dcp@3", NULL },
	{ "reshard-zstd", SGD, "reshard", "dcp@1,zstd", NULL },
	{ "reshard-torch", SGD, "reshard", "torch", NULL },
	{ "mkfs", SGD, "mkfs", "dcp@3", NULL },
	{ "fill", SGD, "fill", "dcp@3", "mkfs" },
	{ "fill-torch", SGD, "fill", "torch", "mkfs" },
	{ "fill-change", SGD, "change", "dcp@3", "mkfs" },
};
#define NSCENES (sizeof(scenes) / sizeof(*scenes))

/* Calls of each kind that a normal run tries. */
#define SOME 42

static bool all;
static char scratch[200];

static void run(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void run(const char *fmt, ...)
{
	char command[2048];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	if (system(command) != 0)
		bail_out("%s", command);
}

/* A scene, its paths and its results. */
struct trial {
	const struct scene *scene;
	struct faultrun run;
	char ck[600];  /* the source */
	char out[700]; /* what is written: ck, or a path beside it */
	uint64_t old, new, old_problems, new_problems;
	char listing[16384]; /* of the directory after a run without faults */
	unsigned points, were_old, were_new, unsynced, bad;
};

static bool is_anew(const struct trial *t)
{
	return t->scene->to != NULL;
}

static bool is_mkfs(const struct trial *t)
{
	return strcmp(t->scene->verb, "mkfs") == 0;
}

static struct outcome again(struct trial *t, const char *verb)
{
	return faultrun_go(&t->run, verb, (struct fault_point){ 0 });
}

/* Every name under the working directory. */
static void list(char *out, size_t size)
{
	char command[400];
	FILE *f;
	size_t n;

	snprintf(command, sizeof(command),
	    "cd '%s/dir' && find . -printf '%%y %%p %%s\\n' | "
	    "sed 's/^d \\(.*\\) .*/d \\1/' | LC_ALL=C sort",
	    scratch);
	f = popen(command, "r");
	if (f == NULL)
		bail_out("%s", command);
	n = fread(out, 1, size - 1, f);
	out[n] = '\0';
	if (pclose(f) != 0)
		bail_out("%s", command);
}

static void fresh(void)
{
	run("cd '%s' && rm -rf dir && cp -a template dir", scratch);
}

static bool wrong(struct trial *t, const char *what)
{
	t->bad++;
	if (t->bad < 12)
		diag("  %s", what);
	return false;
}

/* The checkpoint in t->out: 0 the old, 1 the new, or -1. */
static int which(struct trial *t)
{
	uint64_t problems, sum;

	if (is_anew(t)) {
		DIR *d = opendir(t->out);
		int n = 0;

		while (d != NULL && n < 3 && readdir(d) != NULL)
			n++;
		if (d != NULL)
			closedir(d);
		if (n < 3)
			return 0;
	}
	sum = victim_digest(t->out, &problems);
	if (!is_anew(t) && sum == t->old && problems == t->old_problems)
		return 0;
	return sum == t->new &&problems == t->new_problems ? 1 : -1;
}

static struct optimfs *open_rw(const char *ck, enum optimfs_recover recover,
    struct optimfs_error *err)
{
	struct optimfs_options o = { .rw = true, .recover = recover };

	return optimfs_open(ck, &o, err);
}

/* Opens the checkpoint for writing, commits if told to, and closes it. */
static bool come_next(struct trial *t, enum optimfs_recover recover,
    bool commits)
{
	struct optimfs_error err = { 0 };
	struct optimfs *fs = open_rw(t->out, recover, &err);
	int ret = fs == NULL ? -1
	    : commits        ? optimfs_commit(fs, NULL, NULL, &err)
			     : 0;

	optimfs_close(fs);
	if (ret != 0 && t->bad < 12)
		diag("  %s", err.text);
	return ret == 0;
}

/* The next writer recovers and commits what was staged. Without staged data it
 * can recover or discard. */
static bool resume_edit(struct trial *t, bool staged)
{
	if (staged)
		return come_next(t, OPTIMFS_RECOVER_YES, true);
	return come_next(t, OPTIMFS_RECOVER_YES, false) &&
	    come_next(t, OPTIMFS_RECOVER_DISCARD, false);
}

/* An interrupted run can be repeated; a finished checkpoint can be written to. */
static bool resume_anew(struct trial *t)
{
	if (is_mkfs(t))
		return again(t, "mkfs").status <= VICTIM_FAILED &&
		    again(t, "fill").status == VICTIM_DONE;
	if (which(t) == 0)
		return again(t, t->scene->verb).status == VICTIM_DONE;
	return come_next(t, OPTIMFS_RECOVER_NO, false);
}

static bool check_after(struct trial *t, bool staged)
{
	int want = is_anew(t) || staged ? 1 : which(t);
	char now[sizeof(t->listing)];

	if (!(is_anew(t) ? resume_anew(t) : resume_edit(t, staged)))
		return wrong(t, "the next writer fails");
	if (which(t) != want)
		return wrong(t, "staged changes are lost");
	list(now, sizeof(now));
	if (want == 0 || strcmp(now, t->listing) == 0)
		return true;
	if (t->bad < 12)
		diag("  the directory has: %s", now);
	return wrong(t, "a file is left over or missing");
}

static bool check_outcome(struct trial *t, const struct outcome *o)
{
	bool staged = o->staged || strcmp(t->scene->verb, "recover") == 0;
	bool done = o->status == VICTIM_DONE || o->status == VICTIM_UNSYNCED;
	int is = which(t);

	t->were_old += is == 0;
	t->were_new += is == 1;
	t->unsynced += o->status == VICTIM_UNSYNCED;
	if (o->status > VICTIM_UNSYNCED)
		return wrong(t, "the victim crashed");
	if (is == -1)
		return wrong(t, "neither the old nor the new checkpoint");
	if (!is_mkfs(t) && (done || o->done) && is != 1)
		return wrong(t,
		    "the victim reported success, but the checkpoint is old");
	if (o->status == VICTIM_FAILED && is != 0)
		return wrong(t,
		    "the victim reported a failure, but the checkpoint is new");
	if (o->status == VICTIM_UNSYNCED && !o->said_unsynced)
		return wrong(t, "the victim exits with 6, but without OFS803");
	return check_after(t, staged);
}

static void try_point(struct trial *t, const struct fault_point *p)
{
	unsigned bad = t->bad;
	struct outcome o;

	fresh();
	o = faultrun_go(&t->run, t->scene->verb, *p);
	t->points++;
	check_outcome(t, &o);
	if (t->bad == bad || t->bad >= 12)
		return;
	faultrun_tell(&t->run, t->scene->name, p, &o);
}

static void try_points(struct trial *t, const struct fault_calls *calls)
{
	const char *every = getenv("OPTIMFS_FAULTS_EVERY");
	size_t step = all && every != NULL ? strtoul(every, NULL, 10) : 1;
	struct fault_points p = { 0 };

	faultrun_points(calls, all ? SIZE_MAX : SOME, &p);
	for (size_t i = 0; i < p.n; i += step == 0 ? 1 : step)
		try_point(t, &p.v[i]);
	free(p.v);
}

/* The victim is stopped before some of its calls. */
struct still {
	struct trial *t;
	unsigned n, step;
	int was;
};

static void stand_still(void *ctx)
{
	struct still *s = ctx;
	struct optimfs_error err = { 0 };
	struct optimfs *fs;
	int is;

	if (s->n++ % s->step != 0)
		return;
	s->t->points++;
	is = which(s->t);
	if (is == -1 || is < s->was)
		wrong(s->t,
		    "a reader sees neither the old nor the new checkpoint");
	s->was = is;
	if (is_anew(s->t) && strcmp(s->t->scene->first, "mkfs") != 0)
		return;
	fs = open_rw(s->t->out, OPTIMFS_RECOVER_DISCARD, &err);
	if (fs != NULL || err.code != EBUSY)
		wrong(s->t,
		    fs != NULL ? "a second writer was accepted" : err.text);
	optimfs_close(fs);
}

static void try_still(struct trial *t, const struct fault_calls *calls)
{
	struct still s = { .t = t, .step = 1 };
	struct outcome o;
	unsigned n = 0;

	for (size_t i = 0; i < calls->n; i++)
		n += calls->v[i].class != 'l';
	if (!all && n > SOME / 4)
		s.step = n / (SOME / 4);
	fresh();
	o = faultrun_still(&t->run, t->scene->verb, stand_still, &s);
	if (o.status != VICTIM_DONE)
		wrong(t, "the victim fails when it is stopped in between");
	check_outcome(t, &o);
}

/* Makes the template of the directory in which each run begins. */
static bool set_up(struct trial *t, const struct scene *scene)
{
	const char *slash = strrchr(scene->data, '/');

	*t = (struct trial){ .scene = scene };
	run("cd '%s' && rm -rf template && mkdir template", scratch);
	run("cp -r '%s' '%s/template/' && chmod -R u+w '%s/template'",
	    data_path(scene->data), scratch, scratch);
	snprintf(t->ck, sizeof(t->ck), "%s/dir/%s", scratch, slash + 1);
	if (is_anew(t))
		snprintf(t->out, sizeof(t->out), VICTIM_OUT, t->ck);
	else
		strcpy(t->out, t->ck);
	faultrun_init(&t->run, scratch, t->ck, scene->to);
	fresh();
	t->old = victim_digest(t->ck, &t->old_problems);
	if (scene->first == NULL)
		return true;
	if (!is_int(again(t, scene->first).status, 0,
		"%s: the earlier %s succeeds", scene->name, scene->first))
		return false;
	run("cd '%s' && rm -rf template && mv dir template", scratch);
	fresh();
	return true;
}

/* A run without faults: records the calls and the new checkpoint. */
static bool reference(struct trial *t, struct fault_calls *calls)
{
	char dir[300];
	struct faultlog *log;
	struct outcome o;
	unsigned renames;

	snprintf(dir, sizeof(dir), "%s/dir", scratch);
	log = faultlog_begin(dir);
	o = faultrun_trace(&t->run, t->scene->verb);
	if (!is_int(o.status, 0, "%s: succeeds without a fault",
		t->scene->name)) {
		faultrun_tell(&t->run, t->scene->name,
		    &(struct fault_point){ 0 }, &o);
		return false;
	}
	is_int(faultlog_end(log, t->run.trace, &renames), 0,
	    "%s: the order of calls is safe against a power failure",
	    t->scene->name);
	is_int(renames, is_mkfs(t) ? 0 : 1,
	    "%s: one rename publishes the checkpoint (mkfs: none)",
	    t->scene->name);
	faultlog_read(t->run.trace, calls);
	if (is_mkfs(t) && again(t, "fill").status != VICTIM_DONE)
		return ok(false, "%s: the template can be filled",
		    t->scene->name);
	t->new = victim_digest(t->out, &t->new_problems);
	list(t->listing, sizeof(t->listing));
	return ok(t->old != 0 && t->new != 0 &&
		(is_anew(t) || t->new != t->old),
	    "%s: the new checkpoint differs from the old one", t->scene->name);
}

static unsigned play(const struct scene *scene)
{
	struct fault_calls calls = { 0 };
	struct trial t;

	if (!set_up(&t, scene) || !reference(&t, &calls))
		return 0;
	try_points(&t, &calls);
	try_still(&t, &calls);
	diag("%s: %zu calls, %u points: %u old, %u new, %u not synced",
	    scene->name, calls.n, t.points, t.were_old, t.were_new, t.unsynced);
	is_int(t.bad, 0, "%s: every fault leaves the old or the new checkpoint",
	    scene->name);
	if (!is_mkfs(&t) && getenv("OPTIMFS_FAULTS_EVERY") == NULL)
		ok(t.unsynced > 0, "%s: a failed last sync is reported",
		    scene->name);
	free(calls.v);
	return t.points;
}

/* In memory if possible: there fsync takes no time, and the trace shows whether
 * it is called. */
static void make_scratch(void)
{
	const char *shm = "/dev/shm";

	snprintf(scratch, sizeof(scratch), "%s/optimfs-faults-%d",
	    access(shm, W_OK | X_OK) == 0 ? shm : "/tmp", (int)getpid());
	run("mkdir '%s'", scratch);
}

int main(int argc, char **argv)
{
	const char *only = getenv("OPTIMFS_FAULTS");
	unsigned points = 0;

	if (argc > 1)
		return victim_main(argc, argv);
	all = only != NULL;
	if (all) /* then no call is expected to have its number */
		setenv("FAULT_EARLY", "1", 1);
	faultrun_find();
	make_scratch();
	for (size_t i = 0; i < NSCENES; i++)
		if (only == NULL || strcmp(only, "all") == 0 ||
		    strcmp(only, scenes[i].name) == 0)
			points += play(&scenes[i]);
	run("rm -rf '%s'", scratch);
	diag("%u points", points);
	return done_testing();
}
