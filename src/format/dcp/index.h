/* index.h - one .metadata pickle of PyTorch's distributed checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_DCP_INDEX_H
#define OFS_FORMAT_DCP_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/map.h"
#include "catalog/catalog.h"
#include "pickle/pickle.h"

/* Where an item lies, as storage_data says. */
struct ofs_dcp_place {
	uint32_t path;       /* node: relative_path */
	uint32_t transforms; /* node: transform_descriptors; or OFS_NONE */
	uint64_t off, len;
};

/* A pair of storage_data, taken out of the graph once and in order: looking
 * it up there again would touch a dozen places of memory. An index of a
 * million chunks has as many, so that only the graph has their keys. */
struct ofs_dcp_item {
	uint64_t off, len; /* the place's */
	uint32_t path;
	uint32_t transforms;
	uint32_t fqn : 31; /* node: a string; nodes have 31 bits */
	uint32_t used : 1; /* it was asked for */
	uint32_t offset;   /* node: a row; OFS_NONE: no tensor's item */
};

/* The three dictionaries of a Metadata object. Objects are known by their
 * attributes, not by where their class lived in this release of PyTorch
 * (docs/formats/dcp.md). */
struct ofs_dcp_index {
	struct ofs_pickle *doc;
	uint32_t keys;    /* state_dict_metadata */
	uint32_t planner; /* planner_data; OFS_NONE when there is none */
	uint32_t storage; /* storage_data */
	int rank;         /* whose index it is; -1: everybody's */
	uint32_t object;  /* the file, in the catalog */
	bool odd_planner; /* planner_data is there but is no dictionary */
	const char *writer;
	struct ofs_dcp_item *item; /* what storage has, in its order */
	uint32_t nitems;
	struct ofs_map by_index; /* items by fqn and offset */
};

/* A row of sizes or offsets. */
struct ofs_dcp_dims {
	uint64_t v[OFS_MAX_DIMS];
	uint8_t n;
};

/* Parse; the bytes become the index's, on failure too. What is wrong with the
 * structure as a whole is EUCLEAN, OFS416 to OFS442 (docs/errors.md). */
int ofs_dcp_index_open(struct ofs_dcp_index *index, uint8_t *bytes,
    uint64_t len, uint64_t memory, struct optimfs_error *err);
void ofs_dcp_index_fini(struct ofs_dcp_index *index);

/* Where storage_data puts the item of fqn at offset, both nodes (OFS_NONE: the
 * item of a value that is no tensor); false when it does not say. */
bool ofs_dcp_index_find(struct ofs_dcp_index *index, uint32_t fqn,
    uint32_t offset, struct ofs_dcp_place *place);
/* A non-negative integer, or a row of them: OFS416 too large, OFS417 negative,
 * OFS418 not an integer. field and owner are for the message. */
int ofs_dcp_size(const struct ofs_pickle *doc, uint32_t node, const char *field,
    const char *owner, uint64_t *v, struct optimfs_error *err);
int ofs_dcp_sizes(const struct ofs_pickle *doc, uint32_t node,
    const char *field, const char *owner, struct ofs_dcp_dims *dims,
    struct optimfs_error *err);

#endif
