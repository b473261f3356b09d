/* cmd_umount.c - optimfs umount */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "buf.h"
#include "fuse/mountinfo.h"
#include "fuse/unmount.h"
#include "tools/tools.h"

/* How long the daemon may take to end after its mount is gone. */
enum {
	WAIT_TICKS = 200,
	TICK_MS = 50,
	MAX_HOLDERS = 8,
};

/* Is the link /proc/PID/what a path at or below point? */
static bool points_below(const char *pid, const char *what, const char *point)
{
	char path[300], target[4096];
	size_t n = strlen(point);
	ssize_t len;

	snprintf(path, sizeof(path), "/proc/%s/%s", pid, what);
	len = readlink(path, target, sizeof(target) - 1);
	if (len == -1)
		return false;
	target[len] = '\0';
	return strncmp(target, point, n) == 0 &&
	    (target[n] == '\0' || target[n] == '/');
}

static bool maps_below(const char *pid, const char *point)
{
	char path[300], *line = NULL;
	size_t cap = 0, n = strlen(point);
	bool found = false;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/maps", pid);
	f = fopen(path, "re");
	if (f == NULL)
		return false;
	while (!found && getline(&line, &cap, f) != -1) {
		const char *name = strchr(line, '/');

		found = name != NULL && strncmp(name, point, n) == 0 &&
		    name[n] == '/';
	}
	free(line);
	fclose(f);
	return found;
}

static bool holds(const char *pid, const char *point)
{
	char path[300], what[300];
	struct dirent *e;
	bool found = false;
	DIR *d;

	if (points_below(pid, "cwd", point) || points_below(pid, "root", point))
		return true;
	snprintf(path, sizeof(path), "/proc/%s/fd", pid);
	d = opendir(path);
	if (d == NULL)
		return false;
	while (!found && (e = readdir(d)) != NULL) {
		snprintf(what, sizeof(what), "fd/%s", e->d_name);
		found = points_below(pid, what, point);
	}
	closedir(d);
	return found || maps_below(pid, point);
}

static void add_holder(struct ofs_buf *b, const char *pid)
{
	char path[300], name[64] = "?";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%s/comm", pid);
	f = fopen(path, "re");
	if (f != NULL) {
		if (fgets(name, sizeof(name), f) != NULL)
			name[strcspn(name, "\n")] = '\0';
		fclose(f);
	}
	ofs_buf_printf(b, "%s%s (%s)", b->len > 0 ? ", " : " by ", name, pid);
}

/* " by bash (123), less (456)", or nothing where /proc does not tell. */
static void find_holders(const char *point, struct ofs_buf *b)
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	int n = 0;

	if (d == NULL)
		return;
	while (n < MAX_HOLDERS && (e = readdir(d)) != NULL)
		if (isdigit((unsigned char)e->d_name[0]) &&
		    holds(e->d_name, point)) {
			add_holder(b, e->d_name);
			n++;
		}
	closedir(d);
	ofs_buf_putc(b, '\0');
}

static int busy(const char *point, struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };

	find_holders(point, &b);
	optimfs_fail(err, EBUSY, "%s is in use%s", point,
	    b.bad || b.data == NULL ? "" : (const char *)b.data);
	ofs_buf_fini(&b);
	return -1;
}

/* The control file system drops a connection when its daemon closes it. */
static bool is_gone(const struct ofs_mountinfo *m)
{
	char path[64];
	struct ofs_mountinfo now;
	struct stat st;
	bool mounted;

	snprintf(path, sizeof(path), "/sys/fs/fuse/connections/%u", m->minor);
	mounted = ofs_mountinfo_find(m->point, &now) && now.minor == m->minor;
	ofs_mountinfo_fini(&now);
	return !mounted && stat(path, &st) == -1;
}

static int wait_gone(const struct ofs_mountinfo *m, struct optimfs_error *err)
{
	const struct timespec tick = { .tv_nsec = TICK_MS * 1000000L };

	for (int i = 0; i < WAIT_TICKS; i++) {
		if (is_gone(m))
			return 0;
		nanosleep(&tick, NULL);
	}
	return optimfs_fail(err, ETIMEDOUT,
	    "%s is unmounted, but its daemon has not ended", m->point);
}

static int unmount(const struct ofs_mountinfo *m, bool force,
    struct optimfs_error *err)
{
	struct ofs_mountinfo still;
	bool there;
	int ret;

	if (force) {
		if (ofs_connection_abort(m, err) == -1)
			return -1;
		/* forcing may have unmounted it, too */
		there = ofs_mountinfo_find(m->point, &still) &&
		    still.minor == m->minor;
		ofs_mountinfo_fini(&still);
		return there ? ofs_unmount(m->point, true, err) : 0;
	}
	ret = ofs_unmount(m->point, false, err);
	if (ret == -1 && err->code == EBUSY)
		return busy(m->point, err);
	return ret == -1 ? -1 : wait_gone(m, err);
}

static int umount_point(const char *point, bool force,
    struct optimfs_error *err)
{
	struct ofs_mountinfo m;
	char *real;
	int ret;

	real = ofs_mount_point_path(point, err);
	if (real == NULL)
		return -1;
	if (!ofs_mountinfo_find(real, &m)) {
		free(real);
		return optimfs_fail(err, EINVAL, "%s: nothing is mounted there",
		    point);
	}
	free(real);
	if (strcmp(m.type, "fuse.optimfs") != 0)
		ret = optimfs_fail(err, EINVAL, "%s: %s, not a checkpoint",
		    point, m.type);
	else
		ret = unmount(&m, force, err);
	ofs_mountinfo_fini(&m);
	return ret;
}

static int run_umount(const struct ofs_verb *self, int argc, char **argv)
{
	enum { FORCE = 256 };
	static const struct ofs_flag flags[] = {
		{ FORCE, "force", false },
		{ 0, NULL, false },
	};
	const char *value, *point = NULL;
	struct optimfs_error err;
	struct ofs_args a;
	bool force = false;
	int id, status;

	ofs_args_init(&a, self, argc, argv, flags, NULL);
	while ((id = ofs_args_next(&a, &value, &status)) != OFS_ARGS_END) {
		if (id == OFS_ARGS_STOP)
			return status;
		if (id == FORCE) {
			force = true;
			continue;
		}
		if (point != NULL)
			return ofs_tool_usage(self,
			    "more than one mount point");
		point = value;
	}
	if (point == NULL)
		return ofs_tool_usage(self, "unmount what?");
	if (umount_point(point, force, &err) == -1)
		return ofs_tool_fail(&err);
	return OFS_EXIT_OK;
}

const struct ofs_verb ofs_verb_umount = {
	.name = "umount",
	.synopsis = "[--force] MOUNTPOINT",
	.summary = "unmount a checkpoint",
	.options =
	    "  --force   abort requests in flight, and detach what is in use\n",
	.run = run_umount,
};
