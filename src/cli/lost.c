/* lost.c - files whose loss many tensors share */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/lost.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
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

static void free_file(struct ofs_lost_file *f)
{
	free(f->name);
	free(f->path);
	free(f->text);
}

static bool add_file(struct ofs_lost *l, const struct ofs_buf *key,
    const struct optimfs_error *why, const char *path, const char *text)
{
	const struct kind *kind = &kinds[why->how];
	struct ofs_lost_file f = { .number = why->number,
		.words = kind->words,
		.name = kind->name != NULL
		    ? strdup(kind->name)
		    : strndup(why->text + why->lost, why->nlost),
		.path = strdup(path == NULL ? "" : path),
		.text = strdup(text) };

	if (f.name != NULL && f.path != NULL && f.text != NULL &&
	    ofs_grow(l->file, l->n, l->cap, NULL) == 0 &&
	    ofs_keys_copy(&l->keys, key->data, key->len, NULL) != OFS_NONE) {
		l->file[l->n++] = f;
		return true;
	}
	free_file(&f);
	return false;
}

/* The file with this key, which is added if it is new. */
static struct ofs_lost_file *file_of(struct ofs_lost *l,
    const struct optimfs_error *why, const char *path, const char *text)
{
	struct ofs_buf key = { 0 };
	struct ofs_lost_file *f = NULL;
	uint32_t i;

	ofs_buf_putc(&key, (char)why->how);
	if (kinds[why->how].name == NULL)
		ofs_buf_put(&key, why->text + why->lost, why->nlost);
	if (!key.bad) {
		i = ofs_keys_find(&l->keys, key.data, key.len);
		if (i != OFS_NONE)
			f = &l->file[i];
		else if (add_file(l, &key, why, path, text))
			f = &l->file[l->n - 1];
	}
	ofs_buf_fini(&key);
	return f;
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
	struct ofs_lost_file *f;

	if (why == NULL || why->how == OPTIMFS_NOT_LOST)
		return false;
	f = file_of(l, why, path, text);
	if (f == NULL)
		return false;
	if (kinds[why->how].name != NULL || kinds[why->how].number != 0)
		generalize(f, &kinds[why->how], text);
	f->n += path == NULL || *path != '\0' || why->how == OPTIMFS_LOST_HOLES;
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
	for (size_t i = 0; i < l->n; i++)
		free_file(&l->file[i]);
	free(l->file);
	ofs_keys_fini(&l->keys);
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
