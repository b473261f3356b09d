/* simtime.h - time that passes only while all threads wait */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TEST_SIMTIME_H
#define TEST_SIMTIME_H

#include <stdint.h>

/* A program that is linked with SIMTIME_FLAGS (Makefile.am) and simtime.c has a
 * monotonic clock of its own, which stands still while any thread runs. When all
 * threads wait for conditions or for each other's end, it moves on to the first
 * time for which one of them waits. So what a program does does not depend on how
 * fast it runs, and a timeout of an hour takes no time. If none of them waits for
 * a time, they wait forever: that ends the test. Threads must not wait for anything
 * else for long. */

/* In ns. */
int64_t simtime_now(void);
void simtime_sleep_until(int64_t ns);

#endif
