/* index.h - one .metadata pickle of PyTorch's distributed checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_DCP_INDEX_H
#define OFS_FORMAT_DCP_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/map.h"
#include "pickle/pickle.h"

/* The place of an item, from storage_data. */
struct ofs_dcp_place {
	uint32_t path;       /* node: relative_path */
	uint32_t transforms; /* node: transform_descriptors; or OFS_NONE */
	uint64_t off, len;
};

/* A pair of storage_data, copied from the graph once, in order: a lookup in the
 * graph would touch a dozen places of memory. An index of a million chunks has
 * as many items, so the keys stay in the graph. */
struct ofs_dcp_item {
	uint64_t off, len; /* in its file, as in struct ofs_dcp_place */
	uint32_t path;
	uint32_t transforms;
	uint32_t fqn : 31; /* node: a string; nodes have 31 bits */
	uint32_t used : 1; /* it was looked up */
	/* node: a row, where its box begins in the tensor; OFS_NONE: the item
	 * is not a tensor's */
	uint32_t offset;
};

/* The three dictionaries of a Metadata object. Objects are recognised by their
 * attributes, not by the module of their class, which depends on the release of
 * PyTorch (docs/formats/dcp.md). */
struct ofs_dcp_index {
	struct ofs_pickle *doc;
	uint32_t keys;    /* state_dict_metadata */
	uint32_t planner; /* planner_data; OFS_NONE: there is none */
	uint32_t storage; /* storage_data */
	int rank;         /* that wrote it; -1: for all ranks */
	uint32_t object;  /* its file, in the catalog */
	bool odd_planner; /* planner_data is not a dictionary */
	const char *writer;
	struct ofs_dcp_item *item; /* the items of storage, in order */
	uint32_t nitems;
	struct ofs_map by_index; /* items by fqn and offset */
	/* The item after the one found last, which was where it was expected:
	 * most indexes have their items in the order of their chunks. */
	uint32_t next;
	bool in_order;
	struct ofs_pk_fields key, place; /* of the items, as they are read */
	bool shared;                     /* an item was looked up twice */
	uint64_t nchunks;                /* of the tensors read so far */
};

/* A row of sizes or offsets. */
struct ofs_dcp_dims {
	uint64_t v[OFS_MAX_DIMS];
	uint8_t n;
};

/* Parse an index, without its items. The bytes become the index's, on failure
 * too. Faults of the whole structure are EUCLEAN, OFS416 to OFS442
 * (docs/errors.md). */
int ofs_dcp_index_open(struct ofs_dcp_index *index, uint8_t *bytes,
    uint64_t len, const struct ofs_pickle_limits *limits,
    struct optimfs_error *err);
/* Read the items, which the functions below need. Other threads may read the
 * graph meanwhile. Fails as above. */
int ofs_dcp_index_items(struct ofs_dcp_index *index, struct optimfs_error *err);
void ofs_dcp_index_fini(struct ofs_dcp_index *index);

/* As ofs_map_prefetch: the item will be looked up soon. Not needed while items
 * are in order. The nodes may be of any kind. */
void ofs_dcp_index_prefetch(const struct ofs_dcp_index *index, uint32_t fqn,
    uint32_t offset);
/* Look up the place of the item of fqn at offset, both nodes (OFS_NONE: not a
 * tensor); false when there is none. */
bool ofs_dcp_index_find(struct ofs_dcp_index *index, uint32_t fqn,
    uint32_t offset, struct ofs_dcp_place *place);
/* Read a row of non-negative integers: OFS416 too large, OFS417
 * negative, OFS418 not an integer. field is for the message. */
int ofs_dcp_sizes(const struct ofs_pickle *doc, uint32_t node,
    const char *field, struct ofs_dcp_dims *dims, struct optimfs_error *err);

#endif
