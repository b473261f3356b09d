/* stage.c - the staging directory for uncommitted changes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "journal/stage.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/temp.h"
#include "journal/journal.h"
#include "journal/lock.h"
#include "journal/publish.h"
#include "journal/stage_left.h"
#include "journal/stage_path.h"

/* After a write of 8 bytes at 4096 of a tensor, and one of its lr, the stage has
 *
 *     lock          this process
 *     journal       BOOT 7c1e...; WRITE data/1 4096+8 hash; TEXT lr "1e-5"
 *     data/1        8 bytes at 4096, a hole before them
 *
 * (the overlay decides what records mean). A process that dies leaves this, and
 * the next one replays it. What makes that safe:
 *
 * - Bytes are in data/ before the record that names them is appended. So each
 *   record that a replay finds has its bytes, unless the machine itself failed:
 *   then the boot of the records is another one, and the overlay compares the
 *   hash of each range with what is there.
 * - What is not needed any more goes in the opposite order. The journal is
 *   emptied and synced, and only then are the files of data/ removed: data
 *   without a record is ignored, a record without data would be damage.
 * - A journal never lacks a boot. Whoever empties it appends one at once, and
 *   whoever replays it appends its own, so that later records are not taken for
 *   those of an earlier boot.
 * - A failed write or sync is final (journal.broken). The kernel reports it
 *   once, and drops the bytes: another sync would succeed and prove nothing.
 *   Only an empty journal, in a new file, may replace that one.
 * - Everything is done by one process, which has the lock. The lock is taken
 *   before anything else is looked at and removed last, but for the directory
 *   it was in. Two processes that make and remove that directory at the same
 *   time start again (TRIES). Since a user may remove it at any time, a commit
 *   asks whether it still exists (ofs_stage_held).
 *
 * The directory beside the checkpoint always has the lock, as there is one for
 * each checkpoint. The rest is there, too, or in another file system (upper=):
 * then a symbolic link, "upper", says where.
 * A scratch stage has neither lock nor journal, and its files no names. */

struct ofs_stage {
	char *place; /* path of the directory beside the checkpoint */
	char *path;
	char note[256];
	int beside; /* the directory beside the checkpoint, with the lock */
	int dir, data;
	bool scratch;
	struct ofs_lock lock;
	pthread_mutex_t mutex; /* protects the members below */
	struct ofs_journal journal;
	bool names; /* names of data files that were not synced */
	bool empty; /* no records, nothing to keep */
};

int ofs_stage_write(int fd, const void *buf, uint64_t n, uint64_t off,
    struct optimfs_error *err)
{
	if (ofs_write_all(fd, buf, n, off, NULL) == 0)
		return 0;
	return optimfs_fail(err, errno,
	    "OFS801 writing %" PRIu64 " bytes at %" PRIu64
	    " of the staging directory: %m",
	    n, off);
}

static void close_fd(int fd)
{
	if (fd != -1)
		close(fd);
}

/* The former holder may remove it while we try. */
#define TRIES 100

/* Makes and locks the directory beside the checkpoint: 1; 0: its former holder
 * is removing it. */
static int make_beside(struct ofs_stage *st, const char *parent,
    const char *name, char **beside, struct optimfs_error *err)
{
	st->beside = ofs_stage_make_in(parent, name, beside, err);
	if (st->beside == -1)
		return err->code == ENOENT ? 0 : -1;
	if (ofs_lock_take(&st->lock, st->beside, *beside, st->note,
		sizeof(st->note), err) == 0)
		return 1;
	ofs_stage_rmdir(*beside);
	if (err->code == EBUSY)
		optimfs_fail_in(err, "%s/%s", parent, name);
	return err->code == ENOENT ? 0 : -1;
}

