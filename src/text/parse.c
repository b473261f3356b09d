/* parse.c - text that replaces a plain value: numbers, names, lines */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "text/parse.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "base/json.h"
#include "base/str.h"
#include "base/utf8.h"
#include "text/fields.h"
#include "text/id_names.h"
#include "text/leaf.h"
#include "text/parse_impl.h"
#include "text/text.h"

/* The most digits of an integer, as in Python, and bytes of a text. */
#define DIGITS_MAX 4300
#define TEXT_LIMIT (64u << 20)

/* False for binary data, such as the bytes of a tensor. */
static bool is_printable(struct ofs_str s)
{
	for (uint32_t i = 0; i < s.len;) {
		size_t k = ofs_utf8_length((const uint8_t *)s.p + i, s.len - i);

		if (k == 0 ||
		    (k == 1 && (unsigned char)s.p[i] < 0x20 &&
			memchr("\t\r\n", s.p[i], 3) == NULL))
			return false;
		i += (uint32_t)k;
	}
	return true;
}

int ofs_value_refuse(int code, struct ofs_str text, const char *what,
    struct optimfs_error *err)
{
	struct ofs_buf shown = { 0 };

	if (!is_printable(text))
		return optimfs_fail(err, code,
		    "OFS806 %" PRIu32 " bytes, not all of them characters, "
		    "are not %s",
		    text.len, what);
	ofs_buf_plain(&shown, text.p, text.len > 40 ? 40 : text.len);
	ofs_buf_putc(&shown, '\0');
	optimfs_fail(err, code, "OFS806 '%s%s' is not %s",
	    shown.bad ? "" : (char *)shown.data, text.len > 40 ? "..." : "",
	    what);
	ofs_buf_fini(&shown);
	return -1;
}

static struct ofs_str trimmed(struct ofs_str s)
{
	static const char space[] = { ' ', '\t', '\r', '\n' };

	while (s.len > 0 &&
	    memchr(space, s.p[s.len - 1], sizeof(space)) != NULL)
		s.len--;
	while (s.len > 0 && memchr(space, *s.p, sizeof(space)) != NULL)
		s = ofs_str_after(s, 1);
	return s;
}

/* The text of a file, without a final newline. */
struct ofs_str ofs_value_line(struct ofs_str s)
{
	if (s.len > 0 && s.p[s.len - 1] == '\n')
		s.len--;
	return s;
}

/* Numbers. */

/* word[0..n) = word * 10 + digit; returns the new n. */
static size_t append_digit(uint32_t *word, size_t n, uint32_t digit)
{
	uint64_t carry = digit;

	for (size_t i = 0; i < n; i++) {
		carry += (uint64_t)word[i] * 10;
		word[i] = (uint32_t)carry;
		carry >>= 32;
	}
	if (carry > 0)
		word[n++] = (uint32_t)carry;
	return n;
}

/* Write two's complement, little-endian, in the fewest bytes. */
static void put_big(struct ofs_pkw *w, struct ofs_str digits, bool minus)
{
	uint32_t word[DIGITS_MAX * 10 / 93 + 2] = { 0 };
	uint8_t le[sizeof(word)];
	size_t n = 0, len;
	unsigned carry = 1;

	for (uint32_t i = 0; i < digits.len; i++)
		n = append_digit(word, n, (uint32_t)(digits.p[i] - '0'));
	len = 4 * n + 1;
	for (size_t i = 0; i < len; i++) {
		unsigned b = word[i / 4] >> i % 4 * 8 & 0xff;

		if (minus) {
			b = (~b & 0xff) + carry;
			carry = b >> 8;
		}
		le[i] = (uint8_t)b;
	}
	while (len > 1 && le[len - 1] == (minus ? 0xff : 0) &&
	    le[len - 2] >> 7 == minus)
		len--;
	ofs_pkw_long(w, le, len);
}

int ofs_value_put_int(struct ofs_pkw *w, struct ofs_str s)
{
	bool minus = s.len > 0 && *s.p == '-';
	struct ofs_str digits = { s.p + minus, s.len - minus };
	int64_t v = 0;

	if (s.len > 0 && *s.p == '+')
		digits = (struct ofs_str){ s.p + 1, s.len - 1 };
	if (!ofs_str_all_digits(digits))
		return EINVAL;
	while (digits.len > 1 && *digits.p == '0') {
		digits.p++;
		digits.len--;
	}
	if (digits.len > DIGITS_MAX)
		return ERANGE;
	for (uint32_t i = 0; i < digits.len; i++)
		if (__builtin_mul_overflow(v, 10, &v) ||
		    __builtin_sub_overflow(v, digits.p[i] - '0', &v)) {
			put_big(w, digits, minus);
			return 0;
		}
	if (!minus && v == INT64_MIN)
		put_big(w, digits, minus);
	else
		ofs_pkw_int(w, minus ? v : -v);
	return 0;
}

