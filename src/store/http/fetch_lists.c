/* fetch_lists.c - segments of several files by one request */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "store/http/fetch_impl.h"
#include "store/http/nodes.h"
#include "store/runs.h"

/* optimfs serve sends a list of segments as one body. It is asked for one where
 * ranges would have gaps, or be many and short: columns of a tensor, items of
 * several files. Its errors are not taken for those of the files: on any but
 * silence the same is read by ranges, which find out what is wrong with which file,
 * ask other servers, or just come. */

/* Gaps of so much, and of one part in twenty of the bytes, are not read over. */
#define WASTE OFS_HTTP_BLOCK
#define PARTS 64u
/* The most bytes of an address that is a list: proxies take no longer ones. */
#define TEXT ((size_t)6000)

static bool has_lists(struct ofs_http_site *s, uint32_t host)
{
	bool has;

	pthread_mutex_lock(&s->lock);
	has = s->host[host].has_lists;
	pthread_mutex_unlock(&s->lock);
	return has;
}

/* Who keeps what comes, and has asked for as many bytes as the file has, will ask
 * for more of them: then whole blocks are better. */
static bool is_listed_out(const struct ofs_http_site *s,
    const struct ofs_http_node *node)
{
	return s->disk != NULL && node->listed_bytes >= node->is.size;
}

static bool may_list(const struct ofs_http_fetching *f, uint32_t file)
{
	struct ofs_http_site *s = f->s;
	const struct ofs_http_node *node;
	bool may;

	if (!f->lists || f->out == NULL)
		return false;
	pthread_mutex_lock(&s->lock);
	node = &s->node[file];
	may = s->host[node->host].has_lists && node->is.etag[0] != '\0' &&
	    !is_listed_out(s, node);
	pthread_mutex_unlock(&s->lock);
	return may;
}

static bool is_waste(uint64_t span, uint64_t bytes)
{
	return span > bytes && span - bytes > WASTE &&
	    span - bytes > bytes / 20;
}

static uint64_t bytes_of(const struct ofs_segment *p)
{
	return p->len * p->n;
}

bool ofs_http_is_sparse(const struct ofs_http_fetching *f,
    const struct ofs_segment *part)
{
	return part->n > 1 && part->src_pitch > 0 &&
	    (uint64_t)part->src_pitch >= part->len &&
	    is_waste(ofs_http_part_end(part) - part->src, bytes_of(part)) &&
	    may_list(f, part->object);
}

bool ofs_http_has_gaps(const struct ofs_http_fetching *f,
    const struct ofs_http_range *r)
{
	uint64_t bytes = 0;

	for (size_t i = r->part; i < r->part + r->n; i++)
		bytes += bytes_of(&f->part[i]);
	return is_waste(r->end - r->first, bytes) && may_list(f, r->file);
}

uint64_t ofs_http_list_most(const struct ofs_http_fetching *f)
{
	uint64_t range = f->s->http->limits.range;

	return range < OFS_HTTP_LIST_BYTES ? range : OFS_HTTP_LIST_BYTES;
}

void ofs_http_make_sparse(const struct ofs_http_fetching *f,
    struct ofs_http_range *r)
{
	uint64_t bytes = 0, runs = 0;
	size_t n = 0;

	for (; n < r->n && n < PARTS; n++) {
		const struct ofs_segment *p = &f->part[r->part + n];

		if (n > 0 &&
		    (bytes + bytes_of(p) > ofs_http_list_most(f) ||
			runs + p->n > OFS_HTTP_LIST_RUNS))
			break;
		bytes += bytes_of(p);
		runs += p->n;
	}
	r->sparse = true;
	r->n = n;
	r->len = bytes;
}

void ofs_http_lay_out_sparse(const struct ofs_http_fetching *f,
    const struct ofs_http_range *r)
{
	const uint8_t *at = r->buf;

	for (size_t i = r->part; i < r->part + r->n; i++) {
		const struct ofs_segment *p = &f->part[i];

		ofs_copy_runs(f->out + p->dst, p->dst_pitch, at,
		    (int64_t)p->len, p->len, p->n);
		at += bytes_of(p);
	}
}

/* What came of a list is kept on the disk, too, by the runs that it is of: who asks
 * for the same again finds it. */

static void put_runs(struct ofs_buf *b, const struct ofs_http_fetching *f,
    const struct ofs_http_range *r)
{
	for (size_t i = r->part; i < r->part + r->n; i++) {
		const struct ofs_segment *p = &f->part[i];

		ofs_buf_printf(b, ",%" PRIu64 ":%" PRIu64, p->src, p->len);
		if (p->n > 1)
			ofs_buf_printf(b, ":%" PRIu64 ":%" PRId64, p->n,
			    p->src_pitch);
	}
}

