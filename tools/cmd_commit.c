/* cmd_commit.c - optimfs commit, optimfs abort */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/cmd_commit.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "cli/args.h"
#include "tools/command.h"
#include "tools/control.h"
#include "tools/verbs.h"

enum { OFS_EXIT_INTERRUPTED = 130 };

int ofs_commit_status(int ret, const struct optimfs_error *err)
{
	if (ret == 0)
		return OFS_EXIT_OK;
	ofs_tool_say("%s", err->text);
	if (ret == 1)
		return OFS_EXIT_UNSYNCED;
	if (err->code == ECANCELED)
		return OFS_EXIT_INTERRUPTED;
	/* what was written is wrong, not the command line */
	return err->code == EINVAL ? OFS_EXIT_IO : ofs_tool_status(err->code);
}

/* The one operand of both, and commit's flag. */
static int find_point(const struct ofs_verb *self, int argc, char **argv,
    const char **point, bool *json, int *status)
{
	static const struct ofs_flag flags[] = {
		{ 256, "json", false },
		{ 0, NULL, false },
	};
	struct ofs_mountinfo m;
	struct optimfs_error err;
	struct ofs_args a;
	const char *value;
	int id;

	*point = NULL;
	ofs_args_init(&a, self, argc, argv, json != NULL ? flags : NULL, NULL);
	while ((id = ofs_args_next(&a, &value, status)) != OFS_ARGS_END) {
		if (id == OFS_ARGS_STOP)
			return -1;
		if (id != OFS_ARGS_OPERAND) {
			*json = true;
			continue;
		}
		if (*point != NULL) {
			*status =
			    ofs_tool_usage(self, "more than one mount point");
			return -1;
		}
		*point = value;
	}
	if (*point == NULL) {
		*status = ofs_tool_usage(self, "which mount?");
		return -1;
	}
	if (ofs_control_find(*point, &m, &err) == -1) {
		*status = ofs_tool_fail(&err);
		return -1;
	}
	ofs_mountinfo_fini(&m);
	return 0;
}

static int run_commit(const struct ofs_verb *self, int argc, char **argv)
{
	struct optimfs_error err;
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };
	const char *point;
	bool json = false;
	int status, ret;

	if (find_point(self, argc, argv, &point, &json, &status) == -1)
		return status;
	ret = ofs_control_commit(point, &err);
	if (json && ret != -1) {
		ofs_json_begin(&w, &b, NULL);
		ofs_json_put_string(&w, "mountpoint", point);
		ofs_json_put_bool(&w, "synced", ret == 0);
		ofs_json_print(&w);
	}
	if (!json && ret == 0)
		ofs_tool_done("committed: what %s shows is the checkpoint",
		    point);
	return ofs_tool_finish(ofs_commit_status(ret, &err));
}

static int run_abort(const struct ofs_verb *self, int argc, char **argv)
{
	struct optimfs_error err;
	const char *point;
	int status;

	if (find_point(self, argc, argv, &point, NULL, &status) == -1)
		return status;
	if (ofs_control_write(point, "abort", &err) != 0)
		return ofs_tool_fail(&err);
	return OFS_EXIT_OK;
}

const struct ofs_verb ofs_verb_commit = {
	.name = "commit",
	.synopsis = "[--json] MOUNTPOINT",
	.summary = "make what was written to a mount the checkpoint",
	.options = "  --json  say so as JSON\n",
	.run = run_commit,
};

const struct ofs_verb ofs_verb_abort = {
	.name = "abort",
	.synopsis = "MOUNTPOINT",
	.summary = "drop what was written to a mount and not committed",
	.run = run_abort,
};
