/* parse.h - the text that replaces a value, as a value of its kind */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TEXT_PARSE_H
#define OFS_TEXT_PARSE_H

#include <stdbool.h>
#include <stddef.h>

#include "optimfs/error.h"

#include "base/dtype.h"
#include "catalog/catalog.h"
#include "pickle/write.h"

/* The value that text replaces. It decides how text is read: a float stays a
 * float ("1" is 1.0), a tuple a tuple, and an integer key of a dict an
 * integer. */
struct ofs_value_form {
	/* NULL: there is no value yet; text that is JSON is read as JSON, any
	 * other is a str */
	const struct ofs_pickle *doc;
	uint32_t node;
	/* The value is shown one item a line (params), and IDs of cat by their
	 * names (text/id_names.h; NULL: they have none). */
	bool lines;
	const struct ofs_catalog *cat;
	const struct ofs_id_names *names;
	/* It is an option of an optimizer: an int may become a float, and a
	 * tuple (betas) keeps its length. */
	bool option;
};

/* The value that text[0..n), a whole file, stands for: a document with the
 * value as its root; the caller's. The unchanged text of a file gives an equal
 * value, of any kind. EINVAL, ERANGE (OFS806): not a value of that kind;
 * EOPNOTSUPP (OFS820): a value of this kind cannot be changed; E2BIG,
 * ENOMEM. */
struct ofs_pickle *ofs_value_edit(const struct ofs_value_form *form,
    const char *text, size_t n, struct optimfs_error *err);

/* As above, for a tensor without dimensions: its element, little-endian. */
int ofs_value_element(enum ofs_dtype dtype, const char *text, size_t n,
    void *element, struct optimfs_error *err);

/* Pickles a number: an int if it is written as one and real is false, else a
 * float. 0 or an errno value, EINVAL or ERANGE. */
int ofs_value_put_number(struct ofs_pkw *w, struct ofs_str s, bool real);

/* Pickles a new key of a dict: a number if all its keys are numbers. */
void ofs_value_put_key(struct ofs_pkw *w, const struct ofs_pickle *doc,
    uint32_t dict, struct ofs_str key);

#endif
