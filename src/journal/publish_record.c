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

/* A record is its magic number, an id, its contents, and the CRC-32 of all
 * that. */
#define RECORD_MAX (64u << 20)

void ofs_record_begin(struct ofs_buf *b, uint32_t magic, const char *id)
{
	char fixed[OFS_PUBLISH_ID] = "";

	strcpy(fixed, id);
	ofs_buf_put_le(b, magic, 4);
	ofs_buf_put(b, fixed, sizeof(fixed));
}

int ofs_record_write(int stage, const char *name, struct ofs_buf *b,
    struct optimfs_error *err)
{
	int fd, ret;

	ofs_buf_put_le(b, ofs_crc32(0, b->data, b->len), 4);
	if (b->bad)
		return ofs_no_memory(err);
	unlinkat(stage, name, 0);
	fd = ofs_sys_create(stage, name);
	if (fd == -1)
		return optimfs_fail(err, errno,
		    "OFS821 record of a commit: %m");
	ret = ofs_write_all(fd, b->data, b->len, 0, err);
	if (ret == 0 && ofs_sys_fsync(fd) == -1)
		ret = optimfs_fail(err, errno, "OFS802 record of a commit: %m");
	close(fd);
	return ret;
}

int ofs_record_read(int stage, const char *name, uint32_t magic,
    char id[OFS_PUBLISH_ID], uint8_t **bytes, struct ofs_cursor *c,
    struct optimfs_error *err)
{
	struct ofs_dir dir = { .fd = stage };
	const uint8_t *own;
	struct stat st;
	uint64_t len;
	uint8_t *p;

	if (fstatat(stage, name, &st, AT_SYMLINK_NOFOLLOW) == -1 &&
	    errno == ENOENT)
		return 0;
	if (ofs_dir_read_file(&dir, name, RECORD_MAX, &p, &len, err) == -1)
		return -1;
	*c = ofs_cursor_of(p, len < 4 ? 0 : len - 4);
	if (ofs_cursor_le32(c) == magic &&
	    (own = ofs_cursor_take(c, OFS_PUBLISH_ID)) != NULL &&
	    own[OFS_PUBLISH_ID - 1] == '\0' &&
	    ofs_crc32(0, p, len - 4) == ofs_le32(p + len - 4)) {
		memcpy(id, own, OFS_PUBLISH_ID);
		*bytes = p;
		return 1;
	}
	free(p);
	return 0;
}

int ofs_record_remove(int stage, const char *name, struct optimfs_error *err)
{
	int ret = ofs_sys_unlink(stage, name);

	if (ret == -1 && errno == ENOENT)
		return 0;
	if (ret == 0)
		ret = ofs_sys_fsync(stage);
	return ret == 0
	    ? 0
	    : optimfs_fail(err, errno, "OFS809 record of a commit: %m");
}

/* The plan: inodes of gen/ and of the checkpoint, or 0, and a count; for each
 * name its kind, what it was and becomes, length and bytes. */
#define MAGIC 0x33424f46u

static void put_stamp(struct ofs_buf *b, const struct ofs_publish_stamp *s)
{
	ofs_buf_put_le(b, s->ino, 8);
	ofs_buf_put_le(b, s->size, 8);
	ofs_buf_put_le(b, (uint64_t)s->mtime_ns, 8);
	ofs_buf_put_le(b, (uint64_t)s->ctime_ns, 8);
}

static struct ofs_publish_stamp take_stamp(struct ofs_cursor *c)
{
	struct ofs_publish_stamp s = { .ino = ofs_cursor_le64(c) };

	s.size = ofs_cursor_le64(c);
	s.mtime_ns = (int64_t)ofs_cursor_le64(c);
	s.ctime_ns = (int64_t)ofs_cursor_le64(c);
	return s;
}

/* A torn record counts as none: nothing was changed before it was complete. */
int ofs_publish_write_record(int stage, const struct ofs_publish_plan *plan,
    struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	int ret;

	ofs_record_begin(&b, MAGIC, plan->id);
	ofs_buf_put_le(&b, plan->swap ? plan->gen : 0, 8);
	ofs_buf_put_le(&b, plan->old, 8);
	ofs_buf_put_le(&b, plan->n, 8);
	for (size_t i = 0; i < plan->n; i++) {
		const struct ofs_publish_name *n = &plan->name[i];

		ofs_buf_put_le(&b, n->kind, 1);
		put_stamp(&b, &n->was);
		put_stamp(&b, &n->put);
		ofs_buf_put_le(&b, strlen(n->rel), 2);
		ofs_buf_puts(&b, n->rel);
	}
	ret = ofs_record_write(stage, OFS_PUBLISH_RECORD, &b, err);
	if (ret == 0 && ofs_sys_fsync(stage) == -1)
		ret = optimfs_fail(err, errno, "OFS802 record of a commit: %m");
	ofs_buf_fini(&b);
	return ret;
}

static int parse(struct ofs_cursor c, struct ofs_publish_plan *plan,
    struct optimfs_error *err)
{
	uint64_t n;

	plan->gen = ofs_cursor_le64(&c);
	plan->swap = plan->gen != 0;
	plan->old = ofs_cursor_le64(&c);
	n = ofs_cursor_le64(&c);
	for (uint64_t i = 0; i < n && !c.bad; i++) {
		uint8_t kind = ofs_cursor_u8(&c);
		struct ofs_publish_stamp was = take_stamp(&c);
		struct ofs_publish_stamp put = take_stamp(&c);
		uint16_t size = ofs_cursor_le16(&c);
		const uint8_t *rel = ofs_cursor_take(&c, size);
		char name[4097];

		if (c.bad || kind >= OFS_PUBLISH_DONE ||
		    !ofs_path_stays((const char *)rel, size))
			return 0;
		memcpy(name, rel, size);
		name[size] = '\0';
		if (ofs_publish_add(plan, name, (enum ofs_publish_kind)kind, -1,
			&was, err) == -1)
			return -1;
		plan->name[plan->n - 1].put = put;
	}
	return !c.bad;
}

int ofs_publish_read_record(int stage, struct ofs_publish_plan *plan,
    struct optimfs_error *err)
{
	struct ofs_cursor c;
	uint8_t *bytes;
	int ret = ofs_record_read(stage, OFS_PUBLISH_RECORD, MAGIC, plan->id,
	    &bytes, &c, err);

	if (ret != 1)
		return ret;
	ret = parse(c, plan, err);
	free(bytes);
	return ret;
}
