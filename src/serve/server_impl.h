/* server_impl.h - what the files of server.h share: a request and its answer */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_SERVE_SERVER_IMPL_H
#define OFS_SERVE_SERVER_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "serve/mhd.h"
#include "serve/server.h"
#include "serve/server_files.h"
#include "serve/server_segments.h"

extern const struct ofs_mhd *ofs_server_mhd; /* of the first server on */

struct ofs_server {
	struct optimfs *fs;                   /* or NULL */
	const struct ofs_server_files *files; /* or NULL */
	const struct ofs_listener *at;
	struct MHD_Daemon *daemon;
};

struct ofs_server_request {
	const struct ofs_server *http;
	struct MHD_Connection *c;
	const char *url; /* as it was sent */
	struct ofs_buf path;
	bool head;
	bool plain; /* below OFS_HTTP_FILES */
	struct optimfs_attr attr;
	char tag[OFS_SERVER_TAG]; /* of a file; "": of a list of segments */
};

/* server.c: */

/* response, which is not the caller's any more; NULL: there was no memory for it. */
enum MHD_Result ofs_server_answer(struct ofs_server_request *r, unsigned status,
    struct MHD_Response *response);
/* A copy of s. */
struct MHD_Response *ofs_server_text(const char *s);
enum MHD_Result ofs_server_refuse(struct ofs_server_request *r, unsigned status,
    const char *why);
/* The status for an errno value. */
unsigned ofs_server_status(int code);
enum MHD_Result ofs_server_fail_as(struct ofs_server_request *r,
    unsigned status, const struct optimfs_error *err);
enum MHD_Result ofs_server_fail(struct ofs_server_request *r,
    const struct optimfs_error *err);
/* Only who has a token may read this. */
enum MHD_Result ofs_server_closed(struct ofs_server_request *r);
/* NULL: it was not sent. */
const char *ofs_server_header(const struct ofs_server_request *r,
    const char *name);
bool ofs_server_wants_json(const struct ofs_server_request *r);
/* A listing of a directory, as JSON or HTML, which has this header, too, unless
 * that is NULL. */
enum MHD_Result ofs_server_listing(struct ofs_server_request *r,
    struct MHD_Response *response, bool json, const char *header,
    const char *value);
/* To the name of a directory with a slash. */
enum MHD_Result ofs_server_redirect(struct ofs_server_request *r);

/* server_send.c: */

/* The bytes of the file of the tree that r->attr is of. */
enum MHD_Result ofs_server_send_node(struct ofs_server_request *r);
/* Those of a file, which has the tag of r; fd is not the caller's any more. */
enum MHD_Result ofs_server_send_fd(struct ofs_server_request *r, int fd,
    uint64_t size);
/* Those of a list, which is not the caller's any more. */
enum MHD_Result ofs_server_send_list(struct ofs_server_request *r,
    struct ofs_server_segments *list);

/* server_plain.c: */

/* A path behind OFS_HTTP_FILES; a directory's ends in a slash. */
enum MHD_Result ofs_server_get_plain(struct ofs_server_request *r, char *rel);
/* Is there one? */
bool ofs_server_has_plain(const struct ofs_server_request *r, const char *path);

#endif
