/* decision.c - the decision of a commit to several directories */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "journal/decision.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/copy.h"
#include "base/crc.h"
#include "base/cursor.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/sys.h"

/* MAGIC, the id, the names of the directories, each with its NUL, and the
 * CRC-32 of all that. A decision is renamed to its name when it is complete and
 * synced; otherwise there is none. */
#define NAME  "decision"
#define NEW   "decision.new"
#define MAGIC 0x31444f53u
#define MAX   (64u << 20)

static int fail(struct optimfs_error *err)
{
	return optimfs_fail(err, errno, "OFS802 the decision of a commit: %m");
}

static int save(int stage, const struct ofs_buf *b, struct optimfs_error *err)
{
	int fd, ret;

	(void)ofs_sys_unlink(stage, NEW);
	fd = ofs_sys_create(stage, NEW);
	if (fd == -1)
		return fail(err);
	ret = ofs_write_all(fd, b->data, b->len, 0, err);
	if (ret == 0 && ofs_sys_fsync(fd) == -1)
		ret = fail(err);
	close(fd);
	if (ret == 0 && ofs_sys_rename(stage, NEW, stage, NAME, 0) == -1)
		ret = fail(err);
	if (ret == -1)
		ofs_decision_clean(stage);
	return ret;
}

static void put_le32(struct ofs_buf *b, uint32_t v)
{
	for (unsigned i = 0; i < 4; i++)
		ofs_buf_putc(b, (uint8_t)(v >> 8 * i));
}

/* If the last sync fails, the state of the disk is unknown: the decision is
 * taken back, and if that cannot be made durable either, it stands. */
int ofs_decision_write(int stage, const char *id, const struct ofs_buf *names,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	char fixed[OFS_PUBLISH_ID] = "";
	int ret;

	strcpy(fixed, id);
	put_le32(&b, MAGIC);
	ofs_buf_put(&b, fixed, sizeof(fixed));
	ofs_buf_put(&b, names->data, names->len);
	put_le32(&b, ofs_crc32(0, b.data, b.len));
	ret = b.bad || names->bad ? ofs_no_memory(err) : save(stage, &b, err);
	ofs_buf_fini(&b);
	if (ret == -1 || ofs_sys_fsync(stage) == 0)
		return ret;
	fail(err);
	return ofs_decision_remove(stage, NULL) == 0 ? -1 : 0;
}

int ofs_decision_read(int stage, char id[OFS_PUBLISH_ID], struct ofs_buf *names,
    struct optimfs_error *err)
{
	struct ofs_dir dir = { .fd = stage };
	struct optimfs_error why;
	struct ofs_cursor c;
	const uint8_t *p;
	uint8_t *bytes;
	uint64_t len;
	struct stat st;
	int ret = 0;

	id[0] = '\0';
	if (fstatat(stage, NAME, &st, AT_SYMLINK_NOFOLLOW) == -1 &&
	    errno == ENOENT)
		return 0;
	if (ofs_dir_read_file(&dir, NAME, MAX, &bytes, &len, &why) == -1)
		return optimfs_fail_as(err, why.code, "%s", why.text);
	c = ofs_cursor_of(bytes, len < 4 ? 0 : len - 4);
	if (ofs_cursor_le32(&c) == MAGIC &&
	    (p = ofs_cursor_take(&c, OFS_PUBLISH_ID)) != NULL &&
	    p[OFS_PUBLISH_ID - 1] == '\0' &&
	    ofs_crc32(0, bytes, len - 4) == ofs_le32(bytes + len - 4)) {
		memcpy(id, p, OFS_PUBLISH_ID);
		p = ofs_cursor_take(&c, len - 8 - OFS_PUBLISH_ID);
		ofs_buf_put(names, p, len - 8 - OFS_PUBLISH_ID);
		ret = names->bad ? ofs_no_memory(err) : 1;
	}
	free(bytes);
	return ret;
}

int ofs_decision_remove(int stage, struct optimfs_error *err)
{
	int ret = ofs_sys_unlink(stage, NAME);

	if (ret == -1 && errno == ENOENT)
		return 0;
	if (ret == 0)
		ret = ofs_sys_fsync(stage);
	return ret == 0
	    ? 0
	    : optimfs_fail(err, errno, "OFS809 the decision of a commit: %m");
}

void ofs_decision_clean(int stage)
{
	(void)ofs_sys_unlink(stage, NEW);
}
