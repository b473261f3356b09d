/* texts.c - what is looked for in answers in XML */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/texts.h"

#include <stdio.h>
#include <string.h>

#include "store/http/client.h"

struct search {
	struct ofs_http_text *text;
	size_t n;
	char *root; /* OFS_HTTP_ROOT bytes */
};

static int take_element(void *ctx, unsigned depth, const char *name,
    const char *text, struct optimfs_error *err)
{
	const struct search *s = ctx;

	(void)err;
	for (size_t i = 0; i < s->n; i++)
		if (s->text[i].to[0] == '\0' &&
		    strcmp(s->text[i].name, name) == 0 &&
		    strlen(text) < s->text[i].size)
			strcpy(s->text[i].to, text);
	if (depth == 0)
		snprintf(s->root, OFS_HTTP_ROOT, "%s", name);
	return 0;
}

int ofs_http_texts(const struct ofs_http *h, const struct ofs_buf *xml,
    struct ofs_http_text *text, size_t n, char root[OFS_HTTP_ROOT])
{
	struct search s = { text, n, root };
	const struct ofs_http_elements elements = { take_element, &s };

	root[0] = '\0';
	return h->ops->parse(xml->data, xml->len, &elements, NULL);
}

bool ofs_http_said(const struct ofs_http *h, const struct ofs_buf *xml,
    char code[OFS_HTTP_CODE])
{
	struct ofs_http_text text = { "Code", code, OFS_HTTP_CODE };
	char root[OFS_HTTP_ROOT];

	code[0] = '\0';
	if (ofs_http_texts(h, xml, &text, 1, root) == 0 &&
	    strcmp(root, "Error") == 0)
		return true;
	code[0] = '\0';
	return false;
}

bool ofs_http_expired(const char *code)
{
	return strcmp(code, "ExpiredToken") == 0 ||
	    strcmp(code, "TokenRefreshRequired") == 0;
}
