/* server_text.c - parts of HTTP requests and answers */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "serve/server.h"

static int hex(int c)
{
	return isdigit(c) ? c - '0' : isxdigit(c) ? tolower(c) - 'a' + 10 : -1;
}

bool ofs_server_decode(struct ofs_buf *b, const char *url)
{
	for (; *url != '\0'; url++) {
		int high, low;

		if (*url != '%') {
			ofs_buf_putc(b, *url);
			continue;
		}
		high = hex((unsigned char)url[1]);
		low = high == -1 ? -1 : hex((unsigned char)url[2]);
		if (low == -1 || (high | low) == 0)
			return false;
		ofs_buf_putc(b, high << 4 | low);
		url += 2;
	}
	ofs_buf_putc(b, '\0');
	return true;
}

void ofs_server_encode(struct ofs_buf *b, const char *name)
{
	for (; *name != '\0'; name++) {
		unsigned char c = (unsigned char)*name;

		if ((c < 0x80 && isalnum(c)) || strchr("-._~,@=+", c) != NULL)
			ofs_buf_putc(b, c);
		else
			ofs_buf_printf(b, "%%%02X", c);
	}
}

void ofs_server_escape(struct ofs_buf *b, const char *text)
{
	struct ofs_buf shown = { 0 };

	ofs_buf_shown(&shown, text, strlen(text));
	for (size_t i = 0; i < shown.len; i++)
		switch (shown.data[i]) {
		case '&':
			ofs_buf_puts(b, "&amp;");
			break;
		case '<':
			ofs_buf_puts(b, "&lt;");
			break;
		case '>':
			ofs_buf_puts(b, "&gt;");
			break;
		case '"':
			ofs_buf_puts(b, "&quot;");
			break;
		default:
			ofs_buf_putc(b, shown.data[i]);
		}
	b->bad |= shown.bad;
	ofs_buf_fini(&shown);
}

void ofs_server_date(int64_t mtime_ns, char date[OFS_SERVER_DATE])
{
	time_t t = (time_t)(mtime_ns / 1000000000);
	struct tm tm;

	date[0] = '\0';
	if (gmtime_r(&t, &tm) != NULL)
		strftime(date, OFS_SERVER_DATE, "%a, %d %b %Y %H:%M:%S GMT",
		    &tm);
}

/* A number in a range: false if there is none. */
static bool number(const char **s, uint64_t *n)
{
	char *end;

	if (!isdigit((unsigned char)**s))
		return false;
	errno = 0;
	*n = strtoull(*s, &end, 10);
	if (errno != 0)
		*n = UINT64_MAX;
	*s = end;
	return true;
}

int ofs_server_range(const char *header, uint64_t size, uint64_t *first,
    uint64_t *end)
{
	uint64_t last = UINT64_MAX;
	bool has_first, has_last;

	if (strncasecmp(header, "bytes=", 6) != 0)
		return 0;
	header += 6;
	has_first = number(&header, first);
	if (*header++ != '-')
		return 0;
	has_last = number(&header, &last);
	if (*header != '\0' || (!has_first && !has_last) ||
	    (has_first && last < *first))
		return 0;
	if (!has_first) { /* the last bytes */
		*first = last < size ? size - last : 0;
		last = last == 0 ? 0 : UINT64_MAX;
	}
	if (*first >= size || (!has_first && last == 0))
		return -1;
	*end = last < size - 1 ? last + 1 : size;
	return 1;
}

bool ofs_server_matches(const char *list, const char *tag)
{
	size_t n = strlen(tag);

	while (*list != '\0') {
		size_t word;

		list += strspn(list, ", \t");
		word = strcspn(list, ", \t");
		if ((word == 1 && *list == '*') ||
		    (word == n && strncmp(list, tag, n) == 0))
			return true;
		list += word;
	}
	return false;
}

bool ofs_server_is_local(const char *host)
{
	const char *colon = strrchr(host, ':');
	size_t n = colon != NULL && strchr(colon, ']') == NULL
	    ? (size_t)(colon - host)
	    : strlen(host);

	if ((n == 9 && strncasecmp(host, "localhost", n) == 0) ||
	    (n == 5 && strncmp(host, "[::1]", n) == 0))
		return true;
	return n > 4 && strncmp(host, "127.", 4) == 0 &&
	    strspn(host, "0123456789.") == n;
}
