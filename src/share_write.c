/* share_write.c - the ranks of a checkpoint that is to be written */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>

#include "edit.h"
#include "share.h"
#include "sites.h"
#include "wire.h"

void ofs_writing_free(struct ofs_writing *writing)
{
	if (writing == NULL)
		return;
	ofs_sites_free(writing->sites);
	ofs_stage_close(writing->stage, true);
	free(writing->skeleton);
	free(writing);
}

/* Each says how it is doing; all fail with the first that is not well. Rank 0
 * may speak of others. */
static int compare_notes(struct optimfs_world *w,
    const struct optimfs_error *own, bool blame, struct optimfs_error *err)
{
	struct ofs_said *said = calloc((size_t)w->size, sizeof(*said));
	struct ofs_buf b = { 0 };
	int ret = 0;

	ofs_wire_u32(&b, (uint32_t)own->code);
	ofs_wire_str(&b, own->code == 0 ? "" : own->text);
	if (said == NULL || b.bad)
		ret = optimfs_fail(err, ENOMEM, "out of memory");
	else
		ret = w->ops->exchange(w->w, b.data, b.len, said, err);
	for (int r = 0; r < w->size && ret == 0; r++) {
		struct ofs_cursor c = ofs_cursor_of(said[r].p, said[r].n);
		uint32_t code = ofs_cursor_le32(&c);
		const char *text = ofs_wire_take_str(&c);

		if (code == 0 && !c.bad)
			continue;
		ret = c.bad ? optimfs_fail(err, EPROTO,
				  "OFS913 what it said makes no sense")
			    : optimfs_fail(err, (int)code, "%s", text);
		if (blame || c.bad)
			ofs_world_blame(w, r, err);
	}
	for (int r = 0; said != NULL && r < w->size; r++)
		free(said[r].p);
	free(said);
	ofs_buf_fini(&b);
	return ret;
}

static int begin(struct ofs_share *s, const char *path,
    const struct optimfs_options *options, struct optimfs_error *err)
{
	char *own = optimfs_world_expand(s->world, path, err), *real;

	if (own != NULL && (real = realpath(own, NULL)) != NULL) {
		free(own);
		own = real;
	}
	if (own != NULL)
		s->writing = calloc(1, sizeof(*s->writing));
	if (own != NULL && s->writing == NULL)
		optimfs_fail(err, ENOMEM, "out of memory");
	if (s->writing != NULL)
		s->writing->stage = ofs_edit_stage_open(own, options, s,
		    &s->writing->skeleton, &s->writing->sites, err);
	free(own);
	if (s->writing != NULL && s->writing->stage != NULL)
		return 0;
	free(s->writing);
	s->writing = NULL;
	return -1;
}

/* When all have said that they are well, all can be asked. */
int ofs_share_begin(struct ofs_share *s, struct optimfs_world *w,
    const char *path, const struct optimfs_options *options,
    const struct optimfs_error *own, struct optimfs_error *err)
{
	struct optimfs_error mine = { 0 };

	if (compare_notes(w, own, true, err) == -1)
		return -1;
	if (w->rank == 0)
		(void)begin(s, path, options, &mine);
	return compare_notes(w, &mine, false, err);
}
