/* fetch.c - segments of files on a server, by few requests */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "store/http/fetch_impl.h"
#include "store/http/nodes.h"
#include "store/runs.h"

/* Ranges of parts (fetch_parts.c) go to the server together. Of those that are
 * short, or read onward, blocks are kept, and more is fetched than was asked for:
 * twice as much each time. */
#define LATE_MS 1000

/* Ranges. */

/* How much to fetch from r->first on, and that this was so. */
static uint64_t window_of(struct ofs_http_site *s,
    const struct ofs_http_range *r)
{
	struct ofs_http_node *node;
	uint64_t window;

	pthread_mutex_lock(&s->lock);
	node = &s->node[r->file];
	if (r->first != node->onward || node->window == 0)
		node->window = OFS_HTTP_BLOCK;
	else if (node->window < s->http->limits.range)
		node->window *= 2;
	node->onward = r->end;
	window = node->window;
	pthread_mutex_unlock(&s->lock);
	return window > r->end - r->first ? window : r->end - r->first;
}

static bool take_block(struct ofs_http_site *s, const struct ofs_http_range *r,
    struct ofs_http_disk_key *key, uint8_t *out, size_t n)
{
	if (ofs_http_blocks_get(s->blocks, r->file, key->number, 0, out, n))
		return true;
	if (s->disk == NULL || !ofs_http_disk_get(s->disk, key, out, n))
		return false;
	if (r->keep)
		ofs_http_blocks_put(s->blocks, r->file, key->number, out, n);
	return true;
}

/* Copies blocks from r->at on to its buffer, as long as there are any. */
static void take_blocks(struct ofs_http_site *s, struct ofs_http_range *r,
    struct ofs_http_disk_key *key)
{
	while (r->skip < r->len) {
		uint64_t n = r->len - r->skip;

		if (n > OFS_HTTP_BLOCK)
			n = OFS_HTTP_BLOCK;
		key->number = (r->at + r->skip) / OFS_HTTP_BLOCK;
		if (!take_block(s, r, key, r->buf + r->skip, (size_t)n))
			break;
		r->skip += n;
	}
	/* all that was asked for is there */
	if (r->at + r->skip >= r->end)
		r->skip = r->len;
}

void ofs_http_keep_blocks(struct ofs_http_site *s, struct ofs_http_range *r,
    struct ofs_http_disk_key *key)
{
	r->give = r->keep && r->skip == 0;
	for (uint64_t i = r->skip; i < r->len; i += OFS_HTTP_BLOCK) {
		size_t n = (size_t)(r->len - i);

		if (n > OFS_HTTP_BLOCK)
			n = OFS_HTTP_BLOCK;
		if (r->keep && !r->give)
			ofs_http_blocks_put(s->blocks, r->file,
			    (r->at + i) / OFS_HTTP_BLOCK, r->buf + i, n);
		if (s->disk == NULL)
			continue;
		key->number = (r->at + i) / OFS_HTTP_BLOCK;
		ofs_http_disk_put(s->disk, key, r->buf + i, n);
	}
}

static int prepare_blocks(struct ofs_http_fetching *f, struct ofs_http_range *r,
    struct ofs_http_disk_key *key, struct optimfs_error *err)
{
	struct ofs_http_site *s = f->s;
	uint64_t end = r->first + r->window;
	uint64_t size = key->is->size;

	end += OFS_HTTP_BLOCK - 1;
	end -= end % OFS_HTTP_BLOCK;
	r->at = r->first - r->first % OFS_HTTP_BLOCK;
	r->len = (end < size ? end : size) - r->at;
	r->buf = ofs_alloc_huge((size_t)r->len);
	if (r->buf == NULL)
		return ofs_no_memory(err);
	take_blocks(s, r, key);
	return 0;
}

/* Blocks that are read one after the other; one of the disk stays in block. */
struct source {
	struct ofs_http_site *s;
	uint32_t file;
	struct ofs_http_disk_key *key;
	uint8_t *block; /* NULL: only what is in memory */
	bool has;       /* it is block key->number */
};

static bool load_block(struct source *from, uint64_t number)
{
	uint64_t size = from->key->is->size, at = number * OFS_HTTP_BLOCK;
	size_t n =
	    (size_t)(size - at < OFS_HTTP_BLOCK ? size - at : OFS_HTTP_BLOCK);

	if (from->block == NULL)
		return false;
	if (!from->has || from->key->number != number) {
		from->key->number = number;
		from->has =
		    ofs_http_disk_get(from->s->disk, from->key, from->block, n);
	}
	return from->has;
}

