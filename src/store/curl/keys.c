/* keys.c - a page of a listing of S3, by expat */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <expat.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "store/curl/curl.h"

/* The longest text of an element that counts. */
#define TEXT_MOST 3200

struct page {
	XML_Parser parser;
	struct ofs_http_keys *keys;
	struct ofs_http_key key;
	unsigned depth;
	bool in_key, in_prefix, root; /* root: that of a listing was seen */
	char text[TEXT_MOST + 1];
	size_t n; /* of text; more than TEXT_MOST: it is too long */
	char name[TEXT_MOST + 1], etag[160], modified[40];
	struct optimfs_error *err;
	bool failed;
};

static void begin_element(void *ctx, const char *name, const char **attributes)
{
	struct page *p = ctx;

	(void)attributes;
	p->n = 0;
	if (p->depth == 0)
		p->root = strcmp(name, "ListBucketResult") == 0;
	if (p->depth == 1) {
		p->in_key = strcmp(name, "Contents") == 0;
		p->in_prefix = strcmp(name, "CommonPrefixes") == 0;
		p->name[0] = p->etag[0] = p->modified[0] = '\0';
		p->key = (struct ofs_http_key){ .name = p->name,
			.etag = p->etag,
			.modified = p->modified };
	}
	p->depth++;
}

static void take_text(void *ctx, const char *text, int n)
{
	struct page *p = ctx;

	if (p->n + (size_t)n > TEXT_MOST) {
		p->n = TEXT_MOST + 1;
		return;
	}
	memcpy(p->text + p->n, text, (size_t)n);
	p->n += (size_t)n;
}

static void keep(struct page *p, char *to, size_t size)
{
	if (p->n < size)
		memcpy(to, p->text, p->n + 1);
}

static void end_member(struct page *p, const char *name)
{
	if (strcmp(name, p->in_prefix ? "Prefix" : "Key") == 0)
		keep(p, p->name, sizeof(p->name));
	else if (p->in_key && strcmp(name, "ETag") == 0)
		keep(p, p->etag, sizeof(p->etag));
	else if (p->in_key && strcmp(name, "LastModified") == 0)
		keep(p, p->modified, sizeof(p->modified));
	else if (p->in_key && strcmp(name, "Size") == 0 &&
	    strspn(p->text, "0123456789") == p->n && p->n > 0 && p->n < 20)
		sscanf(p->text, "%" SCNu64, &p->key.size);
}

static void end_element(void *ctx, const char *name)
{
	struct page *p = ctx;

	if (p->n <= TEXT_MOST)
		p->text[p->n] = '\0';
	p->depth--;
	if (p->depth == 2 && p->n <= TEXT_MOST && (p->in_key || p->in_prefix))
		end_member(p, name);
	if (p->depth == 1 && strcmp(name, "NextContinuationToken") == 0)
		keep(p, p->keys->next, sizeof(p->keys->next));
	if (p->depth == 1 && (p->in_key || p->in_prefix) &&
	    p->name[0] != '\0' &&
	    p->keys->each(p->keys->ctx, &p->key, p->err) == -1) {
		p->failed = true;
		XML_StopParser(p->parser, XML_FALSE);
	}
	if (p->depth == 1)
		p->in_key = p->in_prefix = false;
	p->n = 0;
}

/* A listing has no document type, and so no entities of its own. */
static void refuse_doctype(void *ctx, const char *name, const char *system,
    const char *public, int internal)
{
	struct page *p = ctx;

	(void)name;
	(void)system;
	(void)public;
	(void)internal;
	XML_StopParser(p->parser, XML_FALSE);
}

int ofs_curl_parse_keys(const void *xml, size_t n, struct ofs_http_keys *keys,
    struct optimfs_error *err)
{
	struct page p = { .keys = keys, .err = err };
	enum XML_Status status;

	keys->next[0] = '\0';
	p.parser = XML_ParserCreate(NULL);
	if (p.parser == NULL)
		return optimfs_fail(err, ENOMEM, "OFS443 out of memory");
	XML_SetUserData(p.parser, &p);
	XML_SetElementHandler(p.parser, begin_element, end_element);
	XML_SetCharacterDataHandler(p.parser, take_text);
	XML_SetStartDoctypeDeclHandler(p.parser, refuse_doctype);
	status = n > INT32_MAX ? XML_STATUS_ERROR
			       : XML_Parse(p.parser, xml, (int)n, 1);
	XML_ParserFree(p.parser);
	if (p.failed)
		return -1;
	return status == XML_STATUS_OK && p.root
	    ? 0
	    : optimfs_fail(err, EUCLEAN,
		  "OFS924 the server answers with something that is no listing "
		  "of S3");
}

/* Any document. */
struct document {
	XML_Parser parser;
	const struct ofs_http_elements *elements;
	unsigned depth;
	char text[TEXT_MOST + 1];
	size_t n;
	struct optimfs_error *err;
	bool failed;
};

static void begin_any(void *ctx, const char *name, const char **attributes)
{
	struct document *d = ctx;

	(void)name;
	(void)attributes;
	d->n = 0;
	d->depth++;
}

static void take_any(void *ctx, const char *text, int n)
{
	struct document *d = ctx;

	if ((size_t)n > TEXT_MOST - d->n)
		n = (int)(TEXT_MOST - d->n);
	memcpy(d->text + d->n, text, (size_t)n);
	d->n += (size_t)n;
}

static void end_any(void *ctx, const char *name)
{
	struct document *d = ctx;

	d->text[d->n] = '\0';
	d->n = 0;
	if (d->elements->each(d->elements->ctx, --d->depth, name, d->text,
		d->err) == 0)
		return;
	d->failed = true;
	XML_StopParser(d->parser, XML_FALSE);
}

static void refuse_any(void *ctx, const char *name, const char *system,
    const char *public, int internal)
{
	struct document *d = ctx;

	(void)name;
	(void)system;
	(void)public;
	(void)internal;
	XML_StopParser(d->parser, XML_FALSE);
}

int ofs_curl_parse_elements(const void *xml, size_t n,
    const struct ofs_http_elements *elements, struct optimfs_error *err)
{
	struct document d = { .elements = elements, .err = err };
	enum XML_Status status;

	d.parser = XML_ParserCreate(NULL);
	if (d.parser == NULL)
		return optimfs_fail(err, ENOMEM, "OFS443 out of memory");
	XML_SetUserData(d.parser, &d);
	XML_SetElementHandler(d.parser, begin_any, end_any);
	XML_SetCharacterDataHandler(d.parser, take_any);
	XML_SetStartDoctypeDeclHandler(d.parser, refuse_any);
	status = n > INT32_MAX ? XML_STATUS_ERROR
			       : XML_Parse(d.parser, xml, (int)n, 1);
	XML_ParserFree(d.parser);
	if (d.failed)
		return -1;
	return status == XML_STATUS_OK
	    ? 0
	    : optimfs_fail(err, EUCLEAN,
		  "OFS924 the server answers with something that is no XML");
}
