/* npy.c - the header of a NumPy array */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/checked.h"
#include "base/cursor.h"
#include "base/str.h"

/* The magic, a version, a length, then a Python dict with three members:
 *
 *     {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }
 *
 * padded with spaces. NumPy evaluates the dict; here it is parsed as data. */

int ofs_npy_length(const uint8_t *p, uint64_t n, uint32_t *length,
    struct optimfs_error *err)
{
	struct ofs_cursor c = ofs_cursor_of(p, n);
	const uint8_t *magic = ofs_cursor_take(&c, OFS_NPY_MAGIC_LEN);
	const uint8_t *version = ofs_cursor_take(&c, 2);
	uint32_t len;

	if (c.bad || memcmp(magic, OFS_NPY_MAGIC, OFS_NPY_MAGIC_LEN) != 0)
		return optimfs_fail(err, EUCLEAN,
		    "OFS664 not a NumPy array: it does not begin like one");
	if (version[0] < 1 || version[0] > 3 || version[1] != 0)
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS665 a NumPy array of version %u.%u", version[0],
		    version[1]);
	len = version[0] == 1 ? ofs_cursor_le16(&c) : ofs_cursor_le32(&c);
	if (c.bad || len > OFS_NPY_HEADER_MAX - 12)
		return optimfs_fail(err, EUCLEAN, "OFS664 a header of %u bytes",
		    len);
	*length = (uint32_t)(c.p - p) + len;
	return 0;
}

struct parser {
	const char *p, *end;
	bool bad;
};

static void skip_space(struct parser *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\n'))
		s->p++;
}

/* Consumes c if it is the next character. */
static bool take(struct parser *s, char c)
{
	skip_space(s);
	if (s->p == s->end || *s->p != c)
		return false;
	s->p++;
	return true;
}

static void want(struct parser *s, char c)
{
	if (!take(s, c))
		s->bad = true;
}

static bool take_word(struct parser *s, const char *word)
{
	size_t n = strlen(word);

	skip_space(s);
	if ((size_t)(s->end - s->p) < n || memcmp(s->p, word, n) != 0)
		return false;
	s->p += n;
	return true;
}

/* Without escapes: neither keys nor types need them. */
static struct ofs_str take_string(struct parser *s)
{
	char quote = take(s, '\'') ? '\'' : '"';
	struct ofs_str str = { "", 0 };

	if (quote == '"')
		want(s, '"');
	str.p = s->p;
	while (s->p < s->end && *s->p != quote && *s->p != '\\')
		s->p++;
	str.len = (uint32_t)(s->p - str.p);
	want(s, quote);
	return str;
}

static uint64_t take_number(struct parser *s)
{
	struct ofs_str left;
	uint64_t v = 0;

	skip_space(s);
	left = (struct ofs_str){ s->p, (uint32_t)(s->end - s->p) };
	if (!ofs_str_take_number(&left, &v))
		s->bad = true;
	s->p = left.p;
	if (s->p < s->end && *s->p == 'L') /* Python 2 */
		s->p++;
	return v;
}

static void take_shape(struct parser *s, struct ofs_npy *npy)
{
	want(s, '(');
	npy->ndim = 0;
	while (!s->bad && !take(s, ')')) {
		if (npy->ndim == OFS_MAX_DIMS) {
			s->bad = true;
			return;
		}
		npy->shape[npy->ndim++] = take_number(s);
		if (!take(s, ',')) {
			if (npy->ndim == 1)
				s->bad = true; /* (2) is not a tuple */
			want(s, ')');
			return;
		}
	}
}

static bool take_bool(struct parser *s)
{
	if (take_word(s, "True"))
		return true;
	if (!take_word(s, "False"))
		s->bad = true;
	return false;
}

/* "<f4": byte order and type. */
static int set_type(struct ofs_npy *npy, struct ofs_str descr,
    enum ofs_dtype as, struct optimfs_error *err)
{
	const char *known = ofs_dtype_npy(as);