/* Copies the bytes [src, src + len) of a file to out; false: blocks are missing. */
static bool copy_blocks(struct source *from, uint64_t src, uint64_t len,
    uint8_t *out)
{
	while (len > 0) {
		uint64_t number = src / OFS_HTTP_BLOCK;
		uint64_t off = src % OFS_HTTP_BLOCK, n = OFS_HTTP_BLOCK - off;

		if (n > len)
			n = len;
		if (!ofs_http_blocks_get(from->s->blocks, from->file, number,
			(size_t)off, out, (size_t)n)) {
			if (!load_block(from, number))
				return false;
			memcpy(out, from->block + off, (size_t)n);
		}
		src += n;
		out += n;
		len -= n;
	}
	return true;
}

static bool copy_parts(const struct ofs_http_fetching *f,
    const struct ofs_http_range *r, struct source *from)
{
	for (size_t i = r->part; i < r->part + r->n; i++) {
		const struct ofs_segment *p = &f->part[i];

		for (uint64_t k = 0; k < p->n; k++)
			if (!copy_blocks(from,
				p->src + k * (uint64_t)p->src_pitch, p->len,
				f->out + p->dst + k * (uint64_t)p->dst_pitch))
				return false;
	}
	return true;
}

/* Lays out parts whose blocks are all in memory, without a buffer. Of what would be
 * read by a list, they may be on the disk. */
static bool lay_out_blocks(const struct ofs_http_fetching *f,
    struct ofs_http_range *r, struct ofs_http_disk_key *key)
{
	struct source from = { f->s, r->file, key, NULL, false };

	if (f->out == NULL)
		return false;
	if (r->sparse && f->s->disk != NULL)
		from.block = malloc(OFS_HTTP_BLOCK);
	r->direct = copy_parts(f, r, &from);
	free(from.block);
	if (r->direct) {
		r->buf = f->out;
		r->len = 0;
	}
	return r->direct;
}

static int prepare_range(struct ofs_http_fetching *f, struct ofs_http_range *r,
    struct ofs_http_disk_key *key, struct optimfs_error *err)
{
	r->is_short = !r->sparse && r->end - r->first <= OFS_HTTP_SHORT;
	r->window = r->is_short ? window_of(f->s, r) : r->end - r->first;
	if (lay_out_blocks(f, r, key))
		return 0;
	if (r->sparse) {
		r->buf = ofs_alloc_huge((size_t)r->len);
		if (r->buf == NULL)
			return ofs_no_memory(err);
		ofs_http_get_sparse(f, r, key);
		return 0;
	}
	r->keep = r->is_short || f->out == NULL;
	if (r->keep || f->s->disk != NULL ||
	    ofs_http_blocks_has(f->s->blocks, r->file,
		r->first / OFS_HTTP_BLOCK))
		return prepare_blocks(f, r, key, err);
	r->at = r->first;
	r->len = r->end - r->first;
	r->direct = r->n == 1 && f->part[r->part].n == 1;
	r->buf = r->direct ? f->out + f->part[r->part].dst
			   : ofs_alloc_huge((size_t)r->len);
	return r->buf == NULL ? ofs_no_memory(err) : 0;
}

static void lay_out(const struct ofs_http_fetching *f,
    const struct ofs_http_range *r)
{
	if (r->direct || f->out == NULL)
		return;
	if (r->sparse) {
		ofs_http_lay_out_sparse(f, r);
		return;
	}
	for (size_t i = r->part; i < r->part + r->n; i++) {
		const struct ofs_segment *p = &f->part[i];

		ofs_copy_runs(f->out + p->dst, p->dst_pitch,
		    r->buf + (p->src - r->at), p->src_pitch, p->len, p->n);
	}
}

/* Requests. */

int ofs_http_add_request(struct ofs_http_fetching *f, struct ofs_http_round *k,
    struct ofs_http_range *r, struct optimfs_error *err)
{
	struct ofs_http_version *is = &k->is[k->asked];
	const char *path = ofs_http_version(f->s, r->file, is);
	bool once;
	char *url = ofs_nodes_address(f->s, r->file, 0, &k->host[k->asked], is,
	    &once, err);
	struct ofs_http_disk_key key = { url, is, f->s->pinned, NULL, 0 };

