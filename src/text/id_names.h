/* id_names.h - names from ids= in place of integer parameter IDs */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TEXT_ID_NAMES_H
#define OFS_TEXT_ID_NAMES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "catalog/catalog.h"
#include "pickle/pickle.h"

/* Is the entry of the optimizer whose integer IDs have names from ids=? */
bool ofs_id_names_in(const struct ofs_catalog *cat, const struct ofs_entry *e);
/* Does ids= name the value, an integer ID? *name gets the name. */
bool ofs_id_name(const struct ofs_catalog *cat, const struct ofs_pickle *doc,
    uint32_t node, struct ofs_str *name);
/* Append a list of integer IDs, one name a line; IDs without a name stay
 * numbers. false, with nothing appended, when list is something else or there
 * is no ids=. */
bool ofs_id_names(const struct ofs_catalog *cat, const struct ofs_pickle *doc,
    uint32_t list, struct ofs_buf *out);

#endif
