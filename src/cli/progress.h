/* progress.h - long work shows how far it is */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PROGRESS_H
#define OFS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* After two seconds, a line that a terminal rewrites:
 *
 *	reshard: 41 %, 320 GB of 782 GB, 1.2 GB/s, 6 min left, __3_0.distcp
 *
 * Elsewhere a line a minute. At the end of work that was shown, what it came
 * to. There are no colours and no escapes. Not for several threads at once. */
struct ofs_progress {
	const char *what; /* "reshard" */
	FILE *out;        /* NULL: quiet */
	bool terminal;
	bool forced; /* say something however short it is */
	/* Seconds since some time; for tests another than the system's. */
	double (*now)(void *ctx);
	void *ctx;

	bool begun;
	double start, last; /* of a line */
	uint64_t first;     /* that an earlier run had done */
	uint64_t done, total;
	bool whole;       /* done and total are but a part of the work: */
	unsigned percent; /* of all of it */
	unsigned shown;   /* lines; */
	int width;        /* of the terminal's line */
};

/* On standard error, unless quiet. */
void ofs_progress_init(struct ofs_progress *p, const char *what, bool quiet,
    bool forced);
/* done of total bytes; file may be NULL. Cheap: it prints some times a second
 * at most. */
void ofs_progress_show(struct ofs_progress *p, uint64_t done, uint64_t total,
    const char *file);
/* The same where the bytes are but a part of the work. */
void ofs_progress_percent(struct ofs_progress *p, unsigned percent,
    uint64_t done, uint64_t total, const char *file);
/* n more bytes of the total that is known. */
void ofs_progress_add(struct ofs_progress *p, uint64_t n, const char *file);
/* Something else is about to be printed: end the terminal's line. */
void ofs_progress_break(struct ofs_progress *p);
/* The work is over; well: it was done, so that a summary makes sense. */
void ofs_progress_end(struct ofs_progress *p, bool well);

#endif
