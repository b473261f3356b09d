/* publish.c - replace files of a checkpoint atomically */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "journal/publish.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/sys.h"
#include "journal/publish_impl.h"

bool ofs_publish_is_new(const struct ofs_publish_name *n)
{
	return n->kind == OFS_PUBLISH_CREATE || n->kind == OFS_PUBLISH_REPLACE;
}

int ofs_publish_add(struct ofs_publish_plan *plan, const char *rel,
    enum ofs_publish_kind kind, int fd, const struct ofs_publish_stamp *was,
    struct optimfs_error *err)
{
	char *copy;

	if (ofs_grow(plan->name, plan->n, plan->cap, err) == -1)
		return -1;
	copy = strdup(rel);
	if (copy == NULL)
		return ofs_no_memory(err);
	plan->name[plan->n++] = (struct ofs_publish_name){
		.rel = copy, .kind = kind, .fd = fd, .was = *was
	};
	return 0;
}

void ofs_publish_plan_fini(struct ofs_publish_plan *plan)
{
	for (size_t i = 0; i < plan->n; i++) {
		if (plan->name[i].fd != -1)
			close(plan->name[i].fd);
		free(plan->name[i].rel);
		free(plan->name[i].like);
	}
	free(plan->name);
	*plan = (struct ofs_publish_plan){ 0 };
}

struct ofs_publish *ofs_publish_with(const struct ofs_publisher_ops *ops,
    void *ctx, int stage, struct optimfs_error *err)
{
	struct ofs_publish *p = ofs_alloc(1, sizeof(*p), err);

	if (p == NULL)
		return NULL;
	p->ops = ops;
	p->ctx = ctx;
	p->dir = p->parent = -1;
	p->stage = stage;
	ofs_publish_clear(stage, ops->dir);
	p->new = ofs_publish_dir(stage, ops->dir, err);
	if (p->new != -1)
		return p;
	free(p);
	return NULL;
}

int ofs_publish_new(const struct ofs_publish *p)
{
	return p->new;
}

void ofs_publish_at_once(struct ofs_publish *p)
{
	p->plan.at_once = true;
}

const char **ofs_publish_gone(const struct ofs_publish *p, size_t *n)
{
	const char **v = NULL;

	*n = 0;
	if (p->plan.at_once && p->plan.n > 0)
		v = calloc(p->plan.n, sizeof(*v));
	for (size_t i = 0; v != NULL && i < p->plan.n; i++)
		if (p->plan.name[i].kind == OFS_PUBLISH_REMOVE)
			v[(*n)++] = p->plan.name[i].rel;
	return v;
}

int ofs_publish_each_old(const struct ofs_publish *p,
    int (*each)(void *ctx, const char *rel, struct optimfs_error *err),
    void *ctx, struct optimfs_error *err)
{
	int ret = 0;

	for (size_t i = 0; i < p->plan.n && ret == 0; i++)
		if (p->plan.name[i].was.ino != 0)
			ret = each(ctx, p->plan.name[i].rel, err);
	return ret;
}

bool ofs_publish_any(const struct ofs_publish *p)
{
	return p->plan.n > 0;
}

/* Opens a file of the checkpoint; -1: there is none. */
static int open_old(const struct ofs_publish *p, const char *rel,
    struct optimfs_error *err)
{
	struct ofs_dir dir = { .fd = p->dir };
	struct stat st;

	return rel == NULL ? -1 : ofs_dir_open_file(&dir, rel, &st, err);
}

/* Finds the file that a new one replaces, or inherits from. */
static int find_local(const struct ofs_publish *p, const char *rel,
    const char *like, struct ofs_publish_name *n)
{
	struct optimfs_error none;
	int old;

	if (ofs_publish_look(p->dir, rel, &n->was) == -1)
		n->was.ino = 0;
	old = open_old(p, rel, &none);
	n->kind = n->was.ino != 0 ? OFS_PUBLISH_REPLACE : OFS_PUBLISH_CREATE;
	return old != -1 ? old : open_old(p, like, &none);
}

/* Takes over fd. */
static int add_new(struct ofs_publish *p, const char *rel, const char *like,
    int fd, struct optimfs_error *err)
{
	struct ofs_publish_name n = { 0 };
	int old = p->ops->find(p, rel, like, &n), ret = -1;
	char *near = NULL;

	if (p->ops->keeps_like && like != NULL && (near = strdup(like)) == NULL)
		ofs_no_memory(err);
	else if (old == -1 || ofs_copy_attributes(old, fd, err) == 0)
		ret = ofs_publish_add(&p->plan, rel, n.kind, fd, &n.was, err);
	if (ret == 0)
		p->plan.name[p->plan.n - 1].like = near;
	else {
		free(near);
		close(fd);
	}
	if (old != -1)
		close(old);
	return ret;
}