static int put_float(struct ofs_pkw *w, struct ofs_str s)
{
	double v;
	int code = ofs_dtype_parse(OFS_FLOAT64, s.p, s.len, &v);

	if (code == 0)
		ofs_pkw_float(w, v);
	return code;
}

int ofs_value_put_number(struct ofs_pkw *w, struct ofs_str s, bool real)
{
	int code = real ? EINVAL : ofs_value_put_int(w, s);

	return code == EINVAL ? put_float(w, s) : code;
}

/* Write numpy.core.multiarray.scalar(dtype, bytes) with new bytes. */
static int put_numpy(struct ofs_pkw *w, const struct ofs_pickle *doc,
    uint32_t node, struct ofs_str s, struct optimfs_error *err)
{
	uint32_t args = ofs_pk_args(doc, node);
	uint8_t raw[16];
	bool swap;
	enum ofs_dtype t =
	    ofs_leaf_numpy(doc, ofs_pk_item(doc, args, 0), &swap);
	size_t size = ofs_dtype_size(t);

	if (ofs_value_element(t, s.p, s.len, raw, err) == -1)
		return -1;
	if (swap)
		ofs_swap_bytes(raw, size, ofs_dtype_swap(t));
	if (ofs_pkw_node(w, doc, ofs_pk_callable(doc, node), err) == -1 ||
	    ofs_pkw_node(w, doc, ofs_pk_item(doc, args, 0), err) == -1)
		return -1;
	ofs_pkw_bytes(w, raw, size, false);
	ofs_pkw_tuple_close(w, 2);
	ofs_pkw_op_put(w, OFS_PKW_REDUCE);
	return 0;
}

int ofs_value_put_called(struct ofs_pkw *w, const struct ofs_pickle *doc,
    uint32_t node, struct ofs_str s, struct optimfs_error *err)
{
	bool swap;
	uint32_t type = ofs_pk_item(doc, ofs_pk_args(doc, node), 0);

	if ((ofs_leaf(doc, node) == OFS_LEAF_NUMBER ||
		ofs_leaf(doc, node) == OFS_LEAF_QUOTED) &&
	    ofs_leaf_numpy(doc, type, &swap) != OFS_DTYPE_NONE)
		return put_numpy(w, doc, node, s, err);
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS820 a %s cannot be given another value",
	    ofs_pk_kind_name(doc, node));
}

int ofs_value_element(enum ofs_dtype dtype, const char *text, size_t n,
    void *element, struct optimfs_error *err)
{
	struct ofs_str s = { text, n > TEXT_LIMIT ? TEXT_LIMIT : (uint32_t)n };
	char what[64] = "a value of type ";
	int code = ofs_dtype_parse(dtype, text, n, element);

	if (code == 0)
		return 0;
	strcat(what, ofs_dtype_name(dtype));
	return ofs_value_refuse(code, ofs_value_line(s), what, err);
}

/* Whole files. */

static int put_number(struct ofs_pkw *w, const struct ofs_value_form *form,
    struct ofs_str s, struct optimfs_error *err)
{
	bool real = ofs_pk_kind(form->doc, form->node) == OFS_PK_FLOAT;
	int code = real ? put_float(w, s) : ofs_value_put_int(w, s);

	if (code == EINVAL && !real && form->option) {
		code = put_float(w, s);
		real = true;
	}
	if (code == 0)
		return 0;
	return ofs_value_refuse(code, s,
	    code == ERANGE ? "a number that fits"
		: real     ? "a number"
			   : "an integer",
	    err);
}

/* true, false or, as for options of torch.optim, null. */
static int put_bool(struct ofs_pkw *w, struct ofs_str s,
    struct optimfs_error *err)
{
	if (ofs_str_is(s, "true"))
		ofs_pkw_op(w, OFS_PKW_TRUE);
	else if (ofs_str_is(s, "false"))
		ofs_pkw_op(w, OFS_PKW_FALSE);
	else if (ofs_str_is(s, "null"))
		ofs_pkw_op(w, OFS_PKW_NONE);
	else
		return ofs_value_refuse(EINVAL, s, "true, false or null", err);
	return 0;
}

