/* json_write.c - JSON into a buffer */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/json_write.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/dtype.h"

void ofs_json_quote(struct ofs_buf *b, const void *s, size_t n)
{
	ofs_buf_putc(b, '"');
	ofs_buf_json(b, s, n);
	ofs_buf_putc(b, '"');
}

static void begin_value(struct ofs_json_writer *w, const char *key)
{
	if (w->more)
		ofs_buf_putc(w->b, ',');
	if (w->more || w->gap[0] == '\n')
		ofs_buf_puts(w->b, w->gap);
	w->more = true;
	if (key == NULL)
		return;
	ofs_json_quote(w->b, key, strlen(key));
	ofs_buf_puts(w->b, w->gap[0] == '\0' ? ":" : ": ");
}

void ofs_json_open(struct ofs_json_writer *w, const char *key, char bracket)
{
	begin_value(w, key);
	ofs_buf_putc(w->b, bracket);
	w->more = false;
}

void ofs_json_close(struct ofs_json_writer *w, char bracket)
{
	ofs_buf_putc(w->b, bracket);
	w->more = true;
}

void ofs_json_put_raw(struct ofs_json_writer *w, const char *key,
    const char *json)
{
	begin_value(w, key);
	ofs_buf_puts(w->b, json);
}

void ofs_json_put_str(struct ofs_json_writer *w, const char *key,
    struct ofs_str s)
{
	begin_value(w, key);
	ofs_json_quote(w->b, s.p, s.len);
}

void ofs_json_put_string(struct ofs_json_writer *w, const char *key,
    const char *s)
{
	if (s == NULL) {
		ofs_json_put_raw(w, key, "null");
		return;
	}
	begin_value(w, key);
	ofs_json_quote(w->b, s, strlen(s));
}

void ofs_json_put_u64(struct ofs_json_writer *w, const char *key, uint64_t v)
{
	begin_value(w, key);
	ofs_buf_printf(w->b, "%" PRIu64, v);
}

void ofs_json_put_i64(struct ofs_json_writer *w, const char *key, int64_t v)
{
	begin_value(w, key);
	ofs_buf_printf(w->b, "%" PRId64, v);
}

void ofs_json_put_rank(struct ofs_json_writer *w, const char *key, int64_t v)
{
	if (v < 0)
		ofs_json_put_raw(w, key, "null");
	else
		ofs_json_put_i64(w, key, v);
}

void ofs_json_put_bool(struct ofs_json_writer *w, const char *key, bool v)
{
	ofs_json_put_raw(w, key, v ? "true" : "false");
}

void ofs_json_put_real(struct ofs_json_writer *w, const char *key, double v)
{
	char text[80];

	ofs_print_double(v, text);
	ofs_json_put_raw(w, key, isfinite(v) ? text : "null");
}

void ofs_json_put_code(struct ofs_json_writer *w, int number)
{
	if (number == 0) {
		ofs_json_put_raw(w, "code", "null");
		return;
	}
	begin_value(w, "code");
	ofs_buf_printf(w->b, "\"OFS%03d\"", number);
}

void ofs_json_put_numbers(struct ofs_json_writer *w, const char *key,
    const uint64_t *v, size_t n)
{
	ofs_json_open(w, key, '[');
	for (size_t i = 0; i < n; i++)
		ofs_json_put_u64(w, NULL, v[i]);
	ofs_json_close(w, ']');
}
