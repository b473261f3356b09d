/* staged.h - staged bytes in a file of a test */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TESTS_SUPPORT_STAGED_H
#define TESTS_SUPPORT_STAGED_H

#include "base/io.h"
#include "read/patch.h"

static inline int staged_fd(const struct ofs_staged *s)
{
	return (int)(intptr_t)s->ctx;
}

static inline int staged_read(void *ctx, void *buf, uint64_t n, uint64_t off,
    struct optimfs_error *err)
{
	return ofs_pread_all((int)(intptr_t)ctx, buf, n, off, err);
}

/* Bytes at their offsets in fd. */
static inline struct ofs_staged staged_in(int fd)
{
	return (struct ofs_staged){ staged_read, (void *)(intptr_t)fd };
}

#endif
