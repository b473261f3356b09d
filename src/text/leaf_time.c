/* leaf_time.c - dates, times and ranges as text */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "text/leaf_time.h"

#include <inttypes.h>
#include <stdlib.h>

#include "catalog/catalog.h"

/* datetime packs its numbers into bytes (Modules/_datetimemodule.c of CPython
 * 3.13, _getstate): two of the year, month, day; hour, minute, second; three of
 * the microsecond. The first bit of the month, or of the hour of a time, is the
 * fold. A time zone follows as another argument. */

static uint32_t arg(const struct ofs_pickle *doc, uint32_t node, uint32_t i)
{
	return ofs_pk_item(doc, ofs_pk_args(doc, node), i);
}

static uint32_t nargs(const struct ofs_pickle *doc, uint32_t node)
{
	return ofs_pk_len(doc, ofs_pk_args(doc, node));
}

/* timedelta(days, seconds, microseconds) */
static bool delta_of(const struct ofs_pickle *doc, uint32_t node, int64_t v[3])
{
	if (ofs_pk_kind(doc, node) != OFS_PK_OBJECT ||
	    !ofs_pk_is(doc, node, "datetime", "timedelta") ||
	    nargs(doc, node) != 3)
		return false;
	for (uint32_t i = 0; i < 3; i++)
		if (!ofs_pk_int(doc, arg(doc, node, i), &v[i]))
			return false;
	return v[0] > -1000000000 && v[0] < 1000000000 && v[1] >= 0 &&
	    v[1] < 86400 && v[2] >= 0 && v[2] < 1000000;
}

static void put_micro(struct ofs_buf *out, int64_t us)
{
	if (us != 0)
		ofs_buf_printf(out, ".%06" PRId64, us);
}

/* "1 day, 0:00:03" */
static void put_delta(struct ofs_buf *out, const int64_t v[3])
{
	if (v[0] != 0)
		ofs_buf_printf(out, "%" PRId64 " day%s, ", v[0],
		    v[0] == 1 || v[0] == -1 ? "" : "s");
	ofs_buf_printf(out, "%" PRId64 ":%02" PRId64 ":%02" PRId64, v[1] / 3600,
	    v[1] / 60 % 60, v[1] % 60);
	put_micro(out, v[2]);
}

/* timezone(timedelta[, name]): its distance from UTC in minutes. */
static bool zone_of(const struct ofs_pickle *doc, uint32_t node,
    int64_t *minutes)
{
	int64_t v[3];

	if (ofs_pk_kind(doc, node) != OFS_PK_OBJECT ||
	    !ofs_pk_is(doc, node, "datetime", "timezone") ||
	    !delta_of(doc, arg(doc, node, 0), v) || v[1] % 60 != 0 ||
	    v[2] != 0 || v[0] < -1 || v[0] > 0)
		return false;
	*minutes = v[0] * 1440 + v[1] / 60;
	return true;
}

static void put_zone(struct ofs_buf *out, int64_t minutes)
{
	int64_t n = llabs(minutes);

	ofs_buf_printf(out, "%c%02" PRId64 ":%02" PRId64,
	    minutes < 0 ? '-' : '+', n / 60, n % 60);
}

static void put_date(struct ofs_buf *out, const uint8_t *p)
{
	ofs_buf_printf(out, "%04d-%02d-%02d", p[0] << 8 | p[1], p[2] & 0x7f,
	    p[3]);
}

static void put_time(struct ofs_buf *out, const uint8_t *p)
{
	ofs_buf_printf(out, "%02d:%02d:%02d", p[0] & 0x7f, p[1], p[2]);
	put_micro(out, p[3] << 16 | p[4] << 8 | p[5]);
}

/* A date, a time, or both, of n packed bytes, with a zone or without. */
static bool packed(const struct ofs_pickle *doc, uint32_t node, uint32_t n,
    struct ofs_buf *out)
{
	struct ofs_str s = ofs_pk_str(doc, arg(doc, node, 0));
	const uint8_t *p = (const uint8_t *)s.p;
	bool zoned = nargs(doc, node) == 2;
	int64_t minutes = 0;

	if (ofs_pk_kind(doc, arg(doc, node, 0)) != OFS_PK_BYTES || s.len != n ||
	    nargs(doc, node) > 2 ||
	    (zoned && !zone_of(doc, arg(doc, node, 1), &minutes)))
		return false;
	if (out == NULL)
		return true;
	if (n != 6)
		put_date(out, p);
	if (n == 10)
		ofs_buf_putc(out, ' ');
	if (n != 4)
		put_time(out, p + (n - 6));
	if (zoned)
		put_zone(out, minutes);
	return true;
}

bool ofs_leaf_time(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out)
{
	int64_t v[3], minutes;

	if (ofs_pk_is(doc, node, "datetime", "datetime"))
		return packed(doc, node, 10, out);
	if (ofs_pk_is(doc, node, "datetime", "date"))
		return packed(doc, node, 4, out);
	if (ofs_pk_is(doc, node, "datetime", "time"))
		return packed(doc, node, 6, out);
	if (delta_of(doc, node, v)) {
		if (out != NULL)
			put_delta(out, v);
		return true;
	}
	if (!zone_of(doc, node, &minutes) || nargs(doc, node) != 1)
		return false;
	if (out != NULL) {
		ofs_buf_puts(out, "UTC");
		if (minutes != 0)
			put_zone(out, minutes);
	}
	return true;
}

bool ofs_leaf_range(const struct ofs_pickle *doc, uint32_t node,
    struct ofs_buf *out)
{
	static const char *const modules[] = { "builtins", "__builtin__" };
	const char *name = NULL;
	int64_t v;

	for (int i = 0; i < 2; i++) {
		if (ofs_pk_is(doc, node, modules[i], "range") ||
		    ofs_pk_is(doc, node, modules[i], "xrange"))
			name = "range";
		if (ofs_pk_is(doc, node, modules[i], "slice"))
			name = "slice";
	}
	if (name == NULL || nargs(doc, node) != 3)
		return false;
	for (uint32_t i = 0; i < 3; i++)
		if (!ofs_pk_int(doc, arg(doc, node, i), &v) &&
		    ofs_pk_kind(doc, arg(doc, node, i)) != OFS_PK_NONE)
			return false;
	if (out == NULL)
		return true;
	for (uint32_t i = 0; i < 3; i++) {
		ofs_buf_printf(out, "%s%s", i == 0 ? name : ", ",
		    i == 0 ? "(" : "");
		if (ofs_pk_int(doc, arg(doc, node, i), &v))
			ofs_buf_printf(out, "%" PRId64, v);
		else
			ofs_buf_puts(out, "None");
	}
	ofs_buf_putc(out, ')');
	return true;
}
