/* progress.h - progress of long work */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_PROGRESS_H
#define OFS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* After two seconds, a line that is rewritten on a terminal:
 *
 *     reshard: 41 %, 320 GB of 782 GB, 1.2 GB/s, 6 min left, __3_0.distcp
 *
 * Otherwise a line a minute. Work that was shown ends with a summary. There are
 * no colours and no escape sequences. Not thread-safe. */
struct ofs_progress {
	const char *what; /* "reshard" */
	FILE *out;        /* NULL: quiet */
	bool terminal;
	bool forced; /* print even if the work is short */
	/* A monotonic clock in seconds; tests replace it. */
	double (*now)(void *ctx);
	void *ctx;

	bool begun;
	double start, last;   /* times: of the start, of the last line */
	uint64_t first;       /* bytes done by an earlier run */
	uint64_t done, total; /* total is known even if quiet */
	bool whole;           /* done and total are only a part of the work: */
	unsigned percent;     /* of all work */
	unsigned shown;       /* number of lines */
	int width;            /* of the line on the terminal */
	size_t columns;       /* of the terminal; 0: not known */
};

/* Prints to standard error, unless quiet. */
void ofs_progress_init(struct ofs_progress *p, const char *what, bool quiet,
    bool forced);
/* Shows done of total bytes; file may be NULL. Cheap: prints at most a few
 * times a second. */
void ofs_progress_show(struct ofs_progress *p, uint64_t done, uint64_t total,
    const char *file);
/* As above, if the bytes are only a part of the work. */
void ofs_progress_percent(struct ofs_progress *p, unsigned percent,
    uint64_t done, uint64_t total, const char *file);
/* Adds n bytes. */
void ofs_progress_add(struct ofs_progress *p, uint64_t n, const char *file);
/* Shows a step of opening a checkpoint, "info: parsing the index, 41 %", only on
 * a terminal; total 0: unknown. progress is a struct ofs_progress, so that
 * this can be the callback of a struct optimfs_watch. */
void ofs_progress_step(void *progress, uint64_t done, uint64_t total,
    const char *step);
/* Removes the line from the terminal: other work follows, or output. */
void ofs_progress_clear(struct ofs_progress *p);
/* Ends the line on the terminal before other output. */
void ofs_progress_break(struct ofs_progress *p);
/* Ends the work; well: it succeeded, print a summary. */
void ofs_progress_end(struct ofs_progress *p, bool well);

#endif
