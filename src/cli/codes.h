/* codes.h - the table of error codes, docs/errors.md */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLI_CODES_H
#define OFS_CLI_CODES_H

#include <stdbool.h>
#include <stddef.h>

struct ofs_code {
	int number;
	const char *errnos; /* "EIO, EUCLEAN" */
	const char *meaning, *advice;
	bool hint; /* the advice says more than the message itself does */
};

/* In ascending order of their numbers. */
extern const struct ofs_code ofs_codes[];
extern const size_t ofs_ncodes;

/* NULL: there is no such code. */
const struct ofs_code *ofs_code_find(int number);

#endif