static bool on_tmpfs(const char *path)
{
	struct statfs fs;

	return statfs(path, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

static int make_dirs(struct ofs_stage *st, const struct ofs_stage_config *c,
    const char *parent, const char *name, struct optimfs_error *err)
{
	char *beside = NULL, upper[PATH_MAX];
	int ret = 0;

	err = OFS_SOME_ERROR(err);
	if (c->upper != NULL && on_tmpfs(c->upper) && !on_tmpfs(c->source))
		return optimfs_fail(err, EINVAL,
		    "OFS809 upper=%s is in memory: staged changes would not "
		    "survive a crash",
		    c->upper);
	for (int i = 0; i < TRIES && ret == 0; i++) {
		free(beside);
		close_fd(st->beside);
		ret = make_beside(st, parent, name, &beside, err);
	}
	st->place = beside;
	if (ret == 1 && c->upper == NULL) {
		st->path = strdup(beside);
		if (st->path == NULL)
			return ofs_no_memory(err);
		st->dir = dup(st->beside);
		return st->dir == -1 ? optimfs_fail(err, errno, "OFS809 %m")
				     : 0;
	}
	if (ret != 1)
		return -1;
	/* a daemon goes to another directory */
	if (realpath(c->upper, upper) == NULL)
		return optimfs_fail(err, errno, "OFS809 upper=%s: %m",
		    c->upper);
	st->dir = ofs_stage_make_in(upper, name, &st->path, err);
	return st->dir == -1 ? -1 : 0;
}

static int append_boot(struct ofs_stage *st, struct optimfs_error *err)
{
	char boot[OFS_BOOT_ID];
	struct ofs_record r = { .type = OFS_RECORD_BOOT, .a = boot };

	ofs_boot_id(boot);
	return ofs_journal_append(&st->journal, &r, err);
}

static int make_journal(struct ofs_stage *st, struct optimfs_error *err)
{
	st->journal.fd =
	    ofs_stage_open_file(st->dir, "journal", O_RDWR | O_CREAT, 0600);
	if (st->journal.fd != -1)
		return 0;
	return optimfs_fail(err, errno, "OFS809 %s/journal: %s", st->path,
	    ofs_stage_why(errno));
}

/* Starts a new journal: one that could not be written or synced is not used
 * again. */
static int renew_journal(struct ofs_stage *st, struct optimfs_error *err)
{
	close(st->journal.fd);
	unlinkat(st->dir, "journal", 0);
	st->journal = (struct ofs_journal){ .fd = -1, .broken = true };
	if (make_journal(st, err) == -1)
		return -1;
	/* otherwise the old one could reappear after a power failure */
	if (fsync(st->dir) == -1)
		return optimfs_fail(err, errno, "OFS809 %s: %m", st->path);
	st->journal.broken = false;
	return 0;
}

/* A journal without magic number, or without the boot of its records, would be
 * ignored, or trusted too much. */
static int empty_journal(struct ofs_stage *st, struct optimfs_error *err)
{
	if (st->journal.broken && renew_journal(st, err) == -1)
		return -1;
	st->journal.end = 0;
	st->journal.sum = 0;
	if (ofs_journal_trim(&st->journal, err) == 0 &&
	    append_boot(st, err) == 0)
		return 0;
	st->journal.broken = true;
	return -1;
}

static void remove_data(int data)
{
	int fd = dup(data);
	DIR *d = fd == -1 ? NULL : fdopendir(fd);
	struct dirent *e;

	if (d == NULL) {
		close_fd(fd);
		return;
	}
	rewinddir(d);
	while ((e = readdir(d)) != NULL)
		if (e->d_name[0] != '.')
			unlinkat(data, e->d_name, 0);
	closedir(d);
}

/* Data without a record is unused, but records without their data are damage:
 * so the journal is emptied durably before data is removed. */
static int remove_all(struct ofs_stage *st, struct optimfs_error *err)
{
	if (empty_journal(st, err) == -1 ||
	    ofs_journal_sync(&st->journal, err) == -1)
		return -1;
	st->empty = true;
	remove_data(st->data);
	return 0;
}

/* Makes the link, after a look at what that of an earlier writer names. */
static int link_upper(const struct ofs_stage *st, bool upper,
    enum ofs_recover recover, struct optimfs_error *err)
{
	const char *now = upper ? st->path : "";
	char was[PATH_MAX];

	ofs_stage_upper(st->beside, was);
	if (strcmp(was, now) == 0)
		return 0;
	if (was[0] != '\0' && recover != OFS_RECOVER_DISCARD &&
	    ofs_stage_check_upper(was, err) == -1)
		return -1;
	unlinkat(st->beside, OFS_STAGE_UPPER, 0);
	if (upper &&
	    (symlinkat(now, st->beside, OFS_STAGE_UPPER) == -1 ||
		fsync(st->beside) == -1))
		return optimfs_fail(err, errno,
		    "OFS809 %s/" OFS_STAGE_UPPER ": %m", st->place);
	return 0;
}

static int open_journal(struct ofs_stage *st, bool upper,
    enum ofs_recover recover, struct optimfs_error *err)
{
	int found = 0;

	if (make_journal(st, err) == -1) {
		st->empty = faccessat(st->dir, "journal", F_OK,
				AT_SYMLINK_NOFOLLOW) == -1;
		return -1;
	}
	if (recover != OFS_RECOVER_DISCARD)
		found = ofs_stage_changes(&st->journal, st->path, err);
	if (found == -1)
		return -1;
	if (found == 0) {
		st->empty = true;
		return remove_all(st, err);
	}
	return recover == OFS_RECOVER_YES
	    ? 0
	    : ofs_stage_refuse(st->path, upper, err);
}

static int open_real(struct ofs_stage *st, const struct ofs_stage_config *c,
    struct optimfs_error *err)
{
	char *name, *parent = ofs_stage_split(c->source, &name, err);
	enum ofs_recover recover;
	int ret;

	if (parent == NULL)
		return -1;
	ret = make_dirs(st, c, parent, name, err);
	free(parent);
	if (ret == -1)
		return -1;
	if (c->published != NULL)
		ret = c->published(c->ctx, st->beside, err);
	if (ret == -1)
		return -1;
	recover = ret == 1 ? OFS_RECOVER_DISCARD : c->recover;
	if (recover == OFS_RECOVER_DISCARD)
		ofs_publish_drop_finished(st->beside);
	if (link_upper(st, c->upper != NULL, recover, err) == -1)
		return -1;
	st->data = ofs_stage_make_dir(st->dir, "data", st->path, err);
	if (st->data == -1)
		return -1;
	ret = open_journal(st, c->upper != NULL, recover, err);
	if (ret == 0 && fsync(st->dir) == -1)
		ret = optimfs_fail(err, errno, "OFS809 %s: %m", st->path);
	return ret;
}

/* Prepares unnamed data files in the first directory that allows them. */
static int open_scratch(struct ofs_stage *st, const struct ofs_stage_config *c,
    struct optimfs_error *err)
{
	const char *tmp = getenv("TMPDIR");
	char *name, *parent = ofs_stage_split(c->source, &name, err);

	if (parent == NULL)
		return -1;
	st->path = strdup(c->upper != NULL         ? c->upper
		: access(parent, W_OK | X_OK) == 0 ? parent
		: tmp != NULL                      ? tmp
						   : "/tmp");
	free(parent);
	if (st->path == NULL)
		return ofs_no_memory(err);
	st->dir = ofs_stage_open_at(st->path, err);
	return st->dir == -1 ? -1 : 0;
}

struct ofs_stage *ofs_stage_open(const struct ofs_stage_config *config,
    struct optimfs_error *err)
{
	struct ofs_stage *st = ofs_alloc(1, sizeof(*st), err);
	int ret;

	if (st == NULL)
		return NULL;
	pthread_mutex_init(&st->mutex, NULL);
	st->beside = st->dir = st->data = st->journal.fd = st->lock.fd = -1;
	st->scratch = config->scratch;
	ret = config->scratch ? open_scratch(st, config, err)
			      : open_real(st, config, err);
	if (ret == 0)
		return st;
	ofs_stage_close(st, true);
	return NULL;
}

/* Writes nothing: the disk may be full. */
static void remove_dirs(struct ofs_stage *st)
{
	if (st->data == -1 ||
	    (unlinkat(st->dir, "journal", 0) == -1 && errno != ENOENT) ||
	    fsync(st->dir) == -1)
		return;
	remove_data(st->data);
	unlinkat(st->dir, "data", AT_REMOVEDIR);
}

/* The path of a descriptor, malloc'ed, or NULL. */
static char *path_of(int fd)
{
	char link[64], path[4096];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, sizeof(path) - 1);
	if (n <= 0)
		return NULL;
	path[n] = '\0';
	return strdup(path);
}

void ofs_stage_close(struct ofs_stage *st, bool keep)
{
	char *beside = NULL;
	bool held;

	if (st == NULL)
		return;
	held = st->lock.fd != -1;
	keep = keep && !st->empty;
	if (!keep && !st->scratch)
		remove_dirs(st);
	close_fd(st->data);
	close_fd(st->journal.fd);
	if (st->beside != -1)
		beside = path_of(st->beside);
	ofs_lock_remove(&st->lock);
	if (held && !keep) {
		ofs_publish_drop_finished(st->beside);
		unlinkat(st->beside, OFS_STAGE_UPPER, 0);
	}
	if (held) {
		ofs_stage_rmdir(st->path);
		ofs_stage_rmdir(beside);
	}
	ofs_lock_close(&st->lock);
	free(beside);
	close_fd(st->dir);
	close_fd(st->beside);
	pthread_mutex_destroy(&st->mutex);
	free(st->path);
	free(st->place);
	free(st);
}

/* Another directory may have taken its path. */
static bool is_in_place(const struct ofs_stage *st)
{
	struct stat named, own;

	return stat(st->place, &named) == 0 && fstat(st->beside, &own) == 0 &&
	    named.st_dev == own.st_dev && named.st_ino == own.st_ino;
}

int ofs_stage_held(struct ofs_stage *st, struct optimfs_error *err)
{
	struct stat named, own;

	if (st->scratch)
		return 0;
	if (ofs_lock_held(&st->lock, st->place, err) == -1)
		return -1;
	if (!is_in_place(st) ||
	    fstatat(st->dir, "journal", &named, AT_SYMLINK_NOFOLLOW) == -1 ||
	    fstat(st->journal.fd, &own) == -1 || own.st_nlink == 0 ||
	    own.st_ino != named.st_ino)
		return optimfs_fail(err, EIO,
		    "OFS807 %s: removed while it was in use", st->path);
	return 0;
}

const char *ofs_stage_note(const struct ofs_stage *st)
{
	return st->note;
}

int ofs_stage_beside(const struct ofs_stage *st)
{
	return st->beside;
}

int ofs_stage_mounted(struct ofs_stage *st, dev_t dev,
    struct optimfs_error *err)
{
	if (dev != 0)
		return ofs_lock_mounted(&st->lock, dev, err);
	ofs_lock_unmounted(&st->lock);
	return 0;
}

const char *ofs_stage_path(const struct ofs_stage *st)
{
	return st->path;
}

int ofs_stage_dir(const struct ofs_stage *st)
{
	return st->dir;
}

int ofs_stage_append(struct ofs_stage *st, const struct ofs_record *r,
    struct optimfs_error *err)
{
	int ret;

	if (st->scratch)
		return 0;
	pthread_mutex_lock(&st->mutex);
	st->empty = false;
	ret = ofs_journal_append(&st->journal, r, err);
	pthread_mutex_unlock(&st->mutex);
	return ret;
}

int ofs_stage_sync(struct ofs_stage *st, struct optimfs_error *err)
{
	int ret = 0;

	if (st->scratch)
		return 0;
	pthread_mutex_lock(&st->mutex);
	if (st->names && fsync(st->data) == -1) {
		ret = optimfs_fail(err, errno, "OFS809 %s/data: %m", st->path);
		/* another attempt would succeed and hide the first */
		st->journal.broken = true;
	} else {
		st->names = false;
		ret = ofs_journal_sync(&st->journal, err);
	}
	pthread_mutex_unlock(&st->mutex);
	return ret;
}

struct replay {
	ofs_replay_fn *each;
	void *ctx;
	struct ofs_replay *found;
	char boot[OFS_BOOT_ID];
};

static int replay_one(void *ctx, const struct ofs_record *r,
    struct optimfs_error *err)
{
	struct replay *p = ctx;

	if (r->type == OFS_RECORD_BOOT) {
		p->found->rebooted |= strcmp(r->a, p->boot) != 0;
		return 0;
	}
	p->found->records++;
	return p->each(p->ctx, r, err);
}

int ofs_stage_replay(struct ofs_stage *st, ofs_replay_fn *each, void *ctx,
    struct ofs_replay *found, struct optimfs_error *err)
{
	struct replay p = { each, ctx, found, "" };
	struct ofs_journal j = { .fd = st->journal.fd };
	uint64_t records;

	*found = (struct ofs_replay){ 0 };
	if (st->scratch)
		return 0;
	ofs_boot_id(p.boot);
	if (ofs_journal_load(&j, replay_one, &p, &records, &found->dropped,
		err) == -1)
		return -1;
	st->journal = j;
	if (ofs_journal_trim(&st->journal, err) == -1)
		return -1;
	return append_boot(st, err);
}

int ofs_stage_reset(struct ofs_stage *st, struct optimfs_error *err)
{
	int ret;

	if (st->scratch)
		return 0;
	pthread_mutex_lock(&st->mutex);
	ret = remove_all(st, err);
	pthread_mutex_unlock(&st->mutex);
	return ret;
}

int ofs_stage_temp(struct ofs_stage *st, struct optimfs_error *err)
{
	int fd = ofs_temp_open(st->dir, ".");

	if (fd == -1)
		return optimfs_fail(err, errno, "OFS801 %s: %m", st->path);
	return fd;
}

static int open_named(struct ofs_stage *st, uint64_t id, bool make)
{
	char name[24];

	snprintf(name, sizeof(name), "%" PRIu64, id);
	if (make) {
		pthread_mutex_lock(&st->mutex);
		st->names = true;
		pthread_mutex_unlock(&st->mutex);
	}
	return ofs_stage_open_file(st->data, name,
	    O_RDWR | (make ? O_CREAT | O_TRUNC : 0), 0600);
}

int ofs_stage_data(struct ofs_stage *st, uint64_t id, bool make,
    struct optimfs_error *err)
{
	int fd = st->scratch ? ofs_temp_open(st->dir, ".")
			     : open_named(st, id, make);

	if (fd == -1 && errno == ENOENT && !make)
		return optimfs_fail(err, EIO,
		    "OFS807 %s/data/%" PRIu64 ": removed while it was in use",
		    st->path, id);
	if (fd == -1)
		return optimfs_fail(err, errno, "OFS801 %s/data: %s", st->path,
		    ofs_stage_why(errno));
	return fd;
}

void ofs_stage_data_remove(struct ofs_stage *st, uint64_t id)
{
	char name[24];

	if (st->scratch)
		return;
	snprintf(name, sizeof(name), "%" PRIu64, id);
	unlinkat(st->data, name, 0);
}

const char *ofs_stage_lock_id(const struct ofs_stage *st)
{
	return st->lock.id;
}