	if (url == NULL)
		return -1;
	if (r->expected == NULL &&
	    (prepare_range(f, r, &key, err) == -1 || r->skip == r->len)) {
		free(url);
		return r->buf == NULL ? -1 : 0;
	}
	k->of[k->asked] = r;
	k->g[k->asked++] = (struct ofs_http_get){
		.url = url,
		.name = f->s->nhosts > 1 ? url : path,
		.login = &f->s->login,
		.first = r->at + r->skip,
		.n = r->len - r->skip,
		.into = r->expected != NULL ? NULL : r->buf + r->skip,
		.is = is,
		.once = once,
		.take = r->expected != NULL ? ofs_http_take_expected : NULL,
		.ctx = r->expected,
	};
	return 0;
}

/* Asks others for what a server did not send. */
static int ask_others(struct ofs_http_fetching *f, struct ofs_http_round *k,
    size_t i, struct optimfs_error *err)
{
	struct ofs_http_get *g = &k->g[i];
	uint32_t file = k->of[i]->file;

	for (uint32_t tries = 0;
	     ofs_nodes_asked(f->s, file, k->host[i], &g->err, tries); tries++) {
		char *url = ofs_nodes_address(f->s, file, tries + 1,
		    &k->host[i], &k->is[i], &g->once, err);

		if (url == NULL)
			return -1;
		free((char *)g->url);
		g->url = g->name = url;
		(void)ofs_http_get(f->s->http, &f->s->count, g, 1);
	}
	return 0;
}

/* What came is of the state that is known now. */
static int take_answer(struct ofs_http_site *s, struct ofs_http_range *r,
    uint32_t host, const struct ofs_http_get *g, struct optimfs_error *err)
{
	struct ofs_http_version is = g->answer.is;
	struct ofs_http_disk_key key = { g->url, &is, s->pinned, NULL, 0 };

	if (g->err.code != 0)
		return optimfs_fail_with(err, &g->err);
	if (ofs_http_confirm(s, r->file, host, &is, err) == -1)
		return -1;
	if (r->direct)
		return 0;
	if (s->disk != NULL && g->is->etag[0] == '\0' && is.etag[0] != '\0')
		ofs_http_disk_note(s->disk, g->url);
	ofs_http_keep_blocks(s, r, &key);
	return 0;
}

int ofs_http_ask_round(struct ofs_http_fetching *f, struct ofs_http_round *k,
    struct optimfs_error *err)
{
	if (k->asked > 0)
		(void)ofs_http_get(f->s->http, &f->s->count, k->g, k->asked);
	for (size_t i = 0; i < k->asked; i++)
		if (k->g[i].list ? ofs_http_take_list(f, k, i, err) == -1
				 : ask_others(f, k, i, err) == -1 ||
			    take_answer(f->s, k->of[i], k->host[i], &k->g[i],
				err) == -1)
			return -1;
	return 0;
}

void ofs_http_end_round(struct ofs_http_site *s, struct ofs_http_round *k)
{
	for (size_t i = 0; i < k->asked; i++) {
		free((char *)k->g[i].url);
		if (k->g[i].list && k->of[i]->also != NULL)
			free(k->g[i].into);
	}
	for (size_t i = 0; i < k->n; i++) {
		struct ofs_http_range *r = &k->r[i];

		if (r->give)
			ofs_http_blocks_give(s->blocks, r->file,
			    r->at / OFS_HTTP_BLOCK, r->buf, (size_t)r->len);
		else if (!r->direct)
			free(r->buf);
	}
}

/* Fetches ranges from *part on. */
static int fetch_round(struct ofs_http_fetching *f, struct ofs_http_round *k,
    size_t *part, struct optimfs_error *err)
{
	int ret = 0;

	k->n = k->asked = 0;
	while (ret == 0 && *part < f->n && k->n < f->s->http->limits.requests) {
		struct ofs_http_range *r = &k->r[k->n++];

		*r = ofs_http_join_parts(f, *part);
		*part += r->n;
		ret = ofs_http_add_request(f, k, r, err);
	}
	if (ret == 0)
		ret = ofs_http_make_lists(f, k, err);
	if (ret == 0)
		ret = ofs_http_ask_round(f, k, err);
	for (size_t i = 0; ret == 0 && i < k->n; i++)
		lay_out(f, &k->r[i]);
	ofs_http_end_round(f->s, k);
	return ret;
}

/* Tags. What is on the disk is found by the tag of its file, which not all
 * listings have. */

/* Adds a request for a byte of the file, if it may have blocks there. */
static int add_question(struct ofs_http_site *s, uint32_t file,
    struct ofs_http_round *k, struct optimfs_error *err)
{
	const char *path = ofs_http_version(s, file, &k->is[k->asked]);
	bool once;
	char *url;

