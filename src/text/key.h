/* key.h - keys of Python dictionaries as text */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TEXT_KEY_H
#define OFS_TEXT_KEY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "pickle/pickle.h"
#include "pickle/write.h"

/* Append a key as text: strings and bytes as they are; numbers, True, None and
 * globals as str() prints them; tuples of these as repr() does; anything else
 * as its kind, and its position so that two of them differ. */
void ofs_torch_key(const struct ofs_pickle *doc, uint32_t node,
    uint32_t position, struct ofs_buf *out);

/* Is node a number of at most 64 bits, True, False, None, or a tuple of these
 * and of strings, so that its text says which? */
bool ofs_torch_key_is_plain(const struct ofs_pickle *doc, uint32_t node);
/* Pickle the key that has the text of a plain one. */
void ofs_torch_key_put(struct ofs_pkw *w, struct ofs_str text);

#endif
