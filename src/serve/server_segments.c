/* server_segments.c - runs of several files as one body */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "serve/server_segments.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/io.h"
#include "base/memory.h"
#include "base/str.h"
#include "store/gather.h"
#include "store/http/answer.h"
#include "store/http/url.h"

struct wanted {
	char *rel;
	char tag[OFS_SERVER_TAG];
	uint64_t size;
};

/* A segment's dst is its place in the body, where its runs have no gaps. */
struct ofs_server_segments {
	const struct ofs_server_files *files;
	bool all;
	struct wanted *file;
	size_t nfiles, file_cap;
	struct ofs_segment *seg;
	size_t nsegs, seg_cap;
	uint64_t size, runs;
	size_t is_open; /* the file that fd is of */
	int fd;         /* -1: none */
	uint8_t *scratch;
};

/* Parsing. */

/* Removes what is before the first c from *s, and c. */
static struct ofs_str take_word(struct ofs_str *s, char c)
{
	const char *end = memchr(s->p, c, s->len);
	struct ofs_str word = *s;

	if (end != NULL)
		word.len = (uint32_t)(end - s->p);
	*s = ofs_str_after(*s, word.len + (end != NULL));
	return word;
}

static int no_list(const char *why, struct optimfs_error *err)
{
	return optimfs_fail(err, EINVAL, "no list of segments: %s", why);
}

static bool take_numbers(struct ofs_str s, struct ofs_segment *seg)
{
	uint64_t v[4] = { 0, 0, 1, 0 };
	size_t n = 0;

	do {
		struct ofs_str word = take_word(&s, ':');

		if (n == 4 || !ofs_str_take_number(&word, &v[n++]) ||
		    word.len > 0)
			return false;
	} while (s.len > 0);
	seg->src = v[0];
	seg->len = v[1];
	seg->n = v[2];
	seg->src_pitch = (int64_t)v[3];
	/* runs go upward, without a byte in two of them */
	return (n == 2 || n == 4) && v[1] > 0 && v[2] > 0 &&
	    v[3] <= INT64_MAX && (v[2] == 1 || v[3] >= v[1]);
}

static int add_runs(struct ofs_server_segments *l, struct ofs_str word,
    struct optimfs_error *err)
{
	struct ofs_segment seg = { .object = (uint32_t)l->nfiles - 1,
		.dst = l->size };
	uint64_t bytes;

	if (!take_numbers(word, &seg))
		return no_list("OFFSET:LENGTH or OFFSET:LENGTH:COUNT:PITCH is "
			       "expected behind a file and its tag",
		    err);
	if (!ofs_mul_u64(seg.len, seg.n, &bytes) ||
	    bytes > OFS_HTTP_LIST_BYTES - l->size ||
	    seg.n > OFS_HTTP_LIST_RUNS - l->runs)
		return optimfs_fail(err, E2BIG,
		    "a list has at most %u runs of together %u bytes",
		    OFS_HTTP_LIST_RUNS, OFS_HTTP_LIST_BYTES);
	if (!ofs_segment_inside(&seg, l->file[l->nfiles - 1].size))
		return no_list("a run is not inside its file", err);
	if (ofs_grow(l->seg, l->nsegs, l->seg_cap, err) == -1)
		return -1;
	seg.dst_pitch = (int64_t)seg.len;
	l->seg[l->nsegs++] = seg;
	l->size += bytes;
	l->runs += seg.n;
	return 0;
}

/* Opens a file, which is the one that the client knows. */
static int open_file(const struct ofs_server_segments *l, struct wanted *w,
    struct ofs_server_file *file, struct optimfs_error *err)
{
	char tag[OFS_SERVER_TAG];
	int ret = 0;

	if (ofs_server_files_find(l->files, w->rel, file, err) == -1)
		return -1;
	if (file->is_dir)
		return no_list("a directory is no file", err);
	ofs_server_files_tag(&file->st, tag);
	if (!file->is_public && !l->all)
		ret = optimfs_fail(err, EACCES,
		    "OFS022 %s: not everybody may read this", w->rel);
	else if (strcmp(tag, w->tag) != 0)
		ret = optimfs_fail(err, ESTALE, "%s: the file has changed",
		    w->rel);
	w->size = (uint64_t)file->st.st_size;
	if (ret == -1)
		close(file->fd);
	return ret;
}

static int add_file(struct ofs_server_segments *l, const char *rel,
    struct ofs_str name, struct ofs_str tag, struct optimfs_error *err)
{
	char *path = ofs_alloc((size_t)name.len + 1, 1, err);
	struct ofs_server_file file;
	struct wanted *w;