static bool is_text(struct ofs_str s)
{
	struct ofs_json j;
	struct ofs_buf quoted = { 0 };
	bool ok;

	/* JSON strings may have lone surrogates, like a str. */
	ofs_buf_putc(&quoted, '"');
	for (uint32_t i = 0; i < s.len; i++) {
		uint8_t c = (uint8_t)s.p[i];

		if (c == 0xed && s.len - i >= 3 && (uint8_t)s.p[i + 1] >= 0xa0)
			i += 2;
		else if (c >= 0x20 && c != '"' && c != '\\')
			ofs_buf_putc(&quoted, c);
	}
	ofs_buf_putc(&quoted, '"');
	ofs_json_init(&j, quoted.data, (uint32_t)quoted.len);
	ok = !quoted.bad && ofs_json_next(&j, NULL) == OFS_JSON_STRING;
	ofs_json_fini(&j);
	ofs_buf_fini(&quoted);
	return ok;
}

static int put_str(struct ofs_pkw *w, struct ofs_str s,
    struct optimfs_error *err)
{
	if (!is_text(s))
		return ofs_value_refuse(EINVAL, s, "UTF-8", err);
	ofs_pkw_str(w, s.p, s.len);
	return 0;
}

/* Pickle an item of params: a name, or the number that has this name. */
static int put_line(struct ofs_pkw *w, const struct ofs_value_form *form,
    bool numbers, struct ofs_str s, struct optimfs_error *err)
{
	uint32_t id;

	if (!numbers)
		return put_str(w, s, err);
	if (ofs_id_of_name(form->cat, form->names, s, &id)) {
		ofs_pkw_int(w, id);
		return 0;
	}
	if (ofs_value_put_int(w, s) == 0)
		return 0;
	return ofs_value_refuse(EINVAL, s, "the number of a parameter", err);
}

static int put_lines(struct ofs_pkw *w, const struct ofs_value_form *form,
    struct ofs_str s, struct optimfs_error *err)
{
	uint32_t first = ofs_pk_item(form->doc, form->node, 0);
	bool numbers = ofs_pk_kind(form->doc, first) == OFS_PK_INT;
	bool tuple = ofs_pk_kind(form->doc, form->node) == OFS_PK_TUPLE;

	if (!tuple)
		ofs_pkw_op_put(w, OFS_PKW_LIST);
	ofs_pkw_op(w, OFS_PKW_MARK);
	while (s.len > 0) {
		const char *end = memchr(s.p, '\n', s.len);
		uint32_t n = end == NULL ? s.len : (uint32_t)(end - s.p);

		if (put_line(w, form, numbers, (struct ofs_str){ s.p, n },
			err) == -1)
			return -1;
		n += end != NULL;
		s.p += n;
		s.len -= n;
	}
	if (tuple)
		ofs_pkw_tuple_close(w, 4);
	else
		ofs_pkw_op(w, OFS_PKW_APPENDS);
	return 0;
}

/* Pickle JSON as such, other text as a str. */
static int put_new(struct ofs_pkw *w, struct ofs_str s,
    struct optimfs_error *err)
{
	static const uint8_t none[] = { 0x80, 2, 'N', '.' };
	struct ofs_pickle *doc =
	    ofs_pickle_parse(none, sizeof(none), false, NULL, NULL, err);
	size_t before = w->out->len;
	struct ofs_pkw was = *w;
	int ret;

	if (doc == NULL)
		return -1;
	ret = ofs_value_put_json(w, doc, ofs_pickle_root(doc), s, err);
	ofs_pickle_free(doc);
	if (ret == 0)
		return 0;
	*w = was;
	w->out->len = before;
	return put_str(w, ofs_value_line(s), err);
}

static int put_form(struct ofs_pkw *w, const struct ofs_value_form *form,
    struct ofs_str s, struct optimfs_error *err)
{
	enum ofs_pk_kind kind = ofs_pk_kind(form->doc, form->node);
	bool array = kind == OFS_PK_BYTES &&
	    strcmp(ofs_pk_kind_name(form->doc, form->node), "bytearray") == 0;
	uint32_t fields;

