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

bool ofs_reshard_rest(int beside)
{
	struct ofs_journal j = {
		.fd = ofs_stage_open_file(beside, "journal", O_RDONLY, 0),
	};
	uint64_t records, dropped;
	struct optimfs_error err;
	uint8_t type = 0;

	if (j.fd == -1)
		return false;
	(void)ofs_journal_load(&j, first_type, &type, &records, &dropped, &err);
	close(j.fd);
	return type == OFS_RESHARD_HEAD &&
	    faccessat(beside, "new", F_OK, AT_SYMLINK_NOFOLLOW) == -1 &&
	    errno == ENOENT;
}

/* The lock is held. */
static int look(void *ctx, int beside, struct optimfs_error *err)
{
	(void)ctx;
	if (ofs_reshard_rest(beside))
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
