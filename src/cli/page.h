/* page.h - a page of HTML: a form, a static head, and data for its script */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLI_PAGE_H
#define OFS_CLI_PAGE_H

#include <stdio.h>

#include "optimfs/error.h"

#include "base/buf.h"

/* What the form gets, twice in place of @TITLE@, then of @HEAD@ and @DATA@: text,
 * HTML that needs no script, and JSON. */
struct ofs_page {
	struct ofs_buf title, head, json;
};

/* Appends text of a checkpoint to HTML. */
void ofs_page_html(struct ofs_buf *b, const char *text);
void ofs_page_print(const char *form, const struct ofs_page *p, FILE *f);
/* Replaces the file. */
int ofs_page_save(const char *form, const struct ofs_page *p, const char *name,
    struct optimfs_error *err);
/* Only a page, or an empty file, may be replaced (EEXIST): another file may be a
 * part of the checkpoint. name: NULL or "-": standard output. */
int ofs_page_check(const char *name, struct optimfs_error *err);
void ofs_page_fini(struct ofs_page *p);

#endif
