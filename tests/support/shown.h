/* shown.h - the text of a manifest's leaf in the tree */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SHOWN_H
#define SHOWN_H

#include "base/buf.h"
#include "support/truth.h"

/* The path of the leaf below the mount point, by the rules of optimfs(5). */
void shown_path(const struct truth *l, struct ofs_buf *out);
/* The bytes of its file, if they are text. A list has no spaces. */
void shown_text(const struct truth *l, struct ofs_buf *out);

#endif
