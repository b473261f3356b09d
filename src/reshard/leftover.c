/* leftover.c - remains of a reshard that was killed at its very end */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "reshard/leftover.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "journal/journal.h"
#include "journal/stage.h"
#include "journal/stage_path.h"

/* The type of the first record that is not the stage's own. */
static int first_type(void *ctx, const struct ofs_record *r,
    struct optimfs_error *err)
{
	uint8_t *type = ctx;

	if (r->type == OFS_RECORD_BOOT)
		return 0;
	*type = r->type;
	return optimfs_fail(err, ECANCELED, "it is known");
}

/* What the journal begins with; 0: it is absent or empty; -1: it cannot be
 * read. */
static int begins_with(int beside)
{
	struct ofs_journal j = {
		.fd = ofs_stage_open_file(beside, "journal", O_RDONLY, 0),
	};
	uint64_t records, dropped;
	struct optimfs_error err;
	uint8_t type = 0;
	int ret;

	if (j.fd == -1)
		return errno == ENOENT ? 0 : -1;
	ret = ofs_journal_load(&j, first_type, &type, &records, &dropped, &err);
	close(j.fd);
	if (type != 0)
		return type;
	return ret == 0 && dropped == 0 ? 0 : -1;
}

static bool has_new(int beside)
{
	return faccessat(beside, "new", F_OK, AT_SYMLINK_NOFOLLOW) == 0 ||
	    errno != ENOENT;
}

bool ofs_reshard_rest(int beside)
{
	return begins_with(beside) == OFS_RESHARD_HEAD && !has_new(beside);
}

/* The lock is held. The journal is emptied before the stage is removed. */
static int look(void *ctx, int beside, struct optimfs_error *err)
{
	int type = begins_with(beside);

	(void)ctx;
	if ((type == 0 || type == OFS_RESHARD_HEAD) && !has_new(beside))
		return 1;
	return optimfs_fail(err, EEXIST, "it is something else");
}

void ofs_reshard_tidy(const char *dir)
{
	const struct ofs_stage_config config = {
		.source = dir,
		.published = look,
	};
	struct optimfs_error err;
	char *path = ofs_stage_place(dir, &err);

	if (path != NULL && access(path, F_OK) == 0)
		ofs_stage_close(ofs_stage_open(&config, &err), false);
	free(path);
}
