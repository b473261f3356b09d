/* flat_model.h - parameters that a layout flattens, and their state */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_FLAT_MODEL_H
#define OFS_LAYOUT_FLAT_MODEL_H

#include "layout/flat.h"
#include "layout/optim_groups.h"
#include "layout/render.h"
#include "layout/state_dict.h"

/* FSDP1 and ZeRO lay parameters end to end and cut the result over ranks. The
 * optimizer state of each parameter is cut in the same way. */

/* One state of a parameter. */
struct ofs_flat_state {
	const char *name; /* borrowed from the catalog */
	uint32_t entry;
};

struct ofs_flat_member {
	struct ofs_str fqn;
	uint32_t model; /* entry of its weights, or OFS_NONE */
	uint32_t flat;  /* index of its flat parameter */
	uint32_t id;    /* ID in groups; OFS_NONE: in no group */
	const uint64_t *shape;
	unsigned ndim;
	uint32_t state, nstates; /* its run in the state of the model */
};

/* Set the first four members, and zero-initialise the others. */
struct ofs_flat_model {
	struct ofs_render from;
	const struct ofs_catalog *cat;
	struct ofs_layout to;
	const char *code; /* "OFSnnn" for errors about what cannot be cut */

	struct ofs_state optim; /* the section optim */
	bool has_optim;
	struct ofs_optim_groups groups;
	struct ofs_flat_member *param;
	uint32_t nparams;
	struct ofs_flat_state *state;
	uint32_t nstates, state_cap;
	/* of each entry: a 0-dim tensor that is cut nevertheless; or NULL */
	bool *scalar;
};

void ofs_flat_model_fini(struct ofs_flat_model *m);
/* Read the optimizer section, if there is one: only its groups. EOPNOTSUPP with
 * the text several when there is more than one optimizer. */
int ofs_flat_read_groups(struct ofs_flat_model *m, const char *several,
    struct optimfs_error *err);
/* Then read all state of param; of_id[i] is the index in param of ID i, or
 * of_id is NULL when they are equal. State that is cut comes after the rest, as
 * in PyTorch's optimizers. take, which may be NULL, returns true for a state
 * that the caller stores itself. */
typedef bool ofs_flat_take_fn(void *ctx, uint32_t param, const char *name,
    uint32_t entry);
int ofs_flat_read_states(struct ofs_flat_model *m, const uint32_t *of_id,
    ofs_flat_take_fn *take, void *ctx, struct optimfs_error *err);

/* The tensor of an entry, which must be one. */
static inline const struct ofs_tensor *ofs_flat_tensor(const struct
    ofs_flat_model *m,
    uint32_t entry)
{
	return &m->cat->tensors[m->cat->entries[entry].ref];
}
/* Is a state cut like its parameter? False for OFS_NONE. */
static inline bool ofs_flat_is_cut(const struct ofs_flat_model *m,
    uint32_t entry)
{
	return entry != OFS_NONE &&
	    m->cat->entries[entry].kind == OFS_ENTRY_TENSOR &&
	    (ofs_flat_tensor(m, entry)->ndim > 0 ||
		(m->scalar != NULL && m->scalar[entry]));
}
/* The state of a parameter with this name, or NULL. */
const struct ofs_flat_state *ofs_flat_find(const struct ofs_flat_model *m,
    uint32_t param, const char *name);
bool ofs_flat_same_shape(const struct ofs_flat_model *m, uint32_t param,
    uint32_t entry);
/* Check a tensor that is cut like its parameter: undamaged, and of the same
 * shape. */
int ofs_flat_check(const struct ofs_flat_model *m, uint32_t param,
    uint32_t entry, struct optimfs_error *err);
/* Can entries a and b be the same state of two parameters in one flat
 * parameter? Both must be cut and of one type, or both have one value. 1: yes;
 * 0: no; -1: failed. */
int ofs_flat_alike(const struct ofs_flat_model *m, uint32_t a, uint32_t b,
    struct optimfs_error *err);

/* A storage of a that is being built: a rank's part of a flat parameter. */
struct ofs_flat_storage {
	struct ofs_torch_new *a;
	const struct ofs_catalog *cat;
	uint32_t item; /* bytes of an element */
	uint64_t n;    /* number of elements so far */
};
/* Append elements with these bits up to element end. */
int ofs_flat_pad(struct ofs_flat_storage *s, uint64_t end, uint64_t bits,
    struct optimfs_error *err);
/* Append a slice of a tensor (OFS_NONE: zeros), after padding of these bits up
 * to its start. An empty slice adds nothing. */
int ofs_flat_put(struct ofs_flat_storage *s, const struct ofs_flat_slice *slice,
    uint32_t tensor, enum ofs_dtype cast, uint64_t bits,
    struct optimfs_error *err);

#endif
