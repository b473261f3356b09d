/* links.c - the names in a listing */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/links.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/str.h"
#include "store/http/url.h"

/* HTML. */

#define HREF_MOST 4096

/* Replaces &amp; and the like, in place. */
static void replace_entities(char *text)
{
	static const struct {
		const char *name;
		char c;
	} known[] = { { "&amp;", '&' }, { "&lt;", '<' }, { "&gt;", '>' },
		{ "&quot;", '"' }, { "&#39;", '\'' }, { "&#x27;", '\'' },
		{ "&#34;", '"' }, { "&#38;", '&' } };
	char *out = text;

	while (*text != '\0') {
		size_t i = 0, n = sizeof(known) / sizeof(*known);

		while (i < n &&
		    strncmp(text, known[i].name, strlen(known[i].name)) != 0)
			i++;
		*out++ = i < n ? known[i].c : *text;
		text += i < n ? strlen(known[i].name) : 1;
	}
	*out = '\0';
}

/* Finds the value of href in the n bytes of a tag; the rest of it. */
static struct ofs_str href_of(struct ofs_str tag)
{
	struct ofs_str none = { NULL, 0 };

	for (uint32_t i = 0; i + 5 < tag.len; i++) {
		struct ofs_str v = ofs_str_after(tag, i);
		char end;

		if (!isspace((unsigned char)tag.p[i]) ||
		    strncasecmp(v.p + 1, "href=", 5) != 0)
			continue;
		v = ofs_str_after(v, 6);
		end = v.len > 0 && (v.p[0] == '"' || v.p[0] == '\'') ? v.p[0]
								     : ' ';
		if (end != ' ')
			v = ofs_str_after(v, 1);
		for (uint32_t k = 0; k < v.len; k++)
			if (v.p[k] == end)
				v.len = k;
		return v;
	}
	return none;
}

static int take_href(struct ofs_str v, ofs_http_link_fn *each, void *ctx,
    struct optimfs_error *err)
{
	struct ofs_http_link link = { .is.size = OFS_HTTP_UNTOLD };
	char text[HREF_MOST], name[HREF_MOST];

	if (v.len == 0 || v.len >= sizeof(text))
		return 0;
	memcpy(text, v.p, v.len);
	text[v.len] = '\0';
	replace_entities(text);
	if (strpbrk(text, "?#") != NULL || strstr(text, "://") != NULL ||
	    strncmp(text, "//", 2) == 0 ||
	    !ofs_url_decode(text, strlen(text), name))
		return 0;
	/* the directory above */
	if (strcmp(name, "/") == 0 || strncmp(name, "..", 2) == 0)
		return 0;
	link.name = name;
	return each(ctx, &link, err);
}

int ofs_http_links_html(const void *p, size_t n, ofs_http_link_fn *each,
    void *ctx, struct optimfs_error *err)
{
	const char *at = p, *end = at + n;

	while (at < end && (at = memchr(at, '<', (size_t)(end - at))) != NULL) {
		const char *close = memchr(at, '>', (size_t)(end - at));
		struct ofs_str tag;

		if (close == NULL)
			return 0;
		tag = (struct ofs_str){ at, (uint32_t)(close - at) };
		if (tag.len > 2 && tolower((unsigned char)at[1]) == 'a' &&
		    isspace((unsigned char)at[2]) &&
		    take_href(href_of(tag), each, ctx, err) == -1)
			return -1;
		at = close + 1;
	}
	return 0;
}

/* JSON. */

static char *copy_of(struct ofs_str s, struct optimfs_error *err)
{
	char *copy = strndup(s.p, s.len);

	if (copy == NULL)
		ofs_no_memory(err);
	return copy;
}

/* The member key of an object of the array. */
static int take_member(struct ofs_json *j, const char *key, char **name,
    struct ofs_http_link *link, struct optimfs_error *err)
{
	enum ofs_json_token t = ofs_json_next(j, err);
	char text[80];

	if (t == OFS_JSON_STRING &&
	    (strcmp(key, "name") == 0 || strcmp(key, "path") == 0)) {
		free(*name);
		*name = copy_of(j->str, err);
		return *name == NULL ? -1 : 0;
	}
	if (t == OFS_JSON_STRING && strcmp(key, "type") == 0)
		link->is_dir = ofs_str_is(j->str, "directory");
	else if (t == OFS_JSON_STRING && strcmp(key, "mtime") == 0 &&
	    j->str.len < sizeof(text)) {
		memcpy(text, j->str.p, j->str.len);
		text[j->str.len] = '\0';
		link->is.modified_ns = ofs_http_date_ns(text);
	} else if (t == OFS_JSON_STRING && strcmp(key, "etag") == 0 &&
	    j->str.len < sizeof(link->is.etag) && j->str.len > 0 &&
	    j->str.p[0] == '"') {
		memcpy(link->is.etag, j->str.p, j->str.len);
		link->is.etag[j->str.len] = '\0';
	} else if (t == OFS_JSON_NUMBER && strcmp(key, "size") == 0 &&
	    j->is_int && j->integer >= 0)
		link->is.size = (uint64_t)j->integer;
	else
		return ofs_json_skip(j, t, err);
	return 0;
}

static int take_object(struct ofs_json *j, ofs_http_link_fn *each, void *ctx,
    struct optimfs_error *err)
{
	struct ofs_http_link link = { .is.size = OFS_HTTP_UNTOLD };
	enum ofs_json_token t;
	char *name = NULL, key[16];
	int ret = 0;

	while (ret == 0 && (t = ofs_json_next(j, err)) == OFS_JSON_KEY) {
		snprintf(key, sizeof(key), "%.*s", OFS_STR_ARGS(j->str, 15));
		ret = take_member(j, key, &name, &link, err);
	}
	if (ret == 0 && t != OFS_JSON_OBJECT_END)
		ret = -1;
	if (ret == 0 && name != NULL) {
		link.name = name;
		ret = each(ctx, &link, err);
	}
	free(name);
	return ret;
}

int ofs_http_links_json(const void *p, size_t n, ofs_http_link_fn *each,
    void *ctx, struct optimfs_error *err)
{
	enum ofs_json_token t;
	struct ofs_json j;
	int ret = 0;

	ofs_json_init(&j, p, (uint32_t)n);
	t = ofs_json_next(&j, err);
	if (t != OFS_JSON_ERROR && t != OFS_JSON_ARRAY)
		ret = ofs_json_fail(&j, err, "a listing is an array");
	while (ret == 0 && t != OFS_JSON_ERROR &&
	    (t = ofs_json_next(&j, err)) == OFS_JSON_OBJECT)
		ret = take_object(&j, each, ctx, err);
	if (ret == 0 && t != OFS_JSON_ARRAY_END)
		ret = t == OFS_JSON_ERROR
		    ? -1
		    : ofs_json_fail(&j, err, "a listing has objects");
	ofs_json_fini(&j);
	return ret;
}
