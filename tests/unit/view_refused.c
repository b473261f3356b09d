/* view_refused.c - checkpoints that another format cannot hold */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "fs/view.h"
#include "mktorch.h"
#include "tap.h"

/* Of a unit with one parameter, a, of 4 elements. */
static const char units[] =
    "[{\"prefix\":\"\",\"fqns\":[\"a\"],\"shapes\":[[4]],\"numels\":[4],"
    "\"world_size\":2,\"rank\":0}]";

static struct optimfs *open_line(struct mktorch *m, const char *text, bool flat)
{
	struct optimfs_options o = { .type = "torch" };
	struct optimfs_error err;
	struct optimfs *fs;
	char path[128];

	mktorch_init(m);
	mk_line(&m->pickle, text);
	mk_end(&m->pickle);
	handmade_file(&m->h, "units.json", units, sizeof(units) - 1);
	if (mktorch_read(m, NULL, &err) == -1)
		bail_out("%s: %s", text, err.text);
	snprintf(path, sizeof(path), "%s", handmade_path(&m->h, "units.json"));
	if (flat)
		o.units = path;
	fs = optimfs_open(handmade_path(&m->h, "x.pt"), &o, &err);
	if (fs == NULL)
		bail_out("%s: %s", text, err.text);
	return fs;
}

static int keep_going(void *ctx, const struct optimfs_dirent *e)
{
	(void)ctx;
	(void)e;
	return 0;
}

static int find(struct optimfs *fs, const char *view, struct optimfs_attr *attr,
    struct optimfs_error *err)
{
	char path[128];

	*err = (struct optimfs_error){ 0 };
	snprintf(path, sizeof(path), ".optimfs/view/%s", view);
	return optimfs_resolve(fs, path, attr, err);
}

/* What looking into a view says. */
static int look(struct optimfs *fs, const char *view, struct optimfs_error *err)
{
	struct optimfs_attr attr;

	if (find(fs, view, &attr, err) == -1)
		return -1;
	return optimfs_readdir(fs, attr.node, 0, true, keep_going, NULL, err);
}

#define GROUPS(params) "param_groups:[{lr:1,params:[" params "]}]"

static const struct {
	const char *line, *view;
	int code; /* 0: it is there */
	const char *number, *text;
} cases[] = {
	/* rank files of flat parameters */
	{ "{model:{a:t},optimizer:{state:{a:{exp_avg:t,step:1}}," GROUPS(
	      "a") "}}",
	    "fsdp@2", 0, NULL, NULL },
	{ "{model:{a:T}}", "fsdp@2", EOPNOTSUPP, "OFS171", "" },
	{ "{model:{a:t,deep:{b:t}}}", "fsdp@2", EOPNOTSUPP, "OFS171", "" },
	{ "{model:{a:t},optimizer:{state:{a:{exp_avg:{x:t}}}," GROUPS("a") "}}",
	    "fsdp@2", EOPNOTSUPP, "OFS171",
	    "a: its state 'exp_avg' has parts" },
	{ "{model:{a:t},optimizer:{state:{b:{exp_avg:t}}," GROUPS("b") "}}",
	    "fsdp@2", EOPNOTSUPP, "OFS172", "b is the optimizer's" },
	{ "{model:{a:t},optimizer:{state:{a:{exp_avg:t}}}}", "fsdp@2",
	    EOPNOTSUPP, "OFS173", "" },
	{ "{model:{a:t},optimizer:{state:{a:{exp_avg:t}}," GROUPS("") "}}",
	    "fsdp@2", EUCLEAN, "OFS452", "a has state" },
	/* parameters by their numbers */
	{ "{optimizer:{state:{a:{exp_avg:t}},param_groups:[{lr:1}]}}",
	    "torch,keys=id", EUCLEAN, "OFS451", "a group of the optimizer" },
	{ "{optimizer:{state:{a:{exp_avg:t}}," GROUPS("a,a") "}}",
	    "torch,keys=id", EUCLEAN, "OFS451", "a is in" },
	{ "{optimizer:{state:{a:{exp_avg:t}},param_groups:[{params:t}]}}",
	    "torch,keys=id", EUCLEAN, "OFS451",
	    "params of a group is a tensor" },
	{ "{optimizer:{state:{a:{exp_avg:t}}," GROUPS("[a]") "}}",
	    "torch,keys=id", EUCLEAN, "OFS451", "params of a group has" },
	{ "{optimizer:{state:{b:{exp_avg:t}}," GROUPS("a") "}}",
	    "torch,keys=id", EUCLEAN, "OFS452", "b has state" },
	{ "{optimizer:{state:{a:{exp_avg:t}}," GROUPS("a") "}}",
	    "torch,keys=id", 0, NULL, NULL },
	/* DeepSpeed */
	{ "{model:{a:t,b:t},optimizer:{state:{a:{exp_avg:t},b:{exp_avg:t,"
	  "more:t}}," GROUPS("a,b") "}}",
	    "zero2@2", EOPNOTSUPP, "OFS683", "" },
	{ "{model:{a:t,deep:{b:t}},optimizer:{state:{a:{exp_avg:t}}," GROUPS(
	      "a") "}}",
	    "zero2@2", EOPNOTSUPP, "OFS684", "DeepSpeed's model" },
	{ "{model:{a:t},optimizer:{state:{a:{exp_avg:T}}," GROUPS("a") "}}",
	    "zero2@2", EOPNOTSUPP, "OFS684", "its shape" },
	{ "{model:{a:t},optimizer:{state:{a:{exp_avg:{x:t}}}," GROUPS("a") "}}",
	    "zero2@2", EOPNOTSUPP, "OFS684", "a: its state" },
	{ "{model:{a/b:t},optimizer:{state:{a/b:{exp_avg:t}}," GROUPS(
	      "a/b") "}}",
	    "universal", EOPNOTSUPP, "OFS684", "a/b cannot be" },
	{ "{model:{a:t},optimizer:{state:{a:{exp_avg:t,note:x}}," GROUPS(
	      "a") "}}",
	    "universal", EOPNOTSUPP, "OFS684", "a universal checkpoint" },
	/* two entries, one key */
	{ "{model:{a.b:t,a:{b:t}}}", "safetensors", EUCLEAN, "OFS449", "" },
	{ "{extra:{a.b:t,a:{b:t}}}", "dcp@2", EUCLEAN, "OFS449", "" },
};

