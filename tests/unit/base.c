/* base.c - cursor, checked arithmetic, arena, errors, buffer, UTF-8, keys, search,
 * strings */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/checked.h"
#include "base/cursor.h"
#include "base/error.h"
#include "base/keys.h"
#include "base/natural.h"
#include "base/nearest.h"
#include "base/search.h"
#include "base/str.h"
#include "base/sys.h"
#include "base/utf8.h"
#include "tap.h"

static void cursor(void)
{
	static const uint8_t bytes[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 };
	struct ofs_cursor c = ofs_cursor_of(bytes, sizeof(bytes));

	is_u64(ofs_cursor_le64(&c), 0x0807060504030201,
	    "a cursor reads 64 bits in little-endian order");
	is_u64(ofs_cursor_le16(&c), 0x0a09,
	    "a cursor reads 16 bits in little-endian order");
	ok(ofs_cursor_fits(&c, 1, 1) && !ofs_cursor_fits(&c, 2, 1),
	    "ofs_cursor_fits counts the bytes that are left");
	ok(!ofs_cursor_fits(&c, UINT64_MAX, UINT64_MAX),
	    "ofs_cursor_fits does not overflow");
	ok(ofs_cursor_take(&c, UINT64_MAX) == NULL && c.bad,
	    "taking more bytes than are left spoils the cursor");
	ok(ofs_cursor_take(&c, 1) == NULL,
	    "a spoiled cursor gives no more bytes");
	is_u64(ofs_cursor_left(&c), 1, "a spoiled cursor does not advance");
}

static void checked(void)
{
	static const uint64_t big[] = { 4194305, 4194305, 211106198978564 };
	static const uint64_t hole[] = { 4194305, 4194305, 211106198978564, 0 };
	uint64_t v;

	ok(!ofs_add_u64(UINT64_MAX, 1, &v),
	    "a sum that overflows 64 bits is refused");
	ok(ofs_numel(NULL, 0, &v) && v == 1,
	    "a shape of no dimensions has one element");
	ok(!ofs_numel(big, 3, &v),
	    "a shape whose product overflows to 4 is refused");
	ok(ofs_numel(hole, 4, &v) && v == 0,
	    "a shape with a 0 has 0 elements even if the product overflows");
}

static void arena(void)
{
	struct ofs_arena a = { 0 };
	char *s;

	s = ofs_arena_strndup(&a, "abc\0d", 5);
	is_mem(s, "abc\0d\0", 6,
	    "ofs_arena_strndup keeps embedded NUL bytes and ends with one");
	for (int i = 0; i < 1000; i++)
		if ((uintptr_t)ofs_arena_alloc(&a, (size_t)i) % 8 != 0)
			s = NULL;
	ok(s != NULL, "all allocations of an arena are aligned to 8 bytes");
	ok(ofs_arena_alloc(&a, SIZE_MAX) == NULL,
	    "an allocation of SIZE_MAX bytes fails");
	ofs_arena_fini(&a);
	ok(a.head == NULL, "a freed arena has no memory");
}

static void errors(void)
{
	struct optimfs_error err = { 0 };

	is_int(optimfs_fail(&err, EIO, "OFS603 %s is short", "a\nb"), -1,
	    "optimfs_fail returns -1");
	is_str(err.text, "OFS603 a?b is short",
	    "control characters in an error's text are replaced");
	optimfs_fail_in(&err, "rank %d", 3);
	is_str(err.text, "OFS603 rank 3: a?b is short",
	    "optimfs_fail_in puts the context behind the code");
	optimfs_fail(&err, EINVAL, "no code");
	optimfs_fail_in(&err, "file");
	is_error(err, EINVAL, "OFS011 file: no code",
	    "optimfs_fail_in puts the context before a text without code");
	optimfs_fail(&err, EIO, "OFS603 %s", "x");
	is_int(err.number, 603, "the number of an error is that of its code");
	is_str(optimfs_error_words(&err), "x",
	    "optimfs_error_words skips the code");
	optimfs_fail(&err, EIO, "%s: cut", "OFS603 x");
	is_int(err.number, 6,
	    "a code inside an argument is not the code of the error");
	is_str(optimfs_error_words(&err), "OFS603 x: cut",
	    "a code inside an argument stays in the words");
	optimfs_fail_as(&err, EIO, "%s: cut", "OFS603 x");
	is_int(err.number, 603,
	    "optimfs_fail_as takes the code from the argument");
	is_int(optimfs_fail(NULL, EIO, "x"), -1,
	    "optimfs_fail accepts NULL for err");
}

