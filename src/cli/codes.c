/* codes.c - the table of error codes, docs/errors.md */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/codes.h"

const struct ofs_code ofs_codes[] = {
#include "src/cli/codes.inc"
};
const size_t ofs_ncodes = sizeof(ofs_codes) / sizeof(*ofs_codes);

const struct ofs_code *ofs_code_find(int number)
{
	for (size_t i = 0; i < ofs_ncodes; i++)
		if (ofs_codes[i].number == number)
			return &ofs_codes[i];
	return NULL;
}