static char *runs_of(const struct ofs_http_fetching *f,
    const struct ofs_http_range *r)
{
	struct ofs_buf b = { 0 };

	put_runs(&b, f, r);
	return ofs_buf_text(&b, NULL);
}

static size_t block_of(const struct ofs_http_range *r, uint64_t off)
{
	return (size_t)(r->len - off < OFS_HTTP_BLOCK ? r->len - off
						      : OFS_HTTP_BLOCK);
}

void ofs_http_get_sparse(const struct ofs_http_fetching *f,
    struct ofs_http_range *r, const struct ofs_http_disk_key *file)
{
	struct ofs_http_disk_key key = *file;
	char *runs = f->s->disk == NULL ? NULL : runs_of(f, r);
	uint64_t off = 0;

	key.runs = runs;
	for (; runs != NULL && off < r->len; off += OFS_HTTP_BLOCK) {
		key.number = off / OFS_HTTP_BLOCK;
		if (!ofs_http_disk_get(f->s->disk, &key, r->buf + off,
			block_of(r, off)))
			break;
	}
	free(runs);
	if (off >= r->len)
		r->skip = r->len;
}

static void keep_sparse(const struct ofs_http_fetching *f,
    const struct ofs_http_range *r, const struct ofs_http_disk_key *file)
{
	struct ofs_http_disk_key key = *file;
	char *runs = runs_of(f, r);

	key.runs = runs;
	for (uint64_t off = 0; runs != NULL && off < r->len;
	     off += OFS_HTTP_BLOCK) {
		key.number = off / OFS_HTTP_BLOCK;
		ofs_http_disk_put(f->s->disk, &key, r->buf + off,
		    block_of(r, off));
	}
	free(runs);
}

/* Making a list. */

static bool is_listable(const struct ofs_http_fetching *f,
    const struct ofs_http_round *k, size_t i)
{
	const struct ofs_http_range *r = k->of[i];

	return f->lists && r->expected == NULL &&
	    (r->sparse || k->g[i].n <= OFS_HTTP_SHORT) &&
	    k->is[i].etag[0] != '\0' && has_lists(f->s, k->host[i]);
}

/* Appends a file, as serve/server_segments.h says. */
static void put_range(struct ofs_buf *b, const struct ofs_http_fetching *f,
    const struct ofs_http_range *r, const char *etag)
{
	struct ofs_http_version is;
	const char *path = ofs_http_version(f->s, r->file, &is);

	ofs_url_escape(b, path, strlen(path));
	ofs_buf_putc(b, ',');
	ofs_url_escape(b, etag, strlen(etag));
	if (r->sparse)
		put_runs(b, f, r);
	else
		ofs_buf_printf(b, ",%" PRIu64 ":%" PRIu64, r->at + r->skip,
		    r->len - r->skip);
}

/* Request j is part of list i now; the last one takes its place. */
static void move_to(struct ofs_http_round *k, size_t i, size_t j)
{
	size_t last = --k->asked;

	k->g[i].n += k->g[j].n;
	k->g[i].once |= k->g[j].once;
	free((char *)k->g[j].url);
	if (j == last)
		return;
	k->of[j] = k->of[last];
	k->host[j] = k->host[last];
	k->is[j] = k->is[last];
	k->g[j] = k->g[last];
	k->g[j].is = &k->is[j];
}

/* Adds what may be asked for together with request i. */
static void collect(const struct ofs_http_fetching *f, struct ofs_http_round *k,
    size_t i, struct ofs_buf *list)
{
	struct ofs_http_range *last = k->of[i];
	struct ofs_buf more = { 0 };

	put_range(list, f, last, k->is[i].etag);
	for (size_t j = i + 1; j < k->asked;) {
		more.len = 0;
		if (k->host[j] == k->host[i] && is_listable(f, k, j) &&
		    k->g[i].n + k->g[j].n <= ofs_http_list_most(f))
			put_range(&more, f, k->of[j], k->is[j].etag);
		if (more.len == 0 || more.bad || list->len + more.len > TEXT) {
			j++;
			continue;
		}
		ofs_buf_putc(list, ';');
		ofs_buf_put(list, more.data, more.len);
		last = last->also = k->of[j];
		move_to(k, i, j);
	}
	ofs_buf_fini(&more);
}

