/* main.c - optimfs: dispatch to the verbs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "base/module.h"
#include "base/nearest.h"
#include "cli/from.h"
#ifdef HAVE_FUSE
# include "fuse/serve.h"
#endif
#include "tools/cmd_mount.h"
#include "tools/cmd_umount.h"
#include "tools/verbs.h"

/* All verbs in the order of --help. */
static const struct ofs_verb *const verbs[] = {
	&ofs_verb_mount,
	&ofs_verb_umount,
	&ofs_verb_commit,
	&ofs_verb_abort,
	&ofs_verb_ls,
	&ofs_verb_cat,
	&ofs_verb_show,
	&ofs_verb_cp,
	&ofs_verb_info,
	&ofs_verb_log,
	&ofs_verb_average,
	&ofs_verb_thin,
	&ofs_verb_sum,
	&ofs_verb_tar,
	&ofs_verb_serve,
	&ofs_verb_fsck,
	&ofs_verb_reshard,
	&ofs_verb_mkfs,
	&ofs_verb_diff,
	&ofs_verb_explain,
	&ofs_verb_stat,
	&ofs_verb_check,
	&ofs_verb_plan,
	&ofs_verb_map,
	&ofs_verb_report,
	&ofs_verb_units_script,
	NULL,
};

/* None of our files may get the number of a standard descriptor. */
static void open_standard(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd > STDERR_FILENO)
		close(fd);
}

static int help(FILE *to, int status)
{
	fputs("usage: optimfs COMMAND [options] ARGUMENTS\n"
	      "A sharded training checkpoint as ordinary files.\n\n",
	    to);
	for (size_t i = 0; verbs[i] != NULL; i++)
		fprintf(to, "  %-13s %s\n", verbs[i]->name, verbs[i]->summary);
	fputs(
	    "\n  optimfs help COMMAND    the options of a command\n"
	    "  optimfs explain OFSnnn  what an error code means\n"
	    "  optimfs --version       the version and what it was built with\n",
	    to);
	return ofs_tool_finish(status);
}

static int version(void)
{
	printf("optimfs %s\n%s", optimfs_version(), optimfs_features());
#ifdef HAVE_FUSE
	printf(", libfuse %s", ofs_fuse_version());
#else
	printf(", no FUSE");
#endif
#ifdef MPI_NAME
	printf(", " MPI_NAME "%s",
	    ofs_module_exists("mpi") ? "" : " (its module is not installed)");
#else
	printf(", no MPI");
#endif
	putchar('\n');
	return ofs_tool_finish(OFS_EXIT_OK);
}

static const struct ofs_verb *find_verb(const char *name)
{
	for (size_t i = 0; verbs[i] != NULL; i++)
		if (strcmp(name, verbs[i]->name) == 0)
			return verbs[i];
	return NULL;
}

/* What other programs call a verb, and what else does it. */
static const struct {
	const char *word, *verb, *hint;
} synonyms[] = {
	{ "print", "show", NULL },
	{ "head", "show", NULL },
	{ "convert", "reshard", "optimfs reshard --to FORMAT CHECKPOINT NEW" },
	{ "merge", "average", "optimfs average --to FORMAT RUN last5 NEW" },
	{ "export", "reshard", "optimfs reshard --to FORMAT CHECKPOINT NEW" },
	{ "list", "ls", NULL },
	{ "tree", "ls", "optimfs ls -R CHECKPOINT" },
	{ "find", "ls", "optimfs ls -R CHECKPOINT" },
	{ "du", "info", "optimfs info CHECKPOINT [PATH], or ls -lh" },
	{ "verify", "fsck", "optimfs fsck --data CHECKPOINT" },
	{ "validate", "fsck", "optimfs fsck --data CHECKPOINT" },
	{ "rm", "mount",
	    "optimfs mount -o rw CHECKPOINT DIRECTORY, then rm in it; "
	    "optimfs thin removes checkpoints of a run" },
	{ "mv", "mount",
	    "optimfs mount -o rw CHECKPOINT DIRECTORY, then mv in it" },
};

