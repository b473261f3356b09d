/* lost.c - files whose loss many tensors share */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/lost.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "cli/tools.h"

/* The reasons why tensors cannot be read. */
static const struct kind {
	const char *words;
	const char *name; /* NULL: that of the file */
	int number;       /* of the OFSnnn for several tensors; 0: the same */
} kinds[] = {
	[OPTIMFS_LOST_MISSING] = { "is missing", NULL, 0 },
	[OPTIMFS_LOST_SHORT] = { "is too short", NULL, 0 },
	[OPTIMFS_LOST_CLOSED] = { "is not readable for this user", NULL, 0 },
	[OPTIMFS_LOST_WRONG] = { "lacks tensors", NULL, 0 },
	[OPTIMFS_LOST_GARBLED] = { "does not match the index", NULL, 615 },
	[OPTIMFS_LOST_HOLES] = { "are in no file", "elements", 0 },
	[OPTIMFS_LOST_UNITS] = { "without -o units=FILE", "units unknown", 0 },
};

static bool add_file(struct ofs_lost *l, const struct optimfs_error *why,
    struct ofs_str name, const char *path, const char *text)
{
	struct ofs_lost_file f = { .number = why->number,
		.words = kinds[why->how].words,
		.name = strndup(name.p, name.len),
		.path = strdup(path == NULL ? "" : path),
		.text = strdup(text) };

	if (f.name != NULL && f.path != NULL && f.text != NULL &&
	    ofs_grow(l->file, l->n, l->cap, NULL) == 0) {
		l->file[l->n++] = f;
		return true;
	}
	free(f.name);
	free(f.path);
	free(f.text);
	return false;
}

/* Of messages that are not about a file as a whole, each may name a tensor: two
 * get one text. */
static void generalize(struct ofs_lost_file *f, const struct kind *kind,
    const char *text)
{
	char *all;

	if (strcmp(f->text, text) == 0)
		return;
	if (kind->number != 0)
		f->number = kind->number;
	if (asprintf(&all, "OFS%03d %s %s", f->number, f->name, f->words) == -1)
		return;
	free(f->text);
	f->text = all;
}

bool ofs_lost_add(struct ofs_lost *l, const char *path, const char *text,
    const struct optimfs_error *why)
{
	const struct kind *kind;
	struct ofs_str name;
	size_t i = 0;

	if (why == NULL || why->how == OPTIMFS_NOT_LOST)
		return false;
	kind = &kinds[why->how];
	name = kind->name != NULL
	    ? ofs_str_of(kind->name)
	    : (struct ofs_str){ why->text + why->lost, why->nlost };
	while (i < l->n &&
	    (!ofs_str_is(name, l->file[i].name) ||
		strcmp(kind->words, l->file[i].words) != 0))
		i++;
	if (i == l->n && !add_file(l, why, name, path, text))
		return false;
	if (kind->name != NULL || kind->number != 0)
		generalize(&l->file[i], kind, text);
	l->file[i].n +=
	    path == NULL || *path != '\0' || why->how == OPTIMFS_LOST_HOLES;
	return true;
}

static void tell(const struct ofs_lost *l, const struct ofs_lost_file *f,
    void (*each)(void *ctx, const char *text), void *ctx)
{
	bool named = l->checkpoint != NULL;
	char *text;
	int n = f->n == 1
	    ? asprintf(&text, "%s%s%s", f->path, *f->path == '\0' ? "" : ": ",
		  f->text)
	    : asprintf(&text,
		  "OFS%03d %s%s%s %s: %" PRIu64
		  " tensors and values cannot be read (optimfs %s --json "
		  "lists them)",
		  f->number, named ? l->checkpoint : "", named ? ": " : "",
		  f->name, f->words, f->n, l->list);

	if (n == -1)
		text = NULL;
	each(ctx, text == NULL ? f->text : text);
	free(text);
}

void ofs_lost_tell(struct ofs_lost *l,
    void (*each)(void *ctx, const char *text), void *ctx)
{
	for (size_t i = 0; i < l->n; i++)
		tell(l, &l->file[i], each, ctx);
	ofs_lost_fini(l);
}

void ofs_lost_fini(struct ofs_lost *l)
{
	for (size_t i = 0; i < l->n; i++) {
		free(l->file[i].name);
		free(l->file[i].path);
		free(l->file[i].text);
	}
	free(l->file);
	l->file = NULL;
	l->n = l->cap = 0;
}

void ofs_lost_print(void *ctx, const char *text)
{
	struct ofs_buf b = { 0 };

	(void)ctx;
	ofs_buf_plain(&b, text, strlen(text));
	ofs_buf_putc(&b, '\n');
	ofs_tool_print_buf(&b, 4);
}
