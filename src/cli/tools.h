/* tools.h - the command line, messages and exit statuses of the program */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TOOLS_H
#define OFS_TOOLS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

/* Exit status of every verb. */
enum ofs_exit {
	OFS_EXIT_OK = 0,
	OFS_EXIT_NO = 1,          /* the answer is no: differs, damaged */
	OFS_EXIT_USAGE = 2,       /* wrong words on the command line */
	OFS_EXIT_IO = 3,          /* I/O error or corrupt input */
	OFS_EXIT_UNSUPPORTED = 4, /* understood, but not supported */
	OFS_EXIT_REFUSED = 5,     /* refused by policy */
	OFS_EXIT_UNSYNCED = 6,    /* published, but the last sync failed */
	OFS_EXIT_INTERRUPTED = 130,
};

/* A verb. argv[0] of run is the verb itself; run returns an enum ofs_exit.
 * One const instance a verb, listed in tools/main.c. */
struct ofs_verb {
	const char *name;
	const char *synopsis; /* after "optimfs NAME", "[-f] CKPT MNT" */
	const char *summary;  /* one line */
	const char *options;  /* lines of --help that explain them; NULL */
	void (*more)(void);   /* prints further lines; NULL */
	int (*run)(const struct ofs_verb *self, int argc, char **argv);
};

/* Print "optimfs: text" and "usage: optimfs NAME SYNOPSIS" on standard error;
 * OFS_EXIT_USAGE. */
int ofs_tool_usage(const struct ofs_verb *verb, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The help of a verb on standard output; OFS_EXIT_OK. */
int ofs_tool_help(const struct ofs_verb *verb);
/* Print "optimfs: text" on standard error; the status for err->code. */
int ofs_tool_fail(const struct optimfs_error *err);
/* The same line without a status: a warning, a note. */
void ofs_tool_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* What was done, where somebody looks: a line of standard output when that is
 * a terminal, else nothing. */
void ofs_tool_done(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The exit status that says errno value code. */
int ofs_tool_status(int code);
/* Flush standard output. status, or OFS_EXIT_IO with a message when what was
 * written could not be delivered. */
int ofs_tool_finish(int status);

#endif
