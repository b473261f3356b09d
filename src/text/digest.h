/* digest.h - a number that tells objects apart that have the same text */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TEXT_DIGEST_H
#define OFS_TEXT_DIGEST_H

#include <stdbool.h>
#include <stdint.h>

#include "pickle/pickle.h"

/* *digest = a hash of all that the pickle says about a node: names, arguments,
 * items, states. It does not depend on how the pickle shares them, nor on the
 * order of a set. *visits is reduced by the nodes seen; false when it is used
 * up, or when there is a storage, whose bytes are not in the pickle. */
bool ofs_text_digest(const struct ofs_pickle *doc, uint32_t node,
    uint64_t *visits, uint64_t *digest);

#endif
