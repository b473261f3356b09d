/* json.c - JSON read one token at a time */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/json.h"

#include <errno.h>
#include <inttypes.h>

#include "base/memory.h"
#include "base/utf8.h"

/* The states: what may come next. */
enum {
	VALUE,       /* a value */
	FIRST_KEY,   /* a key or the end of the object */
	NEXT_KEY,    /* a key: a comma was read */
	FIRST_ITEM,  /* a value or the end of the array */
	AFTER_VALUE, /* a comma or the end of the enclosing value */
	AT_END,      /* white space only */
	BROKEN,
};

void ofs_json_init(struct ofs_json *j, const void *p, uint32_t n)
{
	*j = (struct ofs_json){
		.c = ofs_cursor_of(p, n),
		.start = p,
		.state = VALUE,
	};
}

void ofs_json_fini(struct ofs_json *j)
{
	ofs_buf_fini(&j->text);
}

static uint64_t here(const struct ofs_json *j)
{
	return (uint64_t)(j->c.p - j->start);
}

static int fail_at(uint64_t at, struct optimfs_error *err, const char *what)
{
	return optimfs_fail(err, EUCLEAN, "OFS653 JSON at byte %" PRIu64 ": %s",
	    at, what);
}

int ofs_json_fail(const struct ofs_json *j, struct optimfs_error *err,
    const char *what)
{
	return fail_at(j->at, err, what);
}

static enum ofs_json_token broken(struct ofs_json *j, struct optimfs_error *err,
    const char *what)
{
	j->state = BROKEN;
	fail_at(here(j), err, what);
	return OFS_JSON_ERROR;
}

/* The next byte, which is not consumed; -1 at the end. */
static int peek(const struct ofs_json *j)
{
	return ofs_cursor_left(&j->c) == 0 ? -1 : *j->c.p;
}

static void skip_space(struct ofs_json *j)
{
	int c;

	while ((c = peek(j)) == ' ' || c == '\t' || c == '\n' || c == '\r')
		ofs_cursor_u8(&j->c);
}

static int hex4(struct ofs_json *j, uint32_t *out)
{
	const uint8_t *p = ofs_cursor_take(&j->c, 4);
	uint32_t v = 0;

	if (p == NULL)
		return -1;
	for (int i = 0; i < 4; i++) {
		int lower = p[i] | 0x20;

		if (p[i] >= '0' && p[i] <= '9')
			v = v << 4 | (uint32_t)(p[i] - '0');
		else if (lower >= 'a' && lower <= 'f')
			v = v << 4 | (uint32_t)(lower - 'a' + 10);
		else
			return -1;
	}
	*out = v;
	return 0;
}

static void put_utf8(struct ofs_buf *b, uint32_t v)
{
	if (v < 0x80) {
		ofs_buf_putc(b, (int)v);
		return;
	}
	if (v < 0x800) {
		ofs_buf_putc(b, (int)(0xc0 | v >> 6));
	} else if (v < 0x10000) {
		ofs_buf_putc(b, (int)(0xe0 | v >> 12));
		ofs_buf_putc(b, (int)(0x80 | (v >> 6 & 0x3f)));
	} else {
		ofs_buf_putc(b, (int)(0xf0 | v >> 18));
		ofs_buf_putc(b, (int)(0x80 | (v >> 12 & 0x3f)));
		ofs_buf_putc(b, (int)(0x80 | (v >> 6 & 0x3f)));
	}
	ofs_buf_putc(b, (int)(0x80 | (v & 0x3f)));
}

/* The character of an escape, behind "\u". A high surrogate is combined with
 * the low one that follows; a lone one is returned as it is. */
static int unicode_escape(struct ofs_json *j)
{
	uint32_t v, low;
	struct ofs_cursor before;

	if (hex4(j, &v) == -1)
		return -1;
	before = j->c;
	if (v >= 0xd800 && v < 0xdc00 && ofs_cursor_left(&j->c) >= 6 &&
	    j->c.p[0] == '\\' && j->c.p[1] == 'u') {
		ofs_cursor_take(&j->c, 2);
		if (hex4(j, &low) == -1)
			return -1;
		if (low >= 0xdc00 && low < 0xe000)
			v = 0x10000 + ((v - 0xd800) << 10) + (low - 0xdc00);
		else
			j->c = before;
	}
	put_utf8(&j->text, v);
	return 0;
}

