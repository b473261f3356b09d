/* participant.c - one directory of a checkpoint of several ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/commit/participant.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/checked.h"
#include "base/copy.h"
#include "base/memory.h"
#include "base/sys.h"
#include "cluster/commit/locks.h"
#include "cluster/manifest.h"
#include "cluster/wire.h"
#include "journal/publish.h"
#include "journal/stage.h"

struct ofs_participant {
	struct ofs_beside beside;
	int stage; /* the directory beside the checkpoint's */
	/* Held for reading while writing to files of p. */
	pthread_rwlock_t lock;
	struct ofs_publish *p;
	struct ofs_manifest
	    *of;          /* manifest whose files p replaces; a reference */
	bool voted;       /* prepared: may not be reverted by us */
	uint32_t attempt; /* the latest that was begun or given up */
	int *fd;          /* files of p by number */
	uint32_t nfds, capfds;
};

static struct ofs_participant *participant_new(struct optimfs_error *err)
{
	struct ofs_participant *k = ofs_alloc(1, sizeof(*k), err);

	if (k == NULL)
		return NULL;
	k->beside.dir = k->stage = -1;
	pthread_rwlock_init(&k->lock, NULL);
	return k;
}

/* Resets the state after p was freed. */
static void end(struct ofs_participant *k)
{
	ofs_manifest_let(k->of);
	k->of = NULL;
	k->p = NULL;
	k->voted = false;
	k->nfds = 0;
}

/* Drops what was begun; what was voted for stays. */
static void let_go(struct ofs_participant *k, bool back)
{
	if (k->voted && !back)
		ofs_publish_leave(k->p);
	else
		ofs_publish_free(k->p);
	end(k);
}

static void participant_free(struct ofs_participant *k)
{
	if (k == NULL)
		return;
	let_go(k, false);
	ofs_beside_drop(&k->beside);
	pthread_rwlock_destroy(&k->lock);
	free(k->fd);
	free(k);
}

int ofs_participant_own(struct ofs_manifest *s, int stage,
    struct optimfs_error *err)
{
	s->participant = participant_new(err);
	if (s->participant == NULL)
		return -1;
	s->participant->stage = stage;
	return 0;
}

/* Joining. */

static int join(struct ofs_request *q, struct optimfs_error *err)
{
	struct ofs_manifest *s = q->manifest;
	struct ofs_join_answer a = { 0 };
	struct ofs_participant *k = NULL;
	char *path;

	if (q->c.bad || ofs_cursor_left(&q->c) != 0 || q->want != sizeof(a) ||
	    s->participant != NULL)
		return ofs_wire_malformed(err);
	path = ofs_manifest_here(s, err);
	if (path != NULL && strlen(path) >= sizeof(a.path)) {
		free(path);
		return optimfs_fail(err, ENAMETOOLONG, "a path too long");
	}
	if (path != NULL && s->dir.fd != -1)
		k = participant_new(err);
	if (path == NULL || (s->dir.fd != -1 && k == NULL)) {
		free(path);
		return -1;
	}
	strcpy(a.path, path);
	if (k != NULL && ofs_beside_take(path, &k->beside, &a.err) == 0) {
		a.err.code = 0;
		memcpy(a.id, k->beside.lock.id, sizeof(a.id));
		k->stage = k->beside.dir;
		s->participant = k;
	} else if (k != NULL) {
		participant_free(k);
		ofs_beside_holder(path, a.id);
	}
	free(path);
	memcpy(q->out, &a, sizeof(a));
	return 0;
}

/* Operations that may take long: calls (call.h). */

static int recover(const struct ofs_participant *k,
    const struct ofs_manifest *s, const char *id, struct optimfs_error *err)
{
	return ofs_publish_settle(s->dir.path, s->dir.fd, k->stage, id, err) ==
		-1
	    ? -1
	    : 0;
}

static int prepare(struct ofs_participant *k, const char *id,
    struct optimfs_error *err)
{
	int ret = k->p == NULL ? ofs_wire_malformed(err)
			       : ofs_publish_prepare(k->p, id, err);

	k->nfds = 0; /* they are closed */
	k->voted = ret == 0;
	return ret;
}

static int apply(struct ofs_participant *k, struct optimfs_error *err)
{
	if (k->p == NULL || !k->voted)
		return ofs_wire_malformed(err);
	return ofs_publish_apply(k->p, err) == 0 ? 0 : -1;
}

static int work(struct ofs_participant *k, enum ofs_participant_op op,
    struct ofs_request *q, struct optimfs_error *err)
{
	const char *id =
	    op == OFS_PARTICIPANT_COMMIT ? "" : ofs_wire_take_str(&q->c);

