/* publish_look.c - what has a name, before it is touched */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/sys.h"
#include "journal/publish_impl.h"

/* Other programs save into the checkpoint at any time, and no lock keeps them
 * out. Whoever looks at a name and then removes or replaces it may meet a file
 * that was saved in between. So a commit does it the other way round: it takes a
 * file out of its name, by a rename or an exchange, and looks at what came out,
 * where nobody else finds it. If that is not the file that it knows, it gives
 * it back. */

struct ofs_publish_stamp ofs_publish_stamp_of(const struct stat *st)
{
	return (struct ofs_publish_stamp){ st->st_ino, (uint64_t)st->st_size,
		ofs_time_ns(&st->st_mtim), ofs_time_ns(&st->st_ctim) };
}

int ofs_publish_look(int at, const char *rel, struct ofs_publish_stamp *found)
{
	struct stat st;

	*found = (struct ofs_publish_stamp){ 0 };
	if (fstatat(at, rel, &st, AT_SYMLINK_NOFOLLOW) == -1)
		return errno == ENOENT || errno == ENOTDIR ? 0 : -1;
	*found = ofs_publish_stamp_of(&st);
	return 0;
}

bool ofs_publish_same(const struct ofs_publish_stamp *a,
    const struct ofs_publish_stamp *b)
{
	return a->ino == b->ino && a->size == b->size &&
	    a->mtime_ns == b->mtime_ns;
}

bool ofs_publish_untouched(const struct ofs_publish_stamp *a,
    const struct ofs_publish_stamp *b)
{
	return ofs_publish_same(a, b) && a->ctime_ns == b->ctime_ns;
}

/* These answer that a file is in use whenever the server has promised
 * nothing. */
static bool is_remote(int fd)
{
	struct statfs fs;

	return fstatfs(fd, &fs) == -1 || fs.f_type == NFS_SUPER_MAGIC ||
	    (uint32_t)fs.f_type == CIFS_SUPER_MAGIC ||
	    (uint32_t)fs.f_type == SMB2_SUPER_MAGIC;
}

/* The kernel refuses a read lease on a file that is open for writing, or mapped
 * so, and a write lease on one that is open at all. Nobody is kept waiting: the
 * lease is returned at once. An open(2) in between sends the signal, whose default
 * is to be ignored. */