static int escape(struct ofs_json *j)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	int c = ofs_cursor_u8(&j->c);
	const char *at;

	if (c == 'u')
		return unicode_escape(j);
	if (c == 0 || (at = strchr(from, c)) == NULL)
		return -1;
	ofs_buf_putc(&j->text, to[at - from]);
	return 0;
}

/* Read a string behind its first quote. Without escapes it is borrowed from the
 * input, else it is built in text. */
static enum ofs_json_token string(struct ofs_json *j, enum ofs_json_token token,
    struct optimfs_error *err)
{
	const uint8_t *run = j->c.p;
	bool built = false;
	size_t n;
	int c;

	j->text.len = 0;
	while ((c = peek(j)) != '"') {
		if (c < 0x20)
			return broken(j, err,
			    c == -1 ? "unterminated string"
				    : "control character in a string");
		if (c == '\\') {
			ofs_buf_put(&j->text, run, (size_t)(j->c.p - run));
			built = true;
			ofs_cursor_u8(&j->c);
			if (escape(j) == -1)
				return broken(j, err, "bad escape");
			run = j->c.p;
			continue;
		}
		n = c < 0x80
		    ? 1
		    : ofs_utf8_length(j->c.p, (size_t)ofs_cursor_left(&j->c));
		if (n == 0)
			return broken(j, err, "not UTF-8");
		ofs_cursor_take(&j->c, n);
	}
	if (built) {
		ofs_buf_put(&j->text, run, (size_t)(j->c.p - run));
		ofs_buf_putc(&j->text, 0);
	}
	if (j->text.bad) {
		j->state = BROKEN;
		ofs_no_memory(err);
		return OFS_JSON_ERROR;
	}
	j->str = (struct ofs_str){
		built ? (const char *)j->text.data : (const char *)run,
		built ? (uint32_t)j->text.len - 1 : (uint32_t)(j->c.p - run),
	};
	ofs_cursor_u8(&j->c);
	return token;
}

static size_t digits(struct ofs_json *j)
{
	size_t n = 0;
	int c;

	while ((c = peek(j)) >= '0' && c <= '9') {
		ofs_cursor_u8(&j->c);
		n++;
	}
	return n;
}

static bool take_if(struct ofs_json *j, int c)
{
	if (peek(j) != c)
		return false;
	ofs_cursor_u8(&j->c);
	return true;
}

/* Parse text[0..n), an optional sign and digits; false when it does not fit. */
static bool parse_int(const char *text, size_t n, int64_t *out)
{
	bool negative = text[0] == '-';
	int64_t v = 0;

	for (size_t i = negative; i < n; i++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_sub_overflow(v, text[i] - '0', &v))
			return false;
	if (!negative && v == INT64_MIN)
		return false;
	*out = negative ? v : -v;
	return true;
}

static enum ofs_json_token number(struct ofs_json *j, struct optimfs_error *err)
{
	const uint8_t *first = j->c.p;
	bool integral = true;
	size_t n;

	take_if(j, '-');
	if (!take_if(j, '0') && digits(j) == 0)
		return broken(j, err, "expected a value");
	if (take_if(j, '.')) {
		integral = false;
		if (digits(j) == 0)
			return broken(j, err, "number without digits");
	}
	if (take_if(j, 'e') || take_if(j, 'E')) {
		integral = false;
		if (!take_if(j, '-'))
			take_if(j, '+');
		if (digits(j) == 0)
			return broken(j, err, "number without digits");
	}
	n = (size_t)(j->c.p - first);
	j->str = (struct ofs_str){ (const char *)first, (uint32_t)n };
	j->is_int = integral && parse_int(j->str.p, n, &j->integer);
	return OFS_JSON_NUMBER;
}

/* The numbers that Python writes and RFC 8259 does not have. */
static enum ofs_json_token odd_number(struct ofs_json *j)
{
	static const char *const odd[] = { "NaN", "Infinity", "-Infinity" };

	for (size_t i = 0; j->floats && i < sizeof(odd) / sizeof(odd[0]); i++) {
		size_t n = strlen(odd[i]);

		if (ofs_cursor_left(&j->c) < n ||
		    memcmp(j->c.p, odd[i], n) != 0)
			continue;
		j->str = (struct ofs_str){ (const char *)j->c.p, (uint32_t)n };
		j->is_int = false;
		ofs_cursor_take(&j->c, n);
		return OFS_JSON_NUMBER;
	}
	return OFS_JSON_ERROR;
}

