/* sink.h - buffered output to a file, with or without compression */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SINK_H
#define SINK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Failures end the program. */
struct sink {
	int fd;
	const char *path;
	uint64_t stored; /* bytes of the file so far */
	uint64_t raw;    /* bytes of the item so far, before compression */
	void *zstd;      /* NULL: not compressed */
	uint8_t *buf, *out;
	size_t fill;
};

/* Start a new file; level 0 does not compress. */
void sink_open(struct sink *s, const char *path, int level);
void sink_close(struct sink *s);
/* An item is one zstd frame. _end returns its stored length. */
void sink_begin(struct sink *s);
void sink_put(struct sink *s, const void *p, size_t n);
uint64_t sink_end(struct sink *s, uint64_t began);
/* A hole of n bytes. */
void sink_skip(struct sink *s, uint64_t n);

void *must_alloc(size_t n);
uint64_t number(const char *s); /* of an option */
void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

#endif
