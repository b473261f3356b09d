/* view_impl.h - what a view is; only view*.c include this */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_VIEW_IMPL_H
#define OFS_VIEW_IMPL_H

#include "format/render.h"
#include "view.h"

/* The files of a view in the order of their names. */
struct ofs_view_names {
	struct ofs_view_name {
		char name[OFS_FILE_NAME];
		uint32_t file;         /* of files */
		_Atomic uint64_t size; /* plus one; 0 while not known */
	} * v;
	uint32_t n;
};

struct ofs_view_dir {
	char name[OFS_VIEW_NAME];
	struct ofs_layout layout;
	uint64_t ino;
	struct ofs_files *files;              /* as names */
	struct ofs_view_names *_Atomic names; /* NULL until laid out */
};

struct ofs_view_dir *ofs_view_at(const struct optimfs *fs, struct ofs_at at);

#endif
