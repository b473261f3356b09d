/* server_plain.c - files as they are, and lists of their segments */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "serve/server_impl.h"
#include "store/http/answer.h"

static enum MHD_Result list_files(struct ofs_server_request *r, const char *rel)
{
	bool json = ofs_server_wants_json(r);
	struct MHD_Response *response;
	struct optimfs_error err;
	struct ofs_buf b = { .limit = OFS_HTTP_LISTING_MOST };

	if (ofs_server_files_list(r->http->files, rel, json, &b, &err) == -1) {
		ofs_buf_fini(&b);
		return ofs_server_fail(r, &err);
	}
	response = ofs_server_mhd->create_response_from_buffer(b.len, b.data,
	    MHD_RESPMEM_MUST_FREE);
	if (response == NULL) {
		ofs_buf_fini(&b);
		return MHD_NO;
	}
	return ofs_server_listing(r, response, json, OFS_HTTP_LIST_HEADER, "1");
}

static enum MHD_Result send_plain(struct ofs_server_request *r,
    const struct ofs_server_file *file)
{
	r->attr.mtime_ns = (int64_t)file->st.st_mtim.tv_sec * 1000000000;
	ofs_server_files_tag(&file->st, r->tag);
	return ofs_server_send_fd(r, file->fd, (uint64_t)file->st.st_size);
}

static unsigned status_of_list(int code)
{
	return code == ESTALE                 ? MHD_HTTP_PRECONDITION_FAILED
	    : code == EINVAL || code == E2BIG ? MHD_HTTP_BAD_REQUEST
					      : ofs_server_status(code);
}

static enum MHD_Result send_segments(struct ofs_server_request *r,
    const char *rel, const char *list)
{
	struct optimfs_error err;
	struct ofs_server_segments *l = ofs_server_segments_new(r->http->files,
	    rel, list, r->http->at->token[0] != '\0', &err);

	return l == NULL ? ofs_server_fail_as(r, status_of_list(err.code), &err)
			 : ofs_server_send_list(r, l);
}

static enum MHD_Result get_files(struct ofs_server_request *r, const char *rel)
{
	const char *list = ofs_server_mhd->lookup_connection_value(r->c,
	    MHD_GET_ARGUMENT_KIND, OFS_HTTP_LIST);

	return list == NULL ? list_files(r, rel) : send_segments(r, rel, list);
}

enum MHD_Result ofs_server_get_plain(struct ofs_server_request *r, char *rel)
{
	size_t n = strlen(rel);
	bool slash = n == 0 || rel[n - 1] == '/';
	struct ofs_server_file file;
	struct optimfs_error err;

	r->plain = true;
	if (n > 0 && slash)
		rel[n - 1] = '\0';
	if (ofs_server_files_find(r->http->files, rel, &file, &err) == -1)
		return ofs_server_fail(r, &err);
	if (!file.is_public && r->http->at->token[0] == '\0') {
		if (file.fd != -1)
			close(file.fd);
		return ofs_server_closed(r);
	}
	if (file.is_dir)
		return slash ? get_files(r, rel) : ofs_server_redirect(r);
	return send_plain(r, &file);
}

/* Who began at the files of a run goes on to those of a step. */
bool ofs_server_has_plain(const struct ofs_server_request *r, const char *path)
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