static void is_lost(const struct optimfs_error *e, const char *file,
    const char *name)
{
	char got[sizeof(e->text)] = "";

	memcpy(got, e->text + e->lost, e->nlost);
	is_str(got, file, "%s", name);
}

static void lost(void)
{
	static const char file[] = "a: b has OFS140 is missing";
	struct optimfs_error err, *copy;
	char many[600];

	ofs_fail_lost(&err, EIO, OPTIMFS_LOST_SHORT, "OFS603", file,
	    " has %d bytes", 3);
	is_error(err, EIO, "OFS603 a: b has OFS140 is missing has 3 bytes",
	    "ofs_fail_lost puts the file before the words");
	is_int(err.number, 603, "an error of a lost file has a number");
	is_lost(&err, file, "an error knows the lost file, whatever its name");
	optimfs_fail_in(&err, "model/w");
	is_lost(&err, file, "it knows it behind a context, too");
	copy = ofs_error_without(&err, "model/w");
	is_error(*copy, EIO, "OFS603 a: b has OFS140 is missing has 3 bytes",
	    "ofs_error_without leaves the path out");
	is_lost(copy, file, "and the copy knows the lost file");
	free(copy);
	ofs_fail_lost(&err, EIO, OPTIMFS_LOST_MISSING, "OFS140", "model/w",
	    ": no such file");
	copy = ofs_error_without(&err, "model/w");
	is_error(*copy, EIO, "OFS140 no such file",
	    "ofs_error_without leaves out a file with the name of the path");
	is_int(copy->how, OPTIMFS_NOT_LOST,
	    "then the copy does not know the lost file");
	is_int(copy->lost + copy->nlost, 0, "and points to no name");
	free(copy);
	ofs_fail_lost(&err, EIO, OPTIMFS_LOST_SHORT, "OFS603", file,
	    " has %d bytes", 3);
	memset(many, 'x', sizeof(many));
	many[sizeof(many) - 1] = '\0';
	optimfs_fail_in(&err, "%s", many);
	optimfs_fail_in(&err, "%s", many);
	is_int(err.how, OPTIMFS_NOT_LOST,
	    "a file that is cut off is not known");
	optimfs_fail_in(&err, "%s", many);
	ofs_fail_lost(&err, EIO, OPTIMFS_LOST_MISSING, "OFS140", many,
	    " is missing");
	is_int(err.nlost, 300, "a long name is cut");
	ok(strstr(err.text, "x is missing") != NULL,
	    "the words stand behind the cut name");
	optimfs_fail(&err, EIO, "OFS603 x");
	is_int(err.how, OPTIMFS_NOT_LOST, "another error is about no file");
}

/* An error without a code of its own gets the code of its errno value. */
static void kinds(void)
{
	static const struct {
		int code;
		const char *text;
	} kind[] = {
		{ ELOOP, "OFS001 x" },
		{ ENOENT, "OFS002 x" },
		{ EACCES, "OFS003 x" },
		{ ENOSPC, "OFS004 x" },
		{ ENOMEM, "OFS005 x" },
		{ EIO, "OFS006 x" },
		{ EROFS, "OFS007 x" },
		{ EEXIST, "OFS008 x" },
		{ EISDIR, "OFS009 x" },
		{ EMFILE, "OFS010 x" },
		{ EINVAL, "OFS011 x" },
		{ EBUSY, "OFS012 x" },
		{ ENODATA, "OFS013 x" },
		{ ECANCELED, "OFS014 x" },
		{ EOPNOTSUPP, "OFS015 x" },
		{ ESTALE, "OFS016 x" },
		{ ETIMEDOUT, "OFS017 x" },
	};
	struct optimfs_error err;

	for (size_t i = 0; i < sizeof(kind) / sizeof(kind[0]); i++) {
		optimfs_fail(&err, kind[i].code, "x");
		is_error(err, kind[i].code, kind[i].text,
		    "an error without code becomes %s", kind[i].text);
		is_int(err.number, (int)i + 1, "%s has that number",
		    kind[i].text);
	}
	optimfs_fail(&err, 0, "a note");
	is_str(err.text, "a note", "a text without errno value gets no code");
	optimfs_fail_as(&err, ENOENT, "x");
	is_str(err.text, "OFS002 x",
	    "optimfs_fail_as adds the code of the errno value");
	errno = ENOSPC;
	optimfs_fail(&err, errno, "%m");
	is_str(optimfs_error_words(&err), "No space left on device",
	    "%%m in a text is expanded");
}

