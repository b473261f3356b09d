/* item.h - the torch.save archives that DCP stores, one for each item */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef ITEM_H
#define ITEM_H

#include <stdbool.h>

#include "content.h"
#include "sink.h"

#define MAX_DIMS 8

/* A box of a tensor. */
struct box {
	size_t ndim;
	uint64_t shape[MAX_DIMS]; /* of the tensor */
	uint64_t offset[MAX_DIMS], size[MAX_DIMS];
};

uint64_t box_numel(const struct box *b);

/* Writes a box of a tensor as PyTorch 2.11 does: seven records, data at multiples
 * of 64 bytes, always zip64 end records (docs/formats/zip.md). crc: with checksums,
 * which PyTorch can leave out too. */
void item_tensor(struct sink *s, const struct content *c, uint64_t tensor,
    const struct box *b, bool crc);
/* The same of an object that was pickled to n bytes. */
void item_object(struct sink *s, const void *pickle, size_t n);

/* Elements of a storage: a box of a tensor. */
struct part {
	const struct content *content;
	uint64_t tensor;
	struct box box;
};

/* The same of an object with storages: item_storage for each, in the order of
 * their keys "0", "1", ...; a storage is its n parts end to end. */
struct archive *item_begin(struct sink *s, const void *pickle, size_t n,
    size_t nstorages);
void item_storage(struct archive *a, const struct part *parts, size_t n,
    bool crc);
void item_finish(struct archive *a); /* frees a */

#endif