static enum ofs_json_token word(struct ofs_json *j, struct optimfs_error *err)
{
	static const struct {
		const char *text;
		size_t n;
		enum ofs_json_token token;
	} words[] = {
		{ "true", 4, OFS_JSON_TRUE },
		{ "false", 5, OFS_JSON_FALSE },
		{ "null", 4, OFS_JSON_NULL },
	};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (ofs_cursor_left(&j->c) >= words[i].n &&
		    memcmp(j->c.p, words[i].text, words[i].n) == 0) {
			ofs_cursor_take(&j->c, words[i].n);
			return words[i].token;
		}
	return broken(j, err, "expected a value");
}

static enum ofs_json_token open_level(struct ofs_json *j, bool object,
    struct optimfs_error *err)
{
	if (j->depth == OFS_JSON_DEPTH)
		return broken(j, err, "depth over 64");
	ofs_cursor_u8(&j->c);
	j->objects &= ~(UINT64_C(1) << j->depth);
	j->objects |= (uint64_t)object << j->depth;
	j->depth++;
	j->state = object ? FIRST_KEY : FIRST_ITEM;
	return object ? OFS_JSON_OBJECT : OFS_JSON_ARRAY;
}

static bool in_object(const struct ofs_json *j)
{
	return j->depth > 0 && (j->objects >> (j->depth - 1) & 1) != 0;
}

static enum ofs_json_token close_level(struct ofs_json *j)
{
	bool object = in_object(j);

	ofs_cursor_u8(&j->c);
	j->depth--;
	j->state = j->depth == 0 ? AT_END : AFTER_VALUE;
	return object ? OFS_JSON_OBJECT_END : OFS_JSON_ARRAY_END;
}

static enum ofs_json_token value(struct ofs_json *j, struct optimfs_error *err)
{
	enum ofs_json_token token;
	int c = peek(j);

	if (c == '{' || c == '[')
		return open_level(j, c == '{', err);
	if (c == '"') {
		ofs_cursor_u8(&j->c);
		token = string(j, OFS_JSON_STRING, err);
	} else if (odd_number(j) == OFS_JSON_NUMBER) {
		token = OFS_JSON_NUMBER;
	} else if (c == '-' || (c >= '0' && c <= '9')) {
		token = number(j, err);
	} else {
		token = word(j, err);
	}
	if (token != OFS_JSON_ERROR)
		j->state = j->depth == 0 ? AT_END : AFTER_VALUE;
	return token;
}

static enum ofs_json_token key(struct ofs_json *j, struct optimfs_error *err)
{
	enum ofs_json_token token;

	if (!take_if(j, '"'))
		return broken(j, err, "expected a key");
	token = string(j, OFS_JSON_KEY, err);
	if (token == OFS_JSON_ERROR)
		return token;
	skip_space(j);
	if (!take_if(j, ':'))
		return broken(j, err, "expected ':'");
	j->state = VALUE;
	return token;
}

enum ofs_json_token ofs_json_next(struct ofs_json *j, struct optimfs_error *err)
{
	if (j->state == BROKEN)
		return broken(j, err, "read past an error");
	skip_space(j);
	if (j->state == AFTER_VALUE) {
		if (peek(j) == (in_object(j) ? '}' : ']')) {
			j->at = here(j);
			return close_level(j);
		}
		if (!take_if(j, ','))
			return broken(j, err, "expected ',' or the end");
		j->state = in_object(j) ? NEXT_KEY : VALUE;
		skip_space(j);
	}
	j->at = here(j);
	switch (j->state) {
	case AT_END:
		if (peek(j) != -1)
			return broken(j, err, "bytes after the value");
		return OFS_JSON_END;
	case FIRST_KEY:
		if (peek(j) == '}')
			return close_level(j);
		return key(j, err);
	case NEXT_KEY:
		return key(j, err);
	case FIRST_ITEM:
		if (peek(j) == ']')
			return close_level(j);
		return value(j, err);
	default:
		return value(j, err);
	}
}

int ofs_json_skip(struct ofs_json *j, enum ofs_json_token token,
    struct optimfs_error *err)
{
	unsigned depth = j->depth;

	if (token == OFS_JSON_ERROR)
		return -1;
	if (token != OFS_JSON_OBJECT && token != OFS_JSON_ARRAY)
		return 0;
	do {
		if (ofs_json_next(j, err) == OFS_JSON_ERROR)
			return -1;
	} while (j->depth >= depth);
	return 0;
}