	switch (kind) {
	case OFS_PK_BOOL:
		return put_bool(w, trimmed(s), err);
	case OFS_PK_INT:
	case OFS_PK_BIGINT:
	case OFS_PK_FLOAT:
		return put_number(w, form, trimmed(s), err);
	case OFS_PK_STR:
		return put_str(w, ofs_value_line(s), err);
	case OFS_PK_BYTES:
		ofs_pkw_bytes(w, s.p, s.len, array);
		return 0;
	case OFS_PK_GLOBAL:
	case OFS_PK_OBJECT:
	case OFS_PK_PERSID:
		if (ofs_is_namespace(form->doc, form->node, &fields))
			return ofs_value_put_json(w, form->doc, form->node, s,
			    err);
		return ofs_value_put_called(w, form->doc, form->node,
		    trimmed(s), err);
	default:
		if (form->lines && ofs_text_fits_lines(form->doc, form->node))
			return put_lines(w, form, s, err);
		return ofs_value_put_json(w, form->doc, form->node, s, err);
	}
}

static bool equal(const struct ofs_buf *b, struct ofs_str s)
{
	return !b->bad && b->len == s.len &&
	    (s.len == 0 || memcmp(b->data, s.p, s.len) == 0);
}

int ofs_value_prints(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_str s, struct optimfs_error *err)
{
	struct ofs_buf now = { 0 };
	int ret = ofs_text_value(doc, node, NULL, &now, err);

	if (ret == 0 && ofs_pk_kind(doc, node) != OFS_PK_BYTES)
		now.len--;
	if (ret == 0)
		ret = equal(&now, s);
	ofs_buf_fini(&now);
	return ret;
}

/* Is s the current text of the file? */
static int unchanged(const struct ofs_value_form *form, struct ofs_str s,
    struct optimfs_error *err)
{
	struct ofs_buf now = { 0 };
	int ret = 0;

	if (!form->lines ||
	    !ofs_id_names_put(form->cat, form->names, form->doc, form->node,
		&now))
		ret = ofs_text_value(form->doc, form->node,
		    &(struct ofs_text_form){ .lines = form->lines }, &now, err);
	if (ret == 0)
		ret = equal(&now, s);
	ofs_buf_fini(&now);
	return ret;
}

static int put_root(struct ofs_pkw *w, const struct ofs_value_form *form,
    struct ofs_str s, struct optimfs_error *err)
{
	int same;

	if (form->doc == NULL)
		return put_new(w, s, err);
	same = unchanged(form, s, err);
	if (same == -1)
		return -1;
	if (same == 0)
		return put_form(w, form, s, err);
	if (ofs_pkw_node(w, form->doc, form->node, err) == 0)
		return 0;
	/* an object that is not copied stays as it is */
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS820 a %s cannot be given another value",
	    ofs_pk_kind_name(form->doc, form->node));
}

/* The program would unpack it into as many names as it had. */
static int check_length(const struct ofs_value_form *form,
    const struct ofs_pickle *now, struct optimfs_error *err)
{
	uint32_t had, has;

	if (!form->option || form->lines ||
	    ofs_pk_kind(form->doc, form->node) != OFS_PK_TUPLE)
		return 0;
	had = ofs_pk_len(form->doc, form->node);
	has = ofs_pk_len(now, ofs_pickle_root(now));
	if (had == has)
		return 0;
	return optimfs_fail(err, EINVAL,
	    "OFS806 a list of %" PRIu32 " cannot replace a tuple of %" PRIu32,
	    has, had);
}

struct ofs_pickle *ofs_value_edit(const struct ofs_value_form *form,
    const char *text, size_t n, struct optimfs_error *err)
{
	struct ofs_buf out = { 0 };
	struct ofs_pkw w = { .out = &out };
	struct ofs_pickle *doc;
	int ret;

	if (n > TEXT_LIMIT) {
		optimfs_fail(err, E2BIG, "OFS806 a value of %zu bytes", n);
		return NULL;
	}
	ofs_pkw_begin(&w);
	ret = put_root(&w, form, (struct ofs_str){ text, (uint32_t)n }, err);
	if (ret == -1 || ofs_pkw_end(&w, err) == -1) {
		ofs_buf_fini(&out);
		return NULL;
	}
	doc = ofs_pickle_parse(out.data, out.len, true, NULL, NULL, err);
	if (doc == NULL || check_length(form, doc, err) == 0)
		return doc;
	ofs_pickle_free(doc);
	return NULL;
}
