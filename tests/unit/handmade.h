/* handmade.h - a directory of files and a catalog of them, for tests */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef HANDMADE_H
#define HANDMADE_H

#include <stddef.h>
#include <stdint.h>

#include "catalog/catalog.h"
#include "store/transport.h"

/* A temporary directory and the catalog of its files. Every failure of these
 * functions ends the test. */
struct handmade {
	char dir[64];
	struct ofs_catalog *cat;
};

void handmade_init(struct handmade *h);
/* Also removes the directory. */
void handmade_fini(struct handmade *h);
/* Write a file and add it; bytes NULL adds a file that does not exist. */
uint32_t handmade_file(struct handmade *h, const char *name, const void *bytes,
    size_t n);
/* Overwrite an existing file from off on, or replace it by rename. */
void handmade_write(struct handmade *h, const char *name, size_t off,
    const void *bytes, size_t n);
void handmade_replace(struct handmade *h, const char *name, const void *bytes,
    size_t n);
/* The path of a file, valid until the next call. */
const char *handmade_path(struct handmade *h, const char *name);
/* The local transport, with a cache of so many bytes. */
struct ofs_transport *handmade_transport(struct handmade *h, uint64_t cache);

/* n pseudo-random bytes that depend on seed. */
void handmade_fill(uint8_t *p, size_t n, uint64_t seed);

#endif
