/* names_file.c - --to FORMAT,names=FILE */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/names_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_path(const char *s, size_t n)
{
	static const char suffix[] = ".names";
	const size_t k = sizeof(suffix) - 1;

	return memchr(s, '/', n) != NULL ||
	    (n > k && memcmp(s + n - k, suffix, k) == 0);
}

int ofs_names_file_take(struct ofs_command *c, char **made, char **file)
{
	static const char option[] = ",names=", back[] = "megatron:";
	const char *at = c->to == NULL ? NULL : strstr(c->to, option);
	size_t n;

	*made = *file = NULL;
	if (at == NULL || c->open.names != NULL)
		return 0;
	at += strlen(option);
	if (strncmp(at, back, strlen(back)) == 0)
		at += strlen(back);
	n = strcspn(at, ",");
	if (!is_path(at, n))
		return 0;
	*file = strndup(at, n);
	if (*file == NULL ||
	    asprintf(made, "%.*sfile%s", (int)(at - c->to), c->to, at + n) ==
		-1) {
		*made = NULL;
		return -1;
	}
	c->to = *made;
	c->open.names = *file;
	return 0;
}
