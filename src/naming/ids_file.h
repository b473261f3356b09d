/* ids_file.h - the file that ids= names: parameters in the order of IDs */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_NAMING_IDS_FILE_H
#define OFS_NAMING_IDS_FILE_H

#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "catalog/catalog.h"

/* One name a line, ID 0 first; a blank line starts the next group. */
struct ofs_ids_file {
	const char *file; /* borrowed */
	struct ofs_ids_line {
		struct ofs_str name; /* not NUL-terminated */
		uint32_t line, group;
	} * v;
	uint32_t n, cap, ngroups;
	uint32_t end; /* the number of lines + 1 */
	struct ofs_buf text;
};

/* Read the file. EINVAL or ENOENT (OFS635): it cannot be read, or a line is not
 * text. On failure *f needs no _fini. */
int ofs_ids_file_read(struct ofs_ids_file *f, const char *file,
    struct optimfs_error *err);
void ofs_ids_file_fini(struct ofs_ids_file *f);

#endif
