/* layout.h - how ZeRO lays parameters out over ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_ZERO_LAYOUT_H
#define OFS_FORMAT_ZERO_LAYOUT_H

#include <stdint.h>

#include "optimfs/error.h"

#include "base/keys.h"
#include "layout/flat.h"
#include "pickle/pickle.h"

/* Names and shapes in their order in flat groups, from param_shapes of a
 * model's file. Strings are borrowed from its document. */
struct ofs_zero_param {
	struct ofs_str name;
	uint32_t group;
	uint32_t ndim;
	const uint64_t *shape;
};

/* The ranks that share a group. With experts (experts.c) the ranks are divided
 * into sets, each of which has its own experts: the files have one group, which
 * is one here for each set. */
struct ofs_zero_cut {
	uint32_t number;     /* of the group in the files */
	uint32_t ranks;      /* of a set */
	uint32_t nsets, set; /* the number of sets, and the one of the group */
};

struct ofs_zero_shapes {
	struct ofs_zero_param *param; /* of all groups, concatenated */
	uint64_t *numel;
	uint64_t *dims;
	uint32_t *first; /* of each group, and the end */
	/* of each group; NULL: all ranks share each group */
	struct ofs_zero_cut *cut;
	struct ofs_keys names;
	uint32_t n, ngroups;
};

/* Reads a list of dicts of name and torch.Size, or one such dict. EUCLEAN
 * (OFS695): something else, or a duplicate name. */
int ofs_zero_shapes_read(struct ofs_zero_shapes *s,
    const struct ofs_pickle *doc, uint32_t node, struct optimfs_error *err);
void ofs_zero_shapes_fini(struct ofs_zero_shapes *s);
/* Replaces the names, of which there must be one of each. */
int ofs_zero_shapes_index(struct ofs_zero_shapes *s, struct optimfs_error *err);
/* The number of a group in the files, and the number of those groups. */
uint32_t ofs_zero_number(const struct ofs_zero_shapes *s, uint32_t group);
uint32_t ofs_zero_numbers(const struct ofs_zero_shapes *s);
/* Are these limits of what is read exceeded? E2BIG (OFS695). */
int ofs_zero_check_size(uint64_t nparams, uint64_t ngroups,
    struct optimfs_error *err);
/* The parameter with this name; OFS_NONE: none. */
uint32_t ofs_zero_find(const struct ofs_zero_shapes *s, struct ofs_str name);
/* The group of a parameter; OFS_NONE: there is no such parameter. */
uint32_t ofs_zero_group(const struct ofs_zero_shapes *s, struct ofs_str name);

/* Where ranks store the parameters. docs/formats/deepspeed.md has the
 * arithmetic. */
struct ofs_zero_layout {
	const struct ofs_zero_shapes *shapes;
	int stage;             /* 3; 2 also for stage 1 and BF16_Optimizer */
	uint32_t world;        /* ranks that share a group without a cut */
	/* the ranks of a set follow each other; else every nsets-th is in it */
	bool blocks;
	struct ofs_flat *flat; /* stage 2: of each group */
	uint64_t *slot;        /* stage 3: offset of each parameter */
	uint64_t *total;       /* stage 3: elements of each group */
};

/* shapes is borrowed. EUCLEAN (OFS606): the number of elements overflows. */
int ofs_zero_layout_init(struct ofs_zero_layout *l,
    const struct ofs_zero_shapes *shapes, int stage, uint32_t world,
    struct optimfs_error *err);
void ofs_zero_layout_fini(struct ofs_zero_layout *l);
/* The place of a rank among those that share a group; OFS_NONE: it does not. The
 * functions below with a rank are for those that do. */
uint32_t ofs_zero_place(const struct ofs_zero_layout *l, uint32_t group,
    uint32_t rank);
/* The slice of a parameter that any rank holds; at is the offset in the rank's
 * part of the parameter's group. */
struct ofs_flat_slice ofs_zero_slice(const struct ofs_zero_layout *l,
    uint32_t param, uint32_t rank);
/* The same in stages 1 and 2 for a state that a rank keeps in full for every
 * parameter that it has a part of, end to end; *total gets their elements. The
 * rank must have a part of the parameter. */
struct ofs_flat_slice ofs_zero_whole(const struct ofs_zero_layout *l,
    uint32_t param, uint32_t rank, uint64_t *total);
/* Elements of a rank's part of a group; *lean gets their number without the
 * padding at the end. */
uint64_t ofs_zero_part(const struct ofs_zero_layout *l, uint32_t group,
    uint32_t rank, uint64_t *lean);

/* One rank's optimizer. */
struct ofs_zero_optim {
	const struct ofs_pickle *doc;
	int stage;      /* 3; 2 for stages 1 and 2, */
	uint32_t world; /* partition_count, the highest of all groups */
	uint32_t counts; /* partition_count of each group: a list; OFS_NONE */
	uint32_t state; /* the dict with all of it */
	uint32_t fp32;  /* list of flat groups */
	uint32_t base;  /* {state, param_groups}; a list if elastic */
	uint32_t ngroups;
};

/* EUCLEAN (OFS695), EOPNOTSUPP (OFS696): groups of AutoEP. */
int ofs_zero_optim_read(struct ofs_zero_optim *o, const struct ofs_pickle *doc,
    struct optimfs_error *err);
/* Is node a number of ranks? *world gets it. */
bool ofs_zero_world(const struct ofs_pickle *doc, uint32_t node,
    int64_t *world);
/* The stage in ZeroStageEnum(2), or in its attribute "gradients", as newer
 * Pythons pickle members; 0: node is no stage. */
int ofs_zero_stage_of(const struct ofs_pickle *doc, uint32_t node);
/* The dict of a group's state; OFS_NONE: none. */
uint32_t ofs_zero_state(const struct ofs_zero_optim *o, uint32_t group);
/* Checks the recorded padding and fragments of a group against the layout:
 * EUCLEAN (OFS161, OFS675). */
int ofs_zero_check(const struct ofs_zero_optim *o,
    const struct ofs_zero_layout *l, uint32_t group, uint32_t rank,
    struct optimfs_error *err);

#endif
