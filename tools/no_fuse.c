/* no_fuse.c - the commands of a build that cannot mount */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/verbs.h"

static int run_without_fuse(const struct ofs_verb *self, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	ofs_tool_say("%s: this program was built without FUSE and cannot "
		     "mount: configure it with libfuse 3.10 or later. "
		     "'optimfs ls', 'cat', 'cp' and 'tar' read the same files "
		     "without a mount",
	    self->name);
	return OFS_EXIT_UNSUPPORTED;
}

#define NOT_HERE "not in this program, which was built without FUSE"

const struct ofs_verb ofs_verb_mount = {
	.name = "mount",
	.synopsis = "[-o OPTION[,OPTION]...] CHECKPOINT MOUNTPOINT",
	.summary = NOT_HERE,
	.run = run_without_fuse,
};
const struct ofs_verb ofs_verb_umount = {
	.name = "umount",
	.synopsis = "MOUNTPOINT",
	.summary = NOT_HERE,
	.run = run_without_fuse,
};
const struct ofs_verb ofs_verb_commit = {
	.name = "commit",
	.synopsis = "MOUNTPOINT",
	.summary = NOT_HERE,
	.run = run_without_fuse,
};
const struct ofs_verb ofs_verb_abort = {
	.name = "abort",
	.synopsis = "MOUNTPOINT",
	.summary = NOT_HERE,
	.run = run_without_fuse,
};