	if (path == NULL)
		return -1;
	if (ofs_grow(l->file, l->nfiles, l->file_cap, err) == -1) {
		free(path);
		return -1;
	}
	w = &l->file[l->nfiles];
	if (tag.len == 0 || tag.len >= sizeof(w->tag) ||
	    !ofs_url_decode(tag.p, tag.len, w->tag) || name.len == 0 ||
	    !ofs_url_decode(name.p, name.len, path)) {
		free(path);
		return no_list("FILE,TAG is expected", err);
	}
	w->rel = rel[0] == '\0' ? path : ofs_path_join(rel, path);
	if (w->rel != path)
		free(path);
	if (w->rel == NULL)
		return ofs_no_memory(err);
	l->nfiles++;
	if (open_file(l, w, &file, err) == -1)
		return -1;
	close(file.fd);
	return 0;
}

static int parse(struct ofs_server_segments *l, const char *rel,
    struct ofs_str list, struct optimfs_error *err)
{
	do {
		struct ofs_str part = take_word(&list, ';');
		struct ofs_str name = take_word(&part, ',');
		struct ofs_str tag = take_word(&part, ',');

		if (add_file(l, rel, name, tag, err) == -1)
			return -1;
		do {
			if (add_runs(l, take_word(&part, ','), err) == -1)
				return -1;
		} while (part.len > 0);
	} while (list.len > 0);
	return 0;
}

struct ofs_server_segments *ofs_server_segments_new(const struct
    ofs_server_files *files,
    const char *rel, const char *list, bool all, struct optimfs_error *err)
{
	struct ofs_server_segments *l = ofs_alloc(1, sizeof(*l), err);

	if (l == NULL)
		return NULL;
	l->files = files;
	l->all = all;
	l->fd = -1;
	l->scratch = ofs_alloc(OFS_SCRATCH, 1, err);
	if (l->scratch != NULL && parse(l, rel, ofs_str_of(list), err) == 0)
		return l;
	ofs_server_segments_free(l);
	return NULL;
}

static void close_file(struct ofs_server_segments *l)
{
	if (l->fd != -1)
		close(l->fd);
	l->fd = -1;
}

void ofs_server_segments_free(struct ofs_server_segments *l)
{
	if (l == NULL)
		return;
	close_file(l);
	for (size_t i = 0; i < l->nfiles; i++)
		free(l->file[i].rel);
	free(l->file);
	free(l->seg);
	free(l->scratch);
	free(l);
}

uint64_t ofs_server_segments_size(const struct ofs_server_segments *l)
{
	return l->size;
}

/* Reading. */

static int read_source(const struct ofs_source *s, struct iovec *iov, int n,
    uint64_t off, struct optimfs_error *err)
{
	for (int i = 0; i < n; i++) {
		if (ofs_pread_all(*(int *)s->item, iov[i].iov_base,
			iov[i].iov_len, off, err) == -1)
			return -1;
		off += iov[i].iov_len;
	}
	return 0;
}

/* The next bytes of a segment from off on in it, at most n: runs, or a part of
 * one. */
static struct ofs_segment piece_of(const struct ofs_segment *seg, uint64_t off,
    uint64_t n)
{
	uint64_t i = off / seg->len, in = off % seg->len;
	struct ofs_segment p = *seg;

	p.src += i * (uint64_t)seg->src_pitch + in;
	p.n = seg->n - i < n / seg->len ? seg->n - i : n / seg->len;
	if (in > 0 || p.n == 0) {
		p.n = 1;
		p.len = seg->len - in < n ? seg->len - in : n;
	}
	return p;
}

static int use_file(struct ofs_server_segments *l, size_t i,
    struct optimfs_error *err)
{
	struct ofs_server_file file;

	if (l->fd != -1 && l->is_open == i)
		return 0;
	close_file(l);
	if (open_file(l, &l->file[i], &file, err) == -1)
		return -1;
	l->fd = file.fd;
	l->is_open = i;
	return 0;
}

int ofs_server_segments_read(struct ofs_server_segments *l, void *buf, size_t n,
    uint64_t off, struct optimfs_error *err)
{
	const struct ofs_source source = { .readv = read_source,
		.item = &l->fd };
	uint64_t from = off, end = off + n;

	for (size_t i = 0; i < l->nsegs && off < end; i++) {
		const struct ofs_segment *seg = &l->seg[i];

		while (off < end && off - seg->dst < seg->len * seg->n) {
			struct ofs_segment p =
			    piece_of(seg, off - seg->dst, end - off);

			p.dst = off - from;
			if (use_file(l, seg->object, err) == -1 ||
			    ofs_gather(&source, &p, 1, buf, l->scratch, err) ==
				-1)
				return -1;
			off += p.len * p.n;
		}
	}
	return 0;
}
