/* interrupt.c - ending long work cleanly on Ctrl-C */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "cli/tools.h"
#include "cli/wrap.h"

static atomic_bool interrupted;

/* Made before the signal, whose handler can only write it. */
static char last_words[256];
static size_t nlast_words;

static void note(int sig)
{
	(void)sig;
	atomic_store(&interrupted, true);
}

static void end(int sig)
{
	(void)sig;
	(void)!write(STDERR_FILENO, last_words, nlast_words);
	_exit(OFS_EXIT_INTERRUPTED);
}

static void handle(void (*handler)(int sig))
{
	static const int signals[] = { SIGINT, SIGTERM };
	struct sigaction catch = { .sa_handler = handler,
		.sa_flags = SA_RESTART | (int)SA_RESETHAND };
	struct sigaction old;

	sigemptyset(&catch.sa_mask);
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		if (sigaction(signals[i], NULL, &old) == 0 &&
		    old.sa_handler != SIG_IGN)
			sigaction(signals[i], &catch, NULL);
}

void ofs_interrupt_catch(void)
{
	handle(note);
}

void ofs_interrupt_end(const char *what)
{
	size_t width = ofs_terminal_width(STDERR_FILENO);
	struct ofs_buf b = { .limit = sizeof(last_words) };
	char text[200];

	snprintf(text, sizeof(text), "optimfs: OFS014 interrupted: %s\n", what);
	if (width > 0) /* the terminal shows ^C, and a line of progress */
		ofs_buf_putc(&b, '\n');
	ofs_wrap(&b, text, width, 4);
	if (b.bad)
		b.len = 0;
	memcpy(last_words, b.data, b.len);
	nlast_words = b.len;
	ofs_buf_fini(&b);
	handle(end);
}

bool ofs_interrupted(void *ctx)
{
	(void)ctx;
	return atomic_load(&interrupted);
}
