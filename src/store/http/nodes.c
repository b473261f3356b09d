/* nodes.c - several servers that have a checkpoint together */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/nodes.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/str.h"

/* Of a file that two servers have, these bytes are compared: all of a short one,
 * samples of a longer one. */
#define WHOLE   (UINT64_C(1) << 20)
#define SAMPLE  (UINT64_C(64) << 10)
#define SAMPLES 16
/* Who did not answer for the whole timeout is asked only once for so long. */
#define FAILED_MS 60000

/* Patterns. */

struct range {
	unsigned first, last, width;
};

/* "1..4" or "01..16". */
static bool is_range(const char *p, size_t n, struct range *r)
{
	int b = 0, end = 0;
	char text[32];

	if (n >= sizeof(text))
		return false;
	memcpy(text, p, n);
	text[n] = '\0';
	if (sscanf(text, "%9u..%n%9u%n", &r->first, &b, &r->last, &end) != 2 ||
	    text[end] != '\0' || !isdigit((unsigned char)text[0]) ||
	    !isdigit((unsigned char)text[b]) || r->first > r->last)
		return false;
	r->width = text[0] == '0' ? (unsigned)strcspn(text, ".") : 0;
	return true;
}

/* The first group with alternatives. */
struct group {
	const char *open, *close; /* its braces */
	bool commas;
	struct range range;
};

static bool close_of(struct group *g)
{
	unsigned depth = 0;

	g->commas = false;
	for (const char *p = g->open; *p != '\0'; p++) {
		depth += *p == '{';
		g->commas |= *p == ',' && depth == 1;
		if (*p == '}' && --depth == 0) {
			g->close = p;
			return true;
		}
	}
	return false;
}

static bool find_group(const char *address, struct group *g)
{
	for (g->open = strchr(address, '{'); g->open != NULL;
	     g->open = strchr(g->open + 1, '{'))
		if (close_of(g) &&
		    (g->commas ||
			is_range(g->open + 1, (size_t)(g->close - g->open) - 1,
			    &g->range)))
			return true;
	return false;
}

bool ofs_nodes_are(const char *address)
{
	struct group g;

	return (address[0] == '{' || strncmp(address, "http", 4) == 0) &&
	    find_group(address, &g);
}

static int add_address(struct ofs_names *names, struct ofs_buf *b,
    struct optimfs_error *err)
{
	int ret;

	if (names->n == OFS_NODES_MOST)
		ret = optimfs_fail(err, EINVAL,
		    "OFS920 an address stands for more than %u servers",
		    OFS_NODES_MOST);
	else
		ret = b->bad
		    ? ofs_no_memory(err)
		    : ofs_names_add(names,
			  b->len == 0 ? "" : (const char *)b->data, b->len,
			  err);
	ofs_buf_fini(b);
	return ret;
}

static int add_number(struct ofs_names *names, const char *address,
    const struct group *g, unsigned number, struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };

	ofs_buf_put(&b, address, (size_t)(g->open - address));
	ofs_buf_printf(&b, "%0*u", (int)g->range.width, number);
	ofs_buf_puts(&b, g->close + 1);
	return add_address(names, &b, err);
}

static int add_words(struct ofs_names *names, const char *address,
    const struct group *g, struct optimfs_error *err)
{
	const char *word = g->open + 1;
	unsigned depth = 0;

	for (const char *p = word; p <= g->close; p++) {
		struct ofs_buf b = { 0 };

		depth += *p == '{';
		if (*p == '}' && depth > 0)
			depth--;
		else if (p == g->close || (*p == ',' && depth == 0)) {
			ofs_buf_put(&b, address, (size_t)(g->open - address));
			ofs_buf_put(&b, word, (size_t)(p - word));
			ofs_buf_puts(&b, g->close + 1);
			if (add_address(names, &b, err) == -1)
				return -1;
			word = p + 1;
		}
	}
	return 0;
}

/* Expands the first group of one name. */
static int expand_group(struct ofs_names *names, const char *address,
    const struct group *g, struct optimfs_error *err)
{
	if (g->commas)
		return add_words(names, address, g, err);
	for (unsigned i = g->range.first; i <= g->range.last; i++)
		if (add_number(names, address, g, i, err) == -1)
			return -1;
	return 0;
}

/* 1: at least one name had a group. */
static int expand_all(struct ofs_names *names, struct optimfs_error *err)
{
	struct ofs_names more = { 0 };
	struct group g;
	int ret = 0;

	for (size_t i = 0; i < names->n && ret != -1; i++) {
		const char *name = names->name[i];

		if (!find_group(name, &g))
			ret |= ofs_names_add(&more, name, strlen(name), err);
		else
			ret = expand_group(&more, name, &g, err) == -1 ? -1 : 1;
	}
	ofs_names_free(names);
	*names = more;
	return ret;
}

