/* stage.c - the lock and the stage of a checkpoint, before it is read */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/api.h"
#include "base/memory.h"
#include "cluster/commit/coordinator.h"
#include "journal/lock.h"
#include "journal/publish.h"
#include "push/push.h"
#include "push/template.h"
#include "reshard/leftover.h"
#include "store/http/open.h"

/* The state found beside a checkpoint when its lock is taken. */
struct beside {
	const char *path;
	bool template; /* an empty directory waits for its first commit */
	bool done;     /* its files were about to be published */
	struct ofs_manifest *manifest; /* with several ranks; else NULL */
	struct ofs_coordinator
	    *coordinator; /* of their directories, if there are several */
	bool settled;     /* their publishing is finished */
};

/* Ranks that see other directories take their locks. If we see everything, no
 * other rank is needed. */
static int look_for_others(struct beside *b, int beside,
    struct optimfs_error *err)
{
	char id[OFS_LOCK_ID];
	int ret;

	ofs_lock_peek(beside, id);
	b->coordinator = ofs_coordinator_open(b->manifest, id, beside, err);
	if (b->coordinator == NULL)
		return -1;
	if (ofs_coordinator_alone(b->coordinator)) {
		ofs_coordinator_free(b->coordinator);
		b->coordinator = NULL;
		return 0;
	}
	ret = ofs_coordinator_recover(b->coordinator, err);
	b->settled = ret == 1;
	return ret;
}

/* Finishes a published commit: its staged changes are done. */
static int finish_commit(const struct beside *b, int beside,
    struct optimfs_error *err)
{
	char *dir = strdup(b->path);
	struct stat st;
	int fd, ret = -1;

	if (dir == NULL)
		return ofs_no_memory(err);
	if (stat(dir, &st) == 0 && !S_ISDIR(st.st_mode))
		*strrchr(dir, '/') = '\0'; /* a file: use its directory */
	fd = open(dir[0] == '\0' ? "/" : dir,
	    O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd == -1)
		optimfs_fail(err, errno, "%s: %m", dir);
	else
		ret = ofs_publish_recover(dir[0] == '\0' ? "/" : dir, fd,
		    beside, err);
	if (fd != -1)
		close(fd);
	free(dir);
	return ret;
}

static int look_beside(void *ctx, int beside, struct optimfs_error *err)
{
	struct beside *b = ctx;
	int found = 0;

	if (b->manifest != NULL)
		found = look_for_others(b, beside, err);
	if (found != 0) {
		b->done = ofs_template_done(b->path);
		return found;
	}
	b->template = ofs_template_find(b->path, NULL);
	b->done = ofs_template_done(b->path);
	if (b->template)
		return 0;
	/* the new files have become path */
	return b->done || ofs_reshard_rest(beside)
	    ? 1
	    : finish_commit(b, beside, err);
}

/* Drops the staged changes of the open stage if they are published. */
static int settle(struct ofs_stage *st, const struct beside *b,
    struct optimfs_error *err)
{
	if (ofs_stage_sync(st, err) == -1)
		return -1;
	if (b->settled && ofs_coordinator_forget(b->coordinator, err) == -1)
		return -1;
	if (b->coordinator == NULL &&
	    ofs_publish_forget(ofs_stage_beside(st), err) == -1)
		return -1;
	if (b->done)
		ofs_push_settle(st, !b->template);
	return 0;
}

struct ofs_stage *ofs_stage_for_writing(const char *path,
    const struct optimfs_options *options, struct ofs_manifest *manifest,
    bool *template, struct ofs_coordinator **coordinator,
    struct optimfs_error *err)
{
	struct beside beside = { .path = path, .manifest = manifest };
	const struct ofs_stage_config config = {
		.source = path,
		.upper = options->upper,
		.recover = (enum ofs_recover)options->recover,
		.scratch = options->scratch,
		.published = look_beside,
		.ctx = &beside,
	};
	struct ofs_stage *st;

	st = ofs_stage_open(&config, err);
	if (st != NULL && !options->scratch && settle(st, &beside, err) == -1) {
		ofs_stage_close(st, true);
		st = NULL;
	}
	if (st == NULL) {
		ofs_coordinator_free(beside.coordinator);
		return NULL;
	}
	*template = beside.template;
	if (manifest != NULL)
		*coordinator = beside.coordinator;
	return st;
}

int optimfs_lock_watch(const char *path)
{
	return ofs_stage_watch(path);
}

bool optimfs_lock_busy(int fd)
{
	return ofs_lock_busy(fd);
}

int optimfs_left(const char *path, struct optimfs_error *err)
{
	return ofs_stage_left(path, err);
}

/* For a large commit to a slow disk. */
#define AWAIT_MS 120000

static void say_nothing(void *ctx, const char *text)
{
	(void)ctx;
	(void)text;
}

int optimfs_await(const char *path, void (*say)(void *ctx, const char *text),
    void *ctx, struct optimfs_error *err)
{
	const struct ofs_stage_tell tell = {
		.say = say == NULL ? say_nothing : say,
		.ctx = ctx,
	};

	return ofs_http_is_address(path)
	    ? 0
	    : ofs_stage_await(path, AWAIT_MS, &tell, err);
}
