/* colour.h - colours of standard output */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLI_COLOUR_H
#define OFS_CLI_COLOUR_H

enum ofs_colour {
	OFS_PLAIN, /* ends the others */
	OFS_BOLD,  /* headings */
	OFS_RED,   /* what is wrong */
	OFS_BLUE,  /* directories */
};

/* Prints the escape sequence: on a terminal that is not "dumb", unless NO_COLOR
 * (no-color.org) is set. */
void ofs_colour(enum ofs_colour colour);

#endif
