/* server.c - the tree of a checkpoint over HTTP */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "serve/server.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "cli/tools.h"
#include "fs/walk.h"
#include "serve/mhd.h"
#include "serve/server_files.h"
#include "serve/server_segments.h"
#include "store/http/answer.h"

/* A request is one lookup and one open file of the library, or of a directory. The status has to be
 * sent before the data, and most of what cannot be read fails in its first bytes.
 * So these are read first, while an error can still be told. An error after them
 * can only cut the connection, which is no end of the body for any client.
 *
 * A read occupies its thread, as nothing in the library waits for one elsewhere;
 * so there is a pool of them. */

#define HEAD_SIZE  (64u << 10)
#define BLOCK_SIZE (1u << 20)
#define IDLE       60 /* seconds until a silent client is dropped */
#define CLIENTS    1000
#define THREADS    16

static const struct ofs_mhd *mhd; /* of the first server on */

struct ofs_server {
	struct optimfs *fs;                   /* or NULL */
	const struct ofs_server_files *files; /* or NULL */
	const struct ofs_listener *at;
	struct MHD_Daemon *daemon;
};

struct request {
	struct ofs_server *http;
	struct MHD_Connection *c;
	const char *url; /* as it was sent */
	struct ofs_buf path;
	bool head;
	bool plain; /* below OFS_HTTP_FILES */
	struct optimfs_attr attr;
	char tag[OFS_SERVER_TAG]; /* of a file; "": of a list of segments */
};

/* Answers. */

static enum MHD_Result answer(struct request *r, unsigned status,
    struct MHD_Response *response)
{
	enum MHD_Result ret;

	if (response == NULL)
		return MHD_NO;
	mhd->add_response_header(response, "X-Content-Type-Options", "nosniff");
	mhd->add_response_header(response, "Content-Security-Policy",
	    "default-src 'none'; style-src 'unsafe-inline'");
	ret = mhd->queue_response(r->c, status, response);
	mhd->destroy_response(response);
	return ret;
}

static struct MHD_Response *text(const char *s)
{
	struct MHD_Response *response =
	    mhd->create_response_from_buffer(strlen(s), (void *)(uintptr_t)s,
		MHD_RESPMEM_MUST_COPY);

	if (response != NULL)
		mhd->add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
		    "text/plain; charset=utf-8");
	return response;
}

static enum MHD_Result refuse(struct request *r, unsigned status,
    const char *why)
{
	return answer(r, status, text(why));
}

static unsigned status_of(int code)
{
	switch (code) {
	case ENOENT:
	case ENOTDIR:
	case ENAMETOOLONG:
		return MHD_HTTP_NOT_FOUND;
	case EACCES:
	case EPERM:
		return MHD_HTTP_FORBIDDEN;
	case ENOMEM:
	case EMFILE:
	case ENFILE:
	case EBUSY:
	case ESTALE:
		return MHD_HTTP_SERVICE_UNAVAILABLE;
	default:
		return MHD_HTTP_INTERNAL_SERVER_ERROR;
	}
}

static enum MHD_Result fail_as(struct request *r, unsigned status,
    const struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	enum MHD_Result ret;

	ofs_buf_shown(&b, err->text, strlen(err->text));
	ofs_buf_puts(&b, "\n");
	ofs_buf_putc(&b, '\0');
	ret = refuse(r, status, b.bad ? "no memory\n" : (const char *)b.data);
	ofs_buf_fini(&b);
	return ret;
}

static enum MHD_Result fail(struct request *r, const struct optimfs_error *err)
{
	return fail_as(r, status_of(err->code), err);
}

static const char *header(const struct request *r, const char *name)
{
	return mhd->lookup_connection_value(r->c, MHD_HEADER_KIND, name);
}

/* Who may ask. */

static bool equal(const char *a, const char *b)
{
	size_t n = strlen(b);
	unsigned char differs = strlen(a) != n;

	for (size_t i = 0; differs == 0 && i < n; i++)
		differs |= (unsigned char)(a[i] ^ b[i]);
	return differs == 0;
}

static bool has_token(const struct request *r)
{
	const char *given = header(r, MHD_HTTP_HEADER_AUTHORIZATION);
	char *user, *password = NULL;
	bool good;

	if (given == NULL)
		return false;
	if (strncasecmp(given, "Bearer ", 7) == 0)
		return equal(given + 7, r->http->at->token);
	user = mhd->basic_auth_get_username_password(r->c, &password);
	good = password != NULL && equal(password, r->http->at->token);
	free(user);
	free(password);
	return good;
}

