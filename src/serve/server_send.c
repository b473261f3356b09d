/* server_send.c - bytes of a file, or of a list of segments, as an answer */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/tools.h"
#include "fs/walk.h"
#include "serve/server_impl.h"
#include "store/http/answer.h"

/* The status has to be sent before the data, and most of what cannot be read fails
 * in its first bytes. So these are read first, while an error can still be told. An
 * error after them can only cut the connection, which is no end of the body for any
 * client. */

#define HEAD_SIZE  (64u << 10)
#define BLOCK_SIZE (1u << 20)

struct sending {
	/* one of these */
	struct optimfs_file *file;
	struct ofs_server_segments *list;
	int fd;                    /* -1 */
	uint64_t size, first, end; /* of the file */
	uint8_t *head;             /* of its first nhead bytes */
	size_t nhead;
};

static ssize_t read_some(struct sending *s, void *buf, size_t n, uint64_t off,
    struct optimfs_error *err)
{
	if (s->list == NULL)
		return optimfs_file_read(s->file, buf, n, off, err);
	return ofs_server_segments_read(s->list, buf, n, off, err) == -1
	    ? -1
	    : (ssize_t)n;
}

static ssize_t send_file(void *cls, uint64_t pos, char *buf, size_t max)
{
	struct sending *s = cls;
	struct optimfs_error err;
	ssize_t n;

	if (pos < s->nhead) {
		n = (ssize_t)(s->nhead - pos < max ? s->nhead - pos : max);
		memcpy(buf, s->head + pos, (size_t)n);
		return n;
	}
	if (max > s->end - s->first - pos)
		max = s->end - s->first - pos;
	n = read_some(s, buf, max, s->first + pos, &err);
	if (n == -1)
		ofs_tool_say("%s", err.text);
	return n > 0 ? n : MHD_CONTENT_READER_END_WITH_ERROR;
}

static void end_file(void *cls)
{
	struct sending *s = cls;

	if (s->file != NULL)
		optimfs_file_close(s->file);
	ofs_server_segments_free(s->list);
	if (s->fd != -1)
		close(s->fd);
	free(s->head);
	free(s);
}

static int read_head(struct sending *s, struct optimfs_error *err)
{
	uint64_t left = s->end - s->first;
	size_t n = left < HEAD_SIZE ? (size_t)left : HEAD_SIZE;
	ssize_t got;

	if (n == 0 || s->fd != -1)
		return 0;
	s->head = ofs_alloc(n, 1, err);
	if (s->head == NULL)
		return -1;
	got = read_some(s, s->head, n, s->first, err);
	if (got == -1)
		return -1;
	s->nhead = (size_t)got;
	return 0;
}

static void add_attribute(const struct ofs_server_request *r,
    struct MHD_Response *to, const char *attribute, const char *name)
{
	char *value = ofs_attribute(r->http->fs, r->attr.node, attribute, NULL);

	if (value != NULL && *value != '\0')
		ofs_server_mhd->add_response_header(to, name, value);
	free(value);
}

static bool is_bytes(const struct ofs_server_request *r)
{
	const char *path = (const char *)r->path.data;
	char *shape;
	bool is;

	if (r->plain)
		return true;
	shape = ofs_attribute(r->http->fs, r->attr.node, "shape", NULL);
	is = strncmp(path, "/.optimfs/", 10) == 0
	    ? strstr(path, "/view/") != NULL || strstr(path, "/npy") != NULL
	    : shape != NULL && *shape != '\0';
	free(shape);
	return is;
}

static void describe(const struct ofs_server_request *r,
    struct MHD_Response *to)
{
	char date[OFS_SERVER_DATE];

	if (r->tag[0] == '\0') {
		ofs_server_mhd->add_response_header(to, OFS_HTTP_LIST_HEADER,
		    "1");
	} else {
		ofs_server_date(r->attr.mtime_ns, date);
		ofs_server_mhd->add_response_header(to,
		    MHD_HTTP_HEADER_LAST_MODIFIED, date);
		ofs_server_mhd->add_response_header(to, MHD_HTTP_HEADER_ETAG,
		    r->tag);
	}
	ofs_server_mhd->add_response_header(to, MHD_HTTP_HEADER_ACCEPT_RANGES,
	    "bytes");
	ofs_server_mhd->add_response_header(to, MHD_HTTP_HEADER_CONTENT_TYPE,
	    is_bytes(r) ? "application/octet-stream"
			: "text/plain; charset=utf-8");
	if (r->plain)
		return;
	add_attribute(r, to, "dtype", "X-Optimfs-Dtype");
	add_attribute(r, to, "shape", "X-Optimfs-Shape");
}

static enum MHD_Result no_range(struct ofs_server_request *r, uint64_t size)
{
	struct MHD_Response *response = ofs_server_text("no such range\n");
	char range[40];

