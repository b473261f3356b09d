/* file.h - a file of torch.save or pickle.dump, opened and parsed */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_TORCH_FILE_FILE_H
#define OFS_FORMAT_TORCH_FILE_FILE_H

#include <stdbool.h>

#include "optimfs/error.h"

#include "archive/torch.h"
#include "archive/zip.h"
#include "catalog/catalog.h"
#include "format/torch_file/legacy.h"

struct ofs_torch_file {
	struct ofs_pickle *doc; /* a caller that keeps it sets this to NULL */
	struct ofs_torch_archive at;
	bool is_zip;
	struct ofs_zip zip;
	struct ofs_legacy legacy;
};

/* Parse the pickle and the directory of the file rel beneath cat->dir, and add
 * it to the objects of cat as a file of rank (-1: unknown). bare: it must be a
 * pickle. Oddities get a note. f must not be moved while at is in use. On
 * failure *f needs no _fini. */
int ofs_torch_file_open(struct ofs_torch_file *f, struct ofs_catalog *cat,
    const char *rel, int rank, bool bare, struct optimfs_error *err);
void ofs_torch_file_fini(struct ofs_torch_file *f);

#endif
