/* texts.h - what is looked for in answers in XML */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_TEXTS_H
#define OFS_STORE_HTTP_TEXTS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

struct ofs_http;

#define OFS_HTTP_ROOT 64
#define OFS_HTTP_CODE 80

/* The text of the first element of a name that has one. */
struct ofs_http_text {
	const char *name;
	char *to; /* "" before; stays so if there is none, or it is longer */
	size_t size;
};
/* Fills the n texts; root gets the name of the outermost element. -1: it is no
 * XML. */
int ofs_http_texts(const struct ofs_http *h, const struct ofs_buf *xml,
    struct ofs_http_text *text, size_t n, char root[OFS_HTTP_ROOT]);

/* Is it an error of S3? Its code; "" if it is none. */
bool ofs_http_said(const struct ofs_http *h, const struct ofs_buf *xml,
    char code[OFS_HTTP_CODE]);
/* Does the code mean that the keys have expired? */
bool ofs_http_expired(const char *code);

#endif