/* Without a token, a page of any server could let a browser read a checkpoint of
 * this machine by a name that its own name server gives to 127.0.0.1. */
static bool is_local(const struct request *r)
{
	const char *host = header(r, MHD_HTTP_HEADER_HOST);

	return host == NULL || ofs_server_is_local(host);
}

static enum MHD_Result ask_for_token(struct request *r)
{
	struct MHD_Response *response =
	    text("OFS022 give the token of optimfs serve, as a password or as "
		 "\"Authorization: Bearer TOKEN\"\n");

	if (response != NULL)
		mhd->add_response_header(response,
		    MHD_HTTP_HEADER_WWW_AUTHENTICATE,
		    "Basic realm=\"optimfs\"");
	return answer(r, MHD_HTTP_UNAUTHORIZED, response);
}

/* Without a token only what everybody may read anyway: a run can have steps that
 * are private, and modes change. */
static bool is_closed(struct request *r)
{
	struct optimfs *fs = r->http->fs;
	uint64_t node = r->attr.node;

	if (r->http->at->token[0] != '\0')
		return false;
	(void)optimfs_access_changed(fs, node);
	return optimfs_getattr(fs, node, &r->attr, NULL) == -1 ||
	    (r->attr.mode & S_IROTH) == 0;
}

/* Directories. */

static ssize_t send_dir(void *cls, uint64_t pos, char *buf, size_t max)
{
	ssize_t n = ofs_server_dir_read(cls, buf, max);

	(void)pos;
	return n == -1 ? MHD_CONTENT_READER_END_WITH_ERROR
	    : n == 0   ? MHD_CONTENT_READER_END_OF_STREAM
		       : n;
}

static bool wants_json(const struct request *r)
{
	const char *accept = header(r, MHD_HTTP_HEADER_ACCEPT),
		   *format = mhd->lookup_connection_value(r->c,
		       MHD_GET_ARGUMENT_KIND, "format");

	if (format != NULL)
		return strcmp(format, "json") == 0;
	return accept != NULL && strstr(accept, "application/json") != NULL;
}

/* Links in a listing are relative to the name with a slash. */
static enum MHD_Result redirect(struct request *r)
{
	struct MHD_Response *response = text("");
	struct ofs_buf to = { 0 };
	const char *name = strrchr(r->url, '/');

	ofs_buf_printf(&to, "./%s/", name == NULL ? "" : name + 1);
	ofs_buf_putc(&to, '\0');
	if (response != NULL && !to.bad)
		mhd->add_response_header(response, MHD_HTTP_HEADER_LOCATION,
		    (const char *)to.data);
	ofs_buf_fini(&to);
	return answer(r, MHD_HTTP_MOVED_PERMANENTLY, response);
}

static enum MHD_Result get_dir(struct request *r)
{
	const char *path = (const char *)r->path.data;
	bool json = wants_json(r);
	struct MHD_Response *response;
	struct optimfs_error err;
	struct ofs_server_dir *d;

	if (path[strlen(path) - 1] != '/')
		return redirect(r);
	d = ofs_server_dir_new(r->http->fs, r->attr.node, path, json, &err);
	if (d == NULL)
		return fail(r, &err);
	response = mhd->create_response_from_callback(MHD_SIZE_UNKNOWN,
	    HEAD_SIZE, send_dir, d, ofs_server_dir_free);
	if (response == NULL) {
		ofs_server_dir_free(d);
		return MHD_NO;
	}
	mhd->add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
	    json ? "application/json" : "text/html; charset=utf-8");
	mhd->add_response_header(response, MHD_HTTP_HEADER_VARY, "Accept");
	if (r->attr.node == OPTIMFS_ROOT && r->http->files != NULL)
		mhd->add_response_header(response, OFS_HTTP_FILES_HEADER,
		    OFS_HTTP_FILES);
	return answer(r, MHD_HTTP_OK, response);
}

/* Files. */

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

static void add_attribute(const struct request *r, struct MHD_Response *to,
    const char *attribute, const char *name)
{
	char *value = ofs_attribute(r->http->fs, r->attr.node, attribute, NULL);

	if (value != NULL && *value != '\0')
		mhd->add_response_header(to, name, value);
	free(value);
}

