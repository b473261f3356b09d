/* mount_line.c - the lines of /proc/self/mountinfo */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/mount_line.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* The kernel writes space, tab, newline and backslash as \ooo. */
void ofs_mount_unescape(char *s)
{
	char *to = s;

	for (; *s != '\0'; to++) {
		unsigned c;

		if (s[0] == '\\' && sscanf(s + 1, "%3o", &c) == 1) {
			*to = (char)c;
			s += 4;
		} else {
			*to = *s++;
		}
	}
	*to = '\0';
}

/* "36 35 0:34 / /mnt/ck ro,nosuid master:1 - fuse.optimfs /data/ck ro,..." */
bool ofs_mount_line_parse(char *line, struct ofs_mount_line *m)
{
	static char none[] = "";
	char *save, *field[6], *word;

	for (int i = 0; i < 6; i++) {
		field[i] = strtok_r(i == 0 ? line : NULL, " \n", &save);
		if (field[i] == NULL)
			return false;
	}
	if (sscanf(field[2], "%u:%u", &m->major, &m->minor) != 2)
		return false;
	do
		word = strtok_r(NULL, " \n", &save);
	while (word != NULL && strcmp(word, "-") != 0);
	m->root = field[3];
	m->point = field[4];
	m->options = field[5];
	m->type = word == NULL ? NULL : strtok_r(NULL, " \n", &save);
	if (m->type == NULL)
		return false;
	word = strtok_r(NULL, " \n", &save);
	m->source = word == NULL ? none : word;
	word = word == NULL ? NULL : strtok_r(NULL, " \n", &save);
	m->super = word == NULL ? none : word;
	ofs_mount_unescape(m->root);
	ofs_mount_unescape(m->point);
	ofs_mount_unescape(m->source);
	return true;
}
