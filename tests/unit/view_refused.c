/* view_refused.c - views of formats that cannot hold the checkpoint, and limits
 * of views */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimfs/optimfs.h"

#include "fs/view.h"
#include "mktorch.h"
#include "tap.h"

/* One unit with one parameter, a, of 4 elements. */
static const char one_unit[] =
    "[{\"prefix\":\"\",\"fqns\":[\"a\"],\"shapes\":[[4]],\"numels\":[4],"
    "\"world_size\":2,\"rank\":0}]";

static struct optimfs *open_line(struct mktorch *m, const char *text,
    const char *units)
{
	struct optimfs_options o = { .type = "torch" };
	struct optimfs_error err;
	struct optimfs *fs;
	char path[128];

	mktorch_init(m);
	mk_line(&m->pickle, text);
	mk_end(&m->pickle);
	if (units != NULL)
		handmade_file(&m->h, "units.json", units, strlen(units));
	if (mktorch_read(m, NULL, &err) == -1)
		bail_out("%s: %s", text, err.text);
	snprintf(path, sizeof(path), "%s", handmade_path(&m->h, "units.json"));
	if (units != NULL)
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

/* The result of listing a view. */
static int list_view(struct optimfs *fs, const char *view,
    struct optimfs_error *err)
{
	struct optimfs_attr attr;

	if (find(fs, view, &attr, err) == -1)
		return -1;
	return optimfs_readdir(fs, attr.node, 0, true, keep_going, NULL, err);
}

#define GROUPS(params) "param_groups:[{lr:1,params:[" params "]}]"

static const struct {
	const char *line, *view;
	int code; /* 0: the view exists */
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
	    "a: its state 'exp_avg' is nested" },
	{ "{model:{a:t},optimizer:{state:{b:{exp_avg:t}}," GROUPS("b") "}}",
	    "fsdp@2", EOPNOTSUPP, "OFS172",
	    "b is a parameter of the optimizer" },
	{ "{model:{a:t},optimizer:{state:{a:{exp_avg:t}}}}", "fsdp@2",
	    EOPNOTSUPP, "OFS173", "" },
	{ "{model:{a:t},optimizer:{state:{a:{exp_avg:t}}," GROUPS("") "}}",
	    "fsdp@2", EUCLEAN, "OFS452", "a has state" },
	/* parameters by ID */
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
	    "zero2@2", EOPNOTSUPP, "OFS684", "a model of DeepSpeed" },
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
	/* two entries with the same key */
	{ "{model:{a.b:t,a:{b:t}}}", "safetensors", EUCLEAN, "OFS449", "" },
	{ "{extra:{a.b:t,a:{b:t}}}", "dcp@2", EUCLEAN, "OFS449", "" },
};

static void refused(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct optimfs_error err;
		struct mktorch m;
		struct optimfs *fs = open_line(&m, cases[i].line,
		    strncmp(cases[i].view, "fsdp", 4) == 0 ? one_unit : NULL);
		int ret = list_view(fs, cases[i].view, &err);

		if (cases[i].code == 0) {
			is_int(ret, 0, "view %s of %s exists", cases[i].view,
			    cases[i].line);
			if (ret != 0)
				diag("%s", err.text);
		} else {
			ok(ret == -1, "view %s of %s is refused", cases[i].view,
			    cases[i].line);
			is_error(err, cases[i].code, cases[i].number,
			    "view %s of %s: error code", cases[i].view,
			    cases[i].line);
			is_error(err, cases[i].code, cases[i].text,
			    "view %s of %s: error text", cases[i].view,
			    cases[i].line);
		}
		optimfs_close(fs);
		mktorch_fini(&m);
	}
}

/* A checkpoint would have only one of two flat parameters with one key. */
static void one_module(void)
{
	struct optimfs_attr attr;
	struct optimfs_error err;
	struct mktorch m;
	char *text = NULL;
	size_t len;
	struct optimfs *fs = open_line(&m, "{model:{a:t,b:t}}",
	    "[{\"fqns\":[\"a\"],\"shapes\":[[4]],\"numels\":[4],"
	    "\"world_size\":2},{\"fqns\":[\"b\"],\"shapes\":[[4]],"
	    "\"numels\":[4],\"world_size\":2}]");

	is_int(list_view(fs, "fsdp@2", &err), -1,
	    "two units of one module are refused");
	is_error(err, EUCLEAN, "OFS163", "the error for one module");
	find(fs, "fsdp@2", &attr, &err);
	is_int(optimfs_getxattr(fs, attr.node, "user.optimfs.error", &text,
		   &len, &err),
	    0, "a refused view has an error attribute");
	ok(text != NULL && strstr(text, "OFS163") != NULL,
	    "the error attribute of a refused view says why: %s", text);
	free(text);
	find(fs, "fsdp@1", &attr, &err);
	is_int(optimfs_getxattr(fs, attr.node, "user.optimfs.error", &text,
		   &len, &err),
	    -1, "a view that can be listed has no error attribute");
	is_int(list_view(fs, "fsdp@1", &err), 0,
	    "with NO_SHARD there are no flat parameters");
	optimfs_close(fs);
	mktorch_fini(&m);
}

/* Names that are declared to be each other's aliases: one of them has the
 * tensor. */