	/* '=' means the order of the writing machine, which is unknown */
	if (descr.len > 0 && memchr("<>|", descr.p[0], 3) != NULL)
		npy->dtype = ofs_dtype_of_npy(descr, &npy->swap);
	/* NumPy's own bytes have no order, and ml_dtypes has one type of two
	 * bytes */
	if (ofs_str_is(descr, "<V2"))
		npy->dtype = OFS_BFLOAT16;
	if (known != NULL && ofs_str_is(descr, known))
		npy->dtype = as;
	if (npy->dtype != OFS_DTYPE_NONE)
		return 0;
	if (descr.len > 2 && descr.p[1] == 'V')
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS665 a NumPy array of type '%.*s', which does not say "
		    "what its bytes are",
		    OFS_STR_ARGS(descr, 40));
	return optimfs_fail(err, EOPNOTSUPP,
	    "OFS665 a NumPy array of type '%.*s'", OFS_STR_ARGS(descr, 40));
}

static int set_bytes(struct ofs_npy *npy, struct optimfs_error *err)
{
	npy->bytes = ofs_dtype_size(npy->dtype);
	for (unsigned i = 0; i < npy->ndim; i++)
		if (!ofs_mul_u64(npy->bytes, npy->shape[i], &npy->bytes))
			return optimfs_fail(err, EUCLEAN,
			    "OFS664 the shape of a NumPy array overflows");
	return 0;
}

int ofs_npy_parse(struct ofs_npy *npy, const uint8_t *p, uint32_t length,
    enum ofs_dtype as, struct optimfs_error *err)
{
	struct parser s = { (const char *)p + (p[6] == 1 ? 10 : 12),
		(const char *)p + length, false };
	struct ofs_str descr = { "", 0 };
	unsigned seen = 0, member;

	*npy = (struct ofs_npy){ 0 };
	want(&s, '{');
	while (!s.bad && !take(&s, '}')) {
		struct ofs_str key = take_string(&s);

		want(&s, ':');
		member = ofs_str_is(key, "descr")      ? 1
		    : ofs_str_is(key, "fortran_order") ? 2
		    : ofs_str_is(key, "shape")         ? 4
						       : 0;
		if (s.bad || member == 0 || (seen & member) != 0) {
			s.bad = true;
			break;
		}
		seen |= member;
		skip_space(&s);
		/* a record type has a list of fields */
		if (member == 1 && s.p < s.end && *s.p == '[')
			return optimfs_fail(err, EOPNOTSUPP,
			    "OFS665 a NumPy array of records");
		if (member == 1)
			descr = take_string(&s);
		else if (member == 2)
			npy->fortran = take_bool(&s);
		else
			take_shape(&s, npy);
		if (!take(&s, ',')) {
			want(&s, '}');
			break;
		}
	}
	skip_space(&s);
	if (s.bad || seen != 7 || s.p != s.end)
		return optimfs_fail(err, EUCLEAN,
		    "OFS664 the header of a NumPy array is damaged");
	return set_type(npy, descr, as, err) == -1 ? -1 : set_bytes(npy, err);
}

/* Version 1.0: magic, length of the text, text. Spaces pad the text so that the
 * elements start at a multiple of 64. */
void ofs_npy_header(enum ofs_dtype dtype, const uint64_t *shape, unsigned ndim,
    struct ofs_buf *out)
{
	size_t len;

	ofs_buf_put(out, "\x93NUMPY\x01\x00\x00\x00", 10);
	ofs_buf_printf(out,
	    "{'descr': '%s', 'fortran_order': False, 'shape': (",
	    ofs_dtype_npy(dtype));
	for (unsigned d = 0; d < ndim; d++)
		ofs_buf_printf(out, "%s%" PRIu64 "%s", d == 0 ? "" : " ",
		    shape[d], d + 1 < ndim || d == 0 ? "," : "");
	ofs_buf_puts(out, "), }");
	while (out->len % 64 != 63 && !out->bad)
		ofs_buf_putc(out, ' ');
	ofs_buf_putc(out, '\n');
	if (out->bad)
		return;
	len = out->len - 10;
	out->data[8] = (uint8_t)len;
	out->data[9] = (uint8_t)(len >> 8);
}
