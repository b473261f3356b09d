/* group.c - the ranks of a job, and the checkpoints they offer */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "optimfs/run.h"

#include "api/api.h"
#include "cluster/allgather.h"
#include "cluster/commit/locks.h"
#include "cluster/commit/participant.h"
#include "cluster/gpu/gather.h"
#include "cluster/manifest.h"
#include "store/http/open.h"

const struct ofs_group_service *const ofs_group_services[] = {
	&ofs_commit_service,
	&ofs_gpu_service,
	NULL,
};

struct optimfs_group *optimfs_group_join(const char *transport,
    unsigned timeout, struct optimfs_error *err)
{
	return ofs_group_join(transport, timeout, ofs_group_services, err);
}

/* A name in a run, as RUN:latest, may be another checkpoint for each rank: ranks
 * open directories, whose names are the same. -1: path is such a name. */
static int refuse_name(const char *path, struct optimfs_error *err)
{
	char *real = NULL;
	const char *rest;
	int named = optimfs_run_find(path, &real, &rest, err);

	if (named == 1 && real != NULL)
		optimfs_fail(err, EROFS,
		    "OFS854 %s: with mpirun, give the directory of a "
		    "checkpoint of a run: %s",
		    path, real);
	else if (named == 1)
		optimfs_fail(err, EROFS,
		    "OFS854 %s is computed from checkpoints of a run, which "
		    "one process reads: run the command without mpirun",
		    path);
	free(real);
	return named == 0 ? 0 : -1;
}

/* Others may send requests for a checkpoint before we know that all have it. So
 * it is added before the first message. */
static struct ofs_manifest *add(struct optimfs_group *w, const char *path,
    bool first, const struct optimfs_options *options,
    struct optimfs_error *err)
{
	struct ofs_manifest *s;

	if (ofs_http_is_address(path)) {
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS932 %s is on a server: ranks do not read it together",
		    path);
		return NULL;
	}
	if (refuse_name(path, err) == -1)
		return NULL;
	s = ofs_manifest_new(w, path, first, options, err);
	if (s == NULL || ofs_group_add(w, s, err) == 0)
		return s;
	ofs_manifest_let(s);
	return NULL;
}

int optimfs_group_offer(struct optimfs_group *w, const char *path, bool first,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	static const struct optimfs_options none;
	struct optimfs_error own = { 0 };
	struct ofs_manifest *s;

	if (options == NULL)
		options = &none;
	s = add(w, path, first, options, &own);
	if (options->rw && !options->scratch &&
	    ofs_manifest_begin(s, w, path, options, ofs_stage_for_writing, &own,
		err) == -1)
		return -1;
	if (s != NULL && ofs_manifest_scan(s, &own) == -1)
		s = NULL;
	return ofs_manifest_agree(s, w, path, &own, err);
}

int optimfs_group_agree(struct optimfs_group *w,
    const struct optimfs_error *own, struct optimfs_error *err)
{
	return ofs_group_vote(w, own, true, err);
}
