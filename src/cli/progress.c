/* progress.c - progress of long work */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/progress.h"

#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/human.h"
#include "base/utf8.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"
#include "cli/wrap.h"

#define PATIENCE 2.0  /* seconds before the first line */
#define REDRAW   0.2  /* between lines on a terminal */
#define EVERY    60.0 /* otherwise */
#define FORCED   10.0 /* otherwise, with --progress */
#define LINE     160  /* longer names are cut */

static double now(void *ctx)
{
	(void)ctx;
	return (double)ofs_clock_ns() / 1e9;
}

void ofs_progress_init(struct ofs_progress *p, const char *what, bool quiet,
    bool forced)
{
	*p = (struct ofs_progress){
		.what = what,
		.out = quiet ? NULL : stderr,
		.terminal = ofs_is_terminal(STDERR_FILENO),
		.columns = ofs_terminal_width(STDERR_FILENO),
		.forced = forced,
		.now = now,
	};
}

/* "45 s", "6 min", "3.2 h". */
static void put_time(char text[24], double seconds)
{
	if (seconds < 99.5)
		snprintf(text, 24, "%.0f s", seconds);
	else if (seconds < 5970)
		snprintf(text, 24, "%.0f min", seconds / 60);
	else
		snprintf(text, 24, "%.1f h", seconds / 3600);
}

static double rate_of(const struct ofs_progress *p, double took)
{
	return took > 0 && p->done > p->first
	    ? (double)(p->done - p->first) / took
	    : 0;
}

static int percent_of(const struct ofs_progress *p)
{
	if (p->whole)
		return (int)p->percent;
	return p->total == 0
	    ? 100
	    : (int)(100 * ((double)p->done / (double)p->total));
}

/* Formats the time left at the average rate. */
static void put_left(char text[24], const struct ofs_progress *p, double took)
{
	double v = rate_of(p, took);

	strcpy(text, "?");
	if (p->whole && p->percent > 0)
		put_time(text, took * (100.0 - p->percent) / p->percent);
	else if (!p->whole && v > 0)
		put_time(text, (double)(p->total - p->done) / v);
}

static int print(char *line, size_t size, const struct ofs_progress *p,
    double took, const char *file)
{
	char done[OFS_HUMAN_SIZE], total[OFS_HUMAN_SIZE], rate[OFS_HUMAN_SIZE],
	    left[24];

	put_left(left, p, took);
	return snprintf(line, size, "%s: %d %%, %s of %s, %s/s, %s left%s%s",
	    p->what, percent_of(p), ofs_human_bytes(p->done, done),
	    ofs_human_bytes(p->total, total),
	    ofs_human_bytes((uint64_t)rate_of(p, took), rate), left,
	    file != NULL && *file != '\0' ? ", " : "",
	    file != NULL ? file : "");
}

/* Draws a line; spaces overwrite the rest of a longer one. */
static void draw(struct ofs_progress *p, double t, const char *line)
{
	int n = (int)strlen(line);

	if (p->terminal)
		fprintf(p->out, "\r%s%*s", line,
		    p->width > n ? p->width - n : 0, "");
	else
		fprintf(p->out, "%s\n", line);
	fflush(p->out);
	p->width = n;
	p->last = t;
	p->shown++;
}

/* The bytes of a line and its 0. On a terminal that is narrower than the line,
 * \r would begin another one. */
static size_t room(const struct ofs_progress *p)
{
	size_t columns = p->columns > 0 ? p->columns : 79;

	return p->terminal && columns < LINE ? columns : LINE;
}

static bool is_due(const struct ofs_progress *p, double t)
{
	double since = t - p->last;

	if (p->forced && p->shown == 0)
		return true;
	if (p->terminal)
		return (p->forced || t - p->start >= PATIENCE) &&
		    since >= REDRAW;
	return since >= (p->forced ? FORCED : EVERY);
}

void ofs_progress_show(struct ofs_progress *p, uint64_t done, uint64_t total,
    const char *file)
{
	char line[LINE];
	double t;

	p->done = done < total ? done : total;
	p->total = total;
	if (p->out == NULL)
		return;
	t = p->now(p->ctx);
	if (!p->begun) {
		p->begun = true;
		p->start = p->last = t;
		p->first = done;
	}
	if (!is_due(p, t))
		return;
	print(line, room(p), p, t - p->start, file);
	ofs_utf8_disarm(line);
	draw(p, t, line);
}

void ofs_progress_step(void *progress, uint64_t done, uint64_t total,
    const char *step)
{
	struct ofs_progress *p = progress;
	char line[LINE];
	double t;

	if (p->out == NULL || !p->terminal)
		return;
	t = p->now(p->ctx);
	if (p->start == 0)
		p->start = p->last = t;
	if (!is_due(p, t))
		return;
	if (total == 0)
		snprintf(line, room(p), "%s: %s", p->what, step);
	else
		snprintf(line, room(p), "%s: %s, %d %%", p->what, step,
		    (int)(100 * ((double)done / (double)total)));
	draw(p, t, line);
}

/* Also what the terminal shows of ^C. */
static void erase(struct ofs_progress *p)
{
	int n = p->width + 2;

	if (p->columns > 0 && n > (int)p->columns - 1)
		n = (int)p->columns - 1;
	if (p->out != NULL && p->terminal && p->width > 0)
		fprintf(p->out, "\r%*s\r", n, "");
	p->width = 0;
}

void ofs_progress_clear(struct ofs_progress *p)
{
	erase(p);
	p->shown = 0;
}

void ofs_progress_percent(struct ofs_progress *p, unsigned percent,
    uint64_t done, uint64_t total, const char *file)
{
	p->whole = true;
	p->percent = percent;
	ofs_progress_show(p, done, total, file);
}

void ofs_progress_add(struct ofs_progress *p, uint64_t n, const char *file)
{
	ofs_progress_show(p, p->done + n, p->total, file);
}

void ofs_progress_break(struct ofs_progress *p)
{
	erase(p);
}

void ofs_progress_end(struct ofs_progress *p, bool well)
{
	char bytes[OFS_HUMAN_SIZE], rate[OFS_HUMAN_SIZE], time[24];
	double took;

	/* a terminal shows ^C */
	if (!well && p->terminal && p->width == 0 && ofs_interrupted(NULL))
		fputc('\n', stderr);
	ofs_progress_break(p);
	if (p->shown == 0 || !well)
		return;
	took = p->now(p->ctx) - p->start;
	put_time(time, took);
	fprintf(p->out, "%s: %s in %s, %s/s\n", p->what,
	    ofs_human_bytes(p->done - p->first, bytes), time,
	    ofs_human_bytes((uint64_t)rate_of(p, took), rate));
}
