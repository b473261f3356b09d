/* error.h - one error: an errno value for the kernel, words for a person */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPTIMFS_ERROR_H
#define OPTIMFS_ERROR_H

#include <stdarg.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a shared liboptimfs exports: everything else is compiled hidden. */
#pragma GCC visibility push(default)

/* code is what the kernel gets; number names an entry of optimfs-errors(7);
 * text is what a person gets. It begins with "OFSnnn " where there is a
 * number. A call that takes an error fills it when it fails; after a success
 * its contents mean nothing. */
struct optimfs_error {
	int code;   /* an errno value, 0 when nothing went wrong */
	int number; /* 603 for OFS603; 0: none */
	char text[504];
};

/* Fill err, which may be NULL, and return -1. fmt itself begins with "OFSnnn "
 * where the error has a number. %m in fmt is errno at entry. */
int optimfs_fail(struct optimfs_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int optimfs_vfail(struct optimfs_error *err, int code, const char *fmt,
    va_list ap) __attribute__((format(printf, 3, 0)));
/* The same for what has been an error before, or has its number from
 * elsewhere: it is the words made by fmt that begin with "OFSnnn ". They must
 * not begin with a name from a file. */
int optimfs_fail_as(struct optimfs_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
int optimfs_vfail_as(struct optimfs_error *err, int code, const char *fmt,
    va_list ap) __attribute__((format(printf, 3, 0)));
/* Put "context: " before the text that is already there, after its OFSnnn
 * code if it has one; return -1. */
int optimfs_fail_in(struct optimfs_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
/* The text without its OFSnnn. */
const char *optimfs_error_words(const struct optimfs_error *err);
/* The words without "PATH: " or "PATH bytes M-N: " in front, as often as it
 * stands there: for who has said already which file it is about. */
const char *optimfs_error_about(const struct optimfs_error *err,
    const char *path);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
