/* wrap.c - text that fits on the terminal */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/wrap.h"

#include <langinfo.h>
#include <locale.h>
#include <string.h>
#include <sys/ioctl.h>

size_t ofs_terminal_width(int fd)
{
	struct winsize w;

	return ioctl(fd, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

bool ofs_locale_is_utf8(void)
{
	locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);
	bool yes = locale != (locale_t)0 &&
	    strcmp(nl_langinfo_l(CODESET, locale), "UTF-8") == 0;

	if (locale != (locale_t)0)
		freelocale(locale);
	return yes;
}

/* The columns of n bytes of UTF-8. */
static size_t columns(const char *s, size_t n)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++)
		count += ((unsigned char)s[i] & 0xc0) != 0x80;
	return count;
}

/* The bytes of a line that fit, up to a space or the end. At least one word,
 * which begins after skip bytes. */
static size_t fitting(const char *s, size_t n, size_t room, size_t skip)
{
	size_t fits = 0;

	for (size_t i = skip; i <= n; i++) {
		if (i < n && s[i] != ' ')
			continue;
		if (fits > 0 && columns(s, i) > room)
			break;
		fits = i;
	}
	return fits;
}

void ofs_shorten(struct ofs_buf *b, const char *s, size_t width)
{
	size_t n = strlen(s), head = 0, tail = n, room;

	if (width == 0 || columns(s, n) <= width) {
		ofs_buf_put(b, s, n);
		return;
	}
	room = width > 3 ? width - 3 : 0;
	while (head < n && columns(s, head + 1) <= room / 2)
		head++;
	while (tail > 0 &&
	    columns(s + tail - 1, n - tail + 1) <= room - room / 2)
		tail--;
	while (tail < n && ((unsigned char)s[tail] & 0xc0) == 0x80)
		tail++;
	ofs_buf_printf(b, "%.*s...%s", (int)head, s, s + tail);
}

static void wrap_line(struct ofs_buf *b, const char *s, size_t n, size_t width,
    size_t indent)
{
	size_t skip = strspn(s, " "), room = width;

	if (skip > 0)
		indent = skip + 2;
	while (columns(s, n) > room) {
		size_t fits = fitting(s, n, room, skip);

		if (fits == n)
			break;
		ofs_buf_printf(b, "%.*s\n%*s", (int)fits, s, (int)indent, "");
		s += fits + 1;
		n -= fits + 1;
		skip = 0;
		room = width > indent ? width - indent : 0;
	}
	ofs_buf_put(b, s, n);
}

void ofs_wrap(struct ofs_buf *b, const char *text, size_t width, size_t indent)
{
	while (*text != '\0') {
		size_t n = strcspn(text, "\n");
		bool ends = text[n] == '\n';

		if (width > 0)
			wrap_line(b, text, n, width, indent);
		else
			ofs_buf_put(b, text, n);
		if (ends)
			ofs_buf_putc(b, '\n');
		text += n + ends;
	}
}
