/* cmd_commit.c - optimfs commit, optimfs abort */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/cmd_commit.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "tools/command.h"
#include "tools/control.h"
#include "tools/verbs.h"

int ofs_commit_status(int ret, const struct optimfs_error *err)
{
	if (ret == 0)
		return OFS_EXIT_OK;
	ofs_tool_say("%s", err->text);
	if (ret == 1)
		return OFS_EXIT_UNSYNCED;
	if (err->code == ECANCELED)
		return OFS_EXIT_INTERRUPTED;
	/* the changes are invalid, not the command line */
	return err->code == EINVAL ? OFS_EXIT_IO : ofs_tool_status(err->code);
}

int ofs_commit_order_take(const struct ofs_verb *self, int argc, char **argv,
    const struct ofs_flag *flags, struct ofs_commit_order *o)
{
	const char *value;
	struct ofs_args a;
	int id, status;

	*o = (struct ofs_commit_order){ 0 };
	ofs_args_init(&a, self, argc, argv, flags, NULL);
	while ((id = ofs_args_next(&a, &value, &status)) != OFS_ARGS_END) {
		if (id == OFS_ARGS_STOP)
			return status;
		o->json |= id == OFS_ORDER_JSON;
		o->force |= id == OFS_ORDER_FORCE;
		o->keep |= id == OFS_ORDER_KEEP;
		if (id != OFS_ARGS_OPERAND)
			continue;
		if (o->point != NULL)
			return ofs_tool_usage(self,
			    "more than one mount point");
		o->point = value;
	}
	o->quiet = a.quiet;
	o->progress = a.progress;
	if (o->point != NULL && *o->point != '\0')
		return -1;
	return ofs_tool_usage(self, "%s",
	    o->point == NULL ? "which mount point?"
			     : "the name of the mount point is empty");
}

/* 0, or -1 with the exit status. */
static int take_order(const struct ofs_verb *self, int argc, char **argv,
    const struct ofs_flag *flags, struct ofs_commit_order *o, int *status)
{
	struct ofs_mountinfo m;
	struct optimfs_error err;

	*status = ofs_commit_order_take(self, argc, argv, flags, o);
	if (*status != -1)
		return -1;
	if (ofs_control_find(o->point, &m, &err) == -1) {
		*status = ofs_tool_fail(&err);
		return -1;
	}
	ofs_mountinfo_fini(&m);
	return 0;
}

/* "3 files, 1.28 GB", or that there are none. */
static void changes(const char *point, char text[80])
{
	struct ofs_control c;

	strcpy(text, "nothing, because there are no changes");
	if (ofs_control_read(point, &c, NULL) == 0 && c.dirty[0] != '\0')
		strcpy(text, c.dirty);
}

static int run_commit(const struct ofs_verb *self, int argc, char **argv)
{
	static const struct ofs_flag flags[] = {
		{ OFS_ORDER_JSON, "json", false },
		{ 0, NULL, false },
	};
	struct ofs_progress progress;
	struct optimfs_error err;
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };
	char text[80];
	struct ofs_commit_order o;
	int status, ret;

	if (take_order(self, argc, argv, flags, &o, &status) == -1)
		return status;
	changes(o.point, text);
	ofs_progress_init(&progress, "commit", o.quiet, o.progress);
	ret = ofs_control_commit(o.point, &progress, &err);
	if (o.json && ret != -1) {
		ofs_json_begin(&w, &b, "optimfs.commit");
		ofs_json_put_string(&w, "mountpoint", o.point);
		ofs_json_put_bool(&w, "synced", ret == 0);
		ofs_json_print(&w);
	}
	if (!o.json && ret == 0)
		ofs_tool_done("committed: %s", text);
	return ofs_tool_finish(ofs_commit_status(ret, &err));
}

static int run_abort(const struct ofs_verb *self, int argc, char **argv)
{
	struct optimfs_error err;
	char text[80];
	struct ofs_commit_order o;
	int status;

	if (take_order(self, argc, argv, NULL, &o, &status) == -1)
		return status;
	changes(o.point, text);
	if (ofs_control_write(o.point, "abort", &err) != 0)
		return ofs_tool_fail(&err);
	ofs_tool_done("dropped: %s", text);
	return ofs_tool_finish(OFS_EXIT_OK);
}

const struct ofs_verb ofs_verb_commit = {
	.name = "commit",
	.synopsis = "[--json] MOUNTPOINT",
	.summary = "commit the changes made in a mount",
	.options = "  --json  print the result as JSON\n",
	.run = run_commit,
};

const struct ofs_verb ofs_verb_abort = {
	.name = "abort",
	.synopsis = "MOUNTPOINT",
	.summary = "discard the uncommitted changes of a mount",
	.run = run_abort,
};
