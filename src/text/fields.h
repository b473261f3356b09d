/* fields.h - objects that are nothing but their fields */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TEXT_FIELDS_H
#define OFS_TEXT_FIELDS_H

#include <stdbool.h>
#include <stdint.h>

#include "pickle/pickle.h"

/* Is node an argparse.Namespace or a types.SimpleNamespace? *fields gets the
 * dict of its fields; OFS_NONE: it has none. */
bool ofs_is_namespace(const struct ofs_pickle *doc, uint32_t node,
    uint32_t *fields);
/* Is it a collections.deque without items? With items it is a list. */
bool ofs_is_empty_deque(const struct ofs_pickle *doc, uint32_t node);

#endif
