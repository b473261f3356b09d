/* texts.c - the texts of some elements of a document of XML, by expat */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <expat.h>
#include <string.h>

#include "store/curl/curl.h"

#define TEXT_MOST 4096

struct document {
	XML_Parser parser;
	struct ofs_http_text *want;
	size_t nwant;
	char text[TEXT_MOST];
	size_t n; /* of text; TEXT_MOST: it is too long */
};

static void begin_element(void *ctx, const char *name, const char **attributes)
{
	struct document *d = ctx;

	(void)name;
	(void)attributes;
	d->n = 0;
}

static void take_text(void *ctx, const char *text, int n)
{
	struct document *d = ctx;

	if (d->n + (size_t)n >= TEXT_MOST) {
		d->n = TEXT_MOST;
		return;
	}
	memcpy(d->text + d->n, text, (size_t)n);
	d->n += (size_t)n;
}

static void end_element(void *ctx, const char *name)
{
	struct document *d = ctx;

	for (size_t i = 0; i < d->nwant; i++) {
		struct ofs_http_text *t = &d->want[i];

		if (t->to[0] != '\0' || strcmp(t->name, name) != 0 ||
		    d->n >= t->size)
			continue;
		memcpy(t->to, d->text, d->n);
		t->to[d->n] = '\0';
	}
	d->n = 0;
}

/* No document that is read here has a type, and so entities of its own. */
static void refuse_doctype(void *ctx, const char *name, const char *system,
    const char *public, int internal)
{
	struct document *d = ctx;

	(void)name;
	(void)system;
	(void)public;
	(void)internal;
	XML_StopParser(d->parser, XML_FALSE);
}

int ofs_curl_parse_texts(const void *xml, size_t n, struct ofs_http_text *text,
    size_t ntexts)
{
	struct document d = { .want = text, .nwant = ntexts };
	enum XML_Status status;

	d.parser = XML_ParserCreate(NULL);
	if (d.parser == NULL || n > INT32_MAX)
		return -1;
	XML_SetUserData(d.parser, &d);
	XML_SetElementHandler(d.parser, begin_element, end_element);
	XML_SetCharacterDataHandler(d.parser, take_text);
	XML_SetStartDoctypeDeclHandler(d.parser, refuse_doctype);
	status = XML_Parse(d.parser, n == 0 ? "" : xml, (int)n, 1);
	XML_ParserFree(d.parser);
	return status == XML_STATUS_OK ? 0 : -1;
}
