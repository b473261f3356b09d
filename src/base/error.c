/* error.c - filling and wrapping struct optimfs_error */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "optimfs/error.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define CODE_LENGTH 7 /* of "OFSnnn " */

/* Messages carry names from files: no control byte may reach a terminal or
 * forge a line of .optimfs/errors. */
static void disarm(char *text)
{
	for (unsigned char *p = (unsigned char *)text; *p != '\0'; p++)
		if (*p < 0x20 || *p == 0x7f)
			*p = '?';
}

/* nnn of the "OFSnnn " that text begins with; 0 when there is none. */
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

int optimfs_vfail(struct optimfs_error *err, int code, const char *fmt,
    va_list ap)
{
	if (err == NULL)
		return -1;
	err->code = code;
	err->number = number_of(fmt);
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	disarm(err->text);
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
	if (err == NULL)
		return -1;
	err->code = code;
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	disarm(err->text);
	err->number = number_of(err->text);
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
	n = strlen(text);
	n += (size_t)sprintf(text + n, ": %s", err->text + code);
	if (n > sizeof(err->text) - 1 - code)
		n = sizeof(err->text) - 1 - code;
	memcpy(err->text + code, text, n);
	err->text[code + n] = '\0';
	disarm(err->text);
	return -1;
}

const char *optimfs_error_words(const struct optimfs_error *err)
{
	return err->text + (err->number == 0 ? 0 : CODE_LENGTH);
}
