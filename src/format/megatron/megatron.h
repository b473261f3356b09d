/* megatron.h - what the parts of the Megatron-Core reader share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_MEGATRON_H
#define OFS_FORMAT_MEGATRON_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "format/format.h"

/* docs/formats/megatron.md. A torch_dist checkpoint is one of DCP whose keys
 * are text, whose layers lie stacked in one tensor, and whose values are lists
 * of one. The DCP reader reads it; what is here then gives its entries the
 * paths and the tensors that other frameworks have, before they are named
 * (src/naming/naming.h). No data is read. */

extern const struct ofs_format ofs_format_megatron;

/* read.c: the member of the format. */
int ofs_megatron_join(struct ofs_catalog *cat, struct optimfs_error *err);

/* The file of common state, and the component that its entries lie below; where
 * there is no such file, the object of this name takes its place. */
#define OFS_MEGATRON_FILE   "common.pt"
#define OFS_MEGATRON_COMMON "common_state"

/* What the text of a key says. Strings are borrowed from it. */
struct ofs_megatron_key {
	enum {
		OFS_MEGATRON_MODEL,  /* name: of a parameter or buffer */
		OFS_MEGATRON_STATE,  /* state of the parameter name */
		OFS_MEGATRON_BUCKET, /* name: what follows optimizer. */
		OFS_MEGATRON_COMMONS,
		OFS_MEGATRON_OTHER, /* an object of any name */
	} kind;
	struct ofs_str chained; /* "chained_1"; len 0 for none */
	struct ofs_str name, state;
	/* Of an object: its place in a grid of them. */
	bool object;
	struct ofs_str offsets;  /* "0.1", without the layer's */
	bool alone;              /* the grid, less the layers, has one place */
	uint64_t layer, nlayers; /* first axis of the grid; where it has one */
};

/* Parse a key; an object's is "KEY/shard_OFFSETS_SHAPE". */
void ofs_megatron_parse(struct ofs_str text, struct ofs_megatron_key *key);
/* Where the number of a layer is to stand in name: behind the "layers." that no
 * number follows; 0 where there is no such place. */
uint32_t ofs_megatron_layer_at(struct ofs_str name);

/* All of it: entries whose paths are as the DCP reader and the reader of
 * common.pt left them become model, optimizer and the rest. */
struct ofs_megatron {
	struct ofs_catalog *cat;
	uint32_t model, optimizer, states, groups, zero; /* strings */
	bool prefixed;    /* keys name the chained optimizer */
	bool has_common;  /* common state was found */
	bool model_space; /* it says that states are flat blocks */
	uint32_t
	    *first_group; /* by chained optimizer: where its groups begin */
	uint32_t nchained;
	/* layers of a stack, said by args and by the first one */
	uint64_t num_layers, seen_layers;
	uint64_t budget;   /* further tensors and shards that may be made */
	uint32_t nbucket;  /* tensors of buckets, without names */
	uint32_t nbuckets; /* objects that have buckets in them */
};

/* paths.c: the path of entry i, which is no stack's. */
int ofs_megatron_place(struct ofs_megatron *m, uint32_t entry,
    struct optimfs_error *err);
int ofs_megatron_path(struct ofs_megatron *m,
    const struct ofs_megatron_key *key, struct ofs_str name,
    const uint32_t *rest, uint32_t nrest, uint32_t *path,
    struct optimfs_error *err);

/* blocks.c: states of a flattened block of their parameter become
 * shards of the parameter's shape, for every entry. */
int ofs_megatron_blocks(struct ofs_megatron *m, struct optimfs_error *err);

/* stack.c: a stacked tensor becomes one tensor a layer. Gives 1 when
 * it did; 0: the entry is to be placed as it is. */
int ofs_megatron_unstack(struct ofs_megatron *m, uint32_t entry,
    const struct ofs_megatron_key *key, struct optimfs_error *err);

/* step.c: each parameter's state gets the step that is recorded once
 * for all. Paths are final. */
int ofs_megatron_steps(struct ofs_megatron *m, struct optimfs_error *err);

#endif
