/* error.c - filling and wrapping struct optimfs_error */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/error.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

#define CODE_LENGTH 7 /* bytes of "OFSnnn " */
#define LOST_MAX    300

/* An error of a system call without a number gets the number of its errno, so
 * that each has an entry in errors.md. */
static const struct {
	int code;
	const char *prefix;
} kinds[] = {
	{ ENOENT, "OFS002 " },
	{ EACCES, "OFS003 " },
	{ EPERM, "OFS003 " },
	{ ENOSPC, "OFS004 " },
	{ EDQUOT, "OFS004 " },
	{ EFBIG, "OFS004 " },
	{ ENOMEM, "OFS005 " },
	{ EIO, "OFS006 " },
	{ EROFS, "OFS007 " },
	{ EEXIST, "OFS008 " },
	{ ENOTEMPTY, "OFS008 " },
	{ EISDIR, "OFS009 " },
	{ ENOTDIR, "OFS009 " },
	{ EMFILE, "OFS010 " },
	{ ENFILE, "OFS010 " },
	{ EAGAIN, "OFS010 " },
	{ EINVAL, "OFS011 " },
	{ ERANGE, "OFS011 " },
	{ ENAMETOOLONG, "OFS011 " },
	{ EBUSY, "OFS012 " },
	{ ENODATA, "OFS013 " },
	{ ECANCELED, "OFS014 " },
	{ EINTR, "OFS014 " },
	{ EOPNOTSUPP, "OFS015 " },
	{ ENOSYS, "OFS015 " },
	{ ENODEV, "OFS015 " },
	{ ESTALE, "OFS016 " },
	{ ENOTCONN, "OFS017 " },
	{ ETIMEDOUT, "OFS017 " },
	{ EHOSTDOWN, "OFS017 " },
};

static const char *prefix_of(int code)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].code == code)
			return kinds[i].prefix;
	return code == 0 ? "" : "OFS001 ";
}

/* The nnn of "OFSnnn " at the start of text, or 0. */
static int number_of(const char *text)
{
	int number = 0;

	if (strncmp(text, "OFS", 3) != 0)
		return 0;
	for (int i = 3; i < 6; i++) {
		if (!isdigit((unsigned char)text[i]))
			return 0;
		number = 10 * number + text[i] - '0';
	}
	return text[6] == ' ' ? number : 0;
}

/* fmt makes the words; prefix comes before them, "OFSnnn " or "". */
__attribute__((format(printf, 4, 0))) static void fill(struct optimfs_error
							   *err,
    int code, const char *prefix, const char *fmt, va_list ap)
{
	size_t n = strlen(prefix);
	int saved = errno;

	err->code = code;
	memcpy(err->text, prefix, n);
	errno = saved;
	vsnprintf(err->text + n, sizeof(err->text) - n, fmt, ap);
	ofs_utf8_disarm(err->text);
	err->number = number_of(n > 0 ? prefix : fmt);
	err->how = err->lost = err->nlost = 0;
}

int optimfs_vfail(struct optimfs_error *err, int code, const char *fmt,
    va_list ap)
{
	if (err != NULL)
		fill(err, code, number_of(fmt) != 0 ? "" : prefix_of(code), fmt,
		    ap);
	return -1;
}

int optimfs_fail(struct optimfs_error *err, int code, const char *fmt, ...)
{
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	errno = saved;
	optimfs_vfail(err, code, fmt, ap);
	va_end(ap);
	return -1;
}

int optimfs_vfail_as(struct optimfs_error *err, int code, const char *fmt,
    va_list ap)
{
	char text[sizeof(err->text)];

	if (err == NULL)
		return -1;
	vsnprintf(text, sizeof(text), fmt, ap);
	if (number_of(text) == 0)
		return optimfs_fail(err, code, "%s", text);
	*err =
	    (struct optimfs_error){ .code = code, .number = number_of(text) };
	strcpy(err->text, text);
	ofs_utf8_disarm(err->text);
	return -1;
}

int optimfs_fail_as(struct optimfs_error *err, int code, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	optimfs_vfail_as(err, code, fmt, ap);
	va_end(ap);
	return -1;
}

int optimfs_fail_in(struct optimfs_error *err, const char *fmt, ...)
{
	char text[256 + sizeof(err->text)];
	size_t code, n;
	va_list ap;

	if (err == NULL)
		return -1;
	code = err->number == 0 ? 0 : CODE_LENGTH;
	va_start(ap, fmt);
	vsnprintf(text, 254, fmt, ap);
	va_end(ap);
	n = strlen(text) + strlen(": ");
	err->lost = (unsigned short)(err->lost + n);
	n += (size_t)sprintf(text + n - 2, ": %s", err->text + code) - 2;
	if (n > sizeof(err->text) - 1 - code)
		n = sizeof(err->text) - 1 - code;
	if (err->nlost > 0 && err->lost + err->nlost > code + n)
		err->how = OPTIMFS_NOT_LOST;
	memcpy(err->text + code, text, n);
	err->text[code + n] = '\0';
	ofs_utf8_disarm(err->text);
	return -1;
}

int ofs_fail_lost(struct optimfs_error *err, int code, enum optimfs_lost how,
    const char *number, const char *file, const char *fmt, ...)
{
	int n = (int)strnlen(file, LOST_MAX);
	va_list ap;

	err = OFS_SOME_ERROR(err);
	optimfs_fail_as(err, code, "%s %.*s", number, n, file);
	va_start(ap, fmt);
	vsnprintf(err->text + CODE_LENGTH + n,
	    sizeof(err->text) - CODE_LENGTH - (size_t)n, fmt, ap);
	va_end(ap);
	ofs_utf8_disarm(err->text);
	err->how = (unsigned short)how;
	err->lost = CODE_LENGTH;
	err->nlost = (unsigned short)n;
	return -1;
}

const char *optimfs_error_words(const struct optimfs_error *err)
{
	return err->text + (err->number == 0 ? 0 : CODE_LENGTH);
}

/* Begins text with path, in which some bytes may have become '?'? */
static bool is_disarmed(const char *text, const char *path, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (text[i] != path[i] && text[i] != '?')
			return false;
	return true;
}

/* The part of text behind "PATH: " or "PATH bytes M-N: "; NULL when it begins
 * with neither. */
static const char *behind(const char *text, const char *path, size_t n)
{
	static const char range[] = " bytes ";

	if (n == 0 || !is_disarmed(text, path, n))
		return NULL;
	text += n;
	if (strncmp(text, range, sizeof(range) - 1) == 0) {
		text += sizeof(range) - 1;
		text += strspn(text, "0123456789-");
	}
	return strncmp(text, ": ", 2) == 0 ? text + 2 : NULL;
}

const char *optimfs_error_about(const struct optimfs_error *err,
    const char *path)
{
	const char *text = optimfs_error_words(err), *next;

	while ((next = behind(text, path, strlen(path))) != NULL)
		text = next;
	return text;
}