	snprintf(range, sizeof(range), "bytes */%" PRIu64, size);
	if (response != NULL)
		ofs_server_mhd->add_response_header(response,
		    MHD_HTTP_HEADER_CONTENT_RANGE, range);
	return ofs_server_answer(r, MHD_HTTP_RANGE_NOT_SATISFIABLE, response);
}

/* Takes over s. */
static enum MHD_Result answer_file(struct ofs_server_request *r,
    struct sending *s, unsigned status)
{
	char range[80];
	struct MHD_Response *response;

	snprintf(range, sizeof(range), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
	    s->first, s->end - 1, s->size);
	response = s->fd != -1
	    ? ofs_server_mhd->create_response_from_fd_at_offset64(s->end -
		      s->first,
		  s->fd, s->first)
	    : ofs_server_mhd->create_response_from_callback(s->end - s->first,
		  BLOCK_SIZE, send_file, s, end_file);
	if (response == NULL) {
		end_file(s);
		return MHD_NO;
	}
	if (s->fd != -1) { /* it closes the descriptor */
		s->fd = -1;
		end_file(s);
	}
	describe(r, response);
	if (status == MHD_HTTP_PARTIAL_CONTENT)
		ofs_server_mhd->add_response_header(response,
		    MHD_HTTP_HEADER_CONTENT_RANGE, range);
	return ofs_server_answer(r, status, response);
}

/* Takes over s, whose file is open. */
static enum MHD_Result send_bytes(struct ofs_server_request *r,
    struct sending *s)
{
	uint64_t size = s->size;
	const char *range = ofs_server_header(r, MHD_HTTP_HEADER_RANGE),
		   *if_range = ofs_server_header(r, MHD_HTTP_HEADER_IF_RANGE);
	struct optimfs_error err;
	enum MHD_Result ret;
	int partial = 0;

	s->end = size;
	if (range != NULL &&
	    (if_range == NULL || strcmp(if_range, r->tag) == 0))
		partial = ofs_server_range(range, size, &s->first, &s->end);
	if (partial == 0) {
		s->first = 0;
		s->end = size;
	}
	if (partial == -1)
		ret = no_range(r, size);
	else if (!r->head && read_head(s, &err) == -1)
		ret = ofs_server_fail(r, &err);
	else
		return answer_file(r, s,
		    partial == 1 ? MHD_HTTP_PARTIAL_CONTENT : MHD_HTTP_OK);
	end_file(s);
	return ret;
}

/* Takes over s, whose file is open and has the tag of r. */
static enum MHD_Result send_if(struct ofs_server_request *r, struct sending *s)
{
	const char *match = ofs_server_header(r, MHD_HTTP_HEADER_IF_MATCH),
		   *none = ofs_server_header(r, MHD_HTTP_HEADER_IF_NONE_MATCH);

	if (match != NULL && !ofs_server_matches(match, r->tag)) {
		end_file(s);
		return ofs_server_refuse(r, MHD_HTTP_PRECONDITION_FAILED,
		    "the file has changed\n");
	}
	if (none != NULL && ofs_server_matches(none, r->tag)) {
		struct MHD_Response *empty =
		    ofs_server_mhd->create_response_from_buffer(0,
			(void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);

		if (empty != NULL)
			describe(r, empty);
		end_file(s);
		return ofs_server_answer(r, MHD_HTTP_NOT_MODIFIED, empty);
	}
	return send_bytes(r, s);
}

enum MHD_Result ofs_server_send_node(struct ofs_server_request *r)
{
	struct optimfs_error err;
	struct sending *s = ofs_alloc(1, sizeof(*s), &err);

	if (s == NULL ||
	    optimfs_file_open(r->http->fs, r->attr.node, &s->file, &err) ==
		-1) {
		free(s);
		return ofs_server_fail(r, &err);
	}
	s->fd = -1;
	s->size = optimfs_file_size(s->file);
	snprintf(r->tag, sizeof(r->tag),
	    "\"%" PRIx64 "-%" PRIx64 "-%" PRIx64 "\"", r->attr.ino,
	    (uint64_t)r->attr.mtime_ns, s->size);
	return send_if(r, s);
}

enum MHD_Result ofs_server_send_fd(struct ofs_server_request *r, int fd,
    uint64_t size)
{
	struct optimfs_error err;
	struct sending *s = ofs_alloc(1, sizeof(*s), &err);

	if (s == NULL) {
		close(fd);
		return ofs_server_fail(r, &err);
	}
	s->fd = fd;
	s->size = size;
	return send_if(r, s);
}

enum MHD_Result ofs_server_send_list(struct ofs_server_request *r,
    struct ofs_server_segments *list)
{
	struct optimfs_error err;
	struct sending *s = ofs_alloc(1, sizeof(*s), &err);

	if (s == NULL) {
		ofs_server_segments_free(list);
		return ofs_server_fail(r, &err);
	}
	s->fd = -1;
	s->list = list;
	s->size = ofs_server_segments_size(list);
	return send_bytes(r, s);
}
