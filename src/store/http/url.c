/* url.c - addresses of checkpoints on servers */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/url.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

static int refuse(const char *text, const char *why, struct optimfs_error *err)
{
	size_t n = strcspn(text, "?#");
	const char *host = strstr(text, "://");

	/* what may be a secret is not shown */
	if (host != NULL && memchr(text, '@', n) != NULL)
		n = (size_t)(host - text);
	return optimfs_fail(err, EINVAL, "OFS920 %.*s: %s", (int)n, text, why);
}

int ofs_url_parse(const char *text, struct ofs_url *url,
    struct optimfs_error *err)
{
	const char *host = strstr(text, "://");
	size_t n;

	if (host == NULL)
		return refuse(text, "not an address, SCHEME://HOST/PATH", err);
	url->scheme = (struct ofs_str){ text, (uint32_t)(host - text) };
	host += 3;
	if (strpbrk(host, "?#") != NULL)
		return refuse(text,
		    "an address with a query or a fragment, such as a signed "
		    "one, is not read",
		    err);
	n = strcspn(host, "/");
	if (memchr(host, '@', n) != NULL && !ofs_str_is(url->scheme, "hf"))
		return refuse(text,
		    "no user and password in an address: they belong into "
		    "~/.netrc",
		    err);
	if (n == 0)
		return refuse(text, "no host", err);
	url->host = (struct ofs_str){ host, (uint32_t)n };
	host += n + strspn(host + n, "/");
	n = strlen(host);
	url->is_dir = n > 0 && host[n - 1] == '/';
	while (n > 0 && host[n - 1] == '/')
		n--;
	url->path = (struct ofs_str){ host, (uint32_t)n };
	return 0;
}

void ofs_url_escape(struct ofs_buf *b, const char *path, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)path[i];

		if (c < 128 && (isalnum(c) || strchr("-._~/", c) != NULL))
			ofs_buf_putc(b, c);
		else
			ofs_buf_printf(b, "%%%02X", c);
	}
}

static int digit_of(char c)
{
	static const char digits[] = "0123456789abcdef";
	const char *at =
	    c == '\0' ? NULL : strchr(digits, tolower((unsigned char)c));

	return at == NULL ? -1 : (int)(at - digits);
}

bool ofs_url_decode(const char *p, size_t n, char *out)
{
	size_t k = 0;

	for (size_t i = 0; i < n; i++) {
		int high, low;

		if (p[i] != '%') {
			out[k++] = p[i];
			continue;
		}
		high = i + 2 < n ? digit_of(p[i + 1]) : -1;
		low = high == -1 ? -1 : digit_of(p[i + 2]);
		if (low == -1 || (high == 0 && low == 0))
			return false;
		out[k++] = (char)(high << 4 | low);
		i += 2;
	}
	out[k] = '\0';
	return true;
}
