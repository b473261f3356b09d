/* megatron.h - shared declarations of the Megatron-Core reader */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_MEGATRON_H
#define OFS_FORMAT_MEGATRON_H

#include <stdbool.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "catalog/catalog.h"
#include "format/format.h"

/* docs/formats/megatron.md. A torch_dist checkpoint is a DCP checkpoint whose
 * keys are text, whose layers are stacked in one tensor, and whose values are
 * lists of one item. The DCP reader reads it. This code then gives its entries
 * the paths and tensors of other frameworks, before naming
 * (src/naming/naming.h). It reads no data. */

extern const struct ofs_format ofs_format_megatron;

/* read.c: the member of the format. */
int ofs_megatron_join(struct ofs_catalog *cat, struct optimfs_error *err);

/* The file of common state, and the path component above its entries. Without
 * this file, the object with the component's name takes its place. */
#define OFS_MEGATRON_FILE   "common.pt"
#define OFS_MEGATRON_COMMON "common_state"

/* A parsed key. Strings are borrowed from its text. */
struct ofs_megatron_key {
	enum {
		OFS_MEGATRON_MODEL,  /* name is a parameter or buffer */
		OFS_MEGATRON_STATE,  /* state of the parameter name */
		OFS_MEGATRON_BUCKET, /* name is the rest after "optimizer." */
		OFS_MEGATRON_COMMONS,
		OFS_MEGATRON_OTHER, /* any other object */
	} kind;
	struct ofs_str chained; /* "chained_1"; len 0: none */
	struct ofs_str name, state;
	/* For objects: the position in a grid of objects. */
	bool object;
	struct ofs_str offsets; /* "0.1", without the layer axis */
	bool alone; /* without the layer axis, the grid has one position */
	/* The layer axis, the first of a grid that has one. */
	uint64_t layer, nlayers;
};

/* Parses a key; the key of an object is "KEY/shard_OFFSETS_SHAPE". */
void ofs_megatron_parse(struct ofs_str text, struct ofs_megatron_key *key);
/* The number of the chained optimizer; 0: of the only one. */
uint32_t ofs_megatron_chained(const struct ofs_megatron_key *key);
/* The model-parallel rank in "distributed.dp_group_idx_1.optimizer", the key of
 * an object with a rank's groups; -1: another key. */
int ofs_megatron_groups_rank(const struct ofs_megatron_key *key);
/* Where to insert the layer number in name: after the "layers." that has no
 * number after it; 0: there is none. */
uint32_t ofs_megatron_layer_at(struct ofs_str name);

/* The state of the pass that turns entries, with the paths that the DCP reader
 * and the reader of common.pt gave them, into model, optimizer and other
 * entries. */
struct ofs_megatron {
	struct ofs_catalog *cat;
	uint32_t model, optimizer, states, groups, zero; /* strings */
	bool prefixed;    /* keys name the chained optimizer */
	bool has_common;  /* common state was found */
	bool model_space; /* common state says that states are flat blocks */
	uint32_t *first_group; /* by chained optimizer: its first group */
	uint32_t nchained;
	/* the number of layers in a stack, from args and from the first
	 * stack */
	uint64_t num_layers, seen_layers;
	const struct ofs_value *args; /* of the job; NULL: unknown */
	uint64_t budget;   /* tensors and shards that may still be added */
	uint32_t nbucket;  /* bucket tensors, which have no parameter names */
	uint32_t nbuckets; /* objects that contain buckets */
	/* all that is in buckets has names, which differ: keys need not name
	 * the chained optimizer */
	bool named;
	uint32_t nlost; /* parameters of the model without such state */
	char lost[160]; /* the first of them */
};

/* paths.c: sets the path of an entry that is not a stack. */
int ofs_megatron_place(struct ofs_megatron *m, uint32_t entry,
    struct optimfs_error *err);
/* paths.c: the path of the key, with the number of a layer inserted in its name
 * at at, and of what is at rest[0..nrest) below it. */
int ofs_megatron_layer_path(struct ofs_megatron *m,
    const struct ofs_megatron_key *key, uint32_t at, uint64_t layer,
    const uint32_t *rest, uint32_t nrest, uint32_t *path,
    struct optimfs_error *err);

/* boxes.c */
/* The largest box of a d-dimensional block that begins at element lo and ends
 * at hi or before. Sets its position and sizes, and returns the number of its
 * elements. */
uint64_t ofs_megatron_next_box(const uint64_t *block, unsigned int d,
    uint64_t lo, uint64_t hi, uint64_t *at, uint64_t *size);
/* Makes s, whose extent is set, such a box: its elements follow each other from
 * element offset of an item of numel elements. */
int ofs_megatron_box(struct ofs_catalog *cat, unsigned int d,
    const uint64_t *at, const uint64_t *size, uint64_t offset, uint64_t numel,
    struct ofs_shard *s, struct optimfs_error *err);

/* blocks.c: for every entry, turns a state that is stored as flattened blocks
 * into shards of the parameter's shape. */
int ofs_megatron_blocks(struct ofs_megatron *m, struct optimfs_error *err);

/* stack.c: splits a stacked tensor into one tensor per layer. 1: done; 0: the
 * caller must place the entry unsplit. */
int ofs_megatron_unstack(struct ofs_megatron *m, uint32_t entry,
    const struct ofs_megatron_key *key, struct optimfs_error *err);

/* repeated.c: of values with equal paths and contents, keeps one. Paths must be
 * final. */
int ofs_megatron_drop_repeated(struct ofs_megatron *m,
    struct optimfs_error *err);

/* step.c: adds to each parameter's state the step that is recorded once per
 * optimizer. Paths must be final. */
int ofs_megatron_steps(struct ofs_megatron *m, struct optimfs_error *err);

#endif
