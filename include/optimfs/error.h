/* error.h - one error: an errno value for the kernel, words for a person */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPTIMFS_ERROR_H
#define OPTIMFS_ERROR_H

#include <stdarg.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A shared liboptimfs exports only what is declared here: everything else is
 * compiled with hidden visibility. */
#pragma GCC visibility push(default)

enum optimfs_lost {
	OPTIMFS_NOT_LOST,
	OPTIMFS_LOST_MISSING, /* the file does not exist */
	OPTIMFS_LOST_SHORT,   /* it ends too early */
	OPTIMFS_LOST_CLOSED,  /* this user may not read it */
	OPTIMFS_LOST_WRONG,   /* it lacks what the index says is in it */
	OPTIMFS_LOST_GARBLED, /* an item is not what the index says */
	/* not because of a file: */
	OPTIMFS_LOST_HOLES, /* no file is known to have it */
	OPTIMFS_LOST_UNITS, /* the option units= is not given */
};

/* code is for the kernel; number is an entry of optimfs-errors(7); text is for
 * a person, and begins with "OFSnnn " if there is a number. A function fills it
 * when it fails; after a success its contents are undefined. */
struct optimfs_error {
	int code;   /* an errno value */
	int number; /* 603 for OFS603; 0: none */
	/* What is lost, if that is the reason. nlost bytes of text, from lost
	 * on, are the name of the file. */
	unsigned short how; /* enum optimfs_lost */
	unsigned short lost, nlost;
	char text[498];
};

/* Fill err, which may be NULL, and return -1. If the error has a number, fmt
 * itself begins with "OFSnnn ". %m in fmt stands for errno at the call. */
int optimfs_fail(struct optimfs_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int optimfs_vfail(struct optimfs_error *err, int code, const char *fmt,
    va_list ap) __attribute__((format(printf, 3, 0)));
/* Pass another error on; return -1. */
static inline int optimfs_fail_with(struct optimfs_error *err,
    const struct optimfs_error *why)
{
	if (err != NULL)
		*err = *why;
	return -1;
}
/* As optimfs_fail, for text that has its number from elsewhere: "OFSnnn " is
 * looked for in the formatted text instead of in fmt. That text must not begin
 * with a name from a file. */
int optimfs_fail_as(struct optimfs_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int optimfs_vfail_as(struct optimfs_error *err, int code, const char *fmt,
    va_list ap) __attribute__((format(printf, 3, 0)));
/* Insert "context: " at the start of the text, behind its "OFSnnn " if it has
 * one; return -1. */
int optimfs_fail_in(struct optimfs_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The text without its "OFSnnn ". */
const char *optimfs_error_words(const struct optimfs_error *err);
/* The same, without any "PATH: " and "PATH bytes M-N: " at the start: for
 * callers that have already named the file. */
const char *optimfs_error_about(const struct optimfs_error *err,
    const char *path);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
