/* new_value.h - parse the new text of an entry */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_NEW_VALUE_H
#define OFS_REWRITE_NEW_VALUE_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "read/reader.h"

/* The meaning of text, the complete new contents of an entry's file: a value
 * (doc, owned by the caller), or the element of a 0-dim tensor. Errors are
 * those of ofs_value_edit (text/parse.h). An item is read to find out its
 * kind. */
struct ofs_entry_new {
	struct ofs_pickle *doc;
	uint8_t element[16];
};
int ofs_entry_new(struct ofs_reader *r, uint32_t entry, const char *text,
    size_t n, struct ofs_entry_new *out, struct optimfs_error *err);

#endif
