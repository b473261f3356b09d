/* reader.h - what it takes to read a catalog's tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_READ_READER_H
#define OFS_READ_READER_H

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "plan/plan.h"
#include "store/transport.h"

/* Zero-initialise or call _init. Any thread may read. */
struct ofs_reader {
	const struct ofs_catalog *cat;
	struct ofs_transport *transport;
	/* Where each shard lies, once it was looked for: read/locate.h. */
	_Atomic(struct ofs_place *) *place;
};

/* cat must outlive r. t becomes r's, on failure too; NULL fails, and err says
 * why already. ENOMEM. */
int ofs_reader_init(struct ofs_reader *r, const struct ofs_catalog *cat,
    struct ofs_transport *t, struct optimfs_error *err);
void ofs_reader_fini(struct ofs_reader *r);

#endif