int ofs_publish_file(struct ofs_publish *p, const char *rel, const char *like,
    int *fd, struct optimfs_error *err)
{
	int new;

	if (ofs_publish_parents(p->new, rel, -1, err) == -1)
		return -1;
	new = ofs_sys_create(p->new, rel);
	if (new == -1)
		return optimfs_fail(err, errno, "OFS821 new %.200s: %m", rel);
	if (add_new(p, rel, like, new, err) == -1)
		return -1;
	*fd = new;
	return 0;
}

/* Adds a file that is already in new/. */
static int add_there(struct ofs_publish *p, const char *rel, const char *like,
    struct optimfs_error *err)
{
	int new = openat(p->new, rel, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

	if (new == -1)
		return optimfs_fail(err, errno, "OFS821 new %.200s: %m", rel);
	return add_new(p, rel, like, new, err);
}

int ofs_publish_take(struct ofs_publish *p, int from, const char *rel,
    const char *like, struct optimfs_error *err)
{
	if (ofs_publish_parents(p->new, rel, -1, err) == -1)
		return -1;
	if (ofs_sys_rename(from, rel, p->new, rel, 0) == -1)
		return optimfs_fail(err, errno, "OFS821 new %.200s: %m", rel);
	return add_there(p, rel, like, err);
}

int ofs_publish_link(struct ofs_publish *p, int from, const char *rel,
    bool last, struct optimfs_error *err)
{
	if (ofs_publish_parents(p->new, rel, -1, err) == -1)
		return -1;
	if (ofs_sys_link(from, rel, p->new, rel) == -1)
		return optimfs_fail(err, errno, "OFS821 new %.200s: %m", rel);
	if (add_there(p, rel, NULL, err) == -1)
		return -1;
	if (last)
		p->plan.name[p->plan.n - 1].kind = OFS_PUBLISH_REPLACE;
	return 0;
}

static void kept_name(char path[64], const char *key)
{
	snprintf(path, 64, OFS_PUBLISH_FINISHED "/%s", key);
}

/* The descriptor of the plan is not used: the publisher has to see an error of
 * writing, too. */
void ofs_publish_finished(const struct ofs_publish *p, const char *rel,
    const char *key)
{
	char kept[64];
	int fd;

	if (p->source == NULL)
		return;
	fd = openat(p->new, rel, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd == -1)
		return;
	kept_name(kept, key);
	if (ofs_sys_fsync(fd) == 0 &&
	    (ofs_sys_mkdir(p->stage, OFS_PUBLISH_FINISHED) == 0 ||
		errno == EEXIST))
		(void)ofs_sys_link(p->new, rel, p->stage, kept);
	close(fd);
}

int ofs_publish_again(struct ofs_publish *p, const char *rel, const char *like,
    const char *key, struct optimfs_error *err)
{
	char kept[64];

	if (p->source == NULL)
		return 0;
	kept_name(kept, key);
	if (faccessat(p->stage, kept, F_OK, AT_SYMLINK_NOFOLLOW) == -1)
		return 0;
	if (ofs_publish_parents(p->new, rel, -1, err) == -1)
		return -1;
	if (ofs_sys_link(p->stage, kept, p->new, rel) == -1)
		return 0;
	return add_there(p, rel, like, err) == -1 ? -1 : 1;
}

/* What was taken has a name in new/, too. */
uint64_t ofs_publish_kept(const struct ofs_publish *p, bool drop_unused)
{
	int fd = p->source == NULL
	    ? -1
	    : openat(p->stage, OFS_PUBLISH_FINISHED,
		  O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	DIR *dir = fd == -1 ? NULL : fdopendir(fd);
	uint64_t bytes = 0;
	struct dirent *d;
	struct stat st;

	if (dir == NULL && fd != -1)
		close(fd);
	while (dir != NULL && (d = readdir(dir)) != NULL) {
		if (fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) == -1 ||
		    !S_ISREG(st.st_mode))
			continue;
		if (drop_unused && st.st_nlink == 1)
			(void)ofs_sys_unlink(fd, d->d_name);
		else
			bytes += (uint64_t)st.st_size;
	}
	if (dir != NULL)
		closedir(dir);
	return bytes;
}

int ofs_publish_remove(struct ofs_publish *p, const char *rel,
    struct optimfs_error *err)
{
	struct ofs_publish_stamp was = { 0 };

	if (p->dir != -1 && ofs_publish_look(p->dir, rel, &was) == -1)
		return optimfs_fail(err, errno, "OFS821 %.200s: %m", rel);
	return ofs_publish_add(&p->plan, rel, OFS_PUBLISH_REMOVE, -1, &was,
	    err);
}

static size_t count(const struct ofs_publish_plan *plan,
    enum ofs_publish_kind kind)
{
	size_t n = 0;

