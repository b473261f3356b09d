/* client.h - requests that are repeated until they succeed, or never will */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_CLIENT_H
#define OFS_STORE_HTTP_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "store/http/answer.h"
#include "store/http/module.h"

struct ofs_http_limits {
	unsigned timeout;  /* seconds without progress; 0: no limit */
	unsigned requests; /* that are sent together; 0: 16 */
	uint64_t range;    /* bytes of one of them; 0: 8 MiB */
};
#define OFS_HTTP_REQUESTS_MOST 64

/* The module, loaded, with its threads. There is one in a process. */
struct ofs_http {
	const struct ofs_http_ops *ops;
	struct ofs_http_module *m;
	struct ofs_http_limits limits; /* none is 0 but timeout */
	struct ofs_http *before;       /* of the process that forked this one */
};

struct ofs_http_counters {
	/* answers: of any status, complete or not */
	_Atomic uint64_t requests, bytes, retries, answers;
};

/* Loads the module on first use, and after a fork; the first limits count.
 * NULL: ENOSYS (OFS921). */
const struct ofs_http *ofs_http_client(const struct ofs_http_limits *limits,
    struct optimfs_error *err);

/* How long a server is asked again. */
struct ofs_http_pace {
	const struct ofs_http *h;
	int64_t since, told; /* ms */
	unsigned tries;
	/* Nobody ever was there: it is not worth the whole timeout, since the
	 * address may be wrong. */
	bool brief;
};
struct ofs_http_pace ofs_http_pace(const struct ofs_http *h);
/* Not before the answer says (Retry-After). */
void ofs_http_told(struct ofs_http_pace *p,
    const struct ofs_http_answer *answer);
/* Waits before the next try, longer each time; moved: something has come. false:
 * nothing has come for the timeout. */
bool ofs_http_wait(struct ofs_http_pace *p, bool moved);

/* Of a request that was not allowed: why it was not signed, in brackets; "". */
struct ofs_http_unsigned {
	char text[200];
};
struct ofs_http_unsigned ofs_http_unsigned(const struct ofs_http_request *q);

/* Does an answer name another region for a bucket than the one that was asked? Then
 * err says so: EINVAL (OFS923). */
bool ofs_http_other_region(const struct ofs_http_login *login,
    const struct ofs_http_answer *answer, const char *name,
    struct optimfs_error *err);

struct ofs_http_get {
	const char *url;
	const char *name; /* of what it gets, for messages */
	const struct ofs_http_login *login;
	const char *accept; /* types; NULL: any */
	/* Bytes [first, first + n), into into; n 0: all of it, into body, at
	 * most its limit. */
	uint64_t first, n;
	uint8_t *into;
	struct ofs_buf body;
	/* What the file must still be; NULL: not known yet, and what there is
	 * of the bytes suffices. */
	const struct ofs_http_version *is;
	bool once; /* not asked again: another server has it, too */
	/* The URL has a list of segments (OFS_HTTP_LIST), whose bytes are taken
	 * for those of a file. */
	bool list;
	/* Takes the n bytes, in order, in place of into, in a thread of the
	 * module: each once, if the answer is one to what was asked. is: what it
	 * says of the file. n 0: would there be room for more? */
	enum ofs_http_take (*take)(void *ctx, const struct ofs_http_version *is,
	    const void *p, size_t n);
	void *ctx;

	struct ofs_http_answer answer;
	struct optimfs_error err; /* code 0: it succeeded */
	uint64_t taken;           /* private: bytes that take has had */
};
/* Gets all of them at once. A server that does not answer, or not for now, is
 * asked again until nothing has come for the timeout. -1: at least one failed,
 * with: ENOENT, or EIO (OFS754) for a known file; EACCES (OFS923); EINVAL (OFS923):
 * the bucket is in the region answer.region; ESTALE (OFS751); EIO or ETIMEDOUT
 * (OFS922): no answer; EIO (OFS924): an answer to something else, or a server that
 * knows no lists. */
int ofs_http_get(const struct ofs_http *h, struct ofs_http_counters *count,
    struct ofs_http_get *g, size_t n);

#endif
