/* http.c - what servers say: addresses, headers, listings, blocks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "store/http/answer.h"
#include "store/http/blocks.h"
#include "store/http/links.h"
#include "store/http/nodes.h"
#include "store/http/url.h"
#include "tap.h"

static void addresses(void)
{
	struct optimfs_error err;
	struct ofs_url url;
	struct ofs_buf b = { 0 };
	char out[16];

	is_int(ofs_url_parse("https://host:8080/a/b%20c//", &url, &err), 0,
	    "an address is parsed");
	ok(ofs_str_is(url.scheme, "https") && ofs_str_is(url.host, "host:8080"),
	    "into scheme and host");
	ok(ofs_str_is(url.path, "a/b%20c") && url.is_dir,
	    "and a path without slashes at its ends");
	is_int(ofs_url_parse("https://me:secret@host/", &url, &err), -1,
	    "one with a password is refused");
	ok(strstr(err.text, "secret") == NULL, "and the error is silent on it");
	is_int(ofs_url_parse("https://host/a?sig=secret", &url, &err), -1,
	    "so is one with a query");
	is_error(err, EINVAL, "OFS920", "which has a number");
	ok(strstr(err.text, "secret") == NULL, "and is not shown");
	is_int(ofs_url_parse("https:///a", &url, &err), -1,
	    "so is one without a host");
	ofs_url_escape(&b, "a b/\xc3\xa9?", 7);
	ofs_buf_putc(&b, '\0');
	is_str((char *)b.data, "a%20b/%C3%A9%3F", "what is special is escaped");
	ofs_buf_fini(&b);
	ok(ofs_url_decode("a%20b", 5, out) && strcmp(out, "a b") == 0,
	    "an escape is decoded");
	ok(!ofs_url_decode("a%2", 3, out) && !ofs_url_decode("%zz", 3, out),
	    "half an escape is none");
	ok(!ofs_url_decode("a%00b", 5, out), "nor is that of NUL");
}

/* All addresses of a pattern, each with a blank behind it. */
static const char *expanded(const char *pattern)
{
	static char all[4096];
	static struct optimfs_error err;
	struct ofs_names names;

	all[0] = '\0';
	if (ofs_nodes_expand(pattern, &names, &err) == -1)
		return err.text;
	for (size_t i = 0; i < names.n; i++) {
		strcat(all, names.name[i]);
		strcat(all, " ");
	}
	ofs_names_free(&names);
	return all;
}

