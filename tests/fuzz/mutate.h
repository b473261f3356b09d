/* mutate.h - checkpoints of tests/data with changed parts */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef MUTATE_H
#define MUTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The files of a checkpoint. */
struct mutate_file {
	char *name; /* below its directory */
	uint8_t *bytes;
	size_t len;
	bool gone, dir; /* removed; replaced by an empty directory */
};
struct mutate {
	struct mutate_file *file;
	size_t n;
};

/* Makes a checkpoint from an input of the fuzzer: its first byte chooses one of
 * tests/data, every MUTATE_STEP bytes after that are one change. After MUTATE_MAX
 * of them little would be left of it. */
#define MUTATE_STEP 8
#define MUTATE_MAX  12
void mutate_make(struct mutate *m, const uint8_t *bytes, size_t n);
void mutate_free(struct mutate *m);
/* Writes the files below a directory, which is made. */
void mutate_write(const struct mutate *m, const char *dir);

#endif
