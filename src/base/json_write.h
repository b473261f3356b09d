/* json_write.h - JSON into a buffer: quotes, commas and escapes */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_JSON_WRITE_H
#define OFS_BASE_JSON_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/types.h"

/* Writes values one after another, with commas and colons. Errors are kept in
 * the buffer's bad, which is tested at the end. */
struct ofs_json_writer {
	struct ofs_buf *b;
	/* Written after each comma. Where it is not empty, a blank follows each
	 * colon. One that begins with a newline is also written before the
	 * first value. */
	const char *gap;
	bool more; /* a comma must precede the next value */
};

/* Each function below writes one value: a member named key, or with key NULL an
 * array element or the document. */

/* bracket is '{' or '['. The values that follow are inside, until close. */
void ofs_json_open(struct ofs_json_writer *w, const char *key, char bracket);
void ofs_json_close(struct ofs_json_writer *w, char bracket);
/* NULL is written as null. */
void ofs_json_put_string(struct ofs_json_writer *w, const char *key,
    const char *s);
void ofs_json_put_str(struct ofs_json_writer *w, const char *key,
    struct ofs_str s);
void ofs_json_put_u64(struct ofs_json_writer *w, const char *key, uint64_t v);
void ofs_json_put_i64(struct ofs_json_writer *w, const char *key, int64_t v);
/* A negative v is written as null. */
void ofs_json_put_rank(struct ofs_json_writer *w, const char *key, int64_t v);
void ofs_json_put_bool(struct ofs_json_writer *w, const char *key, bool v);
/* v is written as null when it is not finite. */
void ofs_json_put_real(struct ofs_json_writer *w, const char *key, double v);
/* "OFS603"; 0 is written as null. */
void ofs_json_put_code(struct ofs_json_writer *w, int number);
/* json is JSON already. */
void ofs_json_put_raw(struct ofs_json_writer *w, const char *key,
    const char *json);
void ofs_json_put_numbers(struct ofs_json_writer *w, const char *key,
    const uint64_t *v, size_t n);

/* A string with its quotes, without a writer. */
void ofs_json_quote(struct ofs_buf *b, const void *s, size_t n);

#endif
