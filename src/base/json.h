/* json.h - JSON read one token at a time */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_JSON_H
#define OFS_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "base/cursor.h"
#include "base/types.h"

enum ofs_json_token {
	OFS_JSON_ERROR, /* err is filled; all later tokens are errors too */
	OFS_JSON_END,   /* the text's one value is complete */
	OFS_JSON_OBJECT,
	OFS_JSON_OBJECT_END,
	OFS_JSON_ARRAY,
	OFS_JSON_ARRAY_END,
	OFS_JSON_KEY, /* str; the token of its value follows */
	OFS_JSON_STRING,
	OFS_JSON_NUMBER,
	OFS_JSON_TRUE,
	OFS_JSON_FALSE,
	OFS_JSON_NULL,
};

#define OFS_JSON_DEPTH 64

/* A strict reader (RFC 8259) over borrowed bytes: one value with white space
 * around it. Strings must be UTF-8. Duplicate keys are passed on, so that a
 * caller can refuse them. */
struct ofs_json {
	struct ofs_cursor c;
	const uint8_t *start;
	uint64_t at; /* offset of the last token */
	/* KEY or STRING: the text, in which a lone surrogate escape is three
	 * bytes. NUMBER: its digits as written. Valid until the next token. */
	struct ofs_str str;
	bool is_int;     /* an integer NUMBER that fits */
	int64_t integer; /* its value */
	struct ofs_buf text;
	bool floats;      /* accept NaN, Infinity and -Infinity as numbers */
	uint64_t objects; /* bit i: level i is an object, not an array */
	uint8_t depth, state;
};

void ofs_json_init(struct ofs_json *j, const void *p, uint32_t n);
void ofs_json_fini(struct ofs_json *j);

/* The next token. Errors are EUCLEAN with OFS653 and the offset, or ENOMEM. */
enum ofs_json_token ofs_json_next(struct ofs_json *j,
    struct optimfs_error *err);
/* Skip the value that begins with token, the last one read. */
int ofs_json_skip(struct ofs_json *j, enum ofs_json_token token,
    struct optimfs_error *err);
/* Fail with OFS653 and the offset of the current token. */
int ofs_json_fail(const struct ofs_json *j, struct optimfs_error *err,
    const char *what);

#endif