static int check_address(const char *address, struct optimfs_error *err)
{
	struct ofs_url url;

	if (ofs_url_parse(address, &url, err) == -1)
		return -1;
	return ofs_str_is(url.scheme, "http") || ofs_str_is(url.scheme, "https")
	    ? 0
	    : optimfs_fail(err, EINVAL,
		  "OFS920 %s: not the address of a web server, as those of "
		  "several nodes are",
		  address);
}

int ofs_nodes_expand(const char *address, struct ofs_names *names,
    struct optimfs_error *err)
{
	int ret;

	*names = (struct ofs_names){ 0 };
	ret = ofs_names_add(names, address, strlen(address), err);
	while (ret != -1 && (ret = expand_all(names, err)) == 1)
		;
	for (size_t i = 0; ret == 0 && i < names->n; i++)
		ret = check_address(names->name[i], err);
	if (ret == -1)
		ofs_names_free(names);
	return ret;
}

/* Copies. */

struct ofs_http_version *ofs_nodes_state(const struct ofs_http_site *s,
    uint32_t file, uint32_t host)
{
	if (s->node[file].host == host)
		return &s->node[file].is;
	for (uint32_t k = s->node[file].copy; k != OFS_NONE;
	     k = s->copy[k].next)
		if (s->copy[k].host == host)
			return &s->copy[k].is;
	return NULL;
}

int ofs_nodes_add_copy(struct ofs_http_site *s, uint32_t file,
    const struct ofs_http_version *is, struct optimfs_error *err)
{
	struct ofs_http_copy *c;

	if (ofs_nodes_state(s, file, s->listing) != NULL)
		return 0;
	if (ofs_grow(s->copy, s->ncopies, s->copy_cap, err) == -1)
		return -1;
	c = &s->copy[s->ncopies];
	*c = (struct ofs_http_copy){ .host = s->listing,
		.next = s->node[file].copy,
		.is.size = OFS_HTTP_UNTOLD };
	if (is != NULL)
		c->is = *is;
	s->node[file].copy = s->ncopies++;
	return 0;
}

/* The bytes that are compared. */
static size_t samples_of(uint64_t size, uint64_t first[SAMPLES],
    uint64_t len[SAMPLES])
{
	if (size <= WHOLE) {
		first[0] = 0;
		len[0] = size;
		return size == 0 ? 0 : 1;
	}
	for (size_t i = 0; i < SAMPLES; i++) {
		first[i] = (size - SAMPLE) / (SAMPLES - 1) * i;
		len[i] = SAMPLE;
	}
	return SAMPLES;
}

/* A hash of these bytes of a file of so many, as a server has it. */
static int hash_of(struct ofs_http_site *s, uint32_t file, uint32_t host,
    uint64_t size, uint64_t *hash, struct optimfs_error *err)
{
	uint64_t first[SAMPLES], len[SAMPLES];
	size_t n = samples_of(size, first, len);
	uint8_t *buf = ofs_alloc(WHOLE, 1, err), *at = buf;
	struct ofs_http_get *g = calloc(SAMPLES, sizeof(*g));
	char *url = ofs_http_address(s, host, ofs_http_path(s, file), "", err);
	int ret = buf == NULL || g == NULL || url == NULL ? -1 : 0;

	for (size_t i = 0; ret == 0 && i < n; i++) {
		g[i] = (struct ofs_http_get){ .url = url,
			.name = url,
			.login = &s->login,
			.first = first[i],
			.n = len[i],
			.into = at };
		at += len[i];
	}
	if (ret == 0 && n > 0)
		ret = ofs_http_get(s->http, &s->count, g, n);
	if (ret == 0)
		*hash = XXH64(buf, (size_t)(at - buf), size);
	for (size_t i = 0; ret == -1 && g != NULL && i < n; i++)
		if (g[i].err.code != 0)
			optimfs_fail_with(err, &g[i].err);
	if (g == NULL)
		ret = ofs_no_memory(err);
	free(url);
	free(g);
	free(buf);
	return ret;
}

static int differ(const struct ofs_http_site *s, uint32_t file, uint32_t a,
    uint32_t b, const char *what, struct optimfs_error *err)
{
	return optimfs_fail(err, EINVAL,
	    "OFS927 %.60s: not the same file (%s) at %.60s and %.60s: these "
	    "have no parts of one checkpoint",
	    ofs_http_path(s, file), what, s->host[a].root, s->host[b].root);
}

/* The size of a file that no listing tells. */
static int ask_size(struct ofs_http_site *s, uint32_t file, uint32_t host,
    struct ofs_http_version *is, struct optimfs_error *err)
{
	uint8_t byte;
	struct ofs_http_get g = {
		.url =
		    ofs_http_address(s, host, ofs_http_path(s, file), "", err),
		.login = &s->login,
		.n = 1,
		.into = &byte,
	};

	if (g.url == NULL)
		return -1;
	g.name = g.url;
	if (ofs_http_get(s->http, &s->count, &g, 1) == -1)
		optimfs_fail_with(err, &g.err);
	free((char *)g.url);
	if (g.err.code == 0)
		*is = g.answer.is;
	return g.err.code == 0 ? 0 : -1;
}

/* What two machines that share a file system tell of a file is the same to the
 * nanosecond, if they are optimfs serve: only it lists tags. */
