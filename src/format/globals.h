/* globals.h - the globals that pickles name, for a user who must trust them */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_GLOBALS_H
#define OFS_FORMAT_GLOBALS_H

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "pickle/pickle.h"

/* Adds a record "module.name<TAB>allowed|refused<TAB>where" to the catalog's
 * globals for each global of doc, and a warning (OFS420, EPERM) for each global
 * that the pickle calls and the allow-list lacks. where is the file. */
int ofs_note_globals(struct ofs_catalog *cat, const struct ofs_pickle *doc,
    const char *where, struct optimfs_error *err);

/* For strict: fails with the first such warning among the notes from the index
 * from on. */
int ofs_refuse_calls(const struct ofs_catalog *cat, uint32_t from,
    struct optimfs_error *err);

#endif
