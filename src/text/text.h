/* text.h - plain values as the text of their files */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TEXT_H
#define OFS_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"
#include "text/digest.h"

/* The kind of a value's file: user.optimfs.kind. */
enum ofs_text_kind {
	OFS_TEXT_SCALAR, /* number, bool, None */
	OFS_TEXT_STRING,
	OFS_TEXT_BYTES,
	OFS_TEXT_JSON,   /* list, tuple, dict, set */
	OFS_TEXT_OPAQUE, /* an object outside the allow-list */
};
enum ofs_text_kind ofs_text_kind(const struct ofs_pickle *doc, uint32_t node);
const char *ofs_text_kind_name(enum ofs_text_kind kind);

/* Append the bytes of the file for node, as in section "Contents" of
 * optimfs(5), with its newline, if any. E2BIG (OFS444) when the value unfolds
 * to more than 2^24 nodes, ENOMEM, and the errors of storages. */
struct ofs_text_form {
	/* A list that fits has one item a line (params). */
	bool lines;
	/* For the hashes of what holds tensors; NULL: there are none. */
	const struct ofs_text_storages *storages;
	/* If not NULL, set to true when a part of a list is shown as another
	 * type: bytes or a complex number as a string, a namespace as a dict, an
	 * object, time or range by its name. The same for a value that is a
	 * time or range. */
	bool *lossy;
};
int ofs_text_value(const struct ofs_pickle *doc, uint32_t node,
    const struct ofs_text_form *form, struct ofs_buf *out,
    struct optimfs_error *err);

/* Is it a list of names or numbers that each fit on a line? */
bool ofs_text_fits_lines(const struct ofs_pickle *doc, uint32_t node);

#endif
