/* fetch_impl.h - what the files of fetch.h share: parts, ranges, rounds */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_FETCH_IMPL_H
#define OFS_STORE_HTTP_FETCH_IMPL_H

#include "store/http/fetch.h"

#define OFS_HTTP_SHORT (UINT64_C(1) << 20)
/* A rest that is shorter is no request of its own. */
#define OFS_HTTP_REST (UINT64_C(128) << 10)

struct ofs_http_range {
	uint32_t file;
	uint64_t first, end; /* of the parts */
	size_t part, n;      /* the parts in it */
	/* What is fetched, from at on: the bytes of buf, of which those before
	 * skip came from blocks. direct: buf is the reader's. */
	uint64_t at, skip, len;
	uint8_t *buf;
	uint64_t window; /* bytes from first on that are worth a request */
	bool direct, is_short;
	bool keep; /* its blocks stay in memory */
	bool give; /* ... in this buffer, when it is laid out */
	/* Only the bytes of the parts are fetched, by a list of segments: buf has
	 * them without gaps. */
	bool sparse;
	struct ofs_http_range *also; /* the next one of the same list */
	/* Of a stream: whose bytes are taken as they come; NULL: it is none. */
	struct ofs_http_expected *expected;
};

struct ofs_http_fetching {
	struct ofs_http_site *s;
	uint8_t *out; /* NULL: nobody waits for them, they are kept */
	struct ofs_segment *part;
	size_t n, cap;
	bool lists; /* servers that send lists of segments are asked for them */
	bool refused;     /* one did not: ranges may tell more, or come */
	uint32_t refuses; /* that one */
};

struct ofs_http_round {
	struct ofs_http_range r[OFS_HTTP_REQUESTS_MOST];
	struct ofs_http_version is[OFS_HTTP_REQUESTS_MOST];
	uint32_t host[OFS_HTTP_REQUESTS_MOST]; /* that was asked */
	struct ofs_http_get g[OFS_HTTP_REQUESTS_MOST];
	/* by the number in g */
	struct ofs_http_range *of[OFS_HTTP_REQUESTS_MOST];
	uint8_t byte[OFS_HTTP_REQUESTS_MOST];
	size_t n, asked;
};

/* fetch_parts.c: */

/* Where a part whose runs go upward ends in its file. */
uint64_t ofs_http_part_end(const struct ofs_segment *p);
/* Makes parts of segments, and sorts them. */
int ofs_http_cut(struct ofs_http_fetching *f, const struct ofs_segment *segs,
    size_t n, struct optimfs_error *err);
/* The next range, from part i on. */
struct ofs_http_range ofs_http_join_parts(const struct ofs_http_fetching *f,
    size_t i);

/* fetch.c: */

/* Adds the request for what a range lacks, if anything. */
int ofs_http_add_request(struct ofs_http_fetching *f, struct ofs_http_round *k,
    struct ofs_http_range *r, struct optimfs_error *err);
/* Sends the requests of a round, and takes the answers. */
int ofs_http_ask_round(struct ofs_http_fetching *f, struct ofs_http_round *k,
    struct optimfs_error *err);
/* Frees what a round has, or keeps it in blocks. */
void ofs_http_end_round(struct ofs_http_site *s, struct ofs_http_round *k);
/* Nobody waited for the requests that failed. */
void ofs_http_note_late(struct ofs_http_site *s,
    const struct optimfs_error *why);
/* Keeps the blocks of a range that has come. */
void ofs_http_keep_blocks(struct ofs_http_site *s, struct ofs_http_range *r,
    struct ofs_http_disk_key *key);

/* fetch_stream.c: */

/* For struct ofs_http_get, with ctx a struct ofs_http_expected. */
enum ofs_http_take ofs_http_take_expected(void *ctx,
    const struct ofs_http_version *is, const void *p, size_t n);

/* fetch_lists.c: */

/* The most bytes of one of ours. */
uint64_t ofs_http_list_most(const struct ofs_http_fetching *f);
/* Are the gaps between the runs of a part worth a list of segments? And those
 * between the parts of a range? */
bool ofs_http_is_sparse(const struct ofs_http_fetching *f,
    const struct ofs_segment *part);
bool ofs_http_has_gaps(const struct ofs_http_fetching *f,
    const struct ofs_http_range *r);
/* Then it has as many of its parts as go in one list. */
void ofs_http_make_sparse(const struct ofs_http_fetching *f,
    struct ofs_http_range *r);
/* Makes lists of what is sparse in a round, and of requests for little. */
int ofs_http_make_lists(struct ofs_http_fetching *f, struct ofs_http_round *k,
    struct optimfs_error *err);
/* What came for request i, which is a list. */
int ofs_http_take_list(struct ofs_http_fetching *f, struct ofs_http_round *k,
    size_t i, struct optimfs_error *err);
/* Fills the buffer of a sparse range, if the disk has the bytes of its runs. */
void ofs_http_get_sparse(const struct ofs_http_fetching *f,
    struct ofs_http_range *r, const struct ofs_http_disk_key *file);
/* Copies the parts of a sparse range to the reader. */
void ofs_http_lay_out_sparse(const struct ofs_http_fetching *f,
    const struct ofs_http_range *r);

#endif
