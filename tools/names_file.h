/* names_file.h - --to FORMAT,names=FILE */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TOOLS_NAMES_FILE_H
#define TOOLS_NAMES_FILE_H

#include "tools/command.h"

/* If c->to names a file of families, by a path with a slash or the suffix
 * .names, makes the option names= of it: the layout then has "file", which means
 * the first family in it. *made and *file, malloc'ed, are for the caller to free
 * when c is no longer used. -1: ENOMEM. */
int ofs_names_file_take(struct ofs_command *c, char **made, char **file);

#endif
