/* tap.h - tests that speak the Test Anything Protocol */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TAP_H
#define TAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Declares the number of tests. Without it, done_testing prints the plan. */
void plan(int n);
/* Prints "1..0 # SKIP why" and exits. */
void skip_all(const char *fmt, ...)
    __attribute__((format(printf, 1, 2), noreturn));

/* Each is one test, and returns whether it passed. */
#define ok(cond, ...) tap_ok((cond), __FILE__, __LINE__, #cond, __VA_ARGS__)
#define is_int(got, want, ...) \
 tap_is_int((got), (want), __FILE__, __LINE__, __VA_ARGS__)
#define is_u64(got, want, ...) \
 tap_is_u64((got), (want), __FILE__, __LINE__, __VA_ARGS__)
#define is_str(got, want, ...) \
 tap_is_str((got), (want), __FILE__, __LINE__, __VA_ARGS__)
/* Compares n bytes; a failure prints the first offset that differs. */
#define is_mem(got, want, n, ...) \
 tap_is_mem((got), (want), (n), __FILE__, __LINE__, __VA_ARGS__)
/* err, a struct optimfs_error, has this code, and its text contains part. */
#define is_error(err, code, part, ...) \
 tap_is_error(&(err), (code), (part), __FILE__, __LINE__, __VA_ARGS__)

/* Where tests make their files: $TMPDIR, or /tmp if that is unset or longer than
 * the 40 bytes that their buffers have for it. */
const char *tap_tmpdir(void);

/* Counts n tests that cannot be run. */
void skip(int n, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void diag(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void bail_out(const char *fmt, ...)
    __attribute__((format(printf, 1, 2), noreturn));
/* Prints the plan if plan was not called; returns the exit status for main. */
int done_testing(void);

struct optimfs_error;
bool tap_ok(bool pass, const char *file, int line, const char *expr,
    const char *fmt, ...) __attribute__((format(printf, 5, 6)));
bool tap_is_int(int64_t got, int64_t want, const char *file, int line,
    const char *fmt, ...) __attribute__((format(printf, 5, 6)));
bool tap_is_u64(uint64_t got, uint64_t want, const char *file, int line,
    const char *fmt, ...) __attribute__((format(printf, 5, 6)));
bool tap_is_str(const char *got, const char *want, const char *file, int line,
    const char *fmt, ...) __attribute__((format(printf, 5, 6)));
bool tap_is_mem(const void *got, const void *want, size_t n, const char *file,
    int line, const char *fmt, ...) __attribute__((format(printf, 6, 7)));
bool tap_is_error(const struct optimfs_error *err, int code, const char *part,
    const char *file, int line, const char *fmt, ...)
    __attribute__((format(printf, 6, 7)));

#endif
