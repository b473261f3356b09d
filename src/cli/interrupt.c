/* interrupt.c - ending long work cleanly on Ctrl-C */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/interrupt.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

static atomic_bool interrupted;

static void note(int sig)
{
	(void)sig;
	atomic_store(&interrupted, true);
}

void ofs_interrupt_catch(void)
{
	static const int signals[] = { SIGINT, SIGTERM };
	struct sigaction catch = { .sa_handler = note,
		.sa_flags = SA_RESTART | (int)SA_RESETHAND };
	struct sigaction old;

	sigemptyset(&catch.sa_mask);
	for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		if (sigaction(signals[i], NULL, &old) == 0 &&
		    old.sa_handler != SIG_IGN)
			sigaction(signals[i], &catch, NULL);
}

bool ofs_interrupted(void *ctx)
{
	(void)ctx;
	return atomic_load(&interrupted);
}
