/* main.c - optimfs: which verb is meant */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "tools/verbs.h"

/* Every verb there is, in the order of --help. */
static const struct ofs_verb *const verbs[] = {
#ifdef HAVE_FUSE
	&ofs_verb_mount,
	&ofs_verb_umount,
	&ofs_verb_commit,
	&ofs_verb_abort,
#endif
	&ofs_verb_ls,
	&ofs_verb_cat,
	&ofs_verb_cp,
	&ofs_verb_info,
	&ofs_verb_tar,
	&ofs_verb_fsck,
	&ofs_verb_reshard,
	&ofs_verb_mkfs,
	&ofs_verb_diff,
	&ofs_verb_explain,
	&ofs_verb_stat,
	&ofs_verb_check,
	&ofs_verb_plan,
	&ofs_verb_map,
	NULL,
};

/* A descriptor of ours must never become somebody's standard output. */
static void open_standard(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

static int help(void)
{
	puts("usage: optimfs VERB [options] ARGUMENTS\n"
	     "A sharded training checkpoint as ordinary files.\n");
	for (size_t i = 0; verbs[i] != NULL; i++)
		printf("  %-8s %s\n", verbs[i]->name, verbs[i]->summary);
	puts("\n  optimfs VERB --help says more; optimfs --version what this "
	     "build has.");
	return ofs_tool_finish(OFS_EXIT_OK);
}

static int version(void)
{
	printf("optimfs %s\n%s\n", optimfs_version(), optimfs_features());
	return ofs_tool_finish(OFS_EXIT_OK);
}

static int usage(const char *what, const char *word)
{
	ofs_tool_say("%s%s%s%s", what, word != NULL ? " '" : "",
	    word != NULL ? word : "", word != NULL ? "'" : "");
	fputs("usage: optimfs VERB [options] ARGUMENTS; see optimfs --help\n",
	    stderr);
	return OFS_EXIT_USAGE;
}

#ifdef HAVE_FUSE
/* mount.fuse3, for fstab's type fuse.optimfs, runs "optimfs SOURCE DIR -o
 * OPTIONS". */
static bool means_mount(int argc, char **argv)
{
	if (argc < 4 || argv[1][0] == '-')
		return false;
	for (int i = 2; i < argc; i++)
		if (strncmp(argv[i], "-o", 2) == 0)
			return true;
	return false;
}

static bool means_helper(int argc, char **argv)
{
	const char *slash;

	if (argc < 1)
		return false;
	slash = strrchr(argv[0], '/');
	return strcmp(slash != NULL ? slash + 1 : argv[0], "mount.optimfs") ==
	    0;
}
#endif

static int run(int argc, char **argv)
{
	if (argc < 2)
		return usage("what to do?", NULL);
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0)
		return help();
	if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0 ||
	    strcmp(argv[1], "version") == 0)
		return version();
	for (size_t i = 0; verbs[i] != NULL; i++)
		if (strcmp(argv[1], verbs[i]->name) == 0)
			return verbs[i]->run(verbs[i], argc - 1, argv + 1);
#ifdef HAVE_FUSE
	if (means_mount(argc, argv))
		return ofs_verb_mount.run(&ofs_verb_mount, argc, argv);
#endif
	return usage(argv[1][0] == '-' ? "unknown option" : "unknown verb",
	    argv[1]);
}

int main(int argc, char **argv)
{
	open_standard();
	if (getauxval(AT_SECURE) != 0) {
		ofs_tool_say("refusing to run with more rights than its user");
		return OFS_EXIT_REFUSED;
	}
#ifdef HAVE_FUSE
	if (means_helper(argc, argv))
		return ofs_mount_helper(argc, argv);
#endif
	return run(argc, argv);
}