/* The address of a list of a server; the list is not the caller's any more. */
static char *url_of(const struct ofs_http_site *s, uint32_t host,
    struct ofs_buf *list, struct optimfs_error *err)
{
	char *root = ofs_http_address(s, host, "", "", err);
	struct ofs_buf url = { .bad = root == NULL || list->bad };

	if (!url.bad) {
		ofs_buf_puts(&url, root);
		ofs_buf_puts(&url, "?" OFS_HTTP_LIST "=");
		ofs_buf_put(&url, list->data, list->len);
	}
	free(root);
	ofs_buf_fini(list);
	return ofs_buf_text(&url, err);
}

static int make_list(const struct ofs_http_fetching *f,
    struct ofs_http_round *k, size_t i, struct optimfs_error *err)
{
	struct ofs_http_range *r = k->of[i];
	struct ofs_http_get *g = &k->g[i];
	struct ofs_buf list = { 0 };
	struct ofs_http_version is;
	char *url;

	collect(f, k, i, &list);
	if (!r->sparse && r->also == NULL) {
		ofs_buf_fini(&list);
		return 0;
	}
	url = url_of(f->s, k->host[i], &list, err);
	if (url == NULL)
		return -1;
	free((char *)g->url);
	g->url = url;
	g->name = f->s->nhosts > 1 ? f->s->host[k->host[i]].root
				   : ofs_http_version(f->s, r->file, &is);
	g->list = true;
	g->first = 0;
	k->is[i] = (struct ofs_http_version){ .size = g->n };
	g->into =
	    r->also == NULL ? r->buf + r->skip : ofs_alloc_huge((size_t)g->n);
	return g->into == NULL ? ofs_no_memory(err) : 0;
}

/* Another server is asked for it than the one that would send a list. */
static int moved(struct ofs_http_fetching *f, uint32_t host,
    struct optimfs_error *err)
{
	f->refused = true;
	f->refuses = host;
	return optimfs_fail(err, EIO, "OFS922 the server sends no lists");
}

int ofs_http_make_lists(struct ofs_http_fetching *f, struct ofs_http_round *k,
    struct optimfs_error *err)
{
	int ret = 0;

	for (size_t i = 0; ret == 0 && i < k->asked; i++)
		if (is_listable(f, k, i))
			ret = make_list(f, k, i, err);
		else if (k->of[i]->sparse)
			ret = moved(f, k->host[i], err);
	return ret;
}

/* An answer. */

/* The address and the state of a file at a server; NULL: no memory. */
static char *address_at(struct ofs_http_site *s, uint32_t file, uint32_t host,
    struct ofs_http_version *is, struct optimfs_error *err)
{
	char *url;

	pthread_mutex_lock(&s->lock);
	*is = *ofs_nodes_state(s, file, host);
	url = ofs_http_address(s, host, ofs_http_path(s, file), "", err);
	pthread_mutex_unlock(&s->lock);
	return url;
}

static int keep_range(const struct ofs_http_fetching *f, uint32_t host,
    struct ofs_http_range *r, struct optimfs_error *err)
{
	struct ofs_http_site *s = f->s;
	struct ofs_http_version is;
	char *url = address_at(s, r->file, host, &is, err);
	struct ofs_http_disk_key key = { url, &is, s->pinned, NULL, 0 };

	if (url == NULL)
		return -1;
	if (r->sparse && s->disk != NULL)
		keep_sparse(f, r, &key);
	else if (!r->sparse && !r->direct)
		ofs_http_keep_blocks(s, r, &key);
	free(url);
	pthread_mutex_lock(&s->lock);
	if (r->sparse)
		s->node[r->file].listed_bytes += r->len + OFS_HTTP_BLOCK;
	pthread_mutex_unlock(&s->lock);
	return 0;
}

int ofs_http_take_list(struct ofs_http_fetching *f, struct ofs_http_round *k,
    size_t i, struct optimfs_error *err)
{
	const struct ofs_http_get *g = &k->g[i];
	const uint8_t *at = g->into;

	(void)ofs_nodes_asked(f->s, k->of[i]->file, k->host[i], &g->err,
	    UINT32_MAX);
	if (g->err.code != 0) {
		f->refused = g->err.number != 922 || g->once;
		f->refuses = k->host[i];
		return optimfs_fail_with(err, &g->err);
	}
	for (struct ofs_http_range *r = k->of[i]; r != NULL; r = r->also) {
		size_t n = (size_t)(r->len - r->skip);

		if (at != r->buf + r->skip)
			memcpy(r->buf + r->skip, at, n);
		at += n;
		if (keep_range(f, k->host[i], r, err) == -1)
			return -1;
	}
	return 0;
}
