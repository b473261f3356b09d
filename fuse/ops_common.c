/* ops_common.c - helpers for all operations */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "fuse/ops_internal.h"

struct ofs_session *ofs_op_session(fuse_req_t req)
{
	return fuse_req_userdata(req);
}

void ofs_op_count(atomic_uint_least64_t *n)
{
	atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
}

/* Buffers of threads, two per huge page, which saves page table lookups in the
 * kernel and TLB misses. They are reused after a thread has ended, and never
 * freed. Further threads, which mostly wait, have buffers of ordinary pages
 * that are freed with them. */
#define HUGE_PAGE ((size_t)2 * OFS_MAX_READ)
#define MAX_HUGE  16

static pthread_key_t buffer_key;
static pthread_once_t buffer_once = PTHREAD_ONCE_INIT;
static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static void *spare; /* each starts with the address of the next */
static unsigned nhuge;
static _Thread_local bool
    ordinary; /* this thread's buffer has ordinary pages */

static void give_buffer(void *buf)
{
	pthread_mutex_lock(&spare_lock);
	memcpy(buf, &spare, sizeof(spare));
	spare = buf;
	pthread_mutex_unlock(&spare_lock);
}

static void drop_buffer(void *buf)
{
	if (ordinary)
		free(buf);
	else
		give_buffer(buf);
}

static void *take_buffer(void)
{
	void *buf;

	pthread_mutex_lock(&spare_lock);
	buf = spare;
	if (buf != NULL)
		memcpy(&spare, buf, sizeof(spare));
	else
		ordinary = nhuge >= MAX_HUGE;
	nhuge += buf == NULL && !ordinary;
	pthread_mutex_unlock(&spare_lock);
	if (buf != NULL)
		return buf;
	if (ordinary)
		return malloc(OFS_MAX_READ);
	buf = aligned_alloc(HUGE_PAGE, HUGE_PAGE);
	if (buf == NULL) {
		pthread_mutex_lock(&spare_lock);
		nhuge--;
		pthread_mutex_unlock(&spare_lock);
		return NULL;
	}
	(void)madvise(buf, HUGE_PAGE, MADV_HUGEPAGE);
	give_buffer((char *)buf + OFS_MAX_READ);
	return buf;
}

static void make_key(void)
{
	if (pthread_key_create(&buffer_key, drop_buffer) != 0)
		abort();
}

void *ofs_op_buffer(void)
{
	void *buf;

	pthread_once(&buffer_once, make_key);
	buf = pthread_getspecific(buffer_key);
	if (buf == NULL) {
		buf = take_buffer();
		if (buf != NULL && pthread_setspecific(buffer_key, buf) != 0) {
			drop_buffer(buf);
			buf = NULL;
		}
	}
	return buf;
}

int ofs_op_code(const struct optimfs_error *err)
{
	return err->code > 0 && err->code < 512 ? err->code : EIO;
}

void ofs_op_fail(fuse_req_t req, const struct optimfs_error *err)
{
	struct ofs_session *s = ofs_op_session(req);

	ofs_op_count(&s->count.failed);
	optimfs_log_error(s->fs, err);
	fuse_reply_err(req, ofs_op_code(err));
}

void ofs_ops_late(struct ofs_session *s, uint64_t node)
{
	struct optimfs_error err;

	ofs_op_count(&s->count.late);
	optimfs_fail(&err, ETIMEDOUT,
	    "OFS760 node %" PRIu64 ": no answer from the source in %u seconds "
	    "(-o timeout=)",
	    node, s->timeout);
	optimfs_log_error(s->fs, &err);
}
