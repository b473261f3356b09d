/* colour.c - colours of standard output */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/colour.h"
#include "cli/terminal.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool wanted(void)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return ofs_is_terminal(STDOUT_FILENO) && (no == NULL || *no == '\0') &&
	    term != NULL && strcmp(term, "dumb") != 0;
}

void ofs_colour(enum ofs_colour colour)
{
	static const char *const sequences[] = { [OFS_PLAIN] = "\x1b[0m",
		[OFS_BOLD] = "\x1b[1m",
		[OFS_RED] = "\x1b[31m",
		[OFS_BLUE] = "\x1b[34m" };

	if (wanted())
		fputs(sequences[colour], stdout);
}
