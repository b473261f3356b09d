/* progress.c - progress lines and summaries, with a simulated clock */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/progress.h"

#include <stdio.h>
#include <stdlib.h>

#include "tap.h"

static double clock_now;

static double now(void *ctx)
{
	(void)ctx;
	return clock_now;
}

struct output {
	struct ofs_progress p;
	char *text;
	size_t len;
};

static void begin(struct output *o, bool terminal, bool forced)
{
	clock_now = 1000;
	o->p = (struct ofs_progress){ .what = "reshard",
		.terminal = terminal,
		.forced = forced,
		.now = now };
	o->p.out = open_memstream(&o->text, &o->len);
	if (o->p.out == NULL)
		bail_out("no memory");
}

static void says(struct output *o, const char *want, const char *name)
{
	fclose(o->p.out);
	is_str(o->text, want, "%s", name);
	free(o->text);
}

static void at(struct output *o, double t, uint64_t done, const char *file)
{
	clock_now = 1000 + t;
	ofs_progress_show(&o->p, done, 1000000000, file);
}

static void terminal(void)
{
	struct output o;

	begin(&o, true, false);
	at(&o, 0, 0, NULL);
	at(&o, 1.9, 100000000, NULL);
	ofs_progress_end(&o.p, true);
	says(&o, "", "work of less than two seconds prints nothing");

	begin(&o, true, false);
	at(&o, 0, 0, NULL);
	at(&o, 4, 200000000, "__0_0.distcp");
	at(&o, 4.1, 210000000, "__0_0.distcp");
	at(&o, 8, 800000000, "b");
	clock_now = 1010;
	ofs_progress_end(&o.p, true);
	says(&o,
	    "\rreshard: 20 %, 200 MB of 1.00 GB, 50.0 MB/s, 16 s left, "
	    "__0_0.distcp"
	    "\rreshard: 80 %, 800 MB of 1.00 GB, 100 MB/s, 2 s left, b"
	    "             "
	    "\r                                                         \r"
	    "reshard: 800 MB in 10 s, 80.0 MB/s\n",
	    "a terminal gets one rewritten line, which is removed, and a summary");

	begin(&o, true, false);
	at(&o, 0, 0, NULL);
	at(&o, 4, 200000000, "a\nb");
	ofs_progress_break(&o.p);
	ofs_progress_end(&o.p, false);
	says(&o,
	    "\rreshard: 20 %, 200 MB of 1.00 GB, 50.0 MB/s, 16 s left, a?b"
	    "\r                                                             \r",
	    "failed work has no summary; control bytes of names are replaced");
}

static void narrow(void)
{
	struct output o;

	begin(&o, true, false);
	o.p.columns = 40;
	at(&o, 0, 0, NULL);
	at(&o, 4, 200000000, "__0_0.distcp");
	ofs_progress_end(&o.p, false);
	says(&o,
	    "\rreshard: 20 %, 200 MB of 1.00 GB, 50.0 "
	    "\r                                       \r",
	    "on a terminal of 40 columns a line has 39");
}

static void lines(void)
{
	struct output o;

	begin(&o, false, false);
	for (int t = 0; t < 150; t++)
		at(&o, t, (uint64_t)t * 1000000, NULL);
	ofs_progress_end(&o.p, true);
	says(&o,
	    "reshard: 6 %, 60.0 MB of 1.00 GB, 1.00 MB/s, 16 min left\n"
	    "reshard: 12 %, 120 MB of 1.00 GB, 1.00 MB/s, 15 min left\n"
	    "reshard: 149 MB in 2 min, 1.00 MB/s\n",
	    "without a terminal there is a line per minute");

	begin(&o, false, true);
	at(&o, 0, 500000000, NULL);
	at(&o, 5, 600000000, NULL);
	ofs_progress_end(&o.p, true);
	says(&o,
	    "reshard: 50 %, 500 MB of 1.00 GB, 0 B/s, ? left\n"
	    "reshard: 100 MB in 5 s, 20.0 MB/s\n",
	    "forced progress begins at once, with the rate of this run");
}

/* The file is a part of the work, so that bytes are not the percentage. */
static void part(void)
{
	struct output o;

	begin(&o, false, true);
	clock_now = 1000;
	ofs_progress_percent(&o.p, 0, 0, 1000000000, "");
	clock_now = 1010;
	ofs_progress_percent(&o.p, 25, 400000000, 1000000000, "a");
	ofs_progress_end(&o.p, true);
	says(&o,
	    "reshard: 0 %, 0 B of 1.00 GB, 0 B/s, ? left\n"
	    "reshard: 25 %, 400 MB of 1.00 GB, 40.0 MB/s, 30 s left, a\n"
	    "reshard: 400 MB in 10 s, 40.0 MB/s\n",
	    "percent and time are of all work, bytes of the part");
}

/* Opening, which may be followed by other work. */
static void steps(void)
{
	struct output o;

	begin(&o, true, false);
	ofs_progress_step(&o.p, 0, 100, "reading the index");
	clock_now += 1.9;
	ofs_progress_step(&o.p, 50, 100, "reading the index");
	clock_now += 0.1;
	ofs_progress_step(&o.p, 41, 100, "parsing the index");
	clock_now += 0.1;
	ofs_progress_step(&o.p, 50, 100, "parsing the index");
	clock_now += 0.1;
	ofs_progress_step(&o.p, 0, 0, "building the tree");
	ofs_progress_clear(&o.p);
	ofs_progress_end(&o.p, true);
	says(&o,
	    "\rreshard: parsing the index, 41 %"
	    "\rreshard: building the tree      "
	    "\r                            \r",
	    "a step is shown after two seconds, and is removed at its end");
	begin(&o, false, true);
	ofs_progress_step(&o.p, 0, 100, "reading the index");
	says(&o, "", "steps are only shown on a terminal");
}

static void quiet(void)
{
	struct ofs_progress p;

	ofs_progress_init(&p, "reshard", true, true);
	ofs_progress_show(&p, 1, 2, NULL);
	ofs_progress_end(&p, true);
	ok(p.out == NULL && p.shown == 0, "quiet progress prints nothing");
}

int main(void)
{
	terminal();
	narrow();
	lines();
	part();
	steps();
	quiet();
	return done_testing();
}
