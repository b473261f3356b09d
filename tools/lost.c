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
} kinds[] = {
	{ 140, " is missing", "is missing" },
	{ 603, " is short", "is too short" },
	{ 604, " has ", "is too short" },
	{ 756, ": not allowed", "is not readable for this user" },
};
#define NKINDS (sizeof(kinds) / sizeof(kinds[0]))

static const struct kind *kind_of(int number)
{
	for (size_t i = 0; i < NKINDS; i++)
		if (kinds[i].number == number)
			return &kinds[i];
	return NULL;
}

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

/* The name of the file: what comes before it ends with ": ". */
static char *name_in(const char *text, int *number)
{
	const char *at = last_code(text, number), *end;
	const struct kind *kind = at == NULL ? NULL : kind_of(*number);

	if (kind == NULL || (end = strstr(at, kind->after)) == NULL)
		return NULL;
	for (const char *p = at; p + 1 < end; p++)
		if (p[0] == ':' && p[1] == ' ')
			at = p + 2;
	return strndup(at, (size_t)(end - at));
}

bool ofs_lost_add(struct ofs_lost *l, const char *path, const char *text)
{
	struct ofs_lost_file *f = l->file;
	int number = 0;
	char *name = name_in(text, &number), *first;

	if (name == NULL)
		return false;
	while (f < l->file + l->n && strcmp(f->name, name) != 0)
		f++;
	if (f < l->file + l->n) {
		f->n++;
		free(name);
		return true;
	}
	if (asprintf(&first, "%s%s%s", path == NULL ? "" : path,
		path == NULL ? "" : ": ", text) == -1)
		first = NULL;
	if (first == NULL || ofs_grow(l->file, l->n, l->cap, NULL) == -1) {
		free(first);
		free(name);
		return false;
	}
	l->file[l->n++] = (struct ofs_lost_file){ number, name, first, 1 };
	return true;
}

static void tell(const struct ofs_lost *l, const struct ofs_lost_file *f,
    void (*each)(void *ctx, const char *text), void *ctx)
{
	bool named = l->checkpoint != NULL;
	char *text;

	if (asprintf(&text,
		"OFS%03d %s%s%s %s: %" PRIu64
		" tensors and values cannot be read (optimfs %s --json "
		"lists them)",
		f->number, named ? l->checkpoint : "", named ? ": " : "",
		f->name, kind_of(f->number)->words, f->n, l->list) == -1)
		text = NULL;
	each(ctx, text == NULL || f->n == 1 ? f->first : text);
	free(text);
}

void ofs_lost_tell(struct ofs_lost *l,
    void (*each)(void *ctx, const char *text), void *ctx)
{
	for (size_t i = 0; i < l->n; i++) {
		tell(l, &l->file[i], each, ctx);
		free(l->file[i].name);
		free(l->file[i].first);
	}
	free(l->file);
	l->file = NULL;
	l->n = l->cap = 0;
}

void ofs_lost_say(void *ctx, const char *text)
{
	(void)ctx;
	ofs_tool_say("%s", text);
}

void ofs_lost_print(void *ctx, const char *text)
{
	struct ofs_buf b = { 0 };

	(void)ctx;
	ofs_buf_plain(&b, text, strlen(text));
	ofs_buf_putc(&b, '\n');
	ofs_tool_print_buf(&b, 4);
}
