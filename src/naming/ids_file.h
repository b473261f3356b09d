/* ids_file.h - the file that ids= names: parameters in the order of IDs */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_NAMING_IDS_FILE_H
#define OFS_NAMING_IDS_FILE_H

#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "catalog/catalog.h"

/* A name a line, ID 0 first; a blank line begins the next group. */
struct ofs_ids_file {
	const char *file; /* borrowed */
	struct ofs_ids_line {
		struct ofs_str name; /* no NUL follows */
		uint32_t line, group;
	} * v;
	uint32_t n, cap, ngroups;
	uint32_t end; /* the line after the last */
	struct ofs_buf text;
};

/* Read the file. EINVAL, or ENOENT (OFS635): it cannot be read, or a line is
 * not text. On failure nothing is left to free. */
int ofs_ids_file_read(struct ofs_ids_file *f, const char *file,
    struct optimfs_error *err);
void ofs_ids_file_fini(struct ofs_ids_file *f);

#endif