static void alias_cycle(void)
{
	struct optimfs_error err;
	struct mktorch m;
	struct optimfs *fs = open_line(&m,
	    "{model:{w:t,a:t,b:t},shared_params:{a:b,b:a},optimizer:{state:{w:{"
	    "exp_avg:t}}," GROUPS("w") "}}",
	    NULL);
	struct optimfs_file *file = NULL;
	struct optimfs_attr attr;
	char bytes[4096] = "";
	ssize_t n = -1;

	if (find(fs, "zero2@1/global_step0/mp_rank_00_model_states.pt", &attr,
		&err) == 0 &&
	    optimfs_file_open(fs, attr.node, &file, &err) == 0)
		n = optimfs_file_read(file, bytes, sizeof(bytes), 0, &err);
	ok(n > 0 && memmem(bytes, (size_t)n, "shared_params", 13) != NULL,
	    "a view of names that are aliases of each other: %s", err.text);
	if (file != NULL)
		optimfs_file_close(file);
	optimfs_close(fs);
	mktorch_fini(&m);
}

/* Opens a file of the view dcp@N. */
static bool open_view(struct optimfs *fs, int n, struct optimfs_file **file,
    struct optimfs_error *err)
{
	struct optimfs_attr attr;
	char name[48];

	snprintf(name, sizeof(name), "dcp@%d/.metadata", n);
	return find(fs, name, &attr, err) == 0 &&
	    optimfs_file_open(fs, attr.node, file, err) == 0;
}

/* Each view needs memory, and lookups by the kernel would not limit their
 * number. What nobody uses makes room. */
static void too_many(void)
{
	static struct optimfs_file *file[1025];
	struct optimfs_error err;
	struct mktorch m;
	struct optimfs *fs = open_line(&m, "{model:{a:t}}", NULL);
	struct optimfs_attr attr;
	char name[32];
	int n = 0;

	do
		snprintf(name, sizeof(name), "dcp@%d", ++n);
	while (n < 2000 && find(fs, name, &attr, &err) == 0);
	is_int(n, 2000, "views that nobody uses make room for others");
	n = 0;
	while (n < 1025 && open_view(fs, n + 1, &file[n], &err))
		n++;
	is_int(n, 1024, "1024 views can be in use at once");
	is_error(err, ENFILE, "OFS772", "a further view fails with ENFILE");
	is_int(list_view(fs, "dcp@7", &err), 0, "existing views stay usable");
	optimfs_file_close(file[--n]);
	ok(open_view(fs, 1025, &file[n], &err),
	    "a file that is closed makes room: %s", err.text);
	for (n = 0; n < 1024; n++)
		optimfs_file_close(file[n]);
	optimfs_close(fs);
	mktorch_fini(&m);
}

/* Only some unopened views are kept laid out. The others are laid out again,
 * with the same bytes. */
static void kept(void)
{
	struct optimfs_error err;
	struct mktorch m;
	struct optimfs *fs = open_line(&m, "{model:{a:t,b:t}}", NULL);
	struct optimfs_file *file;
	struct optimfs_attr attr;
	uint8_t first[64], again[64];
	char name[48];
	bool good = true;

	snprintf(name, sizeof(name), "dcp@1/__0_0.distcp");
	ok(find(fs, name, &attr, &err) == 0 &&
		optimfs_file_open(fs, attr.node, &file, &err) == 0 &&
		optimfs_file_read(file, first, 64, 0, &err) == 64,
	    "a file of a view can be read");
	for (int i = 2; i < 20; i++) {
		snprintf(name, sizeof(name), "dcp@%d/__0_0.distcp", i);
		good = good && find(fs, name, &attr, &err) == 0;
	}
	ok(good, "files of 18 other views can be looked up");
	ok(ofs_views_laid_out(fs->now) <= 5,
	    "few views are laid out in memory: %d",
	    (int)ofs_views_laid_out(fs->now));
	ok(optimfs_file_read(file, again, 64, 0, &err) == 64 &&
		memcmp(first, again, 64) == 0,
	    "an open file of a view stays readable");
	optimfs_file_close(file);
	for (int i = 2; i < 20; i++) {
		snprintf(name, sizeof(name), "dcp@%d/__0_0.distcp", i);
		good = good && find(fs, name, &attr, &err) == 0 &&
		    optimfs_file_open(fs, attr.node, &file, &err) == 0 &&
		    optimfs_file_read(file, again, 64, 0, &err) == 64;
		if (good)
			optimfs_file_close(file);
	}
	ok(good, "files of 18 other views can be read");
	snprintf(name, sizeof(name), "dcp@1/__0_0.distcp");
	ok(find(fs, name, &attr, &err) == 0 &&
		optimfs_file_open(fs, attr.node, &file, &err) == 0 &&
		optimfs_file_read(file, again, 64, 0, &err) == 64 &&
		memcmp(first, again, 64) == 0,
	    "a view that is laid out again has the same bytes");
	optimfs_file_close(file);
	ok(ofs_views_laid_out(fs->now) <= 4,
	    "few views are laid out in memory after reads: %d",
	    (int)ofs_views_laid_out(fs->now));
	optimfs_close(fs);
	mktorch_fini(&m);
}

int main(void)
{
	refused();
	one_module();
	alias_cycle();
	too_many();
	kept();
	return done_testing();
}
