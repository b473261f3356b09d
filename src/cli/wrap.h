/* wrap.h - text that fits on the terminal */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLI_WRAP_H
#define OFS_CLI_WRAP_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* The width of the terminal fd; 0: not a terminal, or unknown. */
size_t ofs_terminal_width(int fd);
/* May marks outside ASCII be printed? */
bool ofs_locale_is_utf8(void);
/* Appends text. Lines longer than width (0: no limit) are broken at spaces.
 * What follows is indented by indent, or by two more than a line that is
 * indented itself. A word that is too long stays whole. */
void ofs_wrap(struct ofs_buf *b, const char *text, size_t width, size_t indent);
/* Appends s. What is longer than width (0: no limit) loses its middle, "..." in
 * its place. */
void ofs_shorten(struct ofs_buf *b, const char *s, size_t width);

#endif
