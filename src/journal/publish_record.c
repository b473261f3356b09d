/* publish_record.c - the record of a commit, for recovery */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/copy.h"
#include "base/crc.h"
#include "base/cursor.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/sys.h"
#include "journal/publish_impl.h"
#include "journal/stage_path.h"

/* MAGIC, the id, inode of gen/ or 0, and a count; for each name its kind,
 * inode, length and bytes; at the end the CRC-32 of everything before. */
#define MAGIC      0x32424f46u
#define RECORD_MAX (64u << 20)

static void put_le(struct ofs_buf *b, uint64_t v, int n)
{
	for (int i = 0; i < n; i++)
		ofs_buf_putc(b, (int)(v >> 8 * i & 0xff));
}

static int build(struct ofs_buf *b, const struct ofs_publish_plan *plan,
    struct optimfs_error *err)
{
	put_le(b, MAGIC, 4);
	ofs_buf_put(b, plan->id, sizeof(plan->id));
	put_le(b, plan->swap ? plan->gen : 0, 8);
	put_le(b, plan->n, 8);
	for (size_t i = 0; i < plan->n; i++) {
		const struct ofs_publish_name *n = &plan->name[i];

		put_le(b, n->kind, 1);
		put_le(b, n->ino, 8);
		put_le(b, strlen(n->rel), 2);
		ofs_buf_puts(b, n->rel);
	}
	put_le(b, ofs_crc32(0, b->data, b->len), 4);
	return b->bad ? ofs_no_memory(err) : 0;
}

/* A torn record counts as none: nothing was changed before it was complete. */
int ofs_publish_write_record(int stage, const struct ofs_publish_plan *plan,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	int fd, ret = -1;

	if (build(&b, plan, err) == -1)
		goto out;
	unlinkat(stage, OFS_PUBLISH_RECORD, 0);
	fd = ofs_sys_create(stage, OFS_PUBLISH_RECORD);
	if (fd == -1) {
		optimfs_fail(err, errno, "OFS821 record of a commit: %m");
		goto out;
	}
	ret = ofs_write_all(fd, b.data, b.len, 0, err);
	if (ret == 0 && (ofs_sys_fsync(fd) == -1 || ofs_sys_fsync(stage) == -1))
		ret = optimfs_fail(err, errno, "OFS802 record of a commit: %m");
	close(fd);
out:
	ofs_buf_fini(&b);
	return ret;
}

static int parse(const uint8_t *p, uint64_t len, struct ofs_publish_plan *plan,
    struct optimfs_error *err)
{
	struct ofs_cursor c = ofs_cursor_of(p, len - 4);
	const uint8_t *id;
	uint64_t n;

	if (ofs_cursor_le32(&c) != MAGIC)
		return 0;
	id = ofs_cursor_take(&c, sizeof(plan->id));
	if (id == NULL || id[sizeof(plan->id) - 1] != '\0')
		return 0;
	memcpy(plan->id, id, sizeof(plan->id));
	plan->gen = ofs_cursor_le64(&c);
	plan->swap = plan->gen != 0;
	n = ofs_cursor_le64(&c);
	for (uint64_t i = 0; i < n && !c.bad; i++) {
		uint8_t kind = ofs_cursor_u8(&c);
		uint64_t ino = ofs_cursor_le64(&c);
		uint16_t size = ofs_cursor_le16(&c);
		const uint8_t *rel = ofs_cursor_take(&c, size);
		char name[4097];

		if (c.bad || kind > OFS_PUBLISH_REMOVE ||
		    !ofs_path_stays((const char *)rel, size))
			return 0;
		memcpy(name, rel, size);
		name[size] = '\0';
		if (ofs_publish_add(plan, name, (enum ofs_publish_kind)kind, -1,
			ino, err) == -1)
			return -1;
	}
	return !c.bad;
}

int ofs_publish_read_record(int stage, struct ofs_publish_plan *plan,
    struct optimfs_error *err)
{
	int fd = ofs_stage_open_file(stage, OFS_PUBLISH_RECORD, O_RDONLY, 0);
	uint8_t *p = NULL;
	struct stat st;
	int ret = 0;

	if (fd == -1 && errno == ENOENT)
		return 0;
	if (fd == -1 || fstat(fd, &st) == -1) {
		optimfs_fail(err, errno, "OFS821 record of a commit: %s",
		    ofs_stage_why(errno));
		if (fd != -1)
			close(fd);
		return -1;
	}
	if (st.st_size >= 24 && st.st_size <= RECORD_MAX) {
		uint64_t len = (uint64_t)st.st_size;

		p = malloc(len);
		if (p == NULL)
			ret = ofs_no_memory(err);
		else
			ret = ofs_pread_all(fd, p, len, 0, err);
		if (ret == 0 &&
		    ofs_crc32(0, p, len - 4) == ofs_le32(p + len - 4))
			ret = parse(p, len, plan, err);
	}
	free(p);
	close(fd);
	return ret;
}
