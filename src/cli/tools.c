/* tools.c - messages and exit statuses */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/tools.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "base/json_write.h"
#include "cli/codes.h"
#include "cli/terminal.h"
#include "cli/wrap.h"

/* Names come from files and from other people, see utf8.h. Uses one write, so that
 * lines of several processes do not mix. */
static void print(FILE *to, const char *before, const char *fmt, va_list ap)
    __attribute__((format(printf, 3, 0)));
static void print(FILE *to, const char *before, const char *fmt, va_list ap)
{
	char text[2048];
	struct ofs_buf b = { 0 }, shown = { 0 };
	int saved = errno;

	vsnprintf(text, sizeof(text), fmt, ap);
	ofs_buf_puts(&b, before);
	ofs_buf_shown(&b, text, strlen(text));
	ofs_buf_puts(&b, "\n");
	ofs_buf_putc(&b, '\0');
	if (!b.bad)
		ofs_wrap(&shown, (char *)b.data, ofs_terminal_width(fileno(to)),
		    4);
	if (!shown.bad)
		fwrite(shown.data, 1, shown.len, to);
	ofs_buf_fini(&b);
	ofs_buf_fini(&shown);
	errno = saved;
}

void ofs_tool_say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print(stderr, "optimfs: ", fmt, ap);
	va_end(ap);
}

void ofs_tool_note(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	print(stderr, "", fmt, ap);
	va_end(ap);
}

void ofs_tool_say_text(void *ctx, const char *text)
{
	(void)ctx;
	ofs_tool_say("%s", text);
}

static void say_of(void *path, const char *text)
{
	ofs_tool_say("%s: %s", (const char *)path, text);
}

int ofs_tool_await(const char *path, struct optimfs_error *err)
{
	return optimfs_await(path, say_of, (void *)path, err);
}

void ofs_tool_done(const char *fmt, ...)
{
	va_list ap;

	if (!ofs_is_terminal(STDOUT_FILENO))
		return;
	va_start(ap, fmt);
	print(stdout, "", fmt, ap);
	va_end(ap);
}

void ofs_tool_print(const char *text, size_t indent)
{
	struct ofs_buf shown = { 0 }, b = { 0 };

	for (size_t n; *text != '\0'; text += n) {
		n = strcspn(text, "\n");
		ofs_buf_shown(&shown, text, n);
		for (; text[n] == '\n'; n++)
			ofs_buf_putc(&shown, '\n');
	}
	ofs_buf_putc(&shown, '\0');
	if (!shown.bad)
		ofs_wrap(&b, (char *)shown.data,
		    ofs_terminal_width(STDOUT_FILENO), indent);
	if (!b.bad)
		fwrite(b.data, 1, b.len, stdout);
	ofs_buf_fini(&shown);
	ofs_buf_fini(&b);
}

void ofs_tool_put_path(struct ofs_buf *b, const char *path, size_t used)
{
	size_t width = ofs_terminal_width(STDOUT_FILENO);
	struct ofs_buf plain = { 0 };

	ofs_buf_plain(&plain, path, strlen(path));
	ofs_buf_putc(&plain, '\0');
	if (!plain.bad)
		ofs_shorten(b, (char *)plain.data,
		    width > used ? width - used : width);
	ofs_buf_fini(&plain);
}

void ofs_tool_print_cell(size_t *used, size_t n, const char *fmt, ...)
{
	size_t width = ofs_terminal_width(STDOUT_FILENO);
	char text[64];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (*used > 0 && width > 0 && *used + 1 + n > width)
		*used = (size_t)printf("\n   ") - 1;
	*used += (size_t)printf("%s%*s", *used > 0 ? " " : "", (int)n, text);
}

/* Of a shorter path it is not clear which one it is. */
#define PATH_MIN 24

void ofs_tool_print_path(const char *path, size_t used)
{
	size_t width = ofs_terminal_width(STDOUT_FILENO);
	bool below = width > 0 && width < used + 2 + PATH_MIN;
	struct ofs_buf b = { 0 };

	ofs_buf_puts(&b, below ? "\n    " : "  ");
	ofs_tool_put_path(&b, path, below ? 4 : used + 2);
	ofs_buf_putc(&b, '\n');
	if (!b.bad)
		fwrite(b.data, 1, b.len, stdout);
	ofs_buf_fini(&b);
}

