/* args.h - the words of a command line */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLI_ARGS_H
#define OFS_CLI_ARGS_H

#include <stdbool.h>

#include "cli/tools.h"

/* A word of the command line that begins with '-'. id is the letter, or a
 * number above 255 where there is only a long name. */
struct ofs_flag {
	int id;
	const char *name; /* without "--"; NULL: letter only */
	bool value;       /* takes one: -ovalue, -o value, --name=value, --name
			   * value */
};

/* The walk over a command line: options and operands in any order, "--" ends
 * the options, "-" is an operand, long names are never abbreviated. -h and
 * --help need no flag. options, if not NULL, is where "-o a,b=c" goes and
 * what a long name that is no flag means (--b=c): see options.h. */
struct ofs_options;
struct ofs_args {
	const struct ofs_verb *verb;
	const struct ofs_flag *flags; /* ends with id 0; may be NULL */
	struct ofs_options *options;
	int argc;
	char **argv;
	int at;           /* next word; begins at 1 */
	const char *more; /* rest of a word of letters */
	bool operands;    /* "--" was seen */
};
enum {
	OFS_ARGS_END = 0,
	OFS_ARGS_OPERAND = -1, /* *value is it */
	OFS_ARGS_STOP = -2,    /* help or usage was printed: return *status */
};
void ofs_args_init(struct ofs_args *a, const struct ofs_verb *verb, int argc,
    char **argv, const struct ofs_flag *flags, struct ofs_options *options);
/* The next flag's id, or one of the enum above. */
int ofs_args_next(struct ofs_args *a, const char **value, int *status);

#endif
