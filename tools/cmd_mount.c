/* cmd_mount.c - optimfs mount, and the helper of mount(8) */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/cmd_mount.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "optimfs/run.h"

#include "cli/args.h"
#include "fuse/job.h"
#include "fuse/mount.h"
#include "fuse/mountinfo.h"
#include "fuse/opts.h"
#include "fuse/utab.h"
#include "tools/source.h"
#include "tools/verbs.h"

/* The two operands. */
struct places {
	const char *source, *point;
	int n;
};

static void add_place(struct places *p, const char *word)
{
	if (p->n == 0)
		p->source = word;
	else if (p->n == 1)
		p->point = word;
	p->n++;
}

static int check_places(const struct ofs_verb *self, const struct places *p)
{
	if (p->n == 2 && *p->source != '\0' && *p->point != '\0')
		return 0;
	if (p->n == 2)
		return ofs_tool_usage(self, "the name of the %s is empty",
		    *p->source == '\0' ? "checkpoint" : "mount point");
	return ofs_tool_usage(self, "%s",
	    p->n == 0       ? "which checkpoint, and which mount point?"
		: p->n == 1 ? "which mount point?"
			    : "more than a checkpoint and a mount point");
}

/* A mount is replaced by the checkpoint it shows, a directory in it by that part
 * of the checkpoint. s owns the strings. */
static void look_through(struct places *p, struct ofs_mount_options *m,
    struct ofs_tool_source *s)
{
	if (ofs_source_find(p->source, s) != 1)
		return;
	p->source = s->path;
	if (s->inner[0] != '\0')
		s->open.subtree = s->inner;
	ofs_source_apply(s, &m->open);
}

/* The first n bytes of the name of what is computed from a run, RUN:avg/last5,
 * with the absolute path of the run: the daemon leaves this directory, and others
 * read the name of the mount's source. */
static char *absolute_name(const char *name, size_t n,
    struct optimfs_error *err)
{
	char *run = optimfs_run_of(name), *path = NULL;
	char *real = run == NULL ? NULL
	    : optimfs_is_address(run) ? strdup(run)
				      : realpath(run, NULL);

	while (n > 0 && name[n - 1] == '/')
		n--;
	if (real == NULL ||
	    asprintf(&path, "%s%.*s", real, (int)(n - strlen(run)),
		name + strlen(run)) == -1) {
		path = NULL;
		optimfs_fail(err, ENOENT, "%s: %m", name);
	}
	free(real);
	free(run);
	return path;
}

/* RUN:1000 is replaced by the path of that checkpoint, which *real owns. */
static int look_in_run(struct places *p, struct ofs_mount_options *m,
    char **real, struct optimfs_error *err)
{
	const char *rest;
	int found = optimfs_connect(p->source, &m->open, err);

	if (found == 0)
		found = optimfs_run_find(p->source, real, &rest, err);
	if (found != 1)
		return found;
	if (*rest != '\0')
		m->open.subtree = rest;
	if (*real == NULL)
		*real = absolute_name(p->source,
		    strlen(p->source) - strlen(rest), err);
	if (*real == NULL)
		return -1;
	p->source = *real;
	return 0;
}

/* Lets umount(8) find its helper, which waits for the commit. */
static void note_mount(const char *point)
{
	char *real = ofs_mount_point_path(point, NULL);
	struct ofs_mountinfo m;

	if (real != NULL && ofs_mountinfo_find(real, &m)) {
		if (m.rw && strcmp(m.type, "fuse.optimfs") == 0)
			ofs_utab_add(m.source, m.point);
		ofs_mountinfo_fini(&m);
	}
	free(real);
}

enum { FLAG_FD = 256, FLAG_READY };

/* --fd N: somebody with more rights has opened /dev/fuse and mounted it. */
static int take_descriptor(struct places *p, const char *fd, char device[32])
{
	struct stat st;
	char *end;
	unsigned long n = strtoul(fd, &end, 10);

	if (!isdigit((unsigned char)*fd) || *end != '\0' || n > INT_MAX ||
	    p->n != 1 || fstat((int)n, &st) == -1 || !S_ISCHR(st.st_mode) ||
	    st.st_rdev != makedev(10, 229)) /* FUSE's */
		return -1;
	snprintf(device, 32, "/dev/fd/%lu", n);
	add_place(p, device);
	return 0;
}

static int mount_verb(const struct ofs_verb *self, struct ofs_args *a,
    struct ofs_mount_options *m)
{
	struct ofs_tool_source s = { 0 };
	struct places p = { 0 };
	struct optimfs_error err;
	const char *value, *fd = NULL;
	char *real = NULL, device[32];
	int id, status;

