/* ops_access.c - who may still read a mount whose source got other modes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <unistd.h>

#include "fuse/ops_internal.h"

/* The kernel decides by attributes that it keeps: a chmod of the source is not
 * among the things that it is told. Only what others open is looked at again,
 * because it costs a stat(2) of each file of the source. */
bool ofs_op_look(fuse_req_t req, fuse_ino_t node)
{
	const struct ofs_session *s = ofs_op_session(req);
	uid_t uid = fuse_req_ctx(req)->uid;

	return s->others && uid != 0 && uid != geteuid() &&
	    optimfs_access_changed(s->fs, node);
}

/* A caller whose groups cannot be found out has the one of the request. */
static bool is_member(fuse_req_t req, gid_t gid)
{
	gid_t *list;
	int n = fuse_req_getgroups(req, 0, NULL);
	bool member = fuse_req_ctx(req)->gid == gid;

	if (member || n <= 0)
		return member;
	list = calloc((size_t)n, sizeof(*list));
	if (list != NULL && fuse_req_getgroups(req, n, list) == n)
		for (int i = 0; i < n; i++)
			member |= list[i] == gid;
	free(list);
	return member;
}

bool ofs_op_may_open(fuse_req_t req, fuse_ino_t node)
{
	struct optimfs_attr attr;

	if (!ofs_op_look(req, node))
		return true;
	if (optimfs_getattr(ofs_op_session(req)->fs, node, &attr, NULL) == -1)
		return false;
	if (attr.uid == fuse_req_ctx(req)->uid)
		return (attr.mode & 0400) != 0;
	if (is_member(req, attr.gid))
		return (attr.mode & 0040) != 0;
	return (attr.mode & 0004) != 0;
}
