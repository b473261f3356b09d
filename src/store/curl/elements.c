/* elements.c - the elements of a document of XML, by expat */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <expat.h>
#include <string.h>

#include "store/curl/curl.h"

struct document {
	XML_Parser parser;
	const struct ofs_http_elements *elements;
	unsigned depth;
	char text[OFS_HTTP_TEXT_MOST + 1];
	size_t n; /* of text; more than OFS_HTTP_TEXT_MOST: it is too long */
	struct optimfs_error *err;
	bool failed;
};

static void begin_element(void *ctx, const char *name, const char **attributes)
{
	struct document *d = ctx;

	(void)name;
	(void)attributes;
	d->n = 0;
	d->depth++;
}

static void take_text(void *ctx, const char *text, int n)
{
	struct document *d = ctx;

	if (d->n + (size_t)n > OFS_HTTP_TEXT_MOST) {
		d->n = OFS_HTTP_TEXT_MOST + 1;
		return;
	}
	memcpy(d->text + d->n, text, (size_t)n);
	d->n += (size_t)n;
}

static void end_element(void *ctx, const char *name)
{
	struct document *d = ctx;

	d->text[d->n <= OFS_HTTP_TEXT_MOST ? d->n : 0] = '\0';
	d->n = 0;
	if (d->elements->each(d->elements->ctx, --d->depth, name, d->text,
		d->err) == 0)
		return;
	d->failed = true;
	XML_StopParser(d->parser, XML_FALSE);
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

int ofs_curl_parse(const void *xml, size_t n,
    const struct ofs_http_elements *elements, struct optimfs_error *err)
{
	struct document d = { .elements = elements, .err = err };
	enum XML_Status status;

	d.parser = XML_ParserCreate(NULL);
	if (d.parser == NULL)
		return optimfs_fail(err, ENOMEM, "OFS443 out of memory");
	XML_SetUserData(d.parser, &d);
	XML_SetElementHandler(d.parser, begin_element, end_element);
	XML_SetCharacterDataHandler(d.parser, take_text);
	XML_SetStartDoctypeDeclHandler(d.parser, refuse_doctype);
	status = n > INT32_MAX
	    ? XML_STATUS_ERROR
	    : XML_Parse(d.parser, n == 0 ? "" : xml, (int)n, 1);
	XML_ParserFree(d.parser);
	if (d.failed)
		return -1;
	return status == XML_STATUS_OK
	    ? 0
	    : optimfs_fail(err, EUCLEAN,
		  "OFS924 the server answers with something that is no XML");
}
