/* new_value.h - what the text that a writer gives an entry means */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_REWRITE_NEW_VALUE_H
#define OFS_REWRITE_NEW_VALUE_H

#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "pickle/pickle.h"
#include "read/reader.h"

/* What text, all that a writer gave the file of an entry, makes of it: a value
 * (doc, the caller's) or, of a tensor without dimensions, its element. Errors
 * are those of ofs_value_edit (text/parse.h); an item is read to know
 * of what kind it is. */
struct ofs_entry_new {
	struct ofs_pickle *doc;
	uint8_t element[16];
};
int ofs_entry_new(struct ofs_reader *r, uint32_t entry, const char *text,
    size_t n, struct ofs_entry_new *out, struct optimfs_error *err);

#endif
