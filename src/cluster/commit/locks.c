/* locks.c - lock a checkpoint of several ranks for writing */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/commit/locks.h"

#include <stdlib.h>

#include "base/memory.h"
#include "cluster/allgather.h"
#include "cluster/commit/coordinator.h"
#include "cluster/manifest.h"
#include "journal/stage.h"

void ofs_writing_free(struct ofs_writing *writing)
{
	if (writing == NULL)
		return;
	ofs_coordinator_free(writing->coordinator);
	ofs_stage_close(writing->stage, true);
	free(writing);
}

static int begin(struct ofs_manifest *s, const char *path,
    const struct optimfs_options *options, ofs_stage_open_fn *open,
    struct optimfs_error *err)
{
	char *own = optimfs_group_expand(s->group, path, err), *real;

	if (own != NULL && (real = realpath(own, NULL)) != NULL) {
		free(own);
		own = real;
	}
	if (own != NULL)
		s->writing = calloc(1, sizeof(*s->writing));
	if (own != NULL && s->writing == NULL)
		ofs_no_memory(err);
	if (s->writing != NULL)
		s->writing->stage = open(own, options, s, &s->writing->template,
		    &s->writing->coordinator, err);
	free(own);
	if (s->writing != NULL && s->writing->stage != NULL)
		return 0;
	free(s->writing);
	s->writing = NULL;
	return -1;
}

/* Once all have reported success, all can be asked. */
int ofs_manifest_begin(struct ofs_manifest *s, struct optimfs_group *w,
    const char *path, const struct optimfs_options *options,
    ofs_stage_open_fn *open, const struct optimfs_error *own,
    struct optimfs_error *err)
{
	struct optimfs_error mine = { 0 };

	if (ofs_group_vote(w, own, true, err) == -1)
		return -1;
	if (w->rank == 0)
		(void)begin(s, path, options, open, &mine);
	return ofs_group_vote(w, &mine, false, err);
}