static void text(void)
{
	struct ofs_buf b = { .limit = 64 };

	ofs_buf_json(&b, "a\"\\\n\xff\xc3\xa9", 7);
	ofs_buf_putc(&b, 0);
	is_str((char *)b.data, "a\\\"\\\\\\u000a\\u00ff\xc3\xa9",
	    "ofs_buf_json escapes quotes, control characters and invalid "
	    "UTF-8");
	b.len = 0;
	ofs_buf_printf(&b, "%060d", 1);
	ofs_buf_puts(&b, "12345");
	ok(b.bad && b.len == 60,
	    "a text beyond the limit of a buffer spoils the buffer");
	ofs_buf_fini(&b);
	is_u64(ofs_utf8_length((const uint8_t *)"\xed\xa0\x80", 3), 0,
	    "a surrogate is not valid UTF-8");
	is_u64(ofs_utf8_length((const uint8_t *)"\xf0\x9f\x98\x80", 4), 4,
	    "a character of four bytes has length 4");
	is_u64(ofs_utf8_length((const uint8_t *)"\xf0\x9f\x98\x80", 3), 0,
	    "a truncated character is not valid UTF-8");
	is_u64(ofs_utf8_length((const uint8_t *)"\xc0\x80", 2), 0,
	    "an overlong encoding is not valid UTF-8");
}

/* What may be shown as it is, and what becomes of the rest. */
static void shown(void)
{
	static const struct {
		const char *what, *text, *plain, *json;
	} row[] = {
		{ "letters", "w\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80",
		    "w\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80",
		    "w\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80" },
		{ "C0", "\x1b[m", "\\x1b[m", "\\u001b[m" },
		{ "DEL", "\x7f", "\\x7f", "\\u007f" },
		{ "C1", "\xc2\x9b", "\\xc2\\x9b", "\\u009b" },
		{ "a raw C1 byte", "\x9b", "\\x9b", "\\u009b" },
		{ "the first letter after C1", "\xc2\xa1", "\xc2\xa1",
		    "\xc2\xa1" },
		{ "an override", "\xe2\x80\xae", "\\xe2\\x80\\xae", "\\u202e" },
		{ "an isolate", "\xe2\x81\xa6", "\\xe2\\x81\\xa6", "\\u2066" },
		{ "zero width", "\xe2\x80\x8b", "\\xe2\\x80\\x8b", "\\u200b" },
		{ "a byte order mark", "\xef\xbb\xbf", "\\xef\\xbb\\xbf",
		    "\\ufeff" },
		{ "a separator of lines", "\xe2\x80\xa8", "\\xe2\\x80\\xa8",
		    "\\u2028" },
		{ "a dash, which is next to them", "\xe2\x80\x90",
		    "\xe2\x80\x90", "\xe2\x80\x90" },
		{ "a tag", "\xf3\xa0\x81\x81", "\\xf3\\xa0\\x81\\x81",
		    "\\udb40\\udc41" },
	};

	for (size_t i = 0; i < sizeof(row) / sizeof(row[0]); i++) {
		struct ofs_buf b = { 0 }, j = { 0 };
		struct optimfs_error err;
		size_t n = strlen(row[i].text);
		bool same = strcmp(row[i].text, row[i].plain) == 0;

		ofs_buf_plain(&b, row[i].text, n);
		ofs_buf_putc(&b, 0);
		is_str((char *)b.data, row[i].plain, "%s in a line",
		    row[i].what);
		ofs_buf_json(&j, row[i].text, n);
		ofs_buf_putc(&j, 0);
		is_str((char *)j.data, row[i].json, "%s in JSON", row[i].what);
		optimfs_fail(&err, EIO, "OFS603 %s is short", row[i].text);
		ok((strstr(err.text, row[i].text) != NULL) == same &&
			(strchr(err.text, '?') == NULL) == same &&
			strlen(err.text) == strlen("OFS603  is short") + n,
		    "%s in a message", row[i].what);
		ofs_buf_fini(&b);
		ofs_buf_fini(&j);
	}
}