static bool is_bytes(const struct request *r)
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

static void describe(const struct request *r, struct MHD_Response *to)
{
	char date[OFS_SERVER_DATE];

	if (r->tag[0] == '\0') {
		mhd->add_response_header(to, OFS_HTTP_LIST_HEADER, "1");
	} else {
		ofs_server_date(r->attr.mtime_ns, date);
		mhd->add_response_header(to, MHD_HTTP_HEADER_LAST_MODIFIED,
		    date);
		mhd->add_response_header(to, MHD_HTTP_HEADER_ETAG, r->tag);
	}
	mhd->add_response_header(to, MHD_HTTP_HEADER_ACCEPT_RANGES, "bytes");
	mhd->add_response_header(to, MHD_HTTP_HEADER_CONTENT_TYPE,
	    is_bytes(r) ? "application/octet-stream"
			: "text/plain; charset=utf-8");
	if (r->plain)
		return;
	add_attribute(r, to, "dtype", "X-Optimfs-Dtype");
	add_attribute(r, to, "shape", "X-Optimfs-Shape");
}

static enum MHD_Result no_range(struct request *r, uint64_t size)
{
	struct MHD_Response *response = text("no such range\n");
	char range[40];

	snprintf(range, sizeof(range), "bytes */%" PRIu64, size);
	if (response != NULL)
		mhd->add_response_header(response,
		    MHD_HTTP_HEADER_CONTENT_RANGE, range);
	return answer(r, MHD_HTTP_RANGE_NOT_SATISFIABLE, response);
}

/* Takes over s. */
static enum MHD_Result answer_file(struct request *r, struct sending *s,
    unsigned status)
{
	char range[80];
	struct MHD_Response *response;

	snprintf(range, sizeof(range), "bytes %" PRIu64 "-%" PRIu64 "/%" PRIu64,
	    s->first, s->end - 1, s->size);
	response = s->fd != -1
	    ? mhd->create_response_from_fd_at_offset64(s->end - s->first, s->fd,
		  s->first)
	    : mhd->create_response_from_callback(s->end - s->first, BLOCK_SIZE,
		  send_file, s, end_file);
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
		mhd->add_response_header(response,
		    MHD_HTTP_HEADER_CONTENT_RANGE, range);
	return answer(r, status, response);
}

/* Takes over s, whose file is open. */
static enum MHD_Result get_bytes(struct request *r, struct sending *s)
{
	uint64_t size = s->size;
	const char *range = header(r, MHD_HTTP_HEADER_RANGE),
		   *if_range = header(r, MHD_HTTP_HEADER_IF_RANGE);
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
		ret = fail(r, &err);
	else
		return answer_file(r, s,
		    partial == 1 ? MHD_HTTP_PARTIAL_CONTENT : MHD_HTTP_OK);
	end_file(s);
	return ret;
}

/* Takes over s, whose file is open and has the tag of r. */
static enum MHD_Result get_if(struct request *r, struct sending *s)
{
	const char *match = header(r, MHD_HTTP_HEADER_IF_MATCH),
		   *none = header(r, MHD_HTTP_HEADER_IF_NONE_MATCH);

	if (match != NULL && !ofs_server_matches(match, r->tag)) {
		end_file(s);
		return refuse(r, MHD_HTTP_PRECONDITION_FAILED,
		    "the file has changed\n");
	}
	if (none != NULL && ofs_server_matches(none, r->tag)) {
		struct MHD_Response *empty = mhd->create_response_from_buffer(0,
		    (void *)(uintptr_t)"", MHD_RESPMEM_PERSISTENT);

		if (empty != NULL)
			describe(r, empty);
		end_file(s);
		return answer(r, MHD_HTTP_NOT_MODIFIED, empty);
	}
	return get_bytes(r, s);
}

static enum MHD_Result get_file(struct request *r)
{
	struct optimfs_error err;
	struct sending *s = ofs_alloc(1, sizeof(*s), &err);

