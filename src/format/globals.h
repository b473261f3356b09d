/* globals.h - what pickles name, for people who must decide to trust them */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_GLOBALS_H
#define OFS_FORMAT_GLOBALS_H

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "pickle/pickle.h"

/* Add a record "module.name<TAB>allowed|refused<TAB>where" to the catalog's
 * globals for each global of doc, and a warning (OFS420, EPERM) for each one
 * outside the allow-list that the pickle calls. where is the file. */
int ofs_note_globals(struct ofs_catalog *cat, const struct ofs_pickle *doc,
    const char *where, struct optimfs_error *err);

/* For strict: fail with the first such warning among the notes from the index
 * from on. */
int ofs_refuse_calls(const struct ofs_catalog *cat, uint32_t from,
    struct optimfs_error *err);

#endif
