/* id_names.h - names in place of integer parameter IDs */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TEXT_ID_NAMES_H
#define OFS_TEXT_ID_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "catalog/catalog.h"
#include "pickle/pickle.h"

/* Names for the integer IDs of one optimizer. NULL, which all functions take: it
 * has none. */
struct ofs_id_names;

/* Those of the optimizer that an entry is of. */
const struct ofs_id_names *ofs_id_names_of(const struct ofs_catalog *cat,
    const struct ofs_entry *e);
/* Has the value, an integer ID, a name? *name gets it. */
bool ofs_id_name(const struct ofs_catalog *cat,
    const struct ofs_id_names *names, const struct ofs_pickle *doc,
    uint32_t node, struct ofs_str *name);
/* The ID with this name; false: none has it. */
bool ofs_id_of_name(const struct ofs_catalog *cat,
    const struct ofs_id_names *names, struct ofs_str name, uint32_t *id);
/* Append a list of integer IDs, one name a line; IDs without a name stay
 * numbers. false, with nothing appended, when list is something else. */
bool ofs_id_names_put(const struct ofs_catalog *cat,
    const struct ofs_id_names *names, const struct ofs_pickle *doc,
    uint32_t list, struct ofs_buf *out);

#endif
