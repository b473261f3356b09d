/* reader.h - the resources for reading a catalog's tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_READ_READER_H
#define OFS_READ_READER_H

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "plan/plan.h"
#include "store/transport.h"

/* Zero-initialise or call _init. Thread-safe. */
struct ofs_reader {
	const struct ofs_catalog *cat;
	struct ofs_transport *transport;
	/* What cat had then; what is added to it later cannot be read. */
	uint32_t nshards, nderived;
	/* The place of each shard, NULL until it is located: read/locate.h. */
	_Atomic(struct ofs_place *) *place;
	_Atomic uint8_t *compared; /* of each shard: read/agree.h */
	_Atomic(void *) *prepared; /* of each derivation: read/derived.h */
};

/* cat must outlive r. r takes ownership of t, on failure too. t NULL fails,
 * with err already filled. ENOMEM. */
int ofs_reader_init(struct ofs_reader *r, const struct ofs_catalog *cat,
    struct ofs_transport *t, struct optimfs_error *err);
void ofs_reader_fini(struct ofs_reader *r);
/* A reader of another catalog with the same objects (ofs_catalog_copy): it uses
 * the transport of of, which must outlive it. _unshare ends it. */
int ofs_reader_share(struct ofs_reader *r, const struct ofs_reader *of,
    const struct ofs_catalog *cat, struct optimfs_error *err);
void ofs_reader_unshare(struct ofs_reader *r);

#endif
