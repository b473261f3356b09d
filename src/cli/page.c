/* page.c - a page of HTML: a form, a static head, and data for its script */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/page.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/replace.h"

void ofs_page_html(struct ofs_buf *b, const char *text)
{
	struct ofs_buf shown = { 0 };

	ofs_buf_shown(&shown, text, strlen(text));
	for (size_t i = 0; i < shown.len; i++) {
		char c = (char)shown.data[i];

		if (strchr("&<>\"", c) != NULL)
			ofs_buf_printf(b, "&#%d;", c);
		else
			ofs_buf_putc(b, c);
	}
	b->bad |= shown.bad;
	ofs_buf_fini(&shown);
}

/* Writes what a string of JSON has at p in another way; returns its length. */
static size_t print_special(const char *p, const char *end, FILE *f)
{
	static const char newline[] = "\\u000a";

	if (*p == '<') {
		fputs("\\u003c", f);
		return 1;
	}
	if (end - p >= 6 && p[1] == 'u' &&
	    memcmp(p, newline, sizeof(newline) - 1) != 0)
		putc('\\', f);
	fwrite(p, 1, 2, f);
	return 2;
}

/* '<' occurs only in strings and is escaped there, so that no string ends the
 * script block. What JSON escapes because it must not be shown would be shown
 * by the script: it gets to see the escape. */
static void print_data(const struct ofs_buf *b, FILE *f)
{
	const char *p = (const char *)b->data, *end = p + b->len;

	while (p < end) {
		size_t n = 0;

		while (p + n < end && p[n] != '<' && p[n] != '\\')
			n++;
		fwrite(p, 1, n, f);
		p += n;
		if (p < end)
			p += print_special(p, end, f);
	}
}

static void print_text(const struct ofs_buf *b, FILE *f)
{
	fwrite(b->data, 1, b->len, f);
}

void ofs_page_print(const char *form, const struct ofs_page *p, FILE *f)
{
	/* in the order of the page */
	const struct {
		const char *name;
		const struct ofs_buf *b;
		void (*print)(const struct ofs_buf *b, FILE *f);
	} marks[] = { { "@TITLE@", &p->title, print_text },
		{ "@TITLE@", &p->title, print_text },
		{ "@HEAD@", &p->head, print_text },
		{ "@DATA@", &p->json, print_data } };
	const char *at = form;

	for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
		const char *mark = strstr(at, marks[i].name);

		fwrite(at, 1, (size_t)(mark - at), f);
		marks[i].print(marks[i].b, f);
		at = mark + strlen(marks[i].name);
	}
	fputs(at, f);
}

/* Closes f. */
static int print_all(const char *form, const struct ofs_page *p, FILE *f,
    const char *name, struct optimfs_error *err)
{
	int code = 0;

	ofs_page_print(form, p, f);
	if (fflush(f) != 0 || ferror(f))
		code = errno;
	if (fclose(f) != 0 && code == 0)
		code = errno;
	if (code == 0)
		return 0;
	errno = code;
	return optimfs_fail(err, code, "%s: %m", name);
}

int ofs_page_save(const char *form, const struct ofs_page *p, const char *name,
    struct optimfs_error *err)
{
	struct ofs_replace to;
	FILE *f;
	int ret = -1;

	if (ofs_replace_open(&to, name, err) == -1)
		return -1;
	f = fdopen(dup(to.fd), "w");
	if (f == NULL)
		optimfs_fail(err, errno, "%s: %m", name);
	else if (print_all(form, p, f, name, err) == 0) {
		ret = ofs_replace_finish(&to, err);
		if (ret == -1)
			optimfs_fail_in(err, "%s", name);
	}
	ofs_replace_fini(&to);
	return ret;
}

int ofs_page_check(const char *name, struct optimfs_error *err)
{
	static const char begin[] = "<!DOCTYPE html>";
	char head[sizeof(begin)] = "";
	struct stat st;
	bool good = true;
	FILE *f;

	if (name == NULL || strcmp(name, "-") == 0 || stat(name, &st) == -1 ||
	    !S_ISREG(st.st_mode) || st.st_size == 0)
		return 0;
	f = fopen(name, "re");
	if (f != NULL) {
		good = fread(head, 1, strlen(begin), f) == strlen(begin) &&
		    strcmp(head, begin) == 0;
		fclose(f);
	}
	return good
	    ? 0
	    : optimfs_fail(err, EEXIST, "%s exists, and is not a report", name);
}

void ofs_page_fini(struct ofs_page *p)
{
	ofs_buf_fini(&p->title);
	ofs_buf_fini(&p->head);
	ofs_buf_fini(&p->json);
}
