/* from.c - the option --from of all commands */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/from.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/memory.h"

#define FILE_MOST (1u << 20)
#define BLANK     " \t\r\n"

/* The index of the option, and its value; 0: there is none. */
static int find_option(int argc, char **argv, const char **value, int *words)
{
	for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
		*words = 1;
		*value = argv[i] + strlen("--from=");
		if (strncmp(argv[i], "--from=", strlen("--from=")) == 0)
			return i;
		*words = 2;
		*value = argv[i + 1];
		if (strcmp(argv[i], "--from") == 0)
			return i;
	}
	return 0;
}

/* Appends the words of a text, separated by commas, without comments: from a word
 * that begins with # to the end of the line. */
static void put_words(struct ofs_buf *out, const char *text)
{
	size_t n;

	for (text += strspn(text, BLANK); *text != '\0';
	     text += strspn(text, BLANK)) {
		n = strcspn(text, text[0] == '#' ? "\n" : BLANK);
		if (text[0] != '#') {
			if (out->len > 1)
				ofs_buf_putc(out, ',');
			ofs_buf_put(out, text, n);
		}
		text += n;
	}
}

static int read_words(struct ofs_buf *out, const char *path,
    struct optimfs_error *err)
{
	struct ofs_buf text = { .limit = FILE_MOST };

	if (ofs_read_named("OFS929 --from", path, &text, err) == -1) {
		ofs_buf_fini(&text);
		return -1;
	}
	ofs_buf_putc(&text, '\0');
	if (text.bad)
		out->bad = true;
	else
		put_words(out, (const char *)text.data);
	ofs_buf_fini(&text);
	return 0;
}

/* The pattern that stands for all addresses. */
static char *pattern_of(const char *value, struct optimfs_error *err)
{
	struct ofs_buf b = { 0 };

	ofs_buf_putc(&b, '{');
	if (value[0] == '\0' || strstr(value, "://") != NULL)
		ofs_buf_puts(&b, value);
	else if (read_words(&b, value, err) == -1) {
		ofs_buf_fini(&b);
		return NULL;
	}
	if (b.len == 1 && !b.bad) {
		optimfs_fail(err, EINVAL,
		    "OFS929 --from %s: no address in it: give "
		    "http://NODE:PORT/,..., or a file of such addresses",
		    value);
		ofs_buf_fini(&b);
		return NULL;
	}
	ofs_buf_putc(&b, '}');
	return ofs_buf_text(&b, err);
}

/* One address needs no pattern. */
static char *unwrap(char *pattern)
{
	size_t n = strlen(pattern);
	unsigned depth = 0;

	for (const char *p = pattern; *p != '\0'; p++) {
		depth += *p == '{';
		depth -= *p == '}' && depth > 0;
		if (*p == ',' && depth == 1)
			return pattern;
	}
	memmove(pattern, pattern + 1, n - 2);
	pattern[n - 2] = '\0';
	return pattern;
}

int ofs_from_take(int *argc, char **argv, char ***taken, char **made,
    struct optimfs_error *err)
{
	const char *value;
	int words, at = find_option(*argc, argv, &value, &words), n = 0;

	*taken = NULL;
	*made = NULL;
	if (at == 0)
		return 0;
	if (value == NULL)
		return optimfs_fail(err, EINVAL,
		    "OFS929 --from: which addresses?");
	*taken = ofs_alloc((size_t)*argc + 2, sizeof(**taken), err);
	*made = *taken == NULL ? NULL : pattern_of(value, err);
	if (*made == NULL) {
		free(*taken);
		*taken = NULL;
		return -1;
	}
	(*taken)[n++] = argv[0];
	(*taken)[n++] = unwrap(*made);
	for (int i = 1; i < *argc; i++)
		if (i < at || i >= at + words)
			(*taken)[n++] = argv[i];
	*argc = n;
	return 0;
}
