/* send.h - requests that change what a server has */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_SEND_H
#define OFS_STORE_HTTP_SEND_H

#include "store/http/client.h"

struct ofs_http_send {
	const char *method;
	const char *url;
	const char *name; /* of what it is about, for messages */
	const struct ofs_http_login *login;
	const void *bytes; /* NULL: none belong to it */
	uint64_t n;
	struct ofs_buf body; /* of the answer, at most its limit; 0: 64 KiB */

	struct ofs_http_answer answer;
	int status;
	struct optimfs_error err; /* code 0: it succeeded */
	char digest[65];          /* private */
	bool renewed;             /* private: keys that had expired */
};
/* Sends n requests at once, and each again until it is answered, as
 * ofs_http_get. Each can be repeated without harm. -1: at least one failed, with:
 * ENOENT: there is no such thing; EACCES (OFS923); EIO or ETIMEDOUT (OFS922). The
 * bodies are the caller's. */
int ofs_http_send(const struct ofs_http *h, struct ofs_http_counters *count,
    struct ofs_http_send *s, size_t n);

#endif