static void refused(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct optimfs_error err;
		struct mktorch m;
		struct optimfs *fs = open_line(&m, cases[i].line,
		    strncmp(cases[i].view, "fsdp", 4) == 0);
		int ret = look(fs, cases[i].view, &err);

		if (cases[i].code == 0) {
			is_int(ret, 0, "%s of %s", cases[i].view,
			    cases[i].line);
			if (ret != 0)
				diag("%s", err.text);
		} else {
			ok(ret == -1, "no %s of %s", cases[i].view,
			    cases[i].line);
			is_error(err, cases[i].code, cases[i].number, "%s",
			    cases[i].number);
			is_error(err, cases[i].code, cases[i].text, "%s",
			    cases[i].text);
		}
		optimfs_close(fs);
		mktorch_fini(&m);
	}
}

/* Each takes memory, and a kernel that looks names up has no bound of its
 * own. */
static void too_many(void)
{
	struct optimfs_error err;
	struct mktorch m;
	struct optimfs *fs = open_line(&m, "{model:{a:t}}", false);
	struct optimfs_attr attr;
	char name[32];
	int n = 0;

	do
		snprintf(name, sizeof(name), "dcp@%d", ++n);
	while (n < 2000 && find(fs, name, &attr, &err) == 0);
	is_int(n, 1025, "1024 views at once");
	is_error(err, ENFILE, "OFS772", "and no more");
	is_int(look(fs, "dcp@7", &err), 0, "those that there are stay");
	optimfs_close(fs);
	mktorch_fini(&m);
}

/* Of views that nobody has open only some are kept whole, and the others made
 * again: the same. */
static void kept(void)
{
	struct optimfs_error err;
	struct mktorch m;
	struct optimfs *fs = open_line(&m, "{model:{a:t,b:t}}", false);
	struct optimfs_file *file;
	struct optimfs_attr attr;
	uint8_t first[64], again[64];
	char name[48];
	bool good = true;

	snprintf(name, sizeof(name), "dcp@1/__0_0.distcp");
	ok(find(fs, name, &attr, &err) == 0 &&
		optimfs_file_open(fs, attr.node, &file, &err) == 0 &&
		optimfs_file_read(file, first, 64, 0, &err) == 64,
	    "a file of a view");
	for (int i = 2; i < 20; i++) {
		snprintf(name, sizeof(name), "dcp@%d/__0_0.distcp", i);
		good = good && find(fs, name, &attr, &err) == 0;
	}
	ok(good, "files of others are looked up");
	ok(ofs_views_laid_out(fs->now) <= 5, "%d views are in memory",
	    (int)ofs_views_laid_out(fs->now));
	ok(optimfs_file_read(file, again, 64, 0, &err) == 64 &&
		memcmp(first, again, 64) == 0,
	    "one that is open stays");
	optimfs_file_close(file);
	for (int i = 2; i < 20; i++) {
		snprintf(name, sizeof(name), "dcp@%d/__0_0.distcp", i);
		good = good && find(fs, name, &attr, &err) == 0 &&
		    optimfs_file_open(fs, attr.node, &file, &err) == 0 &&
		    optimfs_file_read(file, again, 64, 0, &err) == 64;
		if (good)
			optimfs_file_close(file);
	}
	ok(good, "all can be read");
	snprintf(name, sizeof(name), "dcp@1/__0_0.distcp");
	ok(find(fs, name, &attr, &err) == 0 &&
		optimfs_file_open(fs, attr.node, &file, &err) == 0 &&
		optimfs_file_read(file, again, 64, 0, &err) == 64 &&
		memcmp(first, again, 64) == 0,
	    "and say the same");
	optimfs_file_close(file);
	ok(ofs_views_laid_out(fs->now) <= 4, "%d views are in memory",
	    (int)ofs_views_laid_out(fs->now));
	optimfs_close(fs);
	mktorch_fini(&m);
}

int main(void)
{
	refused();
	too_many();
	kept();
	return done_testing();
}
