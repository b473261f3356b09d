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
	OFS_JSON_ERROR, /* err says what; every later token is an error too */
	OFS_JSON_END,   /* the one value of the text is complete */
	OFS_JSON_OBJECT,
	OFS_JSON_OBJECT_END,
	OFS_JSON_ARRAY,
	OFS_JSON_ARRAY_END,
	OFS_JSON_KEY, /* str; the value's token follows */
	OFS_JSON_STRING,
	OFS_JSON_NUMBER,
	OFS_JSON_TRUE,
	OFS_JSON_FALSE,
	OFS_JSON_NULL,
};

#define OFS_JSON_DEPTH 64

/* A strict reader (RFC 8259) over borrowed bytes: one value, white space
 * around it, nothing else. Strings must be UTF-8. Keys come as they stand, so
 * that a caller who must refuse duplicates sees both. */
struct ofs_json {
	struct ofs_cursor c;
	const uint8_t *start;
	uint64_t at; /* offset of the token that was read last */
	/* Of a KEY or STRING: the text, a lone surrogate escape as three
	 * bytes; of a NUMBER: its digits as written. Good until the next
	 * token. */
	struct ofs_str str;
	bool is_int;     /* a NUMBER without fraction and exponent that fits */
	int64_t integer; /* then this */
	struct ofs_buf text;
	bool floats;      /* NaN, Infinity and -Infinity are numbers too */
	uint64_t objects; /* bit i: level i is an object */
	uint8_t depth, state;
};

void ofs_json_init(struct ofs_json *j, const void *p, uint32_t n);
void ofs_json_fini(struct ofs_json *j);

/* The next token. Errors are EUCLEAN with OFS653 and the byte, or ENOMEM. */
enum ofs_json_token ofs_json_next(struct ofs_json *j,
    struct optimfs_error *err);
/* Read past the value that begins with token, which was just read. */
int ofs_json_skip(struct ofs_json *j, enum ofs_json_token token,
    struct optimfs_error *err);
/* Fail with OFS653 at the current token. */
int ofs_json_fail(const struct ofs_json *j, struct optimfs_error *err,
    const char *what);

#endif
