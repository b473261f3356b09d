/* url.h - addresses of checkpoints on servers */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_URL_H
#define OFS_STORE_HTTP_URL_H

#include <stdbool.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "base/str.h"

/* SCHEME://HOST/PATH. The strings are parts of what was parsed. */
struct ofs_url {
	struct ofs_str scheme, host; /* with the port */
	struct ofs_str path; /* without a slash at its start and its end */
	bool is_dir;         /* there was one at its end */
};
/* EINVAL (OFS920): it has a user, a password, a query or a fragment, which a
 * message or a log would show, or no host. The path is as it was given, and is
 * not decoded. */
int ofs_url_parse(const char *text, struct ofs_url *url,
    struct optimfs_error *err);

/* Appends n bytes of a path, in which all but letters, digits and "-._~/" are
 * escaped. */
void ofs_url_escape(struct ofs_buf *b, const char *path, size_t n);
/* Decodes n bytes with escapes to out, of n + 1 bytes: a string; false: an escape
 * is not one, or stands for NUL. */
bool ofs_url_decode(const char *p, size_t n, char *out);

#endif