	while ((id = ofs_args_next(a, &value, &status)) != OFS_ARGS_END) {
		if (id == OFS_ARGS_STOP)
			return status;
		if (id == OFS_ARGS_OPERAND)
			add_place(&p, value);
		m->foreground |= id == 'f';
		m->debug |= id == 'd';
		m->single |= id == 's';
		if (id == FLAG_FD)
			fd = value;
		if (id == FLAG_READY)
			m->ready_file = value;
	}
	m->quiet = a->quiet;
	m->progress = a->progress;
	if (fd != NULL && take_descriptor(&p, fd, device) == -1)
		return ofs_tool_usage(self,
		    "--fd %s: not the number of a descriptor of /dev/fuse, which "
		    "takes the place of the mount point",
		    fd);
	status = check_places(self, &p);
	if (status != 0)
		return status;
	/* mount.fuse3 has called: see main.c */
	if (strcmp(a->argv[0], self->name) != 0)
		ofs_mount_options_doubt_rw(m);
	if (ofs_mount_options_check(m, &err) == -1)
		return ofs_tool_fail(&err);
	if (ofs_job_wanted(&m->job))
		return ofs_mount_job(p.source, p.point, m);
	look_through(&p, m, &s);
	status = look_in_run(&p, m, &real, &err) == -1 ||
		ofs_mount(p.source, p.point, m, &err) == -1
	    ? ofs_tool_fail(&err)
	    : OFS_EXIT_OK;
	if (status == OFS_EXIT_OK && !m->foreground)
		note_mount(p.point);
	ofs_source_fini(&s);
	free(real);
	return status;
}

static int run_mount(const struct ofs_verb *self, int argc, char **argv)
{
	static const struct ofs_flag flags[] = {
		{ 'f', "foreground", false },
		{ 'd', "debug", false },
		{ 's', "single", false },
		{ FLAG_FD, "fd", true },
		{ FLAG_READY, "ready-file", true },
		{ 0, NULL, false },
	};
	struct ofs_mount_options m;
	struct ofs_options o;
	struct ofs_args a;
	int status;

	ofs_mount_options_init(&m, &o);
	ofs_args_init(&a, self, argc, argv, flags, &o);
	status = mount_verb(self, &a, &m);
	ofs_options_fini(&o);
	return status;
}

static void print_types(void)
{
	const char *name;

	printf("\nTypes: ");
	for (unsigned i = 0; (name = optimfs_type(i)) != NULL; i++)
		printf("%s%s", i == 0 ? "" : ", ", name);
	putchar('\n');
}

const struct ofs_verb ofs_verb_mount = {
	.name = "mount",
	.from = true,
	.synopsis = "[-dfs] [-o OPTION,...] CHECKPOINT {MOUNTPOINT|--fd N}",
	.summary = "mount a checkpoint",
	.options =
	    "  -f, --foreground   stay in the foreground\n"
	    "  -d, --debug        print each request (implies -f)\n"
	    "  -s, --single       serve with one thread\n"
	    "  --fd N             serve the open descriptor of /dev/fuse instead of\n"
	    "                     mounting: who passed it has mounted it\n"
	    "  --ready-file FILE  exists from when the mount answers to its end\n"
	    "  -o OPTION,...      or --OPTION; sizes may end in k, m, g, t\n"
	    "\n"
	    "Writing (a mount is read-only without rw):\n"
	    "  rw                 changes are committed when it is unmounted\n"
	    "  commit=explicit    changes are committed by optimfs commit only\n"
	    "  recover=yes        keep what a crashed mount had written\n"
	    "  recover=discard    discard what a crashed mount had written\n"
	    "  scratch            changes are discarded when it is unmounted\n"
	    "  upper=DIR          where uncommitted changes are stored\n"
	    "Reading a checkpoint that does not describe itself:\n"
	    "  type=FORMAT optim_key=KEY model_key=KEY subtree=PATH\n"
	    "  ids=FILE|model     names of parameters that have only numbers\n"
	    "  units=FILE         the parameters that each flat parameter holds\n"
	    "  names=FILE         families of names, for views\n"
	    "  fill=zero          lost moments read as zeros\n"
	    "  strict             refuse a damaged checkpoint\n"
	    "  follow join=PATH max_metadata=SIZE parse_mem=SIZE\n"
	    "Speed and memory:\n"
	    "  cache=SIZE threads=N readahead=SIZE direct\n"
	    "  cache_dir=DIR cache_disk=SIZE  keep what servers sent\n"
	    "  requests=N request_size=SIZE  what servers are asked at once\n"
	    "  assemble=off|auto|always assemble_max=SIZE\n"
	    "The mount:\n"
	    "  allow_other        other users may read it, as file modes allow\n"
	    "  timeout=TIME sandbox=off|auto|require log=stderr|syslog|FILE\n"
	    "  default_permissions nonempty auto_unmount ro\n"
	    "Under mpirun:\n"
	    "  transport=auto|local|mpi mount_ranks=RANKS keep_going\n"
	    "  rank0_only gather=mpi|auto|nccl gpu_cache=SIZE\n"
	    "\n"
	    "optimfs(1) explains each option.\n",
	.more = print_types,
	.run = run_mount,
};