static void patterns(void)
{
	static const char *const none[] = { "http://h/", "http://h/{a}",
		"http://h/{1..}", "http://h/{a..c}", "http://h/{4..1}",
		"http://h/{1,2", "s3://{a,b}/c", "/{a,b}", "http://h/}{" };
	static const char *const bad[] = { "{http://a,s3://b}", "{http://a,b}",
		"{http://a,http://me@b}", "{http://a,}",
		"http://n{1..10}{1..1000}", "http://n{0..999999999}" };

	is_str(expanded("http://n{1..3}:7/a"),
	    "http://n1:7/a http://n2:7/a http://n3:7/a ", "numbers");
	is_str(expanded("http://n{08..10}/"),
	    "http://n08/ http://n09/ http://n10/ ", "with as many digits");
	is_str(expanded("http://{a,b}{1,2}"),
	    "http://a1 http://a2 http://b1 http://b2 ", "words, twice");
	is_str(expanded("{http://n{1..2},https://x:1}/c"),
	    "http://n1/c http://n2/c https://x:1/c ", "a pattern in another");
	is_str(expanded("http://h/{a}"), "http://h/{a} ", "one word is none");
	for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
		ok(!ofs_nodes_are(none[i]), "no pattern: %s", none[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		ok(ofs_nodes_are(bad[i]) && strstr(expanded(bad[i]), "OFS920"),
		    "refused: %s", bad[i]);
}

static void headers(void)
{
	static const char text[] =
	    "HTTP/1.1 206 Partial Content\r\n"
	    "content-RANGE:  bytes 5-9/1000\r\n"
	    "Content-Length: 5\r\nETag: \"abc\"\r\n"
	    "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
	    "Content-Type: Text/HTML; charset=utf-8\r\n"
	    "Retry-After: 7\r\n"
	    "Link: <https://h/next?c=1>; rel=\"next\"\r\n\r\n";
	static const char *const odd[] = {
		"Content-Range: bytes 5-9/abc\n",
		"Content-Range: bytes 99999999999999999999-9/10\n",
		"Content-Range: bytes -5-9/10\n",
		"Content-Length: -1\n",
		"Content-Length: 99999999999999999999\n",
		"ETag: W/\"weak\"\n",
		"Last-Modified: yesterday\n",
		"Retry-After: soon\n",
		"RateLimit: \"api\";r=9;t=7\n",
		"RateLimit: \"api\";r=0;t=\n",
		"Link: <https://h/next?c=1\n",
		"no colon\n",
	};
	struct ofs_http_answer a;
	bool untold = true;

	ofs_http_headers(text, strlen(text), 0, &a);
	ok(a.first == 5 && a.last == 9 && a.is.size == 1000,
	    "a range has its ends, and the size of the file");
	is_u64(a.length, 5, "a body has its length");
	is_str(a.is.etag, "\"abc\"", "a strong tag is kept");
	is_int(a.is.modified_ns / 1000000000, 784111777, "a date is a time");
	is_str(a.type, "text/html", "a type is in lower case, without more");
	is_u64(a.retry_after, 7, "a pause has seconds");
	is_str(a.next, "https://h/next?c=1", "a page has a next one");
	ofs_http_headers("Retry-After: Sun, 06 Nov 1994 08:49:37 GMT\n", 43,
	    784111770, &a);
	is_u64(a.retry_after, 7, "or lasts until a date");
	ofs_http_headers("RateLimit: \"api\";r=0;t=55\n", 27, 0, &a);
	is_u64(a.retry_after, 55, "or until a limit ends");
	for (size_t i = 0; i < sizeof(odd) / sizeof(*odd); i++) {
		ofs_http_headers(odd[i], strlen(odd[i]), 0, &a);
		untold &= a.is.size == OFS_HTTP_UNTOLD &&
		    a.length == OFS_HTTP_UNTOLD && a.is.etag[0] == '\0' &&
		    a.is.modified_ns == 0 && a.retry_after == OFS_HTTP_UNTOLD &&
		    a.next[0] == '\0' && (i < 3 || a.first == OFS_HTTP_UNTOLD);
		if (!untold)
			diag("%s", odd[i]);
	}
	ok(untold, "what is malformed says nothing");
}

static void states(void)
{
	struct ofs_http_version a = { .size = 5, .etag = "\"a\"" }, b = a;

	ok(ofs_http_same(&a, &b), "a state is the same as itself");
	b.size = 6;
	ok(!ofs_http_same(&a, &b), "another size is another state");
	b.size = OFS_HTTP_UNTOLD;
	ok(ofs_http_same(&a, &b), "a size that is not told is none");
	strcpy(b.etag, "\"b\"");
	ok(!ofs_http_same(&a, &b), "another tag is another state");
	b.etag[0] = '\0';
	a.modified_ns = 1;
	b.modified_ns = 2;
	ok(!ofs_http_same(&a, &b), "without tags, so is another time");
}

/* Appends "NAME:SIZE " to a text. */
static int put(void *ctx, const struct ofs_http_link *link,
    struct optimfs_error *err)
{
	char *text = ctx;

	(void)err;
	strcat(text, link->name);
	if (link->is_dir)
		strcat(text, "/");
	if (link->is.size != OFS_HTTP_UNTOLD)
		strcat(text, ":sized");
	strcat(text, " ");
	return 0;
}

static void is_html(const char *html, const char *want, const char *name)
{
	char got[1024] = "";

	ofs_http_links_html(html, strlen(html), put, got, NULL);
	is_str(got, want, "%s", name);
}

static void is_json(const char *json, const char *want, const char *name)
{
	struct optimfs_error err = { 0 };
	char got[1024] = "";
	int ret = ofs_http_links_json(json, strlen(json), put, got, &err);

	is_str(ret == 0 ? got : "refused", want, "%s", name);
}

static void listings(void)
{
	is_html(
	    "<a href=\"a\">a</a><A class=x HREF='b/'>b</A><a href=c d>c</a>",
	    "a b/ c ", "links are names, however they are quoted");
	is_html(
	    "<a href=\"?C=N\">N</a><a href=\"../\">up</a><a href=\"/\">top</a>"
	    "<a href=\"https://other/x\">x</a><a href=\"//other/x\">x</a>"
	    "<a href=\"x#y\">y</a><abbr href=\"z\">",
	    "", "those with a query, upwards or to others are not");
	is_html("<a href=\"a%20b&amp;c\">x</a>", "a b&c ",
	    "escapes and entities are decoded");
	is_html("<a href=\"%2e%2e/x\">x</a><a href=\"a%00\">x</a>", "",
	    "nor do they hide a way up");
	is_html("<a href=\"cut", "", "a page that is cut off has no more");
	is_html("<a", "", "not even a tag");
	is_json("[{\"name\":\"a\",\"type\":\"file\",\"size\":5,\"more\":[1]},"
		"{\"type\":\"directory\",\"name\":\"b\"}]",
	    "a:sized b/ ", "JSON has names, types and sizes");
	is_json("[]", "", "or none");
	is_json("{\"name\":\"a\"}", "refused", "another document is refused");
	is_json("[1]", "refused", "so is another array");
	is_json("[{\"name\":\"a\"", "refused", "and one that is cut off");
}

/* Two blocks and a bit, which come together. */
static void long_blocks(void)
{
	const size_t block = (size_t)OFS_HTTP_BLOCK, n = 2 * block + 2;
	struct ofs_http_blocks *b = ofs_http_blocks_new(n, NULL);
	uint8_t *p = calloc(1, n);
	char out[4] = "";

	if (b == NULL || p == NULL)
		bail_out("no memory");
	p[block] = 'x';
	memcpy(p + 2 * block, "yz", 2);
	ofs_http_blocks_give(b, 1, 7, p, n);
	ok(ofs_http_blocks_get(b, 1, 8, 0, out, 1) && out[0] == 'x' &&
		ofs_http_blocks_get(b, 1, 9, 1, out, 1) && out[0] == 'z',
	    "blocks that come together are found one by one");
	ok(!ofs_http_blocks_get(b, 1, 9, 1, out, 2) &&
		!ofs_http_blocks_has(b, 1, 10),
	    "and nothing behind them");
	ofs_http_blocks_put(b, 1, 8, "new", 3);
	ok(!ofs_http_blocks_has(b, 1, 7) &&
		ofs_http_blocks_get(b, 1, 8, 0, out, 3) &&
		memcmp(out, "new", 3) == 0,
	    "they go together, but not what has taken the place of one");
	ofs_http_blocks_free(b);
}

/* Of three blocks that come together, when others need their room. */
static void held_blocks(void)
{
	const size_t block = (size_t)OFS_HTTP_BLOCK, n = 2 * block + 2;
	struct ofs_http_blocks *b = ofs_http_blocks_new(n, NULL);
	uint8_t *p = calloc(1, n);
	uint64_t have = n, some = 5;
	const uint8_t *at;
	void *held, *other;

	if (b == NULL || p == NULL)
		bail_out("no memory");
	memcpy(p + 2 * block, "yz", 2);
	ofs_http_blocks_give(b, 1, 7, p, n);
	at = ofs_http_blocks_hold(b, 1, 8 * block + 3, &have, &held);
	ok(at == p + block + 3 && have == block - 1,
	    "bytes are held where they are, over several blocks");
	ok(ofs_http_blocks_hold(b, 1, 7 * block, &some, &other) == p &&
		some == 5,
	    "and no more than is wanted");
	ofs_http_blocks_let(b, other);
	ok(ofs_http_blocks_hold(b, 1, 9 * block + 2, &some, &other) == NULL &&
		ofs_http_blocks_hold(b, 2, 7 * block, &some, &other) == NULL,
	    "there are none behind them, and none of another file");
	p = calloc(1, n);
	ofs_http_blocks_give(b, 2, 0, p, p == NULL ? 0 : n);
	ok(!ofs_http_blocks_has(b, 1, 7) && memcmp(at + have - 2, "yz", 2) == 0,
	    "they stay for their holder when they are forgotten");
	ofs_http_blocks_let(b, held);
	ofs_http_blocks_free(b);
}

static void count_calls(void *ctx)
{
	++*(int *)ctx;
}

static bool holds(struct ofs_http_blocks *b, uint64_t number, char first)
{
	uint64_t n = 2 * OFS_HTTP_BLOCK;
	void *held;
	const uint8_t *p =
	    ofs_http_blocks_hold(b, 1, number * OFS_HTTP_BLOCK, &n, &held);
	bool is = p != NULL && n == OFS_HTTP_BLOCK && p[0] == (uint8_t)first;

	if (p != NULL)
		ofs_http_blocks_let(b, held);
	return is;
}

/* Four blocks of one file, of which two are kept ahead of the reader. */
static void coming_blocks(void)
{
	const size_t block = (size_t)OFS_HTTP_BLOCK;
	struct ofs_http_blocks *b = ofs_http_blocks_new(4 * block, NULL);
	int asked = 0;
	struct ofs_http_flow *f =
	    ofs_http_flow_new(b, 2 * block, count_calls, &asked, NULL);
	struct ofs_http_slab *s =
	    ofs_http_flow_expect(f, 0, 1, 5, 4 * block, NULL);
	uint8_t *p = calloc(5, block);
	bool came = true;
	char out[2];

	if (b == NULL || f == NULL || s == NULL || p == NULL)
		bail_out("no memory");
	for (size_t i = 0; i < block; i += block / 8)
		p[i] = (uint8_t)(i / 1000);
	for (int i = 0; i < 4; i++)
		p[i * block] = (uint8_t)("abcd"[i]);
	for (size_t at = 0; at < 2 * block; at += block / 4)
		came = ofs_http_flow_take(s, p + at, block / 4) ==
			OFS_HTTP_TAKEN &&
		    came;
	ok(came && ofs_http_blocks_get(b, 1, 5, 0, p + 4 * block, block) &&
		memcmp(p + 4 * block, p, block) == 0,
	    "blocks come in pieces");
	is_int(ofs_http_flow_take(s, p + 2 * block, block), OFS_HTTP_LATER,
	    "what is too far ahead of the reader has to wait");
	ok(holds(b, 5, 'a') && holds(b, 6, 'b'), "he gets what is here");
	is_int(asked, 1, "then it may come");
	is_int(ofs_http_flow_take(s, p + 2 * block, block), OFS_HTTP_TAKEN,
	    "and does");
	ok(holds(b, 7, 'c') && !ofs_http_blocks_has(b, 1, 6),
	    "what lies before a block that is held is forgotten");
	is_int(ofs_http_flow_take(s, p, 2 * block), OFS_HTTP_NEVER,
	    "more than was expected is refused");
	ok(ofs_http_blocks_has(b, 1, 8), "a block is expected");
	ofs_http_flow_end(s);
	ok(!ofs_http_blocks_get(b, 1, 8, 0, out, 1),
	    "and nobody waits for it when it does not come");
	ofs_http_flow_stop(f);
	is_int(ofs_http_flow_take(s, p, 1), OFS_HTTP_NEVER,
	    "nothing comes when nobody reads");
	ofs_http_flow_free(f);
	ok(!ofs_http_blocks_has(b, 1, 7), "all goes with the flow");
	ofs_http_blocks_free(b);
	free(p);
}

struct waiting {
	struct ofs_http_blocks *b;
	bool found;
};

static void *hold_last(void *ctx)
{
	struct waiting *w = ctx;

	w->found = holds(w->b, 9, 'x');
	return NULL;
}

/* The second of two slabs is read first. */
static void waiting_reader(void)
{
	const size_t block = (size_t)OFS_HTTP_BLOCK;
	struct ofs_http_blocks *b = ofs_http_blocks_new(4 * block, NULL);
	int asked = 0;
	struct ofs_http_flow *f =
	    ofs_http_flow_new(b, block, count_calls, &asked, NULL);
	struct ofs_http_slab *one =
	    ofs_http_flow_expect(f, 0, 1, 0, 2 * block, NULL);
	struct ofs_http_slab *two =
	    ofs_http_flow_expect(f, 2 * block, 1, 8, 2 * block, NULL);
	struct waiting w = { b, false };
	uint8_t *p = calloc(2, block);
	pthread_t reader;

	if (b == NULL || one == NULL || two == NULL || p == NULL)
		bail_out("no memory");
	p[block] = 'x';
	is_int(ofs_http_flow_take(two, p, 2 * block), OFS_HTTP_LATER,
	    "what is read later has to wait");
	if (pthread_create(&reader, NULL, hold_last, &w) != 0)
		bail_out("no thread");
	while (ofs_http_flow_take(two, p, 2 * block) == OFS_HTTP_LATER)
		sched_yield();
	pthread_join(reader, NULL);
	ok(w.found && asked > 0, "unless a reader waits for it");
	ofs_http_flow_end(one);
	ofs_http_flow_end(two);
	ofs_http_flow_free(f);
	ofs_http_blocks_free(b);
	free(p);
}

static void blocks(void)
{
	struct ofs_http_blocks *b = ofs_http_blocks_new(6, NULL);
	char out[4];

	ofs_http_blocks_put(b, 1, 0, "abc", 3);
	ofs_http_blocks_put(b, 2, 0, "bbb", 3);
	ok(ofs_http_blocks_get(b, 1, 0, 0, out, 3) &&
		memcmp(out, "abc", 3) == 0,
	    "a block is kept");
	ok(ofs_http_blocks_get(b, 1, 0, 1, out, 2) && memcmp(out, "bc", 2) == 0,
	    "a part of it is there");
	ok(!ofs_http_blocks_get(b, 1, 1, 0, out, 3),
	    "another one is not there");
	ok(!ofs_http_blocks_get(b, 1, 0, 2, out, 2), "nor what is behind it");
	ofs_http_blocks_put(b, 3, 0, "ccc", 3);
	ok(ofs_http_blocks_get(b, 1, 0, 0, out, 3) &&
		!ofs_http_blocks_has(b, 2, 0),
	    "the one that was not used for longest makes room");
	ofs_http_blocks_put(b, 1, 0, "ddd", 3);
	ok(ofs_http_blocks_get(b, 1, 0, 0, out, 3) && out[0] == 'd',
	    "a block is replaced");
	ofs_http_blocks_free(b);
	long_blocks();
	held_blocks();
	coming_blocks();
	waiting_reader();
}

int main(void)
{
	addresses();
	patterns();
	headers();
	states();
	listings();
	blocks();
	return done_testing();
}