static bool refuses(int at, const char *rel, int lease)
{
	int fd = openat(at, rel,
	    O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	bool used = false;

	if (fd == -1)
		return false;
	if (!is_remote(fd) && fcntl(fd, F_SETSIG, SIGURG) == 0) {
		used = fcntl(fd, F_SETLEASE, lease) == -1 && errno == EAGAIN;
		(void)fcntl(fd, F_SETLEASE, F_UNLCK);
	}
	close(fd);
	return used;
}

bool ofs_publish_written(int at, const char *rel)
{
	return refuses(at, rel, F_RDLCK);
}

bool ofs_publish_opened(int at, const char *rel)
{
	return refuses(at, rel, F_WRLCK);
}

static bool is_unsupported(int code)
{
	return code == EINVAL || code == ENOSYS || code == EOPNOTSUPP;
}

/* A link does not replace anything either; without links only a look is
 * left. */
int ofs_publish_move(int from_dir, const char *from, int to_dir, const char *to)
{
	struct ofs_publish_stamp there;

	if (ofs_sys_rename(from_dir, from, to_dir, to, RENAME_NOREPLACE) == 0)
		return 0;
	if (!is_unsupported(errno))
		return -1;
	if (ofs_sys_link(from_dir, from, to_dir, to) == 0)
		return ofs_sys_unlink(from_dir, from);
	if (errno == EEXIST || ofs_publish_look(to_dir, to, &there) == -1)
		return -1;
	if (there.ino != 0) {
		errno = EEXIST;
		return -1;
	}
	return ofs_sys_rename(from_dir, from, to_dir, to, 0);
}

int ofs_publish_move_beside(int from_dir, const char *from, int to_dir,
    const char *to)
{
	char name[4200];

	for (unsigned i = 1; i < 1000; i++) {
		snprintf(name, sizeof(name), "%s.kept-%u", to, i);
		if (ofs_publish_move(from_dir, from, to_dir, name) == 0)
			return 0;
		if (errno != EEXIST)
			return -1;
	}
	return -1;
}

/* The name of i in the stage while it is looked at. */
static const char *aside(size_t i, char name[32])
{
	snprintf(name, 32, "out.%zu", i);
	return name;
}

/* A file that took its name meanwhile is newer. */
static int put_back(const struct ofs_publish *p, size_t i, int at)
{
	const char *rel = p->plan.name[i].rel;
	char out[32];

	if (ofs_publish_move(p->stage, aside(i, out), at, rel) == 0)
		return 0;
	return errno == EEXIST || errno == ENOENT
	    ? ofs_publish_move_beside(p->stage, out, at, rel)
	    : -1;
}

static bool is_own(const struct ofs_publish_stamp *found,
    const struct ofs_publish_stamp *own, bool linked)
{
	return linked ? found->ino == own->ino : ofs_publish_same(found, own);
}

int ofs_publish_drop(const struct ofs_publish *p, size_t i, int at,
    const struct ofs_publish_stamp *own, bool linked)
{
	const char *rel = p->plan.name[i].rel;
	struct ofs_publish_stamp found;
	char out[32];

	if (ofs_publish_look(at, rel, &found) == -1)
		return -1;
	if (found.ino == 0 || !is_own(&found, own, linked))
		return 0;
	if (ofs_sys_rename(at, rel, p->stage, aside(i, out), 0) == -1)
		return errno == ENOENT ? 0 : -1;
	if (ofs_publish_look(p->stage, out, &found) == -1)
		return -1;
	if (is_own(&found, own, linked) &&
	    (linked || !ofs_publish_written(p->stage, out)) &&
	    ofs_sys_unlink(p->stage, out) == 0)
		return 0;
	return put_back(p, i, at);
}

/* Does the checkpoint have it under its own name? */
static bool is_linked(const struct ofs_publish *p, const char *rel,
    const struct ofs_publish_stamp *found)
{
	struct ofs_publish_stamp there;

	return ofs_publish_look(p->dir, rel, &there) == 0 &&
	    there.ino == found->ino;
}

int ofs_publish_undrop(const struct ofs_publish *p, struct optimfs_error *err)
{
	for (size_t i = 0; i < p->plan.n; i++) {
		const struct ofs_publish_name *n = &p->plan.name[i];
		struct ofs_publish_stamp found;
		char out[32];
		int ret;

		if (ofs_publish_look(p->stage, aside(i, out), &found) == 0 &&
		    found.ino == 0)
			continue;
		ret = ofs_publish_same(&found, &n->was) ||
			ofs_publish_same(&found, &n->put) ||
			is_linked(p, n->rel, &found)
		    ? ofs_sys_unlink(p->stage, out)
		    : put_back(p, i, p->dir);
		if (ret == -1)
			return optimfs_fail(err, errno, "OFS809 %.200s: %m",
			    n->rel);
	}
	return 0;
}

static bool changes(const struct ofs_publish_name *n)
{
	return n->kind == OFS_PUBLISH_CREATE ||
	    n->kind == OFS_PUBLISH_REPLACE || n->kind == OFS_PUBLISH_REMOVE;
}

int ofs_publish_unchanged(const struct ofs_publish_plan *plan, int at,
    struct optimfs_error *err)
{
	struct ofs_publish_stamp now;

	for (size_t i = 0; i < plan->n; i++) {
		const struct ofs_publish_name *n = &plan->name[i];

		if (!changes(n))
			continue;
		if (ofs_publish_look(at, n->rel, &now) == -1)
			return optimfs_fail(err, errno, "OFS821 %.200s: %m",
			    n->rel);
		if (!ofs_publish_untouched(&now, &n->was))
			return optimfs_fail(err, ESTALE,
			    "OFS805 %.200s was %s by another program during "
			    "the commit: nothing was changed; mount it again",
			    n->rel,
			    n->was.ino == 0    ? "made"
				: now.ino == 0 ? "removed"
					       : "changed");
		if (n->was.ino != 0 && ofs_publish_written(at, n->rel))
			return optimfs_fail(err, ESTALE,
			    "OFS805 %.200s is open for writing in another "
			    "program: nothing was changed",
			    n->rel);
	}
	return 0;
}