/* The exit codes of mount(8) that we use. */
enum {
	MOUNT_OK = 0,
	MOUNT_USAGE = 1,
	MOUNT_SYSTEM = 2,
	MOUNT_FAILED = 32,
};

static int helper_fail(const struct optimfs_error *err)
{
	int status = ofs_tool_fail(err);

	if (status == OFS_EXIT_USAGE)
		return MOUNT_USAGE;
	return err->code == ENOMEM || err->code == EAGAIN ? MOUNT_SYSTEM
							  : MOUNT_FAILED;
}

static int helper(const struct ofs_verb *self, struct ofs_args *a,
    struct ofs_mount_options *m)
{
	struct places p = { 0 };
	struct optimfs_error err;
	bool fake = false, no_mtab = false, verbose = false;
	const char *value;
	char *real = NULL;
	int id, status, ret;

	while ((id = ofs_args_next(a, &value, &status)) != OFS_ARGS_END) {
		if (id == OFS_ARGS_STOP)
			return status == 0 ? MOUNT_OK : MOUNT_USAGE;
		if (id == OFS_ARGS_OPERAND)
			add_place(&p, value);
		fake |= id == 'f';
		no_mtab |= id == 'n';
		verbose |= id == 'v';
	}
	if (check_places(self, &p) != 0)
		return MOUNT_USAGE;
	ofs_mount_options_doubt_rw(m);
	ret = ofs_mount_options_check(m, &err);
	if (ret == 0)
		ret = look_in_run(&p, m, &real, &err);
	if (ret == 0 && fake)
		ret = ofs_mount_check(p.source, p.point, m, &err);
	else if (ret == 0)
		ret = ofs_mount(p.source, p.point, m, &err);
	if (ret == 0 && !fake && !no_mtab)
		note_mount(p.point);
	if (ret == 0 && verbose) {
		struct ofs_buf b = { 0 };

		ofs_buf_printf(&b, "optimfs: %s %s on %s\n", p.source,
		    fake ? "can be mounted" : "mounted", p.point);
		ofs_tool_print_buf(&b, 4);
	}
	free(real);
	if (ret == -1)
		return helper_fail(&err);
	return ofs_tool_finish(OFS_EXIT_OK) == 0 ? MOUNT_OK : MOUNT_FAILED;
}

/* mount(8) puts operands before flags; -s must apply to all -o. */
static bool is_sloppy(int argc, char **argv)
{
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "-o") == 0)
			i++;
		else if (argv[i][0] == '-' && argv[i][1] != '-' &&
		    strncmp(argv[i], "-o", 2) != 0 &&
		    strchr(argv[i], 's') != NULL)
			return true;
	}
	return false;
}

int ofs_mount_helper(int argc, char **argv)
{
	static const struct ofs_verb self = {
		.name = "mount",
		.synopsis =
		    "-t optimfs [-fnsv] [-o OPTION,...] CHECKPOINT MOUNTPOINT",
		.summary = "mount a checkpoint, for mount(8)",
	};
	static const struct ofs_flag flags[] = {
		{ 'f', "fake", false },
		{ 'n', "no-mtab", false },
		{ 's', "sloppy", false },
		{ 'v', "verbose", false },
		{ 't', "types", true },
		{ 'N', "namespace", true },
		{ 0, NULL, false },
	};
	struct ofs_mount_options m;
	struct ofs_options o;
	struct ofs_args a;
	int status;

	ofs_mount_options_init(&m, &o);
	o.sloppy = is_sloppy(argc, argv);
	ofs_args_init(&a, &self, argc, argv, flags, &o);
	status = helper(&self, &a, &m);
	ofs_options_fini(&o);
	return status;
}
