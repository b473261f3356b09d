/* parse.h - the text that replaces a value, as a value of its kind */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TEXT_PARSE_H
#define OFS_TEXT_PARSE_H

#include <stdbool.h>
#include <stddef.h>

#include "optimfs/error.h"

#include "base/dtype.h"
#include "catalog/catalog.h"
#include "pickle/pickle.h"

/* What stands there now, which says how text is meant: a float stays a float
 * ("1" is 1.0), a tuple a tuple, a key of a dict the number it was. */
struct ofs_value_form {
	const struct ofs_pickle *doc; /* NULL: nothing; text that is JSON is
				       * what JSON says, any other a str */
	uint32_t node;
	/* It is shown one item a line (params); IDs by the names that cat has
	 * for them, where it has any. cat may be NULL. */
	bool lines;
	const struct ofs_catalog *cat;
	/* It is an option of an optimizer: an int may become a float, and a
	 * tuple (betas) keeps its length. */
	bool option;
};

/* What text[0..n), the whole of a file, means: a document whose root is the
 * value; the caller's. Text that is what the file says already gives an equal
 * value, whatever it is. EINVAL, ERANGE (OFS806): it is no value of that kind;
 * EOPNOTSUPP (OFS820): this kind cannot be changed; E2BIG, ENOMEM. */
struct ofs_pickle *ofs_value_edit(const struct ofs_value_form *form,
    const char *text, size_t n, struct optimfs_error *err);

/* The same for a tensor without dimensions: its one element, little-endian. */
int ofs_value_element(enum ofs_dtype dtype, const char *text, size_t n,
    void *element, struct optimfs_error *err);

#endif
