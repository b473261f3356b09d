/* offer.c - a checkpoint that several ranks hold */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "api/api.h"
#include "cluster/manifest.h"

int optimfs_group_offer(struct optimfs_group *w, const char *path, bool first,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	return ofs_group_offer(w, path, first, options, ofs_stage_for_writing,
	    err);
}
