/* tap.c - producer of the Test Anything Protocol */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tap.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "optimfs/error.h"

static int planned = -1, ran, failed;

__attribute__((constructor)) static void line_buffered(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
}

/* Somebody may set the date back while the program waits. To a test, the date is
 * therefore an hour later than to the kernel: what waits until a date hangs. */
int clock_gettime(clockid_t id, struct timespec *t)
{
	int ret = (int)syscall(SYS_clock_gettime, id, t);

	if (ret == 0 && id == CLOCK_REALTIME)
		t->tv_sec += 3600;
	return ret;
}

void plan(int n)
{
	planned = n;
	printf("1..%d\n", n);
}

static void __attribute__((format(printf, 2, 0)))
vsay(const char *before, const char *fmt, va_list ap)
{
	fputs(before, stdout);
	vprintf(fmt, ap);
	putchar('\n');
}

void skip_all(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsay("1..0 # SKIP ", fmt, ap);
	va_end(ap);
	exit(0);
}

void diag(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsay("# ", fmt, ap);
	va_end(ap);
}

void bail_out(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsay("Bail out! ", fmt, ap);
	va_end(ap);
	exit(255);
}

/* A description is one line of ASCII, whatever strings are part of it. */
static void __attribute__((format(printf, 1, 0)))
describe(const char *fmt, va_list ap)
{
	char text[2000];

	vsnprintf(text, sizeof(text), fmt, ap);
	for (char *p = text; *p != '\0'; p++)
		if (*p < 0x20 || *p > 0x7e)
			*p = iscntrl((unsigned char)*p) ? ' ' : '?';
	puts(text);
}

static bool __attribute__((format(printf, 4, 0)))
verdict(bool pass, const char *file, int line, const char *fmt, va_list ap)
{
	ran++;
	if (!pass)
		failed++;
	printf("%sok %d - ", pass ? "" : "not ", ran);
	describe(fmt, ap);
	if (!pass)
		diag("at %s:%d", file, line);
	return pass;
}

#define VERDICT(pass)                   \
 do {                                   \
  va_list ap;                           \
  va_start(ap, fmt);                    \
  verdict((pass), file, line, fmt, ap); \
  va_end(ap);                           \
 } while (0)

bool tap_ok(bool pass, const char *file, int line, const char *expr,
    const char *fmt, ...)
{
	VERDICT(pass);
	if (!pass)
		diag("false: %s", expr);
	return pass;
}

bool tap_is_int(int64_t got, int64_t want, const char *file, int line,
    const char *fmt, ...)
{
	VERDICT(got == want);
	if (got != want)
		diag("got %" PRId64 ", want %" PRId64, got, want);
	return got == want;
}

bool tap_is_u64(uint64_t got, uint64_t want, const char *file, int line,
    const char *fmt, ...)
{
	VERDICT(got == want);
	if (got != want)
		diag("got %" PRIu64 ", want %" PRIu64, got, want);
	return got == want;
}

bool tap_is_str(const char *got, const char *want, const char *file, int line,
    const char *fmt, ...)
{
	bool pass =
	    got != NULL && want != NULL ? strcmp(got, want) == 0 : got == want;

	VERDICT(pass);
	if (!pass)
		diag("got \"%s\", want \"%s\"", got == NULL ? "(null)" : got,
		    want == NULL ? "(null)" : want);
	return pass;
}

bool tap_is_mem(const void *got, const void *want, size_t n, const char *file,
    int line, const char *fmt, ...)
{
	const unsigned char *a = got, *b = want;
	size_t at = 0;

	while (at < n && a[at] == b[at])
		at++;
	VERDICT(at == n);
	if (at < n)
		diag("byte %zu is 0x%02x, want 0x%02x", at, a[at], b[at]);
	return at == n;
}

/* "OFSnnn " begins the text if there is a number, once. */
static bool has_own_number(const struct optimfs_error *err)
{
	int first = 0, second, n = 0;

	sscanf(err->text, "OFS%3d %n", &first, &n);
	return first == err->number &&
	    sscanf(err->text + n, "OFS%3d ", &second) != 1;
}

bool tap_is_error(const struct optimfs_error *err, int code, const char *part,
    const char *file, int line, const char *fmt, ...)
{
	bool pass = err->code == code && has_own_number(err) &&
	    strstr(err->text, part) != NULL;

	VERDICT(pass);
	if (!pass)
		diag("got %d \"%s\", want %d \"...%s...\"", err->code,
		    err->text, code, part);
	return pass;
}

const char *tap_tmpdir(void)
{
	const char *tmp = getenv("TMPDIR");

	return tmp != NULL && strlen(tmp) <= 40 ? tmp : "/tmp";
}

void skip(int n, const char *fmt, ...)
{
	va_list ap;

	while (n-- > 0) {
		va_start(ap, fmt);
		printf("ok %d # SKIP ", ++ran);
		vsay("", fmt, ap);
		va_end(ap);
	}
}

int done_testing(void)
{
	if (planned == -1)
		plan(ran);
	if (planned != ran)
		diag("planned %d tests, ran %d", planned, ran);
	return failed == 0 && planned == ran ? 0 : 1;
}
