/* answer.c - what the headers of an answer say */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/answer.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

static int month_of(const char *name)
{
	static const char names[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

	for (int i = 0; i < 12; i++)
		if (strncmp(names + 3 * i, name, 3) == 0)
			return i;
	return -1;
}

int64_t ofs_http_date_ns(const char *text)
{
	struct tm t = { 0 };
	char month[4] = "";
	const char *comma = strchr(text, ',');

	if (comma != NULL &&
	    sscanf(comma + 1, " %2d%*1[ -]%3s%*1[ -]%4d %2d:%2d:%2d",
		&t.tm_mday, month, &t.tm_year, &t.tm_hour, &t.tm_min,
		&t.tm_sec) == 6)
		t.tm_mon = month_of(month);
	else if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d", &t.tm_year, &t.tm_mon,
		     &t.tm_mday, &t.tm_hour, &t.tm_min, &t.tm_sec) == 6)
		t.tm_mon--;
	else
		return 0;
	if (t.tm_mon < 0 || t.tm_year < 1970)
		return 0;
	t.tm_year -= 1900;
	return (int64_t)timegm(&t) * 1000000000;
}

static uint64_t number_of(const char *text)
{
	uint64_t v;
	int n = 0;

	return isdigit((unsigned char)text[0]) && strlen(text) <= 19 &&
		sscanf(text, "%" SCNu64 "%n", &v, &n) == 1 && text[n] == '\0'
	    ? v
	    : OFS_HTTP_UNTOLD;
}

/* "bytes 0-99/1000", "bytes 0-99/<unknown>" with a star, "bytes <star>/1000". */
static void take_range(const char *text, struct ofs_http_answer *a)
{
	char first[24], last[24], size[24];

	if (sscanf(text, "bytes %20[0-9]-%20[0-9]/%20s", first, last, size) ==
	    3) {
		a->first = number_of(first);
		a->last = number_of(last);
		if (a->first != OFS_HTTP_UNTOLD && a->last != OFS_HTTP_UNTOLD)
			a->is.size = number_of(size);
	} else if (sscanf(text, "bytes */%20s", size) == 1) {
		a->is.size = number_of(size);
	}
}

static void take_retry(const char *text, int64_t now, struct ofs_http_answer *a)
{
	int64_t at = ofs_http_date_ns(text) / 1000000000;

	a->retry_after = number_of(text);
	if (at != 0)
		a->retry_after = at > now ? (uint64_t)(at - now) : 0;
}

/* RateLimit: "api";r=0;t=55: nothing is left, for so many seconds. */
static void take_limit(const char *text, struct ofs_http_answer *a)
{
	const char *left = strstr(text, "r="), *s = strstr(text, "t=");

	if (a->retry_after == OFS_HTTP_UNTOLD && left != NULL && s != NULL &&
	    strtoul(left + 2, NULL, 10) == 0 && isdigit((unsigned char)s[2]))
		a->retry_after = strtoul(s + 2, NULL, 10);
}

/* Link: <https://host/path?cursor=x>; rel="next" */
static void take_link(const char *text, struct ofs_http_answer *a)
{
	const char *end = strchr(text, '>');

	if (text[0] != '<' || end == NULL || strstr(end, "next") == NULL ||
	    (size_t)(end - text) > sizeof(a->next))
		return;
	memcpy(a->next, text + 1, (size_t)(end - text) - 1);
	a->next[end - text - 1] = '\0';
}

/* A weak tag does not say that all bytes are the same. */
static void take_etag(const char *text, struct ofs_http_answer *a)
{
	if (strlen(text) < sizeof(a->is.etag) && text[0] == '"')
		strcpy(a->is.etag, text);
}

static void take_type(const char *text, struct ofs_http_answer *a)
{
	size_t n = strcspn(text, "; ");

	if (n >= sizeof(a->type))
		return;
	for (size_t i = 0; i < n; i++)
		a->type[i] = (char)tolower((unsigned char)text[i]);
	a->type[n] = '\0';
}

static void take(const char *name, const char *text, int64_t now,
    struct ofs_http_answer *a)
{
	if (strcasecmp(name, "content-length") == 0)
		a->length = number_of(text);
	else if (strcasecmp(name, "content-range") == 0)
		take_range(text, a);
	else if (strcasecmp(name, OFS_HTTP_FILES_HEADER) == 0)
		a->has_files = strcmp(text, OFS_HTTP_FILES) == 0;
	else if (strcasecmp(name, OFS_HTTP_LIST_HEADER) == 0)
		a->has_lists = strcmp(text, "1") == 0;
	else if (strcasecmp(name, "last-modified") == 0)
		a->is.modified_ns = ofs_http_date_ns(text);
	else if (strcasecmp(name, "etag") == 0)
		take_etag(text, a);
	else if (strcasecmp(name, "retry-after") == 0)
		take_retry(text, now, a);
	else if (strcasecmp(name, "ratelimit") == 0)
		take_limit(text, a);
	else if (strcasecmp(name, "x-amz-bucket-region") == 0 &&
	    strlen(text) < sizeof(a->region))
		strcpy(a->region, text);
	else if (strcasecmp(name, "link") == 0)
		take_link(text, a);
	else if (strcasecmp(name, "content-type") == 0)
		take_type(text, a);
}

void ofs_http_headers(const void *p, size_t n, int64_t now,
    struct ofs_http_answer *a)
{
	const char *at = p, *end = at + n;
	char line[4096], *colon, *text;

	*a = (struct ofs_http_answer){
		.is.size = OFS_HTTP_UNTOLD,
		.length = OFS_HTTP_UNTOLD,
		.first = OFS_HTTP_UNTOLD,
		.last = OFS_HTTP_UNTOLD,
		.retry_after = OFS_HTTP_UNTOLD,
	};
	while (at < end) {
		const char *next = memchr(at, '\n', (size_t)(end - at));
		size_t len = (size_t)((next == NULL ? end : next) - at);

		if (len < sizeof(line)) {
			memcpy(line, at, len);
			while (len > 0 && isspace((unsigned char)line[len - 1]))
				len--;
			line[len] = '\0';
			colon = strchr(line, ':');
			if (colon != NULL) {
				*colon = '\0';
				text = colon + 1 + strspn(colon + 1, " \t");
				take(line, text, now, a);
			}
		}
		at = next == NULL ? end : next + 1;
	}
}

bool ofs_http_same(const struct ofs_http_version *a,
    const struct ofs_http_version *b)
{
	if (a->size != OFS_HTTP_UNTOLD && b->size != OFS_HTTP_UNTOLD &&
	    a->size != b->size)
		return false;
	if (a->etag[0] != '\0' && b->etag[0] != '\0')
		return strcmp(a->etag, b->etag) == 0;
	return a->modified_ns == 0 || b->modified_ns == 0 ||
	    a->modified_ns == b->modified_ns;
}