	if (q->c.bad || ofs_cursor_left(&q->c) != 0 || q->result == NULL ||
	    strlen(id) >= OFS_PUBLISH_ID)
		return ofs_wire_malformed(err);
	return op == OFS_PARTICIPANT_RECOVER ? recover(k, q->manifest, id, err)
	    : op == OFS_PARTICIPANT_PREPARE  ? prepare(k, id, err)
					     : apply(k, err);
}

/* New files. */

static int check_room(const struct ofs_participant *k,
    const struct ofs_manifest *s, uint64_t need, struct optimfs_error *err)
{
	struct statvfs st;
	uint64_t left;

	if (fstatvfs(k->stage, &st) == -1)
		return optimfs_fail(err, errno, "OFS821 %s: %m", s->dir.path);
	left = (uint64_t)st.f_bavail * st.f_frsize;
	if (need == 0 || need <= left)
		return 0;
	return optimfs_fail(err, ENOSPC,
	    "OFS801 the commit needs %" PRIu64 " bytes beside %s, %" PRIu64
	    " are free",
	    need, s->dir.path, left);
}

static int begin(struct ofs_participant *k, struct ofs_request *q,
    struct optimfs_error *err)
{
	struct ofs_manifest *s = q->manifest;
	uint64_t need = ofs_cursor_le64(&q->c);

	if (q->c.bad || ofs_cursor_left(&q->c) != 0)
		return ofs_wire_malformed(err);
	let_go(k, true);
	if (check_room(k, s, need, err) == -1)
		return -1;
	k->p = ofs_publish_begin(s->dir.path, s->dir.fd, k->stage, err);
	if (k->p == NULL)
		return -1;
	k->of = ofs_manifest_hold(s);
	return 0;
}

/* Is a file to be replaced or removed the one that was mounted? */
static int check_same(const struct ofs_manifest *s, const char *rel,
    struct optimfs_error *err)
{
	struct stat st;

	if (!ofs_dir_stat(&s->dir, rel, &st))
		return 0;
	for (uint32_t i = 0; i < s->files->nobjects; i++) {
		const struct ofs_object *o = &s->files->objects[i];

		if (strcmp(o->path, rel) == 0 &&
		    (uint64_t)st.st_size == o->size && st.st_ino == o->ino &&
		    ofs_time_ns(&st.st_mtim) == o->mtime_ns)
			return 0;
	}
	return optimfs_fail(err, ESTALE,
	    "OFS805 %.200s changed since the checkpoint was mounted", rel);
}

static const char *none_if_empty(const char *s)
{
	return s[0] == '\0' ? NULL : s;
}

static int keep_fd(struct ofs_participant *k, int fd, struct optimfs_error *err)
{
	if (ofs_grow(k->fd, k->nfds, k->capfds, err) == -1)
		return -1;
	k->fd[k->nfds++] = fd;
	return 0;
}

static int file(struct ofs_participant *k, const char *rel, const char *like,
    uint64_t size, uint32_t mode, struct optimfs_error *err)
{
	struct stat st;
	int fd;

	/* the publisher now knows what is there: is it what was mounted? */
	if (ofs_publish_file(k->p, rel, none_if_empty(like), &fd, err) == -1 ||
	    check_same(k->of, rel, err) == -1)
		return -1;
	if (like[0] == '\0' && !ofs_dir_stat(&k->of->dir, rel, &st) &&
	    ofs_sys_chmod(fd, mode & 0777) == -1)
		return optimfs_fail(err, errno, "OFS821 new %.200s: %m", rel);
	if (ofs_sys_truncate(fd, size) == -1)
		return optimfs_fail(err, errno, "OFS801 %.200s: %m", rel);
	return keep_fd(k, fd, err);
}

static int drop(struct ofs_participant *k, const char *rel,
    struct optimfs_error *err)
{
	return ofs_publish_remove(k->p, rel, err) == 0
	    ? check_same(k->of, rel, err)
	    : -1;
}

static int names(struct ofs_participant *k, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	int ret = 0;

	while (ret == 0 && (c->bad || ofs_cursor_left(c) != 0)) {
		bool kept = ofs_cursor_u8(c) != 0;
		const char *rel = ofs_wire_take_str(c);
		const char *like = ofs_wire_take_str(c);
		uint64_t size = ofs_cursor_le64(c);
		uint32_t mode = ofs_cursor_le32(c);

		if (c->bad || k->p == NULL || k->voted || size > INT64_MAX ||
		    !ofs_path_stays(rel, strlen(rel)))
			return ofs_wire_malformed(err);
		ret = kept ? file(k, rel, like, size, mode, err)
			   : drop(k, rel, err);
	}
	return ret;
}