static int compare(const void *key, const void *item)
{
	int a = *(const int *)key, b = *(const int *)item;

	return (a > b) - (a < b);
}

static void search(void)
{
	static const int v[] = { 1, 3, 3, 3, 8 };
	size_t lower[10], upper[10];
	bool good = true;

	for (int key = 0; key < 10; key++) {
		const int *p = ofs_search(&key, v, 5, sizeof(*v), compare);

		lower[key] = ofs_lower_bound(&key, v, 5, sizeof(*v), compare);
		upper[key] = ofs_upper_bound(&key, v, 5, sizeof(*v), compare);
		for (size_t i = 0; i < 5; i++)
			good = good && (v[i] < key) == (i < lower[key]) &&
			    (v[i] <= key) == (i < upper[key]);
		good = good &&
		    p == (lower[key] < upper[key] ? &v[lower[key]] : NULL);
	}
	ok(good,
	    "bounds of present, repeated, absent and outer keys are correct");
	ok(ofs_search(v, NULL, 0, sizeof(*v), compare) == NULL,
	    "a search in an empty array gives NULL");
}

struct place {
	uint64_t file;
	int off;
	uint32_t len;
};

OFS_COMPARE_BY(by_file, struct place, file)
OFS_COMPARE_BY2(by_off, struct place, file, off)
OFS_COMPARE_BY3(by_place, struct place, file, off, len)
OFS_COMPARE_KEY(compare_off, int, struct place, off)

static void comparisons(void)
{
	static const struct place v[] = { { 1, -5, 9 }, { 1, 4, 0 },
		{ 1, 4, UINT32_MAX }, { UINT64_MAX, -9, 3 } };
	const int off = 4;

	ok(by_file(&v[0], &v[2]) == 0 && by_file(&v[2], &v[3]) < 0 &&
		by_file(&v[3], &v[2]) > 0,
	    "structs are compared by a member");
	ok(by_off(&v[0], &v[1]) < 0 && by_off(&v[1], &v[2]) == 0 &&
		by_off(&v[3], &v[0]) > 0,
	    "structs are compared by a second member, signed");
	ok(by_place(&v[1], &v[2]) < 0 && by_place(&v[2], &v[1]) > 0 &&
		by_place(&v[2], &v[2]) == 0 && by_place(&v[2], &v[3]) < 0,
	    "structs are compared by a third member");
	ok(compare_off(&off, &v[0]) > 0 && compare_off(&off, &v[1]) == 0 &&
		compare_off(&v[0].off, &v[1]) < 0,
	    "a number is compared with a member");
}

static void strings(void)
{
	struct ofs_str none = { NULL, 0 }, a = { "a", 1 }, ab = { "ab", 2 };
	uint32_t n = 7;

	ok(ofs_str_compare(a, ab) < 0 && ofs_str_compare(ab, a) > 0 &&
		ofs_str_compare(none, a) < 0 &&
		ofs_str_compare(none, none) == 0,
	    "a prefix sorts before the longer string");
	ok(ofs_str_is(ab, "ab") && !ofs_str_is(a, "ab") &&
		ofs_str_equal(none, none) && !ofs_str_equal(none, a),
	    "strings are equal if length and bytes are");
	ok(ofs_str_number((struct ofs_str){ "999999999", 9 }, &n) &&
		n == 999999999 &&
		ofs_str_number((struct ofs_str){ "0", 1 }, &n) && n == 0 &&
		ofs_str_digits((struct ofs_str){ "007", 3 }, &n) && n == 7,
	    "decimal numbers are parsed, and leading zeros as digits only");
	ok(!ofs_str_number((struct ofs_str){ "1000000000", 10 }, &n) &&
		!ofs_str_number((struct ofs_str){ "01", 2 }, &n) &&
		!ofs_str_digits((struct ofs_str){ "1x", 2 }, &n) &&
		!ofs_str_digits(none, &n) && n == 7,
	    "an invalid number leaves the output unchanged");
}

