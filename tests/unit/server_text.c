/* server_text.c - tests for tools/server_text.c: what clients send */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "serve/server.h"
#include "tests/tap/tap.h"

static const struct {
	const char *header;
	uint64_t size;
	int ret;
	uint64_t first, end;
} ranges[] = {
	{ "bytes=0-0", 10, 1, 0, 1 },
	{ "bytes=3-", 10, 1, 3, 10 },
	{ "Bytes=3-99", 10, 1, 3, 10 },
	{ "bytes=-3", 10, 1, 7, 10 },
	{ "bytes=-99", 10, 1, 0, 10 },
	{ "bytes=9-9", 10, 1, 9, 10 },
	{ "bytes=0-18446744073709551615", 10, 1, 0, 10 },
	{ "bytes=0-99999999999999999999999", 10, 1, 0, 10 },
	{ "bytes=10-", 10, -1, 0, 0 },
	{ "bytes=99999999999999999999999-", 10, -1, 0, 0 },
	{ "bytes=-0", 10, -1, 0, 0 },
	{ "bytes=0-", 0, -1, 0, 0 },
	{ "bytes=-5", 0, -1, 0, 0 },
	{ "bytes=3-2", 10, 0, 0, 0 },
	{ "bytes=-", 10, 0, 0, 0 },
	{ "bytes=", 10, 0, 0, 0 },
	{ "bytes=0-1,4-5", 10, 0, 0, 0 },
	{ "bytes=+1-2", 10, 0, 0, 0 },
	{ "bytes=1- 2", 10, 0, 0, 0 },
	{ "items=0-1", 10, 0, 0, 0 },
	{ "", 10, 0, 0, 0 },
};

static void test_ranges(void)
{
	for (size_t i = 0; i < sizeof(ranges) / sizeof(*ranges); i++) {
		uint64_t first, end;
		int ret = ofs_server_range(ranges[i].header, ranges[i].size,
		    &first, &end);

		ok(ret == ranges[i].ret &&
			(ret != 1 ||
			    (first == ranges[i].first && end == ranges[i].end)),
		    "range '%s' of %u bytes", ranges[i].header,
		    (unsigned)ranges[i].size);
	}
}

static void decodes(const char *url, const char *path)
{
	struct ofs_buf b = { 0 };
	bool good = ofs_server_decode(&b, url);

	ok(path == NULL ? !good : good && strcmp((char *)b.data, path) == 0,
	    "URL '%s'", url);
	ofs_buf_fini(&b);
}

static void encodes(const char *name)
{
	struct ofs_buf url = { 0 }, back = { 0 };

	ofs_server_encode(&url, name);
	ofs_buf_putc(&url, '\0');
	ok(strpbrk((char *)url.data, " \"<>/?#:&'") == NULL &&
		ofs_server_decode(&back, (char *)url.data) &&
		strcmp((char *)back.data, name) == 0,
	    "a name that is %s in a URL", (char *)url.data);
	ofs_buf_fini(&url);
	ofs_buf_fini(&back);
}

static void test_text(void)
{
	struct ofs_buf b = { 0 };

	ofs_server_escape(&b, "<a href=\"x\">&'\x1b[31m\xe2\x80\xae");
	ofs_buf_putc(&b, '\0');
	ok(strpbrk((char *)b.data, "<>\"\x1b") == NULL &&
		strstr((char *)b.data, "\xe2\x80\xae") == NULL,
	    "neither HTML nor control characters are left: %s", (char *)b.data);
	ofs_buf_fini(&b);
}

static void test_words(void)
{
	char date[OFS_SERVER_DATE];

	ok(ofs_server_matches("\"b\", \"a\"", "\"a\""), "a tag in a list");
	ok(ofs_server_matches("*", "\"a\""), "any tag");
	ok(!ofs_server_matches("\"ab\"", "\"a\""), "another tag");
	ok(!ofs_server_matches("", "\"a\""), "no tag");
	ok(ofs_server_is_local("localhost") &&
		ofs_server_is_local("LocalHost:80") &&
		ofs_server_is_local("127.0.0.1:8080") &&
		ofs_server_is_local("[::1]:1") && ofs_server_is_local("[::1]"),
	    "names of this machine");
	ok(!ofs_server_is_local("127.0.0.1.example.org") &&
		!ofs_server_is_local("localhost.example.org:80") &&
		!ofs_server_is_local("example.org") &&
		!ofs_server_is_local("") && !ofs_server_is_local("127.") &&
		!ofs_server_is_local("[::2]:1"),
	    "names of others");
	ofs_server_date(INT64_C(1445412480) * 1000000000, date);
	ok(strcmp(date, "Wed, 21 Oct 2015 07:28:00 GMT") == 0, "a date");
}

int main(void)
{
	test_ranges();
	decodes("/a%2fb%20c", "/a/b c");
	decodes("/%E2%82%ac", "/\xe2\x82\xac");
	decodes("/", "/");
	decodes("/%00", NULL);
	decodes("/%", NULL);
	decodes("/%4", NULL);
	decodes("/%4g", NULL);
	encodes("layers.0 \"<x>/?#:&'\xff%41\n");
	encodes("dcp@8,crc");
	test_text();
	test_words();
	return done_testing();
}