static int data(struct ofs_participant *k, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	uint32_t i = ofs_cursor_le32(c);
	uint64_t off = ofs_cursor_le64(c), n = ofs_cursor_left(c);
	const uint8_t *p = ofs_cursor_take(c, n);

	if (c->bad || i >= k->nfds || k->voted || off > INT64_MAX - n)
		return ofs_wire_malformed(err);
	return ofs_write_all(k->fd[i], p, n, off, err);
}

int ofs_participant_take(struct ofs_manifest *s, int from, const char *rel,
    const char *like, struct optimfs_error *err)
{
	struct ofs_participant *k = s->offered->participant;
	int ret = -1;

	pthread_rwlock_wrlock(&k->lock);
	if (k->p == NULL || k->voted)
		ofs_wire_malformed(err);
	else if (ofs_publish_take(k->p, from, rel, like, err) == 0)
		ret = check_same(k->of, rel, err);
	pthread_rwlock_unlock(&k->lock);
	return ret;
}

/* Removes the record last: until then it shows that everything was done. */
static int forget(struct ofs_participant *k, struct optimfs_error *err)
{
	ofs_publish_leave(k->p);
	end(k);
	ofs_publish_sweep(k->stage);
	return ofs_publish_forget(k->stage, err);
}

/* Does a request belong to an attempt that is over? */
static bool is_late(const struct ofs_participant *k, enum ofs_participant_op op,
    uint32_t attempt)
{
	switch (op) {
	case OFS_PARTICIPANT_BEGIN:
		return attempt <= k->attempt;
	case OFS_PARTICIPANT_ABORT:
		return attempt < k->attempt;
	case OFS_PARTICIPANT_NAMES:
	case OFS_PARTICIPANT_DATA:
	case OFS_PARTICIPANT_PREPARE:
	case OFS_PARTICIPANT_COMMIT:
		return attempt != k->attempt;
	default:
		return false;
	}
}

static int answer_locked(struct ofs_participant *k, enum ofs_participant_op op,
    uint32_t attempt, struct ofs_request *q, struct optimfs_error *err)
{
	if (is_late(k, op, attempt))
		return ofs_wire_malformed(err);
	if (op == OFS_PARTICIPANT_BEGIN || op == OFS_PARTICIPANT_ABORT)
		k->attempt = attempt;
	switch (op) {
	case OFS_PARTICIPANT_RECOVER:
	case OFS_PARTICIPANT_PREPARE:
	case OFS_PARTICIPANT_COMMIT:
		return work(k, op, q, err);
	case OFS_PARTICIPANT_BEGIN:
		return begin(k, q, err);
	case OFS_PARTICIPANT_NAMES:
		return names(k, &q->c, err);
	case OFS_PARTICIPANT_ABORT:
		let_go(k, true);
		return 0;
	case OFS_PARTICIPANT_FORGET:
		return forget(k, err);
	case OFS_PARTICIPANT_DATA:
		return data(k, &q->c, err);
	default:
		return ofs_wire_malformed(err);
	}
}

static int answer(struct ofs_request *q, struct optimfs_error *err)
{
	enum ofs_participant_op op =
	    (enum ofs_participant_op)ofs_cursor_u8(&q->c);
	uint32_t attempt = ofs_cursor_le32(&q->c);
	struct ofs_participant *k = q->manifest->offered->participant;
	int ret;

	if (op == OFS_PARTICIPANT_JOIN)
		return join(q, err);
	if (q->c.bad || k == NULL)
		return ofs_wire_malformed(err);
	if (op == OFS_PARTICIPANT_LEAVE) {
		q->manifest->offered->participant = NULL;
		participant_free(k);
		return 0;
	}
	if (op == OFS_PARTICIPANT_DATA)
		pthread_rwlock_rdlock(&k->lock);
	else
		pthread_rwlock_wrlock(&k->lock);
	ret = answer_locked(k, op, attempt, q, err);
	pthread_rwlock_unlock(&k->lock);
	return ret;
}

static void detach(struct ofs_manifest *s)
{
	ofs_writing_free(s->writing);
	participant_free(s->participant);
}

static const struct ofs_handler handlers[] = {
	{ OFS_WIRE_PARTICIPANT, answer, true },
};

const struct ofs_group_service ofs_commit_service = {
	.handler = handlers,
	.nhandlers = sizeof(handlers) / sizeof(*handlers),
	.detach = detach,
};
