/* summary_line.c - a checkpoint, and what is wrong with it, in one line */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>

#include "analyze/summary.h"
#include "overlay/overlay.h"

static bool is_lost(const struct ofs_note *n)
{
	return n->kind == OFS_NOTE_MISSING && !ofs_summary_is_remark(n);
}

static bool is_no_data(const struct ofs_note *n)
{
	return n->kind == OFS_NOTE_WARNING && n->code == ENODATA;
}

static const char *first_note(const struct ofs_summary *s,
    bool (*is)(const struct ofs_note *n))
{
	const struct ofs_catalog *cat = s->snap->cat;

	for (uint32_t i = 0; i < cat->nnotes; i++)
		if (is(&cat->notes[i]))
			return cat->notes[i].text;
	return NULL;
}

/* What is damaged, and where to read more. */
static void put_problems(const struct ofs_summary *s, struct ofs_buf *out)
{
	const struct {
		uint64_t n;
		const char *one, *more;
	} part[] = {
		{ s->missing_files, "missing file", "missing files" },
		{ s->short_files, "short file", "short files" },
		{ s->refused_files, "file that may not be opened",
		    "files that may not be opened" },
		{ s->gone + s->damaged, "unreadable tensor or value",
		    "unreadable tensors and values" },
	};
	const char *between = "", *lost;

	if (s->damaged_files > 0) {
		ofs_summary_put_count(out, s->damaged_files, "unreadable file");
		ofs_buf_puts(out, " (");
		ofs_summary_put_plain(out, s->damaged_file);
		ofs_buf_puts(out, s->damaged_files > 1 ? ", ...)" : ")");
		between = ", ";
	}
	for (size_t i = 0; i < sizeof(part) / sizeof(*part); i++) {
		if (part[i].n == 0)
			continue;
		ofs_buf_puts(out, between);
		ofs_buf_printf(out, "%" PRIu64 " %s", part[i].n,
		    part[i].n == 1 ? part[i].one : part[i].more);
		between = ", ";
	}
	lost = *between == '\0' ? first_note(s, is_lost) : NULL;
	if (lost != NULL)
		ofs_summary_put_plain(out, lost);
	ofs_buf_puts(out, "; optimfs fsck ");
	ofs_summary_put_plain(out, s->snap->fs->source);
	ofs_buf_puts(out, lost != NULL ? " says more" : " says which");
}

/* What a reader should know of a checkpoint without problems. */
static void put_remark(const struct ofs_summary *s, struct ofs_buf *out)
{
	const char *no_data = first_note(s, is_no_data);

	if (s->unread > 0) {
		ofs_buf_printf(out,
		    "%" PRIu64 " of the tensors and values cannot be read by "
		    "this version, or without an option; optimfs info ",
		    s->unread);
		ofs_summary_put_plain(out, s->snap->fs->source);
		ofs_buf_puts(out, " says why");
	} else if (no_data != NULL) {
		ofs_summary_put_plain(out, no_data);
	}
}

void ofs_summary_line(const struct ofs_summary *s, struct ofs_buf *out)
{
	const struct ofs_catalog *cat = s->snap->cat;
	uint64_t problems = ofs_summary_problems(s);
	bool template =
	    s->snap->overlay != NULL && ofs_overlay_hides(s->snap->overlay);

	if (template)
		ofs_buf_puts(out, "a template to be filled in; its source: ");
	ofs_buf_puts(out, cat->format == NULL ? "unknown" : cat->format);
	if (cat->world_size > 0 || s->ranks > 0) {
		ofs_buf_puts(out, ", ");
		ofs_summary_put_count(out,
		    cat->world_size > 0 ? (uint64_t)cat->world_size : s->ranks,
		    "rank");
	}
	if (s->model.tensors > 0) {
		ofs_buf_puts(out, ", ");
		ofs_summary_put_count(out, s->model.tensors, "parameter");
	}
	if (s->noptims > 0) {
		ofs_buf_puts(out, ", ");
		ofs_buf_puts(out,
		    s->optim[0].kind != NULL ? s->optim[0].kind : "optimizer");
	}
	if (s->step[0] != '\0' && !template) {
		ofs_buf_puts(out, s->noptims > 0 ? " at step " : ", step ");
		ofs_summary_put_plain(out, s->step);
	}
	ofs_buf_puts(out, ", ");
	ofs_summary_put_bytes(out, s->all.bytes);
	if (template)
		return;
	ofs_buf_puts(out, "; ");
	ofs_summary_put_count(out, problems, "problem");
	if (problems > 0) {
		ofs_buf_puts(out, ": ");
		put_problems(s, out);
	} else if (s->unread > 0 || first_note(s, is_no_data) != NULL) {
		ofs_buf_puts(out, "; ");
		put_remark(s, out);
	}
}

void ofs_summary_damage(const struct ofs_summary *s, struct ofs_buf *out)
{
	if (ofs_summary_problems(s) == 0) {
		put_remark(s, out);
		return;
	}
	ofs_buf_puts(out, "the checkpoint is damaged: ");
	put_problems(s, out);
}
