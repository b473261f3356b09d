/* answer.h - what the headers of an answer say */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_ANSWER_H
#define OFS_STORE_HTTP_ANSWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A number that the server does not tell. */
#define OFS_HTTP_UNTOLD UINT64_MAX

/* Where optimfs serve has the files of a checkpoint, below its tree, and the header
 * that says so in its answers for "/". */
#define OFS_HTTP_FILES        ".optimfs/files/"
#define OFS_HTTP_FILES_HEADER "X-Optimfs-Files"

/* Of a directory of these files it sends runs of several as one body, to who asks
 * for DIRECTORY?segments=LIST (serve/server_segments.h). The header says so in
 * listings, and that it did in such an answer. */
#define OFS_HTTP_LIST        "segments"
#define OFS_HTTP_LIST_HEADER "X-Optimfs-Segments"
/* The most that a list may ask for. */
#define OFS_HTTP_LIST_BYTES (64u << 20)
#define OFS_HTTP_LIST_RUNS  (1u << 20)

/* The most bytes of a listing of a web server. */
#define OFS_HTTP_LISTING_MOST ((size_t)64 << 20)

/* One state of a file on a server. */
struct ofs_http_version {
	uint64_t size;       /* OFS_HTTP_UNTOLD */
	int64_t modified_ns; /* 0: not told */
	char etag[160];      /* with its quotes; "": none */
};

struct ofs_http_answer {
	struct ofs_http_version is; /* of the whole file */
	uint64_t length;            /* of the body */
	/* Content-Range: bytes [first, last]; UNTOLD: there is none. */
	uint64_t first, last;
	uint64_t retry_after; /* seconds */
	char type[80];        /* of the content, in lower case */
	char next[2048]; /* the address of the next page; "": there is none */
	char region[40]; /* of a bucket; "": not told */
	/* Of optimfs serve: its files are at OFS_HTTP_FILES below this. */
	bool has_files;
	bool has_lists; /* OFS_HTTP_LIST_HEADER */
	bool is_dir;
};

/* Reads n bytes of headers. now: seconds since 1970. Numbers that are none are
 * untold. */
void ofs_http_headers(const void *p, size_t n, int64_t now,
    struct ofs_http_answer *a);
/* The time in a date of HTTP, "Sun, 06 Nov 1994 08:49:37 GMT", or of ISO 8601,
 * "1994-11-06T08:49:37.000Z", since 1970; 0: it is none. */
int64_t ofs_http_date_ns(const char *text);

/* Can both be of one state of a file? What one does not tell is not compared. */
bool ofs_http_same(const struct ofs_http_version *a,
    const struct ofs_http_version *b);

#endif