static void keys(void)
{
	struct ofs_keys k = { 0 };
	char name[] = "b";
	char number[16];
	bool found = true;

	is_u64(ofs_keys_find(&k, "a", 1), OFS_NONE, "no keys: none is found");
	is_u64(ofs_keys_add(&k, ofs_str_of("a"), NULL), 0,
	    "the first key has number 0");
	is_u64(ofs_keys_copy(&k, name, 1, NULL), 1,
	    "the second key has number 1");
	name[0] = 'x';
	is_u64(ofs_keys_copy(&k, "b", 1, NULL), 1,
	    "a key that was copied is found by its old bytes");
	is_u64(ofs_keys_add(&k, ofs_str_of("a"), NULL), 0,
	    "a key that is added again keeps its number");
	is_u64(ofs_keys_copy(&k, NULL, 0, NULL), 2, "a key may be empty");
	is_str(k.v[1].p, "b", "a copy ends with a NUL");
	for (uint32_t i = 0; i < 1000; i++)
		ofs_keys_copy(&k, number, (size_t)sprintf(number, "%u", i),
		    NULL);
	for (uint32_t i = 0; i < 1000; i++)
		found &= ofs_keys_find(&k, number,
			     (size_t)sprintf(number, "%u", i)) == 3 + i;
	ok(found, "a thousand keys are found by their numbers");
	ofs_keys_fini(&k);
}

/* Fails the next call with EINTR. */
static bool interrupt;

static int interrupted(const char *call)
{
	bool now = interrupt;

	(void)call;
	interrupt = false;
	return now ? EINTR : 0;
}

static void interrupts(void)
{
	char name[] = "/tmp/optimfs-base-XXXXXX";
	int fd = mkstemp(name);

	if (fd == -1)
		bail_out("%s: %m", name);
	ofs_sys_fault = interrupted;
	interrupt = true;
	is_int((int)ofs_sys_pwrite(fd, "x", 1, 0), 1,
	    "an interrupted write is repeated");
	interrupt = true;
	is_int(ofs_sys_fsync(fd), 0, "an interrupted fsync is repeated");
	interrupt = true;
	is_int(ofs_sys_chmod(fd, 0600), 0,
	    "an interrupted change of the mode is repeated");
	interrupt = true;
	is_int(ofs_sys_unlink(AT_FDCWD, name), 0,
	    "an interrupted removal is repeated");
	ofs_sys_fault = NULL;
	close(fd);
}

/* A file that takes long to sync gives signs of life meanwhile. */
static void moves(void)
{
	FILE *file = tmpfile();
	uint64_t before = ofs_sys_moves();

	if (file == NULL || ftruncate(fileno(file), 1 << 30) == -1)
		bail_out("tmpfile: %m");
	is_int(ofs_sys_fsync(fileno(file)), 0, "a file of 1 GiB is synced");
	ok(ofs_sys_moves() - before >= 16, "in parts of at most 64 MiB");
	before = ofs_sys_moves();
	is_int(ofs_sys_fdatasync(fileno(file)), 0, "and its data");
	ok(ofs_sys_moves() - before >= 16, "too");
	fclose(file);
}

static void nearest(void)
{
	struct ofs_nearest n;

	ofs_nearest_init(&n, "OPTMI");
	ofs_nearest_try(&n, "model");
	ofs_nearest_try(&n, "optim");
	is_str(n.best, "optim", "the nearest name does not depend on case");
	is_int((int)n.distance, 1, "two swapped letters are one edit");
	ofs_nearest_init(&n, "step");
	ofs_nearest_try(&n, "exp_avg");
	is_str(n.best, "", "a name that is too far away is not suggested");
}

static void natural(void)
{
	static const char *const sorted[] = { "", "a", "a/b", "a.b", "a01",
		"a1", "a2", "a2/x", "a10", "a10b", "a18446744073709551616",
		"a99999999999999999999", "b" };
	size_t n = sizeof(sorted) / sizeof(sorted[0]);
	bool good = true;

	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < n; k++) {
			int c = ofs_natural(sorted[i], sorted[k]);

			good = good && (c < 0) == (i < k) && (c > 0) == (i > k);
		}
	ok(good, "names are in the order that people expect");
}

int main(void)
{
	cursor();
	checked();
	arena();
	errors();
	lost();
	kinds();
	text();
	shown();
	search();
	comparisons();
	strings();
	keys();
	interrupts();
	moves();
	nearest();
	natural();
	return done_testing();
}
