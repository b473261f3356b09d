/* json_write.h - JSON into a buffer: quotes, commas and escapes */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_JSON_WRITE_H
#define OFS_BASE_JSON_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/types.h"

/* Where one value after another goes to. The writer puts commas and colons; the
 * buffer's bad says at the end whether all went well. */
struct ofs_json_writer {
	struct ofs_buf *b;
	/* What stands behind a comma, and where it is not empty a blank behind
	 * a colon. One that begins a line stands before the first value too. */
	const char *gap;
	bool more; /* a value stands before the next one */
};

/* Each of these writes one value: a member called key, or where key is NULL an
 * element of an array, or the document. */

/* '{' or '['; what comes next is inside. */
void ofs_json_open(struct ofs_json_writer *w, const char *key, char bracket);
void ofs_json_close(struct ofs_json_writer *w, char bracket);
/* NULL is written as null. */
void ofs_json_put_string(struct ofs_json_writer *w, const char *key,
    const char *s);
void ofs_json_put_str(struct ofs_json_writer *w, const char *key,
    struct ofs_str s);
void ofs_json_put_u64(struct ofs_json_writer *w, const char *key, uint64_t v);
void ofs_json_put_i64(struct ofs_json_writer *w, const char *key, int64_t v);
/* null where v is negative. */
void ofs_json_put_rank(struct ofs_json_writer *w, const char *key, int64_t v);
void ofs_json_put_bool(struct ofs_json_writer *w, const char *key, bool v);
/* null where v is not finite. */
void ofs_json_put_real(struct ofs_json_writer *w, const char *key, double v);
/* "OFS603"; null for 0. */
void ofs_json_put_code(struct ofs_json_writer *w, const char *key, int number);
/* What is JSON already. */
void ofs_json_put_raw(struct ofs_json_writer *w, const char *key,
    const char *json);
void ofs_json_put_numbers(struct ofs_json_writer *w, const char *key,
    const uint64_t *v, size_t n);

/* A string with its quotes, by itself. */
void ofs_json_quote(struct ofs_buf *b, const void *s, size_t n);

#endif
