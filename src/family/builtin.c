/* builtin.c - the families of data/names/, as lines of text */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stddef.h>

#include "family/rules.h"

const char *const ofs_family_builtin[] = {
#include "src/family/builtin.inc"
	NULL
};