void ofs_tool_print_buf(struct ofs_buf *b, size_t indent)
{
	ofs_buf_putc(b, '\0');
	if (!b->bad)
		ofs_tool_print((char *)b->data, indent);
	ofs_buf_fini(b);
}

static bool json;

void ofs_tool_json(void)
{
	json = true;
}

/* code may be NULL. */
static void put_object(const struct ofs_code *code, const char *text,
    int status)
{
	struct ofs_buf b = { 0 };
	struct ofs_json_writer w = { &b, " ", false };

	if (!json)
		return;
	ofs_json_open(&w, NULL, '{');
	ofs_json_put_string(&w, "schema", "optimfs.error");
	ofs_json_put_u64(&w, "v", 1);
	if (code == NULL)
		ofs_json_put_string(&w, "code", NULL);
	else
		ofs_json_put_code(&w, code->number);
	ofs_json_put_u64(&w, "status", (uint64_t)status);
	ofs_json_put_string(&w, "text", text);
	ofs_json_put_string(&w, "advice", code == NULL ? NULL : code->advice);
	ofs_json_close(&w, '}');
	ofs_buf_putc(&b, '\n');
	if (!b.bad)
		fwrite(b.data, 1, b.len, stdout);
	ofs_buf_fini(&b);
}

static int misused(const char *fmt, va_list ap)
    __attribute__((format(printf, 1, 0)));
static int misused(const char *fmt, va_list ap)
{
	char text[1024] = "OFS011 ";
	size_t n = strlen(text);

	vsnprintf(text + n, sizeof(text) - n, fmt, ap);
	ofs_tool_say("%s", text);
	put_object(ofs_code_find(11), text, OFS_EXIT_USAGE);
	return OFS_EXIT_USAGE;
}

int ofs_tool_misused(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	misused(fmt, ap);
	va_end(ap);
	return OFS_EXIT_USAGE;
}

int ofs_tool_usage(const struct ofs_verb *verb, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	misused(fmt, ap);
	va_end(ap);
	fprintf(stderr, "usage: optimfs %s %s\n", verb->name, verb->synopsis);
	return OFS_EXIT_USAGE;
}

int ofs_tool_help(const struct ofs_verb *verb)
{
	printf("usage: optimfs %s %s\n%s\n", verb->name, verb->synopsis,
	    verb->summary);
	if (verb->options != NULL)
		printf("\n%s", verb->options);
	if (strstr(verb->synopsis, "[-o OPTION]") != NULL)
		puts(
		    "\n-o OPTION says how to read the checkpoint, as for mount: "
		    "type=, ids=, units= ...");
	if (verb->more != NULL)
		verb->more();
	if (verb->from)
		printf("\n  --from ADDRESS,...|FILE  in place of %s: nodes that "
		       "serve its files\n",
		    strstr(verb->synopsis, "CHECKPOINT") != NULL ? "CHECKPOINT"
								 : "RUN");
	puts("\nFor all commands:\n"
	     "  -q          show neither progress nor a summary\n"
	     "  --progress  show progress even without a terminal");
	return ofs_tool_finish(OFS_EXIT_OK);
}

int ofs_tool_status(int code)
{
	switch (code) {
	case 0:
		return OFS_EXIT_OK;
	case EINVAL:
	case ELOOP:
		return OFS_EXIT_USAGE;
	case EOPNOTSUPP:
	case ENOSYS:
		return OFS_EXIT_UNSUPPORTED;
	case ECANCELED:
		return OFS_EXIT_INTERRUPTED;
	case EPERM:
	case E2BIG: /* beyond a configured limit */
		return OFS_EXIT_REFUSED;
	default:
		return OFS_EXIT_IO;
	}
}

int ofs_tool_fail(const struct optimfs_error *err)
{
	const struct ofs_code *code = ofs_code_find(err->number);
	int status = ofs_tool_status(err->code);

	ofs_tool_say("%s", err->text);
	if (code != NULL && code->hint && err->code != ECANCELED)
		ofs_tool_note("  to do: %s", code->advice);
	put_object(code, err->text, status);
	return status;
}

int ofs_tool_finish(int status)
{
	struct optimfs_error err;

	if (fflush(stdout) == 0 && !ferror(stdout))
		return status;
	if (errno == EPIPE) /* the reader has closed the pipe */
		return status;
	optimfs_fail(&err, errno, "standard output: %m");
	ofs_tool_fail(&err);
	return status == OFS_EXIT_OK ? OFS_EXIT_IO : status;
}