	for (size_t i = 0; i < plan->n; i++)
		n += plan->name[i].kind == kind;
	return n;
}

static size_t dir_len(const char *rel)
{
	const char *slash = strrchr(rel, '/');

	return slash == NULL ? 0 : (size_t)(slash - rel);
}

bool ofs_publish_goes_on(const struct ofs_publish_plan *plan, size_t i,
    bool (*counts)(const struct ofs_publish_name *n))
{
	const char *rel = plan->name[i].rel;
	size_t n = dir_len(rel);

	for (i++; i < plan->n; i++)
		if (counts(&plan->name[i]))
			return dir_len(plan->name[i].rel) == n &&
			    memcmp(plan->name[i].rel, rel, n) == 0;
	return false;
}

/* Syncs the bytes and the names in new/. A failed fsync is never repeated on
 * the same file, which is discarded with new/. */
static int sync_new(struct ofs_publish *p, struct optimfs_error *err)
{
	for (size_t i = 0; i < p->plan.n; i++) {
		struct ofs_publish_name *n = &p->plan.name[i];
		struct stat st;

		if (!ofs_publish_is_new(n))
			continue;
		if (ofs_sys_fsync(n->fd) == -1 ||
		    (!ofs_publish_goes_on(&p->plan, i, ofs_publish_is_new) &&
			ofs_publish_sync_dir(p->new, n->rel) == -1) ||
		    fstat(n->fd, &st) == -1)
			return optimfs_fail(err, errno,
			    "OFS802 new %.200s cannot be synced: %m", n->rel);
		n->put = ofs_publish_stamp_of(&st);
		/* from now on, whoever has it open for writing is another */
		close(n->fd);
		n->fd = -1;
	}
	return 0;
}

static bool swaps(const struct ofs_publish_plan *plan)
{
	return plan->at_once || count(plan, OFS_PUBLISH_REPLACE) > 1;
}

int ofs_publish_possible(struct ofs_publish *p, struct optimfs_error *err)
{
	return p->source != NULL && p->plan.n > 0 && swaps(&p->plan)
	    ? ofs_publish_exchangeable(p, err)
	    : 0;
}

int ofs_publish_prepare(struct ofs_publish *p, const char *id,
    struct optimfs_error *err)
{
	strcpy(p->plan.id, id);
	p->plan.swap = swaps(&p->plan);
	if (sync_new(p, err) == -1 ||
	    (p->plan.swap &&
		(ofs_publish_try_exchange(p, err) == -1 ||
		    ofs_publish_build(p, err) == -1)) ||
	    ofs_publish_unchanged(&p->plan, p->dir, err) == -1)
		return -1;
	return ofs_publish_write_record(p->stage, &p->plan, err);
}

int ofs_publish_apply(struct ofs_publish *p, struct optimfs_error *err)
{
	return p->plan.swap ? ofs_publish_exchange(p, err)
			    : ofs_publish_place(p, err);
}

static int commit_local(struct ofs_publish *p, struct optimfs_error *err)
{
	/* the new files have one name each when they are put in place */
	ofs_publish_drop_finished(p->stage);
	if (ofs_publish_prepare(p, "", err) == -1)
		return -1;
	return ofs_publish_apply(p, err);
}

int ofs_publish_commit(struct ofs_publish *p, struct optimfs_error *err)
{
	return ofs_publish_any(p) ? p->ops->commit(p, err) : 0;
}

/* Releases everything except files. */
static void release(struct ofs_publish *p)
{
	ofs_publish_plan_fini(&p->plan);
	close(p->new);
	if (p->parent != -1)
		close(p->parent);
	free(p->base);
	free(p);
}

static void clear_local(struct ofs_publish *p)
{
	if (p->stuck)
		return;
	if (p->moved && !p->published)
		ofs_publish_take_back(p);
	if (!p->published)
		(void)ofs_publish_forget(p->stage, NULL);
	ofs_publish_sweep(p->stage);
	ofs_publish_drop_finished(p->stage);
}

/* Whatever an earlier commit has left is not swept away unseen. */
static int check_finished(int stage, const char *source,
    struct optimfs_error *err)
{
	if (faccessat(stage, OFS_PUBLISH_RECORD, F_OK, AT_SYMLINK_NOFOLLOW) ==
	    -1)
		return 0;
	return optimfs_fail(err, EBUSY,
	    "OFS809 %s: an earlier commit is not finished: mount it again for "
	    "writing",
	    source);
}

struct ofs_publish *ofs_publish_begin(const char *source, int dir, int stage,
    struct optimfs_error *err)
{
	static const struct ofs_publisher_ops local = {
		.dir = OFS_PUBLISH_NEW,
		.find = find_local,
		.commit = commit_local,
		.clear = clear_local,
	};
	struct ofs_publish *p;

	if (check_finished(stage, source, err) == -1)
		return NULL;
	ofs_publish_sweep(stage);
	p = ofs_publish_with(&local, NULL, stage, err);
	if (p == NULL)
		return NULL;
	p->source = source;
	p->dir = dir;
	return p;
}

void ofs_publish_free(struct ofs_publish *p)
{
	if (p == NULL)
		return;
	p->ops->clear(p);
	release(p);
}

void ofs_publish_leave(struct ofs_publish *p)
{
	if (p != NULL)
		release(p);
}