static bool is_evident(const struct ofs_http_version *a,
    const struct ofs_http_version *b)
{
	return a->size != OFS_HTTP_UNTOLD && a->size == b->size &&
	    a->etag[0] != '\0' && strcmp(a->etag, b->etag) == 0;
}

static int compare_copy(struct ofs_http_site *s, uint32_t file,
    struct ofs_http_copy *c, uint64_t *hash, bool *hashed,
    struct optimfs_error *err)
{
	struct ofs_http_node *node = &s->node[file];
	uint64_t other;

	if (is_evident(&node->is, &c->is))
		return 0;
	if (node->is.size == OFS_HTTP_UNTOLD &&
	    ask_size(s, file, node->host, &node->is, err) == -1)
		return -1;
	if (c->is.size == OFS_HTTP_UNTOLD &&
	    ask_size(s, file, c->host, &c->is, err) == -1)
		return -1;
	if (node->is.size != c->is.size)
		return differ(s, file, node->host, c->host, "of another size",
		    err);
	if (!*hashed &&
	    hash_of(s, file, node->host, node->is.size, hash, err) == -1)
		return -1;
	*hashed = true;
	if (hash_of(s, file, c->host, c->is.size, &other, err) == -1)
		return -1;
	return *hash == other
	    ? 0
	    : differ(s, file, node->host, c->host, "with other bytes", err);
}

/* Exchanges the server that is asked and the first of the others, which becomes
 * the last one. */
static void turn(struct ofs_http_site *s, uint32_t file)
{
	struct ofs_http_node *node = &s->node[file];
	struct ofs_http_copy *c = &s->copy[node->copy], was = *c;
	uint32_t first = node->copy, *end = &node->copy;

	c->host = node->host;
	c->is = node->is;
	node->host = was.host;
	node->is = was.is;
	if (c->next == OFS_NONE)
		return;
	*end = c->next;
	c->next = OFS_NONE;
	while (*end != OFS_NONE)
		end = &s->copy[*end].next;
	*end = first;
}

static uint32_t count_copies(const struct ofs_http_site *s, uint32_t file)
{
	uint32_t n = 0;

	for (uint32_t k = s->node[file].copy; k != OFS_NONE;
	     k = s->copy[k].next)
		n++;
	return n;
}

static int compare_file(struct ofs_http_site *s, uint32_t file,
    struct optimfs_error *err)
{
	const char *path = ofs_http_path(s, file);
	bool hashed = false;
	uint64_t hash = 0;
	uint32_t n;

	for (uint32_t k = s->node[file].copy; k != OFS_NONE;
	     k = s->copy[k].next)
		if (compare_copy(s, file, &s->copy[k], &hash, &hashed, err) ==
		    -1)
			return -1;
	/* each of them has its share */
	n = count_copies(s, file);
	if (n > 0)
		n = (uint32_t)(XXH64(path, strlen(path), 0) % (n + 1));
	for (; n > 0; n--)
		turn(s, file);
	return 0;
}

int ofs_nodes_compare(struct ofs_http_site *s, uint32_t dir,
    struct optimfs_error *err)
{
	for (uint32_t k = s->node[dir].child; k != OFS_NONE;
	     k = s->node[k].next)
		if (s->node[k].copy != OFS_NONE &&
		    compare_file(s, k, err) == -1)
			return -1;
	return 0;
}

/* Asking. */

char *ofs_nodes_address(struct ofs_http_site *s, uint32_t file, uint32_t tries,
    uint32_t *host, struct ofs_http_version *is, bool *once,
    struct optimfs_error *err)
{
	const struct ofs_http_node *node;
	const struct ofs_http_host *h;
	char *url;

	pthread_mutex_lock(&s->lock);
	node = &s->node[file];
	h = &s->host[node->host];
	*host = node->host;
	*is = node->is;
	*once = s->nhosts > 1 &&
	    (tries < count_copies(s, file) ||
		(h->failed_ms != 0 &&
		    ofs_clock_ms() - h->failed_ms < FAILED_MS));
	url = ofs_http_address(s, *host, ofs_http_path(s, file), "", err);
	pthread_mutex_unlock(&s->lock);
	return url;
}

/* Is it the server, not the file? */
static bool is_silent(const struct optimfs_error *err)
{
	return err->number == 922 || err->number == 923 || err->number == 754;
}

bool ofs_nodes_asked(struct ofs_http_site *s, uint32_t file, uint32_t host,
    const struct optimfs_error *err, uint32_t tries)
{
	bool again = false;

	if (s->nhosts == 1)
		return false;
	pthread_mutex_lock(&s->lock);
	s->host[host].failed_ms =
	    err->code != 0 && err->number == 922 ? ofs_clock_ms() : 0;
	if (err->code != 0 && is_silent(err) && tries < count_copies(s, file)) {
		/* unless another range has done it */
		if (s->node[file].host == host)
			turn(s, file);
		again = true;
	}
	pthread_mutex_unlock(&s->lock);
	return again;
}
