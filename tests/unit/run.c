/* run.c - runs: steps of names, nodes, what stays open, what appears */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "run/run.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "optimfs/analyze.h"

#include "base/sys.h"
#include "run/step.h"
#include "support/truth.h"
#include "tap.h"

static char top[64];
static struct optimfs_error err;

static void __attribute__((format(printf, 1, 2))) shell(const char *fmt, ...)
{
	char command[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(command, sizeof(command), fmt, ap);
	va_end(ap);
	if (system(command) != 0)
		bail_out("%s", command);
}

/* Copies a fixture to NAME in the run. */
static void put(const char *fixture, const char *name)
{
	shell("cp -r '%s' '%s/%s'", data_path(fixture), top, name);
}

static void steps_of_names(void)
{
	static const struct {
		const char *name;
		enum ofs_run_count count;
		uint64_t step;
	} cases[] = {
		{ "step-1000", OFS_RUN_STEPS, 1000 },
		{ "step1000", OFS_RUN_STEPS, 1000 },
		{ "step_000010.safetensors", OFS_RUN_STEPS, 10 },
		{ "global_step200", OFS_RUN_STEPS, 200 },
		{ "global_step_200", OFS_RUN_STEPS, 200 },
		{ "iter_0000500", OFS_RUN_STEPS, 500 },
		{ "checkpoint-1500", OFS_RUN_STEPS, 1500 },
		{ "epoch=3-step=900.ckpt", OFS_RUN_STEPS, 900 },
		{ "checkpoint-2-step-900", OFS_RUN_STEPS, 900 },
		{ "ep0-ba100-rank0.pt", OFS_RUN_STEPS, 100 },
		{ "step1000-unsharded", OFS_RUN_STEPS, 1000 },
		{ "model_step_7.pt", OFS_RUN_STEPS, 7 },
		{ "1000", OFS_RUN_STEPS, 1000 },
		{ "0000000", OFS_RUN_STEPS, 0 },
		{ "version_3", OFS_RUN_VERSIONS, 3 },
		{ "weight_v000012", OFS_RUN_VERSIONS, 12 },
		{ "epoch_3", OFS_RUN_EPOCHS, 3 },
		{ "last.ckpt", OFS_RUN_NOTHING, 0 },
		{ "final", OFS_RUN_NOTHING, 0 },
		{ "llama-7b", OFS_RUN_NOTHING, 0 },
		{ "step-10k", OFS_RUN_NOTHING, 0 },
		{ "v0.18.5_z3", OFS_RUN_NOTHING, 0 },
		{ "rank3", OFS_RUN_NOTHING, 0 },
		{ "20260131_235959", OFS_RUN_DATES, 20260131 },
		{ "20260131235959", OFS_RUN_DATES, 20260131235959 },
		{ "2026-01-31", OFS_RUN_DATES, 2026 },
		{ "20260131_235959-step7", OFS_RUN_STEPS, 7 },
		{ "20261331_1", OFS_RUN_STEPS, 20261331 },
		{ "20260131", OFS_RUN_STEPS, 20260131 },
		{ "footstep-3", OFS_RUN_NOTHING, 0 },
		{ "step-1234567890123456789", OFS_RUN_NOTHING, 0 },
		{ "", OFS_RUN_NOTHING, 0 },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t step = 0;
		enum ofs_run_count count = ofs_run_step(cases[i].name, &step);

		ok(count == cases[i].count && step == cases[i].step,
		    "'%s' tells step %" PRIu64, cases[i].name, cases[i].step);
	}
}

static void steps_in_paths(void)
{
	static const char *const bad[] = { "", "-1", "+1", "01", "1a", "0x1",
		"1234567890123456789", " 1" };
	uint64_t step;

	ok(ofs_run_parse_step("0", &step) && step == 0, "0 is a step");
	ok(ofs_run_parse_step("1200", &step) && step == 1200, "1200 is a step");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ok(!ofs_run_parse_step(bad[i], &step), "'%s' is no step",
		    bad[i]);
}

static struct optimfs *open_run(unsigned open)
{
	const struct optimfs_options options = { .run = OPTIMFS_RUN_YES,
		.runs_open = open };
	struct optimfs *fs = optimfs_open(top, &options, &err);

	if (fs == NULL)
		bail_out("%s", err.text);
	return fs;
}

/* The node at a path; 0: err says why. */
static uint64_t node_of(struct optimfs *fs, const char *path)
{
	struct optimfs_attr attr;

	return optimfs_resolve(fs, path, &attr, &err) == 0 ? attr.node : 0;
}

/* The text of a file, in a static buffer. */
static const char *text_of(struct optimfs *fs, uint64_t node)
{
	static char text[4096];
	struct optimfs_file *file;
	ssize_t n;

	if (optimfs_file_open(fs, node, &file, &err) == -1)
		return err.text;
	n = optimfs_file_read(file, text, sizeof(text) - 1, 0, &err);
	optimfs_file_close(file);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

static int add_name(void *ctx, const struct optimfs_dirent *d)
{
	strcat(strcat(ctx, d->name), " ");
	return 0;
}

static const char *names_in(struct optimfs *fs, const char *path)
{
	static char names[4096];

	names[0] = '\0';
	if (optimfs_readdir(fs, node_of(fs, path), 0, true, add_name, names,
		&err) == -1)
		return err.text;
	return names;
}

#define LR "optim/param_groups/0/lr"
#define W2 "pytorch/dcp_fsdp2_w2/ckpt"
#define W3 "pytorch/dcp_fsdp2_w3/ckpt"

static void what_stays_open(void)
{
	struct optimfs *fs = open_run(2);
	uint64_t lr[4], view;
	char path[64];

	is_u64(ofs_run_nopen(&fs->run->trees), 0,
	    "opening a run opens none of its checkpoints");
	is_str(names_in(fs, "steps"), "1 2 3 4 ", "it lists them");
	is_u64(ofs_run_nopen(&fs->run->trees), 0, "and still opens none");
	view =
	    node_of(fs, "steps/1/.optimfs/view/safetensors/model.safetensors");
	ok(view != 0, "a view of a step is found");
	for (int i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "steps/%d/" LR, i + 1);
		lr[i] = node_of(fs, path);
		is_str(text_of(fs, lr[i]), "0.001\n", "%s is read", path);
	}
	is_u64(ofs_run_nopen(&fs->run->trees), 2,
	    "with runs_open=2, two checkpoints stay open");
	is_str(text_of(fs, lr[0]), "0.001\n",
	    "a node of a dropped checkpoint is found again by its number");
	is_u64(node_of(fs, "steps/1/" LR), lr[0],
	    "a checkpoint that is opened again has the same numbers");
	ok(strlen(text_of(fs, view)) > 0 && err.code != ESTALE,
	    "so has a view of it");
	is_u64(node_of(fs,
		   "steps/1/.optimfs/view/safetensors/model.safetensors"),
	    view, "whose number is the same");
	optimfs_close(fs);
}

static void open_files_go_on(void)
{
	struct optimfs *fs = open_run(1);
	struct optimfs_file *file;
	char text[16] = "";

	if (optimfs_file_open(fs, node_of(fs, "steps/1/" LR), &file, &err) ==
	    -1)
		bail_out("%s", err.text);
	(void)text_of(fs, node_of(fs, "steps/2/" LR));
	(void)text_of(fs, node_of(fs, "steps/3/" LR));
	is_int(optimfs_file_read(file, text, sizeof(text), 0, &err), 6,
	    "an open file is read after its checkpoint was dropped");
	optimfs_close(fs);
	is_int(optimfs_file_read(file, text, sizeof(text), 0, &err), 6,
	    "and after the run was closed");
	optimfs_file_close(file);
}

/* The same path, with another checkpoint. */
static void replaced(void)
{
	struct optimfs *fs = open_run(0);
	uint64_t old = node_of(fs, "steps/2/model/norm.weight"), root;
	struct optimfs_attr attr;

	root = node_of(fs, "steps/2");
	ok(root != 0 && old != 0, "a step and a tensor in it are found");
	shell("rm -r '%s/step-2'", top);
	is_u64(node_of(fs, "steps/2"), 0, "a removed step is not found");
	is_error(err, ENOENT, "OFS851", "with an error");
	is_int(optimfs_getattr(fs, old, &attr, &err), -1,
	    "the tensor in it has no attributes any more");
	is_error(err, ESTALE, "removed", "it is stale");
	put(W3, "step-2");
	ok(node_of(fs, "steps/2") != 0, "another one appears in its place");
	ok(node_of(fs, "steps/2/" LR) != 0, "and is read");
	is_int(optimfs_getattr(fs, old, &attr, &err), -1,
	    "old numbers are not those of the new one");
	is_error(err, ESTALE, "replaced", "they are stale");
	optimfs_close(fs);
}

static void names(void)
{
	struct optimfs *fs = open_run(0), *tree;
	struct optimfs_attr attr;
	char *target;

	is_str(names_in(fs, ""),
	    "avg by-name delta ema first latest lerp steps ",
	    "the root lists places and links");
	is_str(names_in(fs, "by-name"), "step-1 step-2 step-3 step-4 ",
	    "by-name has the names of the directory");
	is_int(optimfs_lookup(fs, OPTIMFS_ROOT, "latest", &attr, &err), 0,
	    "latest is found");
	ok(S_ISLNK(attr.mode), "latest is a link");
	is_int(optimfs_readlink(fs, attr.node, &target, &err), 0,
	    "which can be read");
	is_str(target, "steps/4", "it points to the last step");
	free(target);
	is_u64(node_of(fs, "latest/" LR), node_of(fs, "by-name/step-4/" LR),
	    "links are followed in paths");
	is_int(optimfs_readlink(fs, OPTIMFS_ROOT, &target, &err), -1,
	    "a directory is no link");
	is_error(err, EINVAL, "link", "EINVAL");
	tree = optimfs_run_open(fs, "latest", &err);
	ok(tree != NULL && tree->run == NULL, "a name opens a checkpoint");
	is_int(optimfs_resolve(tree, LR, &attr, &err), 0,
	    "with the tree of a checkpoint");
	optimfs_close(tree);
	ok(optimfs_run_open(fs, "none", &err) == NULL,
	    "another name opens nothing");
	is_error(err, ENOENT, "OFS851", "OFS851");
	ok(optimfs_run_open(fs, "steps/2/model", &err) == NULL,
	    "a path in a checkpoint opens nothing");
	optimfs_close(fs);
}

static void not_for_runs(void)
{
	struct optimfs *fs = open_run(0);
	struct optimfs_attr attr;
	uint64_t n;

	is_int(optimfs_create(fs, OPTIMFS_ROOT, "x", true, &attr, &err), -1,
	    "nothing is created in a run");
	is_error(err, EROFS, "", "it is read-only");
	is_int(optimfs_fsck(fs, false, NULL, NULL, &n, &err), -1,
	    "a run is not checked as one checkpoint");
	is_error(err, EINVAL, "OFS681", "the error says what it is");
	is_int(optimfs_check(fs, NULL, NULL, &n, &err), -1,
	    "nor is its optimizer");
	is_int(optimfs_reshard(fs, "new",
		   &(struct optimfs_reshard){ .to = "torch" }, &err),
	    -1, "nor resharded");
	is_int(optimfs_mkfs(fs, "torch", "new", &err), -1,
	    "nor a model for a new one");
	optimfs_close(fs);
}

static int count(void *ctx, const struct optimfs_run_entry *e)
{
	unsigned *n = ctx;

	n[e->complete ? e->why[0] == '\0' ? 0 : 1 : 2]++;
	return 0;
}

static void facts_of_an_index(void)
{
	struct optimfs *fs = open_run(0);
	struct optimfs_run_facts facts = { 0 };

	is_int(optimfs_run_facts(fs, "1", &facts, &err), 0, "a step has facts");
	ok(facts.ranks == 2 && facts.bytes > 100000 && !facts.damaged,
	    "its ranks, the bytes of its files, no damage");
	is_str(facts.format, "dcp", "its format");
	is_str(facts.problems, "", "and no problems");
	free(facts.problems);
	facts = (struct optimfs_run_facts){ 0 };
	is_int(optimfs_run_facts(fs, "77", &facts, &err), -1,
	    "a step that is not there has none");
	is_error(err, ENOENT, "OFS851", "which the error says");
	ok(facts.problems == NULL, "and the facts are as they were");
	optimfs_close(fs);
}

static void several_of_a_step(void)
{
	struct optimfs *fs = open_run(0);
	unsigned n[3] = { 0 };

	put(W2, "checkpoint-4");
	put(W2, "last");
	put(W2, "epoch_9");
	shell("mkdir '%s/step-5'", top);
	is_str(names_in(fs, "steps"), "1 2 3 ",
	    "a step that two checkpoints have is not shown");
	is_int(optimfs_run_list(fs, count, n, &err), 0, "a run is listed");
	ok(n[0] == 3 && n[1] == 4 && n[2] == 1,
	    "steps, others and unfinished ones");
	is_u64(node_of(fs, "latest"), 0, "then there is no latest");
	is_error(err, ENOENT, "OFS853 step 4 is both", "which the error says");
	ok(node_of(fs, "by-name/checkpoint-4/model") != 0,
	    "each is in by-name");
	ok(node_of(fs, "by-name/epoch_9/model") != 0,
	    "so is an epoch beside steps");
	is_u64(node_of(fs, "steps/9"), 0, "which is no step");
	is_u64(node_of(fs, "steps/5"), 0, "what is not finished is not found");
	is_error(err, ENOENT, "is not finished: it is empty",
	    "and the error says why");
	optimfs_close(fs);
}

/* The Nth of these calls fails. */
static const char *failing;
static int left;

static int fail_call(const char *call)
{
	return strcmp(call, failing) == 0 && left-- == 0 ? EIO : 0;
}

static void removed(void)
{
	struct optimfs *fs = open_run(0);
	struct optimfs_run_weight w = { 0 };
	char index[128];
	int fd;

	put(W2, "step-8");
	is_int(optimfs_run_weigh(fs, "step-8", &w, &err), 0,
	    "a checkpoint is measured");
	ok(w.files == 3 && w.bytes > 100000, "its files and bytes");
	shell("touch -d '1 hour' '%s/step-8/.metadata'", top);
	is_int(optimfs_run_remove(fs, "step-8", &w, &err), -1,
	    "one that has changed since is not removed");
	is_error(err, EBUSY, "OFS871", "which the error says");
	is_int(optimfs_run_weigh(fs, "step-8", &w, &err), 0,
	    "it is where it was");
	snprintf(index, sizeof(index), "%s/step-8/.metadata", top);
	fd = open(index, O_RDONLY);
	is_int(optimfs_run_remove(fs, "step-8", &w, &err), -1,
	    "one that a program has opened since is not removed");
	is_error(err, EBUSY, "step-8/.metadata is open in a program",
	    "the error has the name of the file");
	close(fd);
	ofs_sys_fault = fail_call;
	failing = "rename";
	left = 0;
	is_int(optimfs_run_remove(fs, "step-8", &w, &err), -1,
	    "one that cannot be renamed is not removed");
	is_int(optimfs_run_weigh(fs, "step-8", &w, &err), 0,
	    "it is where it was");
	ofs_sys_fault = NULL;
	is_int(optimfs_run_remove(fs, "step-8", &w, &err), 0,
	    "else it is removed");
	shell("! ls -d '%s'/*step-8* '%s'/.*step-8* 2>/dev/null", top, top);
	is_int(optimfs_run_remove(fs, "../x", &w, &err), -1,
	    "a path is no checkpoint of a run");
	is_error(err, EINVAL, "OFS871", "which the error says");
	optimfs_close(fs);
}

int main(void)
{
	char name[32];

	snprintf(top, sizeof(top), "%s/optimfs-run-XXXXXX", tap_tmpdir());
	if (mkdtemp(top) == NULL)
		bail_out("mkdtemp: %s", strerror(errno));
	steps_of_names();
	steps_in_paths();
	for (int i = 1; i <= 4; i++) {
		snprintf(name, sizeof(name), "step-%d", i);
		put(W2, name);
	}
	what_stays_open();
	open_files_go_on();
	names();
	not_for_runs();
	replaced();
	facts_of_an_index();
	several_of_a_step();
	removed();
	shell("rm -r '%s'", top);
	return done_testing();
}
