/* publish.c - replace files of a checkpoint atomically */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "journal/publish.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/sys.h"
#include "journal/publish_impl.h"

int ofs_publish_add(struct ofs_publish_plan *plan, const char *rel,
    enum ofs_publish_kind kind, int fd, uint64_t ino, struct optimfs_error *err)
{
	char *copy;

	if (ofs_grow(plan->name, plan->n, plan->cap, err) == -1)
		return -1;
	copy = strdup(rel);
	if (copy == NULL)
		return ofs_no_memory(err);
	plan->name[plan->n++] =
	    (struct ofs_publish_name){ copy, NULL, kind, fd, ino };
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
    const char *like, enum ofs_publish_kind *kind)
{
	struct optimfs_error none;
	int old = open_old(p, rel, &none);

	*kind = old != -1 ? OFS_PUBLISH_REPLACE : OFS_PUBLISH_CREATE;
	return old != -1 ? old : open_old(p, like, &none);
}

/* Takes over fd. */
static int add_new(struct ofs_publish *p, const char *rel, const char *like,
    int fd, struct optimfs_error *err)
{
	enum ofs_publish_kind kind;
	int old = p->ops->find(p, rel, like, &kind), ret = -1;
	char *near = NULL;
	struct stat st;

	if (p->ops->keeps_like && like != NULL && (near = strdup(like)) == NULL)
		ofs_no_memory(err);
	else if (fstat(fd, &st) == -1)
		optimfs_fail(err, errno, "OFS821 new %.200s: %m", rel);
	else if (old == -1 || ofs_copy_attributes(old, fd, err) == 0)
		ret = ofs_publish_add(&p->plan, rel, kind, fd, st.st_ino, err);
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

int ofs_publish_remove(struct ofs_publish *p, const char *rel,
    struct optimfs_error *err)
{
	return ofs_publish_add(&p->plan, rel, OFS_PUBLISH_REMOVE, -1, 0, err);
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

/* Does the next name to move lie in the same directory? Then one sync of the
 * directory is enough. */
static bool goes_on(const struct ofs_publish_plan *plan, size_t i, bool created)
{
	const char *rel = plan->name[i].rel;
	size_t n = dir_len(rel);

	for (i++; i < plan->n; i++) {
		const struct ofs_publish_name *next = &plan->name[i];

		if (next->kind == OFS_PUBLISH_CREATE ||
		    (!created && next->kind == OFS_PUBLISH_REPLACE))
			return dir_len(next->rel) == n &&
			    memcmp(next->rel, rel, n) == 0;
	}
	return false;
}

/* Syncs the bytes and the names in new/. A failed fsync is never repeated on
 * the same file, which is discarded with new/. */
static int sync_new(struct ofs_publish *p, struct optimfs_error *err)
{
	for (size_t i = 0; i < p->plan.n; i++) {
		const struct ofs_publish_name *n = &p->plan.name[i];

		if (n->kind == OFS_PUBLISH_REMOVE)
			continue;
		if (ofs_sys_fsync(n->fd) == -1 ||
		    (!goes_on(&p->plan, i, false) &&
			ofs_publish_sync_dir(p->new, n->rel) == -1))
			return optimfs_fail(err, errno,
			    "OFS802 new %.200s cannot be synced: %m",
			    n->rel);
	}
	return 0;
}

/* Moves new names first: nothing refers to them yet. */
static int move_created(struct ofs_publish *p, struct optimfs_error *err)
{
	p->moved = true;
	for (size_t i = 0; i < p->plan.n; i++) {
		const struct ofs_publish_name *n = &p->plan.name[i];

		if (n->kind != OFS_PUBLISH_CREATE)
			continue;
		if (ofs_publish_parents(p->dir, n->rel, p->dir, err) == -1)
			return -1;
		if (ofs_sys_rename(p->new, n->rel, p->dir, n->rel, 0) == -1 ||
		    (!goes_on(&p->plan, i, true) &&
			ofs_publish_sync_dir(p->dir, n->rel) == -1))
			return optimfs_fail(err, errno,
			    "OFS802 %.200s cannot be put in place: %m", n->rel);
	}
	return 0;
}

/* The rename that publishes. */
static int move_replaced(struct ofs_publish *p, struct optimfs_error *err)
{
	for (size_t i = 0; i < p->plan.n; i++) {
		const struct ofs_publish_name *n = &p->plan.name[i];

		if (n->kind != OFS_PUBLISH_REPLACE)
			continue;
		if (ofs_sys_rename(p->new, n->rel, p->dir, n->rel, 0) == -1)
			return optimfs_fail(err, errno,
			    "OFS802 %.200s cannot be put in place: %m", n->rel);
		p->published = true;
		if (ofs_publish_sync_dir(p->dir, n->rel) == -1) {
			optimfs_fail(err, EIO,
			    "OFS803 published, but not known to survive a power "
			    "failure: %.200s: %m",
			    n->rel);
			return 1;
		}
	}
	p->published = true;
	return 0;
}

/* Everything is durable: removes the old files. Errors are ignored: the commit
 * has succeeded. */
static void remove_old(struct ofs_publish *p)
{
	bool any = false;

	for (size_t i = 0; i < p->plan.n; i++)
		if (p->plan.name[i].kind == OFS_PUBLISH_REMOVE) {
			ofs_sys_unlink(p->dir, p->plan.name[i].rel);
			any = true;
		}
	if (any)
		ofs_sys_fsync(p->dir);
}

int ofs_publish_prepare(struct ofs_publish *p, const char *id,
    struct optimfs_error *err)
{
	strcpy(p->plan.id, id);
	p->plan.swap =
	    p->plan.at_once || count(&p->plan, OFS_PUBLISH_REPLACE) > 1;
	if (sync_new(p, err) == -1 ||
	    (p->plan.swap && ofs_publish_build(p, err) == -1))
		return -1;
	return ofs_publish_write_record(p->stage, &p->plan, err);
}

int ofs_publish_apply(struct ofs_publish *p, struct optimfs_error *err)
{
	int ret;

	if (p->plan.swap)
		return ofs_publish_exchange(p, err);
	if (move_created(p, err) == -1)
		return -1;
	ret = move_replaced(p, err);
	if (ret == 0)
		remove_old(p);
	return ret;
}

static int commit_local(struct ofs_publish *p, struct optimfs_error *err)
{
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
	if (p->moved && !p->published)
		ofs_publish_take_back(p->dir, &p->plan);
	if (!p->published)
		(void)ofs_publish_forget(p->stage, NULL);
	ofs_publish_clear(p->stage, OFS_PUBLISH_NEW);
	/* after a failed last sync the old generation stays under its name */
	if (!p->published || !p->plan.swap)
		ofs_publish_clear(p->stage, OFS_PUBLISH_GEN);
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
	struct ofs_publish *p = ofs_publish_with(&local, NULL, stage, err);

	if (p == NULL)
		return NULL;
	p->source = source;
	p->dir = dir;
	ofs_publish_clear(stage, OFS_PUBLISH_GEN);
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
