/* unmount.c - unmount a mount point */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "fuse/unmount.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fuse/child.h"
#include "fuse/utab.h"

extern char **environ;

/* fusermount3 prints its own error; usually the reason is EBUSY. */
static int by_fusermount(const char *point, bool lazy,
    struct optimfs_error *err)
{
	const char *const argv[] = { "fusermount3", "-u", lazy ? "-z" : "-q",
		"--", point, NULL };
	int status = 0, code;
	pid_t pid;

	if (access("/etc/mtab", F_OK) == -1 && errno == ENOENT)
		return optimfs_fail(err, EIO,
		    "OFS758 %s: fusermount3 needs /etc/mtab, which does not exist: as "
		    "root, ln -s /proc/self/mounts /etc/mtab",
		    point);
	code = posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)argv,
	    environ);
	if (code != 0) {
		errno = code;
		return optimfs_fail(err, code, "fusermount3: %m");
	}
	if (ofs_child_wait(pid, argv[0], &status, err) == -1)
		return optimfs_fail_in(err, "%s", point);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
		return 0;
	return optimfs_fail(err, EBUSY, "%s: fusermount3 cannot unmount it",
	    point);
}

int ofs_unmount(const char *point, bool lazy, struct optimfs_error *err)
{
	if (geteuid() == 0 && ofs_utab_has(NULL, point) &&
	    ofs_utab_unmount(point, lazy))
		return 0;
	if (umount2(point, UMOUNT_NOFOLLOW | (lazy ? MNT_DETACH : 0)) == 0)
		return 0;
	if (errno == EPERM)
		return by_fusermount(point, lazy, err);
	return optimfs_fail(err, errno, "%s: %m", point);
}

int ofs_connection_abort(const struct ofs_mountinfo *m,
    struct optimfs_error *err)
{
	char path[64];
	bool there, done;
	int fd;

	snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u/abort",
	    m->minor);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	/* When a mount is gone, another one gets its number. If it is there
	 * now, what was opened belongs to it, and does nothing once it is
	 * gone. */
	there = ofs_mountinfo_still(m);
	done = there && fd != -1 && write(fd, "1", 1) == 1;
	if (fd != -1)
		close(fd);
	if (!there || done)
		return 0;
	/* forcing aborts the connection even if it cannot unmount */
	if (umount2(m->point, MNT_FORCE | UMOUNT_NOFOLLOW) == 0 ||
	    errno == EBUSY)
		return 0;
	return optimfs_fail(err, errno, "%s: cannot abort: %m", m->point);
}
