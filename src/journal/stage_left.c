/* stage_left.c - changes that an earlier writer has left in a stage */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "journal/stage_left.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "journal/journal.h"
#include "journal/stage.h"
#include "journal/stage_path.h"

/* A journal of at most this size contains only its first record, the boot. */
#define FIRST_MAX 100

/* Looks for records other than boots. */
static int look(void *ctx, const struct ofs_record *r,
    struct optimfs_error *err)
{
	bool *real = ctx;

	(void)err;
	*real |= r->type != OFS_RECORD_BOOT;
	return 0;
}

int ofs_stage_changes(struct ofs_journal *j, const char *path,
    struct optimfs_error *err)
{
	uint64_t records = 0, dropped = 0;
	bool real = false;

	if (ofs_journal_load(j, look, &real, &records, &dropped, err) == -1)
		return optimfs_fail_in(err, "%s", path);
	return real || (dropped != 0 && (records != 0 || dropped > FIRST_MAX));
}

int ofs_stage_refuse(const char *path, bool upper, struct optimfs_error *err)
{
	const char *slash = strrchr(path, '/');

	return optimfs_fail(err, EBUSY,
	    "OFS811 %s holds changes of a mount that ended without a commit: "
	    "-o recover=yes%s%.*s continues with them, recover=discard drops "
	    "them",
	    path, upper ? ",upper=" : "", upper ? (int)(slash - path) : 0,
	    path);
}

void ofs_stage_upper(int beside, char path[PATH_MAX])
{
	ssize_t n = readlinkat(beside, OFS_STAGE_UPPER, path, PATH_MAX - 1);

	path[n > 0 && path[0] == '/' ? n : 0] = '\0';
}

/* Fails if dir, at path, has changes (EBUSY). */
static int check_changes(int dir, const char *path, bool upper,
    struct optimfs_error *err)
{
	struct ofs_journal j = {
		.fd = ofs_stage_open_file(dir, "journal", O_RDONLY, 0),
	};
	int ret = 0;

	if (j.fd != -1)
		ret = ofs_stage_changes(&j, path, err);
	else if (errno != ENOENT)
		ret = optimfs_fail(err, errno, "OFS809 %s/journal: %m", path);
	if (j.fd != -1)
		close(j.fd);
	return ret == 1 ? ofs_stage_refuse(path, upper, err) : ret;
}

/* The stage at path, or, if it has a link (followed is false), what that
 * names. */
static int check_stage(const char *path, bool followed,
    struct optimfs_error *err)
{
	char upper[PATH_MAX] = "";
	int dir, ret;

	err = OFS_SOME_ERROR(err);
	dir = ofs_stage_look(path, err);
	if (dir == -1)
		return err->code == ENOENT ? 0 : -1;
	if (!followed)
		ofs_stage_upper(dir, upper);
	ret = upper[0] != '\0' ? ofs_stage_check_upper(upper, err)
			       : check_changes(dir, path, followed, err);
	close(dir);
	return ret;
}

int ofs_stage_check_upper(const char *path, struct optimfs_error *err)
{
	return check_stage(path, true, err);
}

int ofs_stage_left(const char *source, struct optimfs_error *err)
{
	char *place = ofs_stage_place(source, err);
	int ret = place == NULL ? -1 : check_stage(place, false, err);

	free(place);
	return ret;
}
