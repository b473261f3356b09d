/* server_dir.c - the listing of a directory over HTTP, part by part */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/human.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "fs/walk.h"
#include "serve/server.h"

/* A directory can have a million names. Only a batch of them is in memory. */
#define BATCH 256

struct ofs_server_dir {
	struct optimfs *fs;
	uint64_t node, position; /* of the next batch */
	bool json, more, listed; /* more: a comma precedes the next entry */
	unsigned n;
	struct entry {
		char *name;
		struct optimfs_attr attr;
	} entry[BATCH];
	struct ofs_buf text;
	size_t sent;
};

void ofs_server_dir_begin(struct ofs_buf *b, const char *path)
{
	ofs_buf_puts(b,
	    "<!DOCTYPE html>\n<meta charset=\"utf-8\">\n"
	    "<style>body{font-family:sans-serif}td{padding:0 1em}"
	    "td+td{text-align:right}</style>\n<title>");
	ofs_server_escape(b, path);
	ofs_buf_puts(b, "</title>\n<h1>");
	ofs_server_escape(b, path);
	ofs_buf_puts(b, "</h1>\n<table>\n");
	if (strcmp(path, "/") != 0)
		ofs_buf_puts(b, "<tr><td><a href=\"../\">../</a></td></tr>\n");
}

struct ofs_server_dir *ofs_server_dir_new(struct optimfs *fs, uint64_t node,
    const char *path, bool json, struct optimfs_error *err)
{
	struct ofs_server_dir *d = ofs_alloc(1, sizeof(*d), err);

	if (d == NULL)
		return NULL;
	d->fs = fs;
	d->node = node;
	d->json = json;
	if (json)
		ofs_buf_puts(&d->text, "[");
	else
		ofs_server_dir_begin(&d->text, path);
	return d;
}

static void drop_batch(struct ofs_server_dir *d)
{
	for (unsigned i = 0; i < d->n; i++)
		free(d->entry[i].name);
	d->n = 0;
}

void ofs_server_dir_free(void *dir)
{
	struct ofs_server_dir *d = dir;

	drop_batch(d);
	ofs_buf_fini(&d->text);
	free(d);
}

static int take(void *ctx, const struct optimfs_dirent *entry)
{
	struct ofs_server_dir *d = ctx;
	struct entry *e = &d->entry[d->n];

	e->name = strdup(entry->name);
	e->attr = *entry->attr;
	if (e->name == NULL) {
		d->text.bad = true;
		return 1;
	}
	d->position = entry->position + 1;
	return ++d->n == BATCH;
}

/* Only runs have links: to directories. */
static bool is_dir(const struct entry *e)
{
	return !S_ISREG(e->attr.mode);
}

static void put_json(struct ofs_server_dir *d, const struct entry *e)
{
	struct ofs_json_writer w = {
		.b = &d->text, .gap = "\n", .more = d->more
	};
	char date[OFS_SERVER_DATE];

	ofs_server_date(e->attr.mtime_ns, date);
	ofs_json_open(&w, NULL, '{');
	w.gap = " ";
	ofs_json_put_string(&w, "name", e->name);
	ofs_json_put_string(&w, "type", is_dir(e) ? "directory" : "file");
	ofs_json_put_string(&w, "mtime", date);
	if (!is_dir(e) && e->attr.exact)
		ofs_json_put_u64(&w, "size", e->attr.size);
	ofs_json_close(&w, '}');
	d->more = true;
}

static void put_cell(struct ofs_server_dir *d, char *text)
{
	ofs_buf_puts(&d->text, "<td>");
	if (text != NULL)
		ofs_server_escape(&d->text, text);
	free(text);
}

static void put_html(struct ofs_server_dir *d, const struct entry *e)
{
	const char *slash = is_dir(e) ? "/" : "";
	char size[OFS_HUMAN_SIZE];

	/* a colon is encoded, so that no name begins with a scheme */
	ofs_buf_puts(&d->text, "<tr><td><a href=\"");
	ofs_server_encode(&d->text, e->name);
	ofs_buf_printf(&d->text, "%s\">", slash);
	ofs_server_escape(&d->text, e->name);
	ofs_buf_printf(&d->text, "%s</a>", slash);
	if (!is_dir(e)) {
		put_cell(d,
		    ofs_attribute(d->fs, e->attr.node, "dtype", &d->text.bad));
		put_cell(d,
		    ofs_attribute(d->fs, e->attr.node, "shape", &d->text.bad));
		ofs_buf_printf(&d->text, "<td>%s%s",
		    e->attr.exact ? "" : "&le; ",
		    ofs_human_bytes(e->attr.size, size));
	}
	ofs_buf_puts(&d->text, "</tr>\n");
}

static int next_batch(struct ofs_server_dir *d)
{
	d->text.len = d->sent = 0;
	if (optimfs_readdir(d->fs, d->node, d->position, true, take, d, NULL) ==
	    -1)
		return -1;
	d->listed = d->n < BATCH;
	for (unsigned i = 0; i < d->n; i++)
		(d->json ? put_json : put_html)(d, &d->entry[i]);
	drop_batch(d);
	if (d->listed)
		ofs_buf_puts(&d->text, d->json ? "\n]\n" : "</table>\n");
	return 0;
}

ssize_t ofs_server_dir_read(struct ofs_server_dir *d, char *buf, size_t max)
{
	size_t n;

	if (d->sent == d->text.len && !d->listed && next_batch(d) == -1)
		return -1;
	if (d->text.bad)
		return -1;
	n = d->text.len - d->sent;
	n = n < max ? n : max;
	if (n > 0)
		memcpy(buf, d->text.data + d->sent, n);
	d->sent += n;
	return (ssize_t)n;
}
