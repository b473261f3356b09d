/* error.c - filling and wrapping struct optimfs_error */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "optimfs/error.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Messages carry names from files: no control byte may reach a terminal or
 * forge a line of .optimfs/errors. */
static void disarm(char *text)
{
	for (unsigned char *p = (unsigned char *)text; *p != '\0'; p++)
		if (*p < 0x20 || *p == 0x7f)
			*p = '?';
}

int optimfs_fail(struct optimfs_error *err, int code, const char *fmt, ...)
{
	int saved = errno;
	va_list ap;

	if (err == NULL)
		return -1;
	err->code = code;
	va_start(ap, fmt);
	errno = saved;
	vsnprintf(err->text, sizeof(err->text), fmt, ap);
	va_end(ap);
	disarm(err->text);
	return -1;
}

/* Length of "OFSnnn " at the start of text, 0 when there is none. */
static size_t code_length(const char *text)
{
	if (strncmp(text, "OFS", 3) != 0)
		return 0;
	for (int i = 3; i < 6; i++)
		if (!isdigit((unsigned char)text[i]))
			return 0;
	return text[6] == ' ' ? 7 : 0;
}

int optimfs_fail_in(struct optimfs_error *err, const char *fmt, ...)
{
	char text[256 + sizeof(err->text)];
	size_t code, n;
	va_list ap;

	if (err == NULL)
		return -1;
	code = code_length(err->text);
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