	if (s == NULL ||
	    optimfs_file_open(r->http->fs, r->attr.node, &s->file, &err) ==
		-1) {
		free(s);
		return fail(r, &err);
	}
	s->fd = -1;
	s->size = optimfs_file_size(s->file);
	snprintf(r->tag, sizeof(r->tag),
	    "\"%" PRIx64 "-%" PRIx64 "-%" PRIx64 "\"", r->attr.ino,
	    (uint64_t)r->attr.mtime_ns, s->size);
	return get_if(r, s);
}

/* Files as they are. */

static enum MHD_Result list_files(struct request *r, const char *rel)
{
	bool json = wants_json(r);
	struct MHD_Response *response;
	struct optimfs_error err;
	struct ofs_buf b = { .limit = OFS_HTTP_LISTING_MOST };

	if (ofs_server_files_list(r->http->files, rel, json, &b, &err) == -1) {
		ofs_buf_fini(&b);
		return fail(r, &err);
	}
	response = mhd->create_response_from_buffer(b.len, b.data,
	    MHD_RESPMEM_MUST_FREE);
	if (response == NULL) {
		ofs_buf_fini(&b);
		return MHD_NO;
	}
	mhd->add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE,
	    json ? "application/json" : "text/html; charset=utf-8");
	mhd->add_response_header(response, MHD_HTTP_HEADER_VARY, "Accept");
	mhd->add_response_header(response, OFS_HTTP_LIST_HEADER, "1");
	return answer(r, MHD_HTTP_OK, response);
}

static enum MHD_Result is_closed_to_all(struct request *r)
{
	return refuse(r, MHD_HTTP_FORBIDDEN,
	    "OFS022 not everybody may read this: start optimfs serve with "
	    "--token-file, and give the token\n");
}

static enum MHD_Result send_plain(struct request *r,
    const struct ofs_server_file *file)
{
	struct optimfs_error err;
	struct sending *s = ofs_alloc(1, sizeof(*s), &err);

	if (s == NULL) {
		close(file->fd);
		return fail(r, &err);
	}
	s->fd = file->fd;
	s->size = (uint64_t)file->st.st_size;
	r->attr.mtime_ns = (int64_t)file->st.st_mtim.tv_sec * 1000000000;
	ofs_server_files_tag(&file->st, r->tag);
	return get_if(r, s);
}

static unsigned status_of_list(int code)
{
	return code == ESTALE                 ? MHD_HTTP_PRECONDITION_FAILED
	    : code == EINVAL || code == E2BIG ? MHD_HTTP_BAD_REQUEST
					      : status_of(code);
}

static enum MHD_Result send_segments(struct request *r, const char *rel,
    const char *list)
{
	struct optimfs_error err;
	struct sending *s = ofs_alloc(1, sizeof(*s), &err);

	if (s == NULL)
		return fail(r, &err);
	s->fd = -1;
	s->list = ofs_server_segments_new(r->http->files, rel, list,
	    r->http->at->token[0] != '\0', &err);
	if (s->list == NULL) {
		free(s);
		return fail_as(r, status_of_list(err.code), &err);
	}
	s->size = ofs_server_segments_size(s->list);
	return get_bytes(r, s);
}

static enum MHD_Result get_files(struct request *r, const char *rel)
{
	const char *list = mhd->lookup_connection_value(r->c,
	    MHD_GET_ARGUMENT_KIND, OFS_HTTP_LIST);

	return list == NULL ? list_files(r, rel) : send_segments(r, rel, list);
}

/* A path behind OFS_HTTP_FILES; a directory's ends in a slash. */
static enum MHD_Result get_plain(struct request *r, char *rel)
{
	size_t n = strlen(rel);
	bool slash = n == 0 || rel[n - 1] == '/';
	struct ofs_server_file file;
	struct optimfs_error err;

	r->plain = true;
	if (n > 0 && slash)
		rel[n - 1] = '\0';
	if (ofs_server_files_find(r->http->files, rel, &file, &err) == -1)
		return fail(r, &err);
	if (!file.is_public && r->http->at->token[0] == '\0') {
		if (file.fd != -1)
			close(file.fd);
		return is_closed_to_all(r);
	}
	if (file.is_dir)
		return slash ? get_files(r, rel) : redirect(r);
	return send_plain(r, &file);
}