	if (!ofs_http_asks_tag(s, file))
		return 0;
	url = ofs_nodes_address(s, file, 0, &k->host[k->asked],
	    &k->is[k->asked], &once, err);
	if (url == NULL)
		return -1;
	if (!ofs_http_disk_knows(s->disk, url)) {
		free(url);
		return 0;
	}
	k->r[k->asked] =
	    (struct ofs_http_range){ .file = file, .direct = true };
	k->of[k->asked] = &k->r[k->asked];
	k->g[k->asked] = (struct ofs_http_get){
		.url = url,
		.name = s->nhosts > 1 ? url : path,
		.login = &s->login,
		.n = 1,
		.into = &k->byte[k->asked],
		.is = &k->is[k->asked],
		.once = once,
	};
	k->asked++;
	return 0;
}

static int learn_tags(struct ofs_http_fetching *f, struct ofs_http_round *k,
    struct optimfs_error *err)
{
	int ret = 0;
	size_t i = 0;

	while (ret == 0 && i < f->n) {
		k->n = k->asked = 0;
		for (; ret == 0 && i < f->n &&
		     k->asked < f->s->http->limits.requests;
		     i++)
			if (i == 0 ||
			    f->part[i].object != f->part[i - 1].object)
				ret = add_question(f->s, f->part[i].object, k,
				    err);
		if (ret == 0)
			ret = ofs_http_ask_round(f, k, err);
		ofs_http_end_round(f->s, k);
	}
	return ret;
}

static int fetch_parts(struct ofs_http_fetching *f,
    const struct ofs_segment *segs, size_t n, struct optimfs_error *err)
{
	struct ofs_http_round *k = ofs_alloc(1, sizeof(*k), err);
	size_t part = 0;
	int ret = k == NULL ? -1 : ofs_http_cut(f, segs, n, err);

	if (ret == 0 && f->s->disk != NULL)
		ret = learn_tags(f, k, err);
	while (ret == 0 && part < f->n)
		ret = fetch_round(f, k, &part, err);
	free(f->part);
	free(k);
	return ret;
}

/* A server that refuses lists has none, if it sends ranges. */
static int fetch_all(struct ofs_http_site *s, const struct ofs_segment *segs,
    size_t n, void *buf, struct optimfs_error *err)
{
	struct ofs_http_fetching f = { .s = s, .out = buf, .lists = true },
				 again = { .s = s, .out = buf };
	struct optimfs_error why = { 0 };

	if (fetch_parts(&f, segs, n, &why) == 0)
		return 0;
	if (!f.refused)
		return optimfs_fail_with(err, &why);
	if (fetch_parts(&again, segs, n, err) == -1)
		return -1;
	pthread_mutex_lock(&s->lock);
	s->host[f.refuses].has_lists &= why.number == 922;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

/* A server that did not answer a hint has had the time that it may take. */
static int is_late(struct ofs_http_site *s, struct optimfs_error *err)
{
	int ret = 0;

	pthread_mutex_lock(&s->lock);
	if (s->late.code != 0 && ofs_clock_ms() - s->late_ms < LATE_MS)
		ret = optimfs_fail_with(err, &s->late);
	s->late.code = 0;
	pthread_mutex_unlock(&s->lock);
	return ret;
}

void ofs_http_note_late(struct ofs_http_site *s,
    const struct optimfs_error *why)
{
	if (why->number != 922)
		return;
	pthread_mutex_lock(&s->lock);
	s->late = *why;
	s->late_ms = ofs_clock_ms();
	pthread_mutex_unlock(&s->lock);
}

int ofs_http_read(struct ofs_http_site *s, const struct ofs_segment *segs,
    size_t n, void *buf, struct optimfs_error *err)
{
	if (is_late(s, err) == -1)
		return -1;
	return fetch_all(s, segs, n, buf, err);
}

void ofs_http_want(struct ofs_http_site *s, const struct ofs_segment *segs,
    size_t n)
{
	struct optimfs_error err = { 0 };
	uint64_t bytes = 0;
	size_t fit = 0;

	while (fit < n && bytes + segs[fit].len <= OFS_HTTP_BLOCKS_MOST * 3 / 4)
		bytes += segs[fit++].len;
	/* whoever needs them will see why they cannot be had */
	if (fit > 0 && fetch_all(s, segs, fit, NULL, &err) == -1)
		ofs_http_note_late(s, &err);
}
