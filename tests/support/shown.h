/* shown.h - tree path and text of a manifest's leaf */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SHOWN_H
#define SHOWN_H

#include "base/buf.h"
#include "support/truth.h"

/* Appends the path of the leaf below the mount point, by the rules of
 * optimfs(5). */
void shown_path(const struct truth *l, struct ofs_buf *out);
/* Appends the bytes of its file, if they are text, without spaces in lists. */
void shown_text(const struct truth *l, struct ofs_buf *out);

#endif
