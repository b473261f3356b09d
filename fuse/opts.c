/* opts.c - the options of a mount */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/opts.h"

#include <errno.h>

static const char *const assemble_names[] = { "off", "auto", "always", NULL };
/* In the order of optimfs_recover; and whether an unmount commits. */
static const char *const recover_names[] = { "no", "yes", "discard", NULL };
static const char *const commit_names[] = { "auto", "explicit", NULL };

#define ROW(row_name, row_kind, member) \
 OFS_OPTION_ROW(row_name, row_kind, offsetof(struct ofs_mount_options, member))

static const struct ofs_option options[] = {
	OFS_OPEN_OPTIONS(offsetof(struct ofs_mount_options, open)),
	OFS_JOB_OPTIONS(offsetof(struct ofs_mount_options, job)),
	ROW("mount_ranks", OFS_OPTION_STRING, mount_ranks),
	ROW("keep_going", OFS_OPTION_FLAG, keep_going),
	{ .name = "assemble",
	    .kind = OFS_OPTION_CHOICE,
	    .choices = assemble_names,
	    .offset = offsetof(struct ofs_mount_options, assemble) },
	ROW("assemble_max", OFS_OPTION_SIZE, assemble_max),
	{ .name = "sandbox",
	    .kind = OFS_OPTION_CHOICE,
	    .choices = ofs_sandbox_policies,
	    .offset = offsetof(struct ofs_mount_options, sandbox) },
	ROW("readahead", OFS_OPTION_SIZE, readahead),
	ROW("timeout", OFS_OPTION_TIME, timeout),
	{ .name = "threads",
	    .kind = OFS_OPTION_COUNT,
	    .min = 1,
	    .max = 256,
	    .offset = offsetof(struct ofs_mount_options, threads) },
	ROW("log", OFS_OPTION_STRING, log),
	ROW("rw", OFS_OPTION_FLAG, open.rw),
	ROW("scratch", OFS_OPTION_FLAG, open.scratch),
	ROW("upper", OFS_OPTION_STRING, open.upper),
	{ .name = "commit",
	    .kind = OFS_OPTION_CHOICE,
	    .choices = commit_names,
	    .offset = offsetof(struct ofs_mount_options, commit) },
	{ .name = "recover",
	    .kind = OFS_OPTION_CHOICE,
	    .choices = recover_names,
	    .offset = offsetof(struct ofs_mount_options, recover) },
	ROW("remount", OFS_OPTION_FLAG, remount),
	ROW("direct", OFS_OPTION_FLAG, direct),
	ROW("allow_other", OFS_OPTION_FLAG, allow_other),
	ROW("default_permissions", OFS_OPTION_FLAG, default_permissions),
	ROW("auto_unmount", OFS_OPTION_FLAG, auto_unmount),
	ROW("nonempty", OFS_OPTION_FLAG, nonempty),
	ROW("ro", OFS_OPTION_FLAG, ro),
	{ .name = NULL },
};

/* Generic options of mount(8) and fstab(5). The mount is always nosuid, nodev
 * and noexec. */
static const char ignored[] =
    "x-\0X-\0"
    "suid\0nosuid\0dev\0nodev\0exec\0noexec\0"
    "auto\0noauto\0user\0nouser\0users\0owner\0"
    "group\0nofail\0_netdev\0comment\0defaults\0async\0"
    "sync\0dirsync\0atime\0noatime\0diratime\0nodiratime\0"
    "relatime\0norelatime\0strictatime\0nostrictatime\0lazytime\0nolazytime\0";

void ofs_mount_options_init(struct ofs_mount_options *m, struct ofs_options *o)
{
	*m = (struct ofs_mount_options){
		.open.run = OPTIMFS_RUN_AUTO,
		.assemble = OFS_ASSEMBLE_AUTO,
		.assemble_max = UINT64_C(256) << 20,
		.sandbox = OFS_SANDBOX_AUTO,
		.readahead = UINT64_C(1) << 20,
		.timeout = 30,
		.commit = -1,
		.recover = -1,
	};
	*o = (struct ofs_options){
		.table = options,
		.target = m,
		.ignored = ignored,
	};
}

void ofs_mount_options_doubt_rw(struct ofs_mount_options *m)
{
	m->open.rw &= m->commit != -1 || m->recover != -1 ||
	    m->open.upper != NULL || m->open.scratch;
}

int ofs_mount_options_check(struct ofs_mount_options *m,
    struct optimfs_error *err)
{
	if (m->recover != -1)
		m->open.recover = (enum optimfs_recover)m->recover;
	/* so that a request fails before it counts as late */
	m->open.timeout =
	    m->timeout == 0 ? OPTIMFS_NO_TIMEOUT : m->timeout - m->timeout / 3;
	m->open.explicit_commit = m->commit == 1;
	m->open.rw |= m->open.scratch;
	if (m->ro)
		m->open.rw = m->open.scratch = false;
	/* a backing file would not show what is written */
	if (m->open.rw && m->assemble == OFS_ASSEMBLE_ALWAYS)
		return optimfs_fail(err, EINVAL,
		    "options 'rw' and 'assemble=always' exclude each other");
	if (m->open.rw)
		m->assemble = OFS_ASSEMBLE_OFF;
	if (m->remount)
		return optimfs_fail(err, EOPNOTSUPP,
		    "option 'remount': unmount, then mount again");
	if (m->direct && m->assemble == OFS_ASSEMBLE_ALWAYS)
		return optimfs_fail(err, EINVAL,
		    "options 'direct' and 'assemble=always' exclude each other");
	if (m->direct)
		m->assemble = OFS_ASSEMBLE_OFF;
	/* The daemon reads with its own privileges: the kernel checks others
	 * against the modes of the source's files. */
	if (m->allow_other)
		m->default_permissions = true;
	if (m->debug)
		m->foreground = true;
	return 0;
}

void ofs_mount_options_json(const struct ofs_mount_options *m,
    struct ofs_json_writer *w)
{
	ofs_json_put_string(w, "assemble", assemble_names[m->assemble]);
	ofs_json_put_u64(w, "assemble_max", m->assemble_max);
	ofs_json_put_bool(w, "direct", m->direct);
	ofs_json_put_bool(w, "allow_other", m->allow_other);
	ofs_json_put_u64(w, "readahead", m->readahead);
	ofs_json_put_u64(w, "timeout", m->timeout);
	ofs_json_put_bool(w, "rw", m->open.rw);
}
