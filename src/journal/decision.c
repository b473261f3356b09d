/* decision.c - the decision of a commit to several directories */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "journal/decision.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cursor.h"
#include "base/memory.h"
#include "base/sys.h"
#include "journal/publish_impl.h"

/* The contents of the record are the names of the directories, each with its
 * NUL. A decision is renamed to its name when it is complete and synced;
 * otherwise there is none. */
#define NAME  "decision"
#define NEW   "decision.new"
#define MAGIC 0x31444f53u

static int fail(struct optimfs_error *err)
{
	return optimfs_fail(err, errno, "OFS802 the decision of a commit: %m");
}

/* If the last sync fails, the state of the disk is unknown: the decision is
 * taken back, and if that cannot be made durable either, it stands. */
int ofs_decision_write(int stage, const char *id, const struct ofs_buf *names,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	int ret;

	ofs_record_begin(&b, MAGIC, id);
	ofs_buf_put(&b, names->data, names->len);
	ret = names->bad ? ofs_no_memory(err)
			 : ofs_record_write(stage, NEW, &b, err);
	ofs_buf_fini(&b);
	if (ret == 0 && ofs_sys_rename(stage, NEW, stage, NAME, 0) == -1)
		ret = fail(err);
	if (ret == -1) {
		ofs_decision_clean(stage);
		return -1;
	}
	if (ofs_sys_fsync(stage) == 0)
		return 0;
	fail(err);
	return ofs_decision_remove(stage, NULL) == 0 ? -1 : 0;
}

int ofs_decision_read(int stage, char id[OFS_PUBLISH_ID], struct ofs_buf *names,
    struct optimfs_error *err)
{
	struct ofs_cursor c;
	uint8_t *bytes;
	int ret;

	id[0] = '\0';
	ret = ofs_record_read(stage, NAME, MAGIC, id, &bytes, &c, err);
	if (ret != 1)
		return ret;
	ofs_buf_put(names, c.p, (size_t)(c.end - c.p));
	free(bytes);
	return names->bad ? ofs_no_memory(err) : 1;
}

int ofs_decision_remove(int stage, struct optimfs_error *err)
{
	return ofs_record_remove(stage, NAME, err);
}

void ofs_decision_clean(int stage)
{
	(void)ofs_sys_unlink(stage, NEW);
}
