/* tools.h - verbs, messages and exit statuses of the program */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_TOOLS_H
#define OFS_TOOLS_H

#include <stddef.h>

#include "optimfs/error.h"

#include "base/buf.h"

/* Exit status of every verb. */
enum ofs_exit {
	OFS_EXIT_OK = 0,
	OFS_EXIT_NO = 1,          /* negative answer: differs, damaged */
	OFS_EXIT_USAGE = 2,       /* wrong usage */
	OFS_EXIT_IO = 3,          /* I/O error or corrupt input */
	OFS_EXIT_UNSUPPORTED = 4, /* understood, but not supported */
	OFS_EXIT_REFUSED = 5,     /* refused by policy */
	OFS_EXIT_UNSYNCED = 6,    /* published, but the last sync failed */
	OFS_EXIT_INTERRUPTED = 130,
};

/* A verb. argv[0] of run is the verb; run returns an enum ofs_exit. One const
 * instance per verb, listed in tools/main.c. */
struct ofs_verb {
	const char *name;
	const char *synopsis; /* after "optimfs NAME", "[-f] CKPT MNT" */
	const char *summary;  /* one line */
	const char *options;  /* its lines in --help; NULL */
	void (*more)(void);   /* prints more help; NULL */
	bool from;            /* --from can stand for its first operand */
	int (*run)(const struct ofs_verb *self, int argc, char **argv);
};

/* From here on each failure is also an object on standard output (docs/json.md),
 * for --json. */
void ofs_tool_json(void);
/* Prints "optimfs: OFS011 text" to standard error; returns OFS_EXIT_USAGE. */
int ofs_tool_misused(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
/* The same, and "usage: optimfs NAME SYNOPSIS". */
int ofs_tool_usage(const struct ofs_verb *verb, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* Prints the help of a verb to standard output; returns OFS_EXIT_OK. */
int ofs_tool_help(const struct ofs_verb *verb);
/* Prints "optimfs: text" and what to do to standard error; returns the status
 * for err->code. */
int ofs_tool_fail(const struct optimfs_error *err);
/* Prints such a line as a warning or note. */
void ofs_tool_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same without "optimfs: ". */
void ofs_tool_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* As ofs_tool_say, as a callback; ctx is ignored. */
void ofs_tool_say_text(void *ctx, const char *text);
/* optimfs_await, which prints what it says. */
int ofs_tool_await(const char *path, struct optimfs_error *err);
/* Prints lines to standard output. On a terminal, long ones are broken; what
 * follows is indented, see ofs_wrap. */
void ofs_tool_print(const char *text, size_t indent);
/* The same, and frees the text in b. */
void ofs_tool_print_buf(struct ofs_buf *b, size_t indent);
/* Appends a path to a line of standard output, with so many columns used by
 * other text. On a terminal a path that is too long loses its middle. */
void ofs_tool_put_path(struct ofs_buf *b, const char *path, size_t used);
/* Prints a cell of a table, right-aligned in n columns, after used columns of the
 * line, and adds to them. Where it does not fit on the terminal it begins a
 * line. */
void ofs_tool_print_cell(size_t *used, size_t n, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Ends a line with it and two spaces before; where nearly nothing is left of the
 * line, the path is on the next one. */
void ofs_tool_print_path(const char *path, size_t used);
/* Prints a line to standard output if that is a terminal. */
void ofs_tool_done(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The exit status for an errno value. */
int ofs_tool_status(int code);
/* Flushes standard output. Returns status, or OFS_EXIT_IO with a message if the
 * output could not be written. */
int ofs_tool_finish(int status);

#endif
