/* error.h - one error: an errno value for the kernel, words for a person */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OPTIMFS_ERROR_H
#define OPTIMFS_ERROR_H

#ifdef __cplusplus
extern "C" {
#endif

/* What a shared liboptimfs exports: everything else is compiled hidden. */
#pragma GCC visibility push(default)

/* code is what the kernel gets; text is what a person gets. The text of a
 * failure that docs/errors.md lists begins with its stable code "OFSnnn ". */
struct optimfs_error {
	int code; /* an errno value, 0 when nothing went wrong */
	char text[508];
};

/* Fill err, which may be NULL, and return -1. %m in fmt is errno at entry. */
int optimfs_fail(struct optimfs_error *err, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Put "context: " before the text that is already there, after its OFSnnn
 * code if it has one; return -1. */
int optimfs_fail_in(struct optimfs_error *err, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif
