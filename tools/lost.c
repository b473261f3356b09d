/* lost.c - files whose loss many tensors share */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/lost.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cli/tools.h"

/* What follows the name of the file in a message about one tensor, and what is
 * said of all of them. */
static const struct kind {
	int number;
	const char *after, *words;
	const char *name; /* NULL: of a file */
} kinds[] = {
	{ 140, " is missing", "is missing", NULL },
	{ 140, ": no such file", "is missing", NULL },
	{ 603, " is short", "is too short", NULL },
	{ 603, " has ", "is too short", NULL },
	{ 604, " has ", "is too short", NULL },
	{ 607, " in no chunk", "are in no file", "elements" },
	{ 607, " in no shard", "are in no file", "elements" },
	{ 661, " is missing", "is missing", NULL },
	{ 661, " may not be opened", "may not be opened", NULL },
	{ 661, " lacks tensors", "lacks tensors", NULL },
	{ 756, ": not allowed", "is not readable for this user", NULL },
	{ 166, ": -o units=", "without -o units=FILE", "units unknown" },
};
#define NKINDS (sizeof(kinds) / sizeof(kinds[0]))

/* The text after the last "OFSnnn " of a message. */
static const char *last_code(const char *text, int *number)
{
	const char *found = NULL;

	for (const char *p = strstr(text, "OFS"); p != NULL;
	     p = strstr(p + 1, "OFS"))
		if (isdigit((unsigned char)p[3]) && strlen(p) > 7) {
			*number = atoi(p + 3);
			found = p + 7;
		}
	return found;
}

/* The kind of the message; at, of length n, is what the messages of one cause
 * have in common: the name of the file, before which is ": ", or of the kind.
 * NULL: no such message. */
static const struct kind *kind_of(const char *text, const char **at, size_t *n)
{
	const char *end = NULL;
	int number = 0;
	size_t i = 0;

	*at = last_code(text, &number);
	for (; i < NKINDS && end == NULL; i++)
		if (kinds[i].number == number)
			end = strstr(*at, kinds[i].after);
	if (end == NULL)
		return NULL;
	if (kinds[i - 1].name != NULL) {
		*at = kinds[i - 1].name;
		*n = strlen(*at);
		return &kinds[i - 1];
	}
	for (const char *p = *at; p + 1 < end; p++)
		if (p[0] == ':' && p[1] == ' ')
			*at = p + 2;
	*n = (size_t)(end - *at);
	return &kinds[i - 1];
}

static bool add_file(struct ofs_lost *l, const struct kind *kind,
    const char *name, size_t n, const char *path, const char *text)
{
	struct ofs_lost_file f = { .number = kind->number,
		.words = kind->words,
		.name = strndup(name, n),
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

/* Of messages that are not about a file, each may name a tensor: two get one
 * text. */
static void generalize(struct ofs_lost_file *f, const char *text)
{
	char *all;

	if (strcmp(f->text, text) == 0 ||
	    asprintf(&all, "OFS%03d %s %s", f->number, f->name, f->words) == -1)
		return;
	free(f->text);
	f->text = all;
}

bool ofs_lost_add(struct ofs_lost *l, const char *path, const char *text)
{
	const char *name;
	size_t i = 0, n;
	const struct kind *kind = kind_of(text, &name, &n);

	if (kind == NULL)
		return false;
	while (i < l->n &&
	    (strncmp(l->file[i].name, name, n) != 0 ||
		l->file[i].name[n] != '\0'))
		i++;
	if (i == l->n && !add_file(l, kind, name, n, path, text))
		return false;
	if (kind->name != NULL)
		generalize(&l->file[i], text);
	l->file[i].n += path == NULL || *path != '\0' || kind->number == 607;
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