static int unknown(const char *word)
{
	const char *hint = NULL;
	struct ofs_nearest near;

	ofs_nearest_init(&near, word);
	for (size_t i = 0; i < sizeof(synonyms) / sizeof(*synonyms); i++)
		if (strcmp(word, synonyms[i].word) == 0) {
			near.word = synonyms[i].verb;
			hint = synonyms[i].hint;
		}
	for (size_t i = 0; word[0] != '-' && verbs[i] != NULL; i++)
		ofs_nearest_try(&near, verbs[i]->name);
	ofs_nearest_try(&near, word[0] == '-' ? "--help" : "help");
	ofs_nearest_try(&near, word[0] == '-' ? "--version" : "version");
	ofs_tool_misused("unknown %s '%.200s'" OFS_NEAREST_FMT "%s%s",
	    word[0] == '-' ? "option" : "command", word, OFS_NEAREST(&near),
	    hint != NULL ? " " : "", hint != NULL ? hint : "");
	fputs("usage: optimfs COMMAND [options] ARGUMENTS; "
	      "see optimfs --help\n",
	    stderr);
	return OFS_EXIT_USAGE;
}

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

#ifdef HAVE_FUSE
/* By the names under which mount(8) and umount(8) run it. */
static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
} helpers[] = {
	{ "mount.optimfs", ofs_mount_helper },
	{ "umount.fuse.optimfs", ofs_umount_helper },
};

/* Its exit status; -1: it has another name. */
static int run_helper(int argc, char **argv)
{
	const char *slash = argc < 1 ? NULL : strrchr(argv[0], '/');

	for (size_t i = 0; i < sizeof(helpers) / sizeof(*helpers); i++)
		if (argc > 0 &&
		    strcmp(slash != NULL ? slash + 1 : argv[0],
			helpers[i].name) == 0)
			return helpers[i].run(argc, argv);
	return -1;
}
#endif

static bool is(const char *word, const char *a, const char *b, const char *c)
{
	return strcmp(word, a) == 0 || strcmp(word, b) == 0 ||
	    strcmp(word, c) == 0;
}

/* Known before the arguments are parsed, whose errors are objects, too. */
static bool wants_json(int argc, char **argv)
{
	for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++)
		if (strcmp(argv[i], "--json") == 0)
			return true;
	return false;
}

static int run_verb(const struct ofs_verb *verb, int argc, char **argv)
{
	char **taken = NULL, *made = NULL;
	struct optimfs_error err;
	int status;

	if (verb->from && ofs_from_take(&argc, argv, &taken, &made, &err) == -1)
		return ofs_tool_fail(&err);
	status = verb->run(verb, argc, taken != NULL ? taken : argv);
	free(taken);
	free(made);
	return status;
}

static int run_command(int argc, char **argv)
{
	const struct ofs_verb *verb;

	if (wants_json(argc, argv))
		ofs_tool_json();
	if (argc < 2)
		return help(stderr, OFS_EXIT_USAGE);
	if (is(argv[1], "--help", "-h", "help")) {
		if (argc < 3 || is(argv[2], "--help", "-h", "help"))
			return help(stdout, OFS_EXIT_OK);
		verb = find_verb(argv[2]);
		return verb != NULL ? ofs_tool_help(verb) : unknown(argv[2]);
	}
	if (is(argv[1], "--version", "-V", "version"))
		return version();
	verb = find_verb(argv[1]);
	if (verb != NULL)
		return run_verb(verb, argc - 1, argv + 1);
	if (means_mount(argc, argv))
		return ofs_verb_mount.run(&ofs_verb_mount, argc, argv);
	return unknown(argv[1]);
}

int main(int argc, char **argv)
{
#ifdef HAVE_FUSE
	int status;
#endif

	open_standard();
	/* a write past RLIMIT_FSIZE fails with EFBIG, which is an error to
	 * report; the signal would end a mount and all its readers */
	signal(SIGXFSZ, SIG_IGN);
	if (getauxval(AT_SECURE) != 0) {
		ofs_tool_say("refusing to run with more rights than its user");
		return OFS_EXIT_REFUSED;
	}
#ifdef HAVE_FUSE
	status = run_helper(argc, argv);
	if (status != -1)
		return status;
#endif
	return run_command(argc, argv);
}
