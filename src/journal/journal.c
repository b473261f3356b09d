/* journal.c - a log of checksummed records that tolerates a torn end */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "journal/journal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/crc.h"
#include "base/cursor.h"
#include "base/io.h"
#include "base/memory.h"
#include "base/sys.h"

#define MAGIC     "optimfs journal1"
#define MAGIC_LEN (sizeof(MAGIC) - 1)

/* Length and checksum. */
#define HEAD 8u
/* type, four numbers, length of a. */
#define FIXED 37u
/* Texts are the longest contents. */
#define PAYLOAD_MAX (64u << 20)

static uint32_t checksum(uint32_t before, const uint8_t *record, uint32_t n)
{
	uint32_t sum = ofs_crc32(before, record, 4);

	return ofs_crc32(sum, record + HEAD, n);
}

static uint8_t *encode(const struct ofs_record *r, size_t *n)
{
	size_t na = r->a == NULL ? 0 : strlen(r->a);
	uint8_t *p;

	if (na > PAYLOAD_MAX / 2 || r->nb > PAYLOAD_MAX / 2)
		return NULL;
	*n = HEAD + FIXED + na + r->nb;
	p = malloc(*n);
	if (p == NULL)
		return NULL;
	ofs_put_le(p, *n - HEAD, 4);
	p[HEAD] = r->type;
	for (unsigned i = 0; i < 4; i++)
		ofs_put_le(p + HEAD + 1 + 8 * i, r->num[i], 8);
	ofs_put_le(p + HEAD + 33, na, 4);
	if (na > 0)
		memcpy(p + HEAD + FIXED, r->a, na);
	if (r->nb > 0)
		memcpy(p + HEAD + FIXED + na, r->b, r->nb);
	return p;
}

int ofs_journal_append(struct ofs_journal *j, const struct ofs_record *r,
    struct optimfs_error *err)
{
	size_t n = 0;
	uint32_t sum;
	uint8_t *p;
	int ret;

	if (j->broken)
		return optimfs_fail(err, EIO,
		    "OFS809 the journal could not be written before");
	p = encode(r, &n);
	if (p == NULL)
		return ofs_no_memory(err);
	sum = checksum(j->sum, p, (uint32_t)(n - HEAD));
	ofs_put_le(p + 4, sum, 4);
	ret = ofs_stage_write(j->fd, p, n, j->end, err);
	free(p);
	if (ret == -1) {
		/* nothing after half a record would be found again */
		j->broken = ftruncate(j->fd, (off_t)j->end) == -1;
		return optimfs_fail_in(err, "journal");
	}
	j->end += n;
	j->sum = sum;
	return 0;
}

int ofs_journal_sync(struct ofs_journal *j, struct optimfs_error *err)
{
	if (j->broken)
		return optimfs_fail(err, EIO,
		    "OFS809 the journal could not be written before");
	if (ofs_sys_fdatasync(j->fd) == 0)
		return 0;
	/* the kernel reports dropped pages only once */
	optimfs_fail(err, errno, "OFS809 journal: %m");
	j->broken = true;
	return -1;
}

/* false: invalid payload. a gets a terminating NUL, in room. */
static bool decode(uint8_t *payload, uint32_t n, struct ofs_buf *a,
    struct ofs_record *r)
{
	struct ofs_cursor c = ofs_cursor_of(payload, n);
	const uint8_t *name;
	uint32_t na;

	*r = (struct ofs_record){ .type = ofs_cursor_u8(&c) };
	for (unsigned i = 0; i < 4; i++)
		r->num[i] = ofs_cursor_le64(&c);
	na = ofs_cursor_le32(&c);
	name = ofs_cursor_take(&c, na);
	if (c.bad || memchr(name, '\0', na) != NULL)
		return false;
	a->len = 0;
	ofs_buf_put(a, name, na);
	ofs_buf_putc(a, '\0');
	r->a = (const char *)a->data;
	r->nb = ofs_cursor_left(&c);
	r->b = ofs_cursor_take(&c, r->nb);
	return !a->bad;
}

struct reader {
	struct ofs_journal *j;
	uint64_t size;
	uint8_t *record;
	size_t cap;
	struct ofs_buf a;
};

/* Reads the next record: 1; 0: no further good record; -1: failed. */
static int next(struct reader *in, struct ofs_record *r,
    struct optimfs_error *err)
{
	uint8_t head[HEAD];
	struct ofs_cursor c = ofs_cursor_of(head, HEAD);
	uint32_t n, sum;

	if (in->size - in->j->end < HEAD + FIXED)
		return 0;
	if (ofs_pread_all(in->j->fd, head, HEAD, in->j->end, err) == -1)
		return -1;
	n = ofs_cursor_le32(&c);
	sum = ofs_cursor_le32(&c);
	if (n < FIXED || n > PAYLOAD_MAX + FIXED ||
	    n > in->size - in->j->end - HEAD)
		return 0;
	if (ofs_reserve(in->record, n + HEAD, in->cap, err) == -1 ||
	    ofs_pread_all(in->j->fd, in->record, n + HEAD, in->j->end, err) ==
		-1)
		return -1;
	if (checksum(in->j->sum, in->record, n) != sum)
		return 0;
	if (!decode(in->record + HEAD, n, &in->a, r))
		return in->a.bad ? ofs_no_memory(err) : 0;
	in->j->sum = sum;
	in->j->end += HEAD + n;
	return 1;
}

static int check_magic(struct ofs_journal *j, uint64_t size,
    struct optimfs_error *err)
{
	char head[MAGIC_LEN];

	if (size < MAGIC_LEN)
		return 0; /* torn when it was created */
	if (ofs_pread_all(j->fd, head, sizeof(head), 0, err) == -1)
		return -1;
	if (memcmp(head, MAGIC, MAGIC_LEN) != 0)
		return optimfs_fail(err, EUCLEAN,
		    "OFS810 this is no journal: it begins with other "
		    "bytes");
	j->end = MAGIC_LEN;
	return 0;
}

int ofs_journal_load(struct ofs_journal *j, ofs_replay_fn *each, void *ctx,
    uint64_t *records, uint64_t *dropped, struct optimfs_error *err)
{
	struct reader in = { .j = j };
	struct ofs_record r;
	struct stat st;
	int ret;

	j->end = 0;
	j->sum = 0;
	*records = 0;
	if (fstat(j->fd, &st) == -1)
		return optimfs_fail(err, errno, "OFS809 journal: %m");
	in.size = (uint64_t)st.st_size;
	ret = check_magic(j, in.size, err);
	while (ret == 0 && j->end > 0 && (ret = next(&in, &r, err)) == 1) {
		++*records;
		ret = each == NULL ? 0 : each(ctx, &r, err);
	}
	free(in.record);
	ofs_buf_fini(&in.a);
	*dropped = in.size - j->end;
	return ret == -1 ? -1 : 0;
}

int ofs_journal_trim(struct ofs_journal *j, struct optimfs_error *err)
{
	if (ftruncate(j->fd, (off_t)j->end) == -1)
		return optimfs_fail(err, errno, "OFS809 journal: %m");
	if (j->end > 0)
		return 0;
	if (ofs_stage_write(j->fd, MAGIC, MAGIC_LEN, 0, err) == -1)
		return -1;
	j->end = MAGIC_LEN;
	return 0;
}
