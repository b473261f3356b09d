/* mount_line.h - the lines of /proc/self/mountinfo */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_MOUNT_LINE_H
#define OFS_BASE_MOUNT_LINE_H

#include <stdbool.h>

/* The fields of a line, see proc(5). The strings are parts of it. */
struct ofs_mount_line {
	unsigned major, minor;
	char *root;    /* the directory of the file system that is shown */
	char *point;   /* where */
	char *options; /* of the mount */
	char *type, *source;
	char *super; /* options of the file system; "": none */
};

/* Takes a line apart. False: it is none. */
bool ofs_mount_line_parse(char *line, struct ofs_mount_line *m);
/* Decodes \\ooo (a space, tab, newline or backslash) in s. */
void ofs_mount_unescape(char *s);

#endif
