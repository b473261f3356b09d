/* flat_model.h - parameters that a layout flattens, and their state */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_FLAT_MODEL_H
#define OFS_LAYOUT_FLAT_MODEL_H

#include "layout/flat.h"
#include "layout/optim_groups.h"
#include "layout/render.h"
#include "layout/state_dict.h"

/* FSDP1 and ZeRO lay parameters end to end and cut what comes out over ranks;
 * the optimizer's state of each is cut as the parameter is. */

/* State of a parameter under one name. */
struct ofs_flat_state {
	const char *name; /* of the catalog */
	uint32_t entry;
};

struct ofs_flat_member {
	struct ofs_str fqn;
	uint32_t model; /* entry of its weights; OFS_NONE */
	uint32_t flat;  /* which flat parameter it is laid into */
	uint32_t id;    /* in groups; OFS_NONE: of no group */
	const uint64_t *shape;
	unsigned ndim;
	uint32_t state, nstates; /* a run of the model's state */
};

/* Zero-initialise but for the first four members. */
struct ofs_flat_model {
	struct ofs_render from;
	const struct ofs_catalog *cat;
	struct ofs_layout to;
	const char *code; /* "OFSnnn" of what cannot be cut */

	struct ofs_state optim; /* the section */
	bool has_optim;
	struct ofs_optim_groups groups;
	struct ofs_flat_member *param;
	uint32_t nparams;
	struct ofs_flat_state *state;
	uint32_t nstates, state_cap;
	bool *scalar; /* of each entry: cut, though without dimensions; NULL */
};

void ofs_flat_model_fini(struct ofs_flat_model *m);
/* Read the optimizer's section: its groups, and nothing of its parameters yet.
 * It may have none. EOPNOTSUPP with the text several: there is more than one
 * optimizer. */
int ofs_flat_read_groups(struct ofs_flat_model *m, const char *several,
    struct optimfs_error *err);
/* Then all state of param: of_id[i] is the one with ID i, NULL: i is. What is
 * cut comes behind what is not, as PyTorch's optimizers have it. take may keep
 * a state elsewhere; NULL. */
typedef bool ofs_flat_take_fn(void *ctx, uint32_t param, const char *name,
    uint32_t entry);
int ofs_flat_read_states(struct ofs_flat_model *m, const uint32_t *of_id,
    ofs_flat_take_fn *take, void *ctx, struct optimfs_error *err);

/* The tensor of an entry. */
static inline const struct ofs_tensor *ofs_flat_tensor(const struct
    ofs_flat_model *m,
    uint32_t entry)
{
	return &m->cat->tensors[m->cat->entries[entry].ref];
}
/* Is a state cut with its parameter? Not OFS_NONE. */
static inline bool ofs_flat_is_cut(const struct ofs_flat_model *m,
    uint32_t entry)
{
	return entry != OFS_NONE &&
	    m->cat->entries[entry].kind == OFS_ENTRY_TENSOR &&
	    (ofs_flat_tensor(m, entry)->ndim > 0 ||
		(m->scalar != NULL && m->scalar[entry]));
}
/* The state of a parameter called name; NULL. */
const struct ofs_flat_state *ofs_flat_find(const struct ofs_flat_model *m,
    uint32_t param, const char *name);
bool ofs_flat_same_shape(const struct ofs_flat_model *m, uint32_t param,
    uint32_t entry);
/* A tensor that is cut as its parameter is: sound, and of its shape. */
int ofs_flat_check(const struct ofs_flat_model *m, uint32_t param,
    uint32_t entry, struct optimfs_error *err);
/* Can entries a and b be the same state of two parameters that are flattened
 * together? Both are cut, and of one type, or have one value. 1: yes; 0: no;
 * -1: failed. */
int ofs_flat_alike(const struct ofs_flat_model *m, uint32_t a, uint32_t b,
    struct optimfs_error *err);

/* A rank's part of a flat parameter: a storage of a that is being made. */
struct ofs_flat_storage {
	struct ofs_torch_new *a;
	const struct ofs_catalog *cat;
	uint32_t item; /* bytes of an element */
	uint64_t n;    /* elements so far */
};
/* Elements of these bits up to element end. */
int ofs_flat_pad(struct ofs_flat_storage *s, uint64_t end, uint64_t bits,
    struct optimfs_error *err);
/* A slice of a tensor, OFS_NONE: zeros; before it elements of these bits.
 * Nothing where the slice is empty. */
int ofs_flat_put(struct ofs_flat_storage *s, const struct ofs_flat_slice *slice,
    uint32_t tensor, enum ofs_dtype cast, uint64_t bits,
    struct optimfs_error *err);

#endif
