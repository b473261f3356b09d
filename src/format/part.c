/* part.c - what readers of a part have in common */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/part.h"

#include <string.h>

int ofs_part_prefix(struct ofs_catalog *cat, const struct ofs_part *part,
    uint32_t prefix[OFS_PART_PREFIX], size_t *n, struct optimfs_error *err)
{
	for (*n = 0; *n < OFS_PART_PREFIX && part->prefix[*n] != NULL; ++*n) {
		const char *s = part->prefix[*n];

		prefix[*n] = ofs_catalog_str(cat, s, strlen(s), err);
		if (prefix[*n] == OFS_NONE)
			return -1;
	}
	return 0;
}
