/* engine_impl.h - what the parts of the engine share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_ENGINE_ENGINE_IMPL_H
#define OFS_ENGINE_ENGINE_IMPL_H

#include "engine/engine.h"

/* A file while it is written. */
struct ofs_engine_open {
	pthread_mutex_t lock; /* held while it is opened */
	bool tried;
	int fd;
	void *from; /* NULL: opening it failed */
	void *early; /* of e->early; NULL: it is a new file */
	unsigned users;
};

/* Reads len bytes at off into buf, unless a thread has failed. */
int ofs_engine_read(struct ofs_engine *e, void *from, uint8_t *buf,
    uint64_t len, uint64_t off, struct optimfs_error *err);

/* items.c: writes a file of compressed items; buf has room for OFS_ENGINE_PIECE
 * bytes of each. */
int ofs_engine_items(struct ofs_engine *e, struct ofs_engine_file *f,
    uint8_t *buf, struct optimfs_error *err);

#endif
