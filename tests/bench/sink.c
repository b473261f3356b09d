/* sink.c - buffered output to a file, with or without compression */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sink.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef HAVE_ZSTD
# include <zstd.h>
#endif

#define BUF_SIZE ((size_t)1 << 20)

void die(const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "%s: ", program_invocation_short_name);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(1);
}

void *must_alloc(size_t n)
{
	void *p = calloc(1, n == 0 ? 1 : n);

	if (p == NULL)
		die("out of memory");
	return p;
}

uint64_t number(const char *s)
{
	char *end;
	uint64_t v;

	errno = 0;
	v = strtoull(s, &end, 10);
	if (errno != 0 || end == s || *end != '\0' || *s == '-')
		die("'%s' is not a number", s);
	return v;
}

void sink_open(struct sink *s, const char *path, int level)
{
	*s = (struct sink){ .path = path };
	s->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (s->fd == -1)
		die("%s: %s", path, strerror(errno));
	s->buf = must_alloc(BUF_SIZE);
	if (level == 0)
		return;
#ifdef HAVE_ZSTD
	s->out = must_alloc(BUF_SIZE);
	s->zstd = ZSTD_createCCtx();
	if (s->zstd == NULL)
		die("out of memory");
	ZSTD_CCtx_setParameter(s->zstd, ZSTD_c_compressionLevel, level);
	ZSTD_CCtx_setParameter(s->zstd, ZSTD_c_contentSizeFlag, 0);
#else
	die("this build has no zstd");
#endif
}

static void write_all(struct sink *s, const uint8_t *p, size_t n)
{
	ssize_t put;

	s->stored += n;
	for (; n > 0; n -= (size_t)put, p += put) {
		put = write(s->fd, p, n);
		if (put == -1 && errno == EINTR)
			put = 0;
		if (put == -1)
			die("%s: %s", s->path, strerror(errno));
	}
}

/* Writes the buffer; end: the item ends here. */
static void drain(struct sink *s, bool end)
{
	if (s->zstd == NULL) {
		write_all(s, s->buf, s->fill);
		s->fill = 0;
		return;
	}
#ifdef HAVE_ZSTD
	ZSTD_inBuffer in = { s->buf, s->fill, 0 };
	size_t left;

	do {
		ZSTD_outBuffer out = { s->out, BUF_SIZE, 0 };

		left = ZSTD_compressStream2(s->zstd, &out, &in,
		    end ? ZSTD_e_end : ZSTD_e_continue);
		if (ZSTD_isError(left))
			die("%s: %s", s->path, ZSTD_getErrorName(left));
		write_all(s, s->out, out.pos);
	} while (in.pos < in.size || (end && left != 0));
	s->fill = 0;
#else
	(void)end;
#endif
}

void sink_close(struct sink *s)
{
	drain(s, false);
	if (ftruncate(s->fd, (off_t)s->stored) == -1 || close(s->fd) == -1)
		die("%s: %s", s->path, strerror(errno));
#ifdef HAVE_ZSTD
	ZSTD_freeCCtx(s->zstd);
#endif
	free(s->buf);
	free(s->out);
}

void sink_begin(struct sink *s)
{
	s->raw = 0;
}

void sink_put(struct sink *s, const void *p, size_t n)
{
	const uint8_t *from = p;
	size_t part;

	s->raw += n;
	for (; n > 0; n -= part, from += part) {
		part = BUF_SIZE - s->fill < n ? BUF_SIZE - s->fill : n;
		memcpy(s->buf + s->fill, from, part);
		s->fill += part;
		if (s->fill == BUF_SIZE)
			drain(s, false);
	}
}

uint64_t sink_end(struct sink *s, uint64_t began)
{
	if (s->zstd != NULL)
		drain(s, true);
	return s->stored + s->fill - began;
}

void sink_skip(struct sink *s, uint64_t n)
{
	drain(s, false);
	s->stored += n;
	if (lseek(s->fd, (off_t)s->stored, SEEK_SET) == -1)
		die("%s: %s", s->path, strerror(errno));
}
