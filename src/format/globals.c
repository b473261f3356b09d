/* globals.c - the globals that pickles name, for a user who must trust them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/globals.h"

#include <errno.h>
#include <inttypes.h>

#include "base/buf.h"
#include "base/memory.h"

static void put_name(const struct ofs_pk_global *g, struct ofs_buf *out)
{
	out->len = 0;
	ofs_buf_plain(out, g->module.p, g->module.len);
	ofs_buf_putc(out, '.');
	ofs_buf_plain(out, g->name.p, g->name.len);
	ofs_buf_putc(out, '\0');
}

static int note(struct ofs_catalog *cat, const struct ofs_pk_global *g,
    const char *name, const char *where, struct optimfs_error *err)
{
	bool allowed = ofs_pk_global_allowed(g);

	if (ofs_catalog_note(cat, OFS_NOTE_GLOBAL, 0, err, "%.300s\t%s\t%.150s",
		name, allowed ? "allowed" : "refused", where) == -1)
		return -1;
	if (allowed || !g->called)
		return 0;
	return ofs_catalog_note(cat, OFS_NOTE_WARNING, EPERM, err,
	    "OFS420 %.150s: pickle calls %.150s at offset %" PRIu64
	    "; optimfs never runs it, torch.load without weights_only would",
	    where, name, g->offset);
}

int ofs_note_globals(struct ofs_catalog *cat, const struct ofs_pickle *doc,
    const char *where, struct optimfs_error *err)
{
	const struct ofs_pk_global *g;
	struct ofs_buf name = { 0 };
	size_t n;
	int ret = 0;

	g = ofs_pk_globals(doc, &n);
	for (size_t i = 0; i < n && ret == 0; i++) {
		put_name(&g[i], &name);
		ret = name.bad
		    ? ofs_no_memory(err)
		    : note(cat, &g[i], (char *)name.data, where, err);
	}
	ofs_buf_fini(&name);
	return ret;
}

int ofs_refuse_calls(const struct ofs_catalog *cat, uint32_t from,
    struct optimfs_error *err)
{
	for (uint32_t i = from; i < cat->nnotes; i++)
		if (cat->notes[i].kind == OFS_NOTE_WARNING &&
		    cat->notes[i].code == EPERM)
			return optimfs_fail_as(err, EPERM, "%s",
			    cat->notes[i].text);
	return 0;
}
