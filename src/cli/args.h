/* args.h - parsing a command line */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLI_ARGS_H
#define OFS_CLI_ARGS_H

#include <stdbool.h>

#include "cli/tools.h"

/* An option that starts with '-'. id is the letter, or a number above 255 if
 * there is only a long name. */
struct ofs_flag {
	int id;
	const char *name; /* without "--"; NULL: only a letter */
	bool
	    value; /* takes a value: -ovalue, -o value, --name=value, --name value */
};

/* Iterator over a command line. Options and operands may be mixed, "--" ends
 * the options, "-" is an operand, long names cannot be abbreviated. All verbs
 * take -h (--help), -q (--quiet) and --progress. options (may be NULL) receives
 * "-o a,b=c" and long names that are not flags (--b=c): see options.h. */
struct ofs_options;
struct ofs_args {
	const struct ofs_verb *verb;
	const struct ofs_flag *flags; /* ends with id 0; may be NULL */
	struct ofs_options *options;
	int argc;
	char **argv;
	int at;           /* next word; starts at 1 */
	const char *more; /* rest of a group of letters */
	bool operands;    /* "--" was seen */
	bool quiet, progress;
};
enum {
	OFS_ARGS_END = 0,
	OFS_ARGS_OPERAND = -1, /* in *value */
	OFS_ARGS_STOP = -2,    /* help or usage was printed: return *status */
};
void ofs_args_init(struct ofs_args *a, const struct ofs_verb *verb, int argc,
    char **argv, const struct ofs_flag *flags, struct ofs_options *options);
/* The id of the next flag, or one of the enum above. */
int ofs_args_next(struct ofs_args *a, const char **value, int *status);

#endif