/* Who began at the files of a run goes on to those of a step. */
static bool has_plain(const struct request *r, const char *path)
{
	size_t n = strlen(path);
	struct ofs_server_file file = { .fd = -1 };
	char *rel = strndup(path, n - (n > 0 && path[n - 1] == '/'));
	bool has = r->http->files != NULL && rel != NULL &&
	    ofs_server_files_find(r->http->files, rel, &file, NULL) == 0;

	if (file.fd != -1)
		close(file.fd);
	free(rel);
	return has;
}

/* Requests. */

static enum MHD_Result get(struct request *r)
{
	struct optimfs_error err;
	const char *path;

	if (r->url[0] != '/' || !ofs_server_decode(&r->path, r->url))
		return refuse(r, MHD_HTTP_BAD_REQUEST, "no such URL\n");
	if (r->path.bad)
		return refuse(r, MHD_HTTP_SERVICE_UNAVAILABLE, "no memory\n");
	path = (const char *)r->path.data;
	if (r->http->files != NULL &&
	    strncmp(path + 1, OFS_HTTP_FILES, strlen(OFS_HTTP_FILES)) == 0)
		return get_plain(r,
		    (char *)r->path.data + 1 + strlen(OFS_HTTP_FILES));
	if (r->http->fs == NULL)
		return get_plain(r, (char *)r->path.data + 1);
	if (optimfs_resolve(r->http->fs, path, &r->attr, &err) == -1)
		return err.code == ENOENT && has_plain(r, path + 1)
		    ? get_plain(r, (char *)r->path.data + 1)
		    : fail(r, &err);
	if (is_closed(r))
		return is_closed_to_all(r);
	return S_ISREG(r->attr.mode) ? get_file(r) : get_dir(r);
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *c,
    const char *url, const char *method, const char *version,
    const char *upload, size_t *nupload, void **state)
{
	static bool begun;
	struct request r = { .http = cls, .c = c, .url = url };
	enum MHD_Result ret;
	bool reads;

	(void)version;
	(void)upload;
	r.head = strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;
	reads = r.head || strcmp(method, MHD_HTTP_METHOD_GET) == 0;
	/* an answer to the first call for a request ends the connection, and spares
	 * its body */
	if (*state == NULL && reads) {
		*state = &begun;
		return MHD_YES;
	}
	if (*nupload != 0)
		return MHD_NO;
	if (r.http->at->token[0] != '\0' ? !has_token(&r) : !is_local(&r))
		return r.http->at->token[0] != '\0'
		    ? ask_for_token(&r)
		    : refuse(&r, MHD_HTTP_FORBIDDEN,
			  "without a token only 127.0.0.1 and localhost are "
			  "answered: start optimfs serve with --token-file\n");
	if (!reads)
		return refuse(&r, MHD_HTTP_METHOD_NOT_ALLOWED,
		    "a checkpoint is read only\n");
	ret = get(&r);
	ofs_buf_fini(&r.path);
	return ret;
}

/* Paths are decoded by get, which refuses what C cannot hold. */
static size_t keep_escapes(void *cls, struct MHD_Connection *c, char *s)
{
	(void)cls;
	(void)c;
	return strlen(s);
}

static unsigned threads(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN);

	return n < 4 ? 4 : n > THREADS ? THREADS : (unsigned)n;
}

struct ofs_server *ofs_server_start(struct optimfs *fs,
    const struct ofs_server_files *files, const struct ofs_listener *at,
    struct optimfs_error *err)
{
	struct ofs_server *h = ofs_alloc(1, sizeof(*h), err);

	if (h == NULL)
		return NULL;
	h->fs = fs;
	h->files = files;
	h->at = at;
	mhd = at->mhd;
	h->daemon = mhd->start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD, 0, NULL,
	    NULL, handle, h, MHD_OPTION_LISTEN_SOCKET, at->fd,
	    MHD_OPTION_THREAD_POOL_SIZE, threads(), MHD_OPTION_CONNECTION_LIMIT,
	    CLIENTS, MHD_OPTION_CONNECTION_TIMEOUT, IDLE,
	    MHD_OPTION_UNESCAPE_CALLBACK, keep_escapes, NULL, MHD_OPTION_END);
	if (h->daemon != NULL)
		return h;
	free(h);
	optimfs_fail(err, errno == 0 ? EIO : errno,
	    "OFS021 the HTTP server cannot be started: %m");
	return NULL;
}

void ofs_server_stop(struct ofs_server *h)
{
	mhd->stop_daemon(h->daemon);
	free(h);
}
