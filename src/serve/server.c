/* server.c - the tree of a checkpoint over HTTP */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "serve/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/memory.h"
#include "serve/server_impl.h"
#include "store/http/answer.h"

/* A request is one lookup and one open file of the library, or of a directory. A
 * read occupies its thread, as nothing in the library waits for one elsewhere; so
 * there is a pool of them. */

#define DIR_SIZE (64u << 10)
#define IDLE     60 /* seconds until a silent client is dropped */
#define CLIENTS  1000
#define THREADS  16

const struct ofs_mhd *ofs_server_mhd;

/* Answers. */

enum MHD_Result ofs_server_answer(struct ofs_server_request *r, unsigned status,
    struct MHD_Response *response)
{
	enum MHD_Result ret;

	if (response == NULL)
		return MHD_NO;
	ofs_server_mhd->add_response_header(response, "X-Content-Type-Options",
	    "nosniff");
	ofs_server_mhd->add_response_header(response, "Content-Security-Policy",
	    "default-src 'none'; style-src 'unsafe-inline'");
	ret = ofs_server_mhd->queue_response(r->c, status, response);
	ofs_server_mhd->destroy_response(response);
	return ret;
}

struct MHD_Response *ofs_server_text(const char *s)
{
	struct MHD_Response *response =
	    ofs_server_mhd->create_response_from_buffer(strlen(s),
		(void *)(uintptr_t)s, MHD_RESPMEM_MUST_COPY);

	if (response != NULL)
		ofs_server_mhd->add_response_header(response,
		    MHD_HTTP_HEADER_CONTENT_TYPE, "text/plain; charset=utf-8");
	return response;
}

enum MHD_Result ofs_server_refuse(struct ofs_server_request *r, unsigned status,
    const char *why)
{
	return ofs_server_answer(r, status, ofs_server_text(why));
}

unsigned ofs_server_status(int code)
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

enum MHD_Result ofs_server_fail_as(struct ofs_server_request *r,
    unsigned status, const struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };
	enum MHD_Result ret;

	ofs_buf_shown(&b, err->text, strlen(err->text));
	ofs_buf_puts(&b, "\n");
	ofs_buf_putc(&b, '\0');
	ret = ofs_server_refuse(r, status,
	    b.bad ? "no memory\n" : (const char *)b.data);
	ofs_buf_fini(&b);
	return ret;
}

enum MHD_Result ofs_server_fail(struct ofs_server_request *r,
    const struct optimfs_error *err)
{
	return ofs_server_fail_as(r, ofs_server_status(err->code), err);
}

