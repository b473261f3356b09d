/* reader.h - checkpoints read without a tree */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef READER_H
#define READER_H

#include <stdint.h>

#include "catalog/catalog.h"
#include "format/part.h"
#include "read/locate.h"

/* Zero-initialise. */
struct reader {
	struct ofs_catalog *cat;
	struct ofs_reader r;
};

/* Reads dir, or rel in it, with format, and finishes the catalog. 0, or -1 with
 * err, and then nothing has to be closed. */
int reader_open(struct reader *r, const char *dir, const char *rel,
    const struct ofs_format *format, const struct optimfs_options *opt,
    struct optimfs_error *err);
void reader_close(struct reader *r);
/* A path's components joined by sep, malloc'ed. */
char *reader_path(const struct reader *r, uint32_t path, const char *sep);
/* The entry with this path, joined by sep; NULL: none. */
const struct ofs_entry *reader_find(const struct reader *r, const char *path,
    const char *sep);
/* count elements from first on, malloc'ed; NULL with err if they cannot be
 * read. */
uint8_t *reader_range(struct reader *r, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, struct optimfs_error *err);
/* All elements, likewise. */
uint8_t *reader_tensor(struct reader *r, const struct ofs_tensor *t,
    struct optimfs_error *err);
/* The first note whose text contains part; NULL: none. */
const struct ofs_note *reader_note(const struct reader *r, const char *part);

#endif
