/* summary_file.c - a summary of one file */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/summary.h"
#include "base/human.h"
#include "base/json_write.h"
#include "fs/walk.h"

/* The attributes in the order of display. */
static const struct {
	const char *name;
	enum { TEXT, NUMBER, LIST } as; /* in JSON */
} shown[] = {
	{ "fqn", TEXT },
	{ "raw_fqn", TEXT },
	{ "kind", TEXT },
	{ "dtype", TEXT },
	{ "shape", LIST },
	{ "shards", NUMBER },
	{ "owners", TEXT },
	{ "source", TEXT },
};
#define NSHOWN (sizeof(shown) / sizeof(shown[0]))

/* Longer texts are not shown. */
#define VALUE_MAX 4096

static const struct ofs_tensor *tensor_at(const struct ofs_snapshot *snap,
    uint64_t node)
{
	struct ofs_at at;

	if (ofs_node_at(snap, node, &at, NULL) == -1 ||
	    at.space != OFS_SPACE_TREE || at.index >= snap->tree.n)
		return NULL;
	return ofs_entry_tensor(snap->cat, ofs_at_entry(snap, at));
}

/* The text of a value, malloc'ed; NULL: it is a tensor, cannot be read, is
 * too long, or not text. */
static char *value_of(struct optimfs *fs, const struct optimfs_attr *attr)
{
	char *kind = ofs_attribute(fs, attr->node, "kind", NULL);
	char *shape = ofs_attribute(fs, attr->node, "shape", NULL), *text;
	bool value = kind != NULL && (shape == NULL || shape[0] == '\0');
	struct optimfs_file *file;
	ssize_t n = -1;

	free(kind);
	free(shape);
	if (!value || optimfs_file_open(fs, attr->node, &file, NULL) == -1)
		return NULL;
	text = malloc(VALUE_MAX + 1);
	if (text != NULL)
		n = optimfs_file_read(file, text, VALUE_MAX + 1, 0, NULL);
	optimfs_file_close(file);
	if (n <= 0 || n > VALUE_MAX || memchr(text, '\0', (size_t)n) != NULL) {
		free(text);
		return NULL;
	}
	text[n] = '\0';
	if (text[n - 1] == '\n')
		text[n - 1] = '\0';
	return text;
}

static void put_attribute(struct ofs_buf *out, const char *name,
    const char *value)
{
	ofs_buf_printf(out, "%s: ", name);
	for (const char *p = value; *p != '\0'; p++)
		if (*p == '\n')
			ofs_buf_puts(out, "\n    ");
		else
			ofs_buf_plain(out, p, 1);
	ofs_buf_putc(out, '\n');
}

void ofs_summary_file_text(struct optimfs *fs, const struct optimfs_attr *attr,
    struct ofs_buf *out)
{
	struct ofs_snapshot *snap;
	const struct ofs_tensor *t;
	char human[OFS_HUMAN_SIZE], *text = value_of(fs, attr);

	if (text != NULL)
		put_attribute(out, "value", text);
	free(text);
	ofs_buf_printf(out, "size: %s%" PRIu64 " bytes",
	    attr->exact ? "" : "at most ", attr->size);
	if (attr->size >= 1000)
		ofs_buf_printf(out, " (%s)",
		    ofs_human_bytes(attr->size, human));
	ofs_buf_printf(out, "\nstored: %" PRIu64 " bytes\n", attr->stored);
	for (size_t i = 0; i < NSHOWN; i++) {
		char *value =
		    ofs_attribute(fs, attr->node, shown[i].name, NULL);

		if (value != NULL && value[0] != '\0')
			put_attribute(out, shown[i].name, value);
		free(value);
	}
	snap = ofs_enter(fs);
	t = tensor_at(snap, attr->node);
	if (t != NULL && t->nshards > 1)
		ofs_summary_shards(snap->cat, t, out);
	ofs_leave(snap);
}

void ofs_summary_file_json(struct optimfs *fs, const char *path,
    const struct optimfs_attr *attr, struct ofs_buf *out)
{
	struct ofs_json_writer w = { out, " ", false };
	char *text = value_of(fs, attr);

	ofs_json_open(&w, NULL, '{');
	ofs_json_put_string(&w, "schema", "optimfs.info.file");
	ofs_json_put_u64(&w, "v", 2);
	ofs_json_put_string(&w, "path", path);
	if (text != NULL)
		ofs_json_put_string(&w, "value", text);
	free(text);
	ofs_json_put_u64(&w, "size", attr->size);
	ofs_json_put_bool(&w, "size_exact", attr->exact);
	ofs_json_put_u64(&w, "stored", attr->stored);
	for (size_t i = 0; i < NSHOWN; i++) {
		char *value =
		    ofs_attribute(fs, attr->node, shown[i].name, NULL);

		if (value == NULL)
			continue;
		if (shown[i].as == TEXT) {
			ofs_json_put_string(&w, shown[i].name, value);
		} else if (shown[i].as == NUMBER) {
			ofs_json_put_raw(&w, shown[i].name, value);
		} else {
			ofs_json_open(&w, shown[i].name, '[');
			ofs_buf_puts(out, value);
			ofs_json_close(&w, ']');
		}
		free(value);
	}
	ofs_json_close(&w, '}');
	ofs_buf_putc(out, '\n');
}