const char *ofs_server_header(const struct ofs_server_request *r,
    const char *name)
{
	return ofs_server_mhd->lookup_connection_value(r->c, MHD_HEADER_KIND,
	    name);
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

static bool has_token(const struct ofs_server_request *r)
{
	const char *given = ofs_server_header(r, MHD_HTTP_HEADER_AUTHORIZATION);
	char *user, *password = NULL;
	bool good;

	if (given == NULL)
		return false;
	if (strncasecmp(given, "Bearer ", 7) == 0)
		return equal(given + 7, r->http->at->token);
	user =
	    ofs_server_mhd->basic_auth_get_username_password(r->c, &password);
	good = password != NULL && equal(password, r->http->at->token);
	free(user);
	free(password);
	return good;
}

/* Without a token, a page of any server could let a browser read a checkpoint of
 * this machine by a name that its own name server gives to 127.0.0.1. */
static bool is_local(const struct ofs_server_request *r)
{
	const char *host = ofs_server_header(r, MHD_HTTP_HEADER_HOST);

	return host == NULL || ofs_server_is_local(host);
}

static enum MHD_Result ask_for_token(struct ofs_server_request *r)
{
	struct MHD_Response *response = ofs_server_text(
	    "OFS022 give the token of optimfs serve, as a password or as "
	    "\"Authorization: Bearer TOKEN\"\n");

	if (response != NULL)
		ofs_server_mhd->add_response_header(response,
		    MHD_HTTP_HEADER_WWW_AUTHENTICATE,
		    "Basic realm=\"optimfs\"");
	return ofs_server_answer(r, MHD_HTTP_UNAUTHORIZED, response);
}

/* Without a token only what everybody may read anyway: a run can have steps that
 * are private, and modes change. */
static bool is_closed(struct ofs_server_request *r)
{
	struct optimfs *fs = r->http->fs;
	uint64_t node = r->attr.node;

	if (r->http->at->token[0] != '\0')
		return false;
	(void)optimfs_access_changed(fs, node);
	return optimfs_getattr(fs, node, &r->attr, NULL) == -1 ||
	    (r->attr.mode & S_IROTH) == 0;
}

enum MHD_Result ofs_server_closed(struct ofs_server_request *r)
{
	return ofs_server_refuse(r, MHD_HTTP_FORBIDDEN,
	    "OFS022 not everybody may read this: start optimfs serve with "
	    "--token-file, and give the token\n");
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

bool ofs_server_wants_json(const struct ofs_server_request *r)
{
	const char *accept = ofs_server_header(r, MHD_HTTP_HEADER_ACCEPT),
		   *format = ofs_server_mhd->lookup_connection_value(r->c,
		       MHD_GET_ARGUMENT_KIND, "format");

	if (format != NULL)
		return strcmp(format, "json") == 0;
	return accept != NULL && strstr(accept, "application/json") != NULL;
}

/* Links in a listing are relative to the name with a slash. */
enum MHD_Result ofs_server_redirect(struct ofs_server_request *r)
{
	struct MHD_Response *response = ofs_server_text("");
	struct ofs_buf to = { 0 };
	const char *name = strrchr(r->url, '/');

	ofs_buf_printf(&to, "./%s/", name == NULL ? "" : name + 1);
	ofs_buf_putc(&to, '\0');
	if (response != NULL && !to.bad)
		ofs_server_mhd->add_response_header(response,
		    MHD_HTTP_HEADER_LOCATION, (const char *)to.data);
	ofs_buf_fini(&to);
	return ofs_server_answer(r, MHD_HTTP_MOVED_PERMANENTLY, response);
}

enum MHD_Result ofs_server_listing(struct ofs_server_request *r,
    struct MHD_Response *response, bool json, const char *header,
    const char *value)
{
	ofs_server_mhd->add_response_header(response,
	    MHD_HTTP_HEADER_CONTENT_TYPE,
	    json ? "application/json" : "text/html; charset=utf-8");
	ofs_server_mhd->add_response_header(response, MHD_HTTP_HEADER_VARY,
	    "Accept");
	if (header != NULL)
		ofs_server_mhd->add_response_header(response, header, value);
	return ofs_server_answer(r, MHD_HTTP_OK, response);
}

static enum MHD_Result get_dir(struct ofs_server_request *r)
{
	const char *path = (const char *)r->path.data;
	bool json = ofs_server_wants_json(r);
	struct MHD_Response *response;
	struct optimfs_error err;
	struct ofs_server_dir *d;

	if (path[strlen(path) - 1] != '/')
		return ofs_server_redirect(r);
	d = ofs_server_dir_new(r->http->fs, r->attr.node, path, json, &err);
	if (d == NULL)
		return ofs_server_fail(r, &err);
	response =
	    ofs_server_mhd->create_response_from_callback(MHD_SIZE_UNKNOWN,
		DIR_SIZE, send_dir, d, ofs_server_dir_free);
	if (response == NULL) {
		ofs_server_dir_free(d);
		return MHD_NO;
	}
	return ofs_server_listing(r, response, json,
	    r->attr.node == OPTIMFS_ROOT && r->http->files != NULL
		? OFS_HTTP_FILES_HEADER
		: NULL,
	    OFS_HTTP_FILES);
}

/* Requests. */

static enum MHD_Result get(struct ofs_server_request *r)
{
	struct optimfs_error err;
	const char *path;

	if (r->url[0] != '/' || !ofs_server_decode(&r->path, r->url))
		return ofs_server_refuse(r, MHD_HTTP_BAD_REQUEST,
		    "no such URL\n");
	if (r->path.bad)
		return ofs_server_refuse(r, MHD_HTTP_SERVICE_UNAVAILABLE,
		    "no memory\n");
	path = (const char *)r->path.data;
	if (r->http->files != NULL &&
	    strncmp(path + 1, OFS_HTTP_FILES, strlen(OFS_HTTP_FILES)) == 0)
		return ofs_server_get_plain(r,
		    (char *)r->path.data + 1 + strlen(OFS_HTTP_FILES));
	if (r->http->fs == NULL)
		return ofs_server_get_plain(r, (char *)r->path.data + 1);
	if (optimfs_resolve(r->http->fs, path, &r->attr, &err) == -1)
		return err.code == ENOENT && ofs_server_has_plain(r, path + 1)
		    ? ofs_server_get_plain(r, (char *)r->path.data + 1)
		    : ofs_server_fail(r, &err);
	if (is_closed(r))
		return ofs_server_closed(r);
	return S_ISREG(r->attr.mode) ? ofs_server_send_node(r) : get_dir(r);
}

static enum MHD_Result handle(void *cls, struct MHD_Connection *c,
    const char *url, const char *method, const char *version,
    const char *upload, size_t *nupload, void **state)
{
	static bool begun;
	struct ofs_server_request r = { .http = cls, .c = c, .url = url };
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
		    : ofs_server_refuse(&r, MHD_HTTP_FORBIDDEN,
			  "without a token only 127.0.0.1 and localhost are "
			  "answered: start optimfs serve with --token-file\n");
	if (!reads)
		return ofs_server_refuse(&r, MHD_HTTP_METHOD_NOT_ALLOWED,
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
	ofs_server_mhd = at->mhd;
	h->daemon = ofs_server_mhd->start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD,
	    0, NULL, NULL, handle, h, MHD_OPTION_LISTEN_SOCKET, at->fd,
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
	ofs_server_mhd->stop_daemon(h->daemon);
	free(h);
}
