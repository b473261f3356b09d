/* notes.c - the generated files tensors.tsv, missing, warnings and globals */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "base/dtype.h"
#include "fs/fs.h"

static void put_record(const struct ofs_note *note, struct ofs_buf *out)
{
	ofs_buf_plain(out, note->text, strlen(note->text));
	ofs_buf_putc(out, '\n');
}

static uint32_t notes_steps(const struct ofs_snapshot *snap)
{
	return snap->cat->nnotes;
}

static uint32_t notes_next(const struct ofs_snapshot *snap, uint32_t at)
{
	return at + 1 < snap->cat->nnotes ? at + 1 : OFS_NONE;
}

static void warnings_put(struct ofs_snapshot *snap, uint32_t at,
    struct ofs_buf *out)
{
	const struct ofs_note *note;

	if (at >= snap->cat->nnotes)
		return;
	note = &snap->cat->notes[at];
	if (note->kind == OFS_NOTE_WARNING || note->kind == OFS_NOTE_ERROR ||
	    ofs_note_is_loss(note))
		put_record(note, out);
}

const struct ofs_lines_ops ofs_warnings_lines = {
	.put = warnings_put,
	.next = notes_next,
	.steps = notes_steps,
};

static void globals_put(struct ofs_snapshot *snap, uint32_t at,
    struct ofs_buf *out)
{
	const struct ofs_note *note;

	if (at >= snap->cat->nnotes)
		return;
	note = &snap->cat->notes[at];
	if (note->kind == OFS_NOTE_GLOBAL) /* already escaped; contains tabs */
		ofs_buf_printf(out, "%s\n", note->text);
}

const struct ofs_lines_ops ofs_globals_lines = {
	.put = globals_put,
	.next = notes_next,
	.steps = notes_steps,
};

static void missing_put(struct ofs_snapshot *snap, uint32_t at,
    struct ofs_buf *out)
{
	if (at < snap->cat->nnotes &&
	    snap->cat->notes[at].kind == OFS_NOTE_MISSING)
		put_record(&snap->cat->notes[at], out);
}

const struct ofs_lines_ops ofs_missing_lines = {
	.put = missing_put,
	.next = notes_next,
	.steps = notes_steps,
};

static uint32_t tensors_steps(const struct ofs_snapshot *snap)
{
	return snap->tree.n;
}

static uint32_t tensors_next(const struct ofs_snapshot *snap, uint32_t at)
{
	return ofs_tree_after(&snap->tree, 0, at);
}

/* The columns of tensors.tsv. The path is that of the checkpoint: lines may not
 * change when a writer renames a file. */
static void tensors_put(struct ofs_snapshot *snap, uint32_t at,
    struct ofs_buf *out)
{
	const struct ofs_tensor *t =
	    ofs_tree_tensor(&snap->tree, snap->cat, at);
	char path[4096];

	if (at == 0)
		ofs_buf_puts(out,
		    "path\tdtype\tshape\tbytes\tshards\towners\n");
	if (t == NULL)
		return;
	ofs_tree_path(&snap->tree, at, path, sizeof(path));
	ofs_buf_printf(out, "%s\t%s\t", path, ofs_dtype_name(t->dtype));
	ofs_buf_numbers(out, ofs_tensor_shape(snap->cat, t), t->ndim, ",");
	ofs_buf_printf(out, "\t%" PRIu64 "\t%" PRIu32 "\t",
	    ofs_tensor_bytes(snap->cat, t), t->nshards);
	ofs_owners(snap->cat, t, out);
	ofs_buf_putc(out, '\n');
}

const struct ofs_lines_ops ofs_tensors_lines = {
	.put = tensors_put,
	.next = tensors_next,
	.steps = tensors_steps,
};
