/* ids.h - names for integer IDs */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_NAMING_IDS_H
#define OFS_NAMING_IDS_H

#include "naming/naming_impl.h"

/* ID i of an optimizer has the name at index i of this list. */
struct ofs_ids {
	uint32_t root; /* the optimizer */
	struct ofs_id {
		uint32_t name; /* string; OFS_NONE: unknown */
		uint32_t line; /* of the file; else the number of the ID + 1 */
		uint32_t group;
	} * v;
	uint32_t n, ngroups;
	uint32_t by_order; /* how many names rest on the order of the model */
	bool whole;        /* they are all parameters of the model */
	const char *file;  /* NULL: the names are from no file */
	uint32_t end;      /* its number of lines + 1 */
};

/* Find the optimizers whose keys are integers. Then: is a key of the state of
 * one an ID? */
void ofs_naming_integers(struct naming *c);
bool ofs_naming_is_id(const struct naming *c, uint32_t root, struct ofs_str key,
    uint32_t *id);
/* Find names for the IDs of every optimizer. */
int ofs_naming_ids(struct naming *c, struct optimfs_error *err);
/* The string for a key of the state; OFS_NONE when it has no name. */
uint32_t ofs_naming_id_name(const struct naming *c, uint32_t root,
    struct ofs_str id);

/* The evidence for names; ids.c has the table. Each fills *ids, whose v is the
 * caller's also after a failure. 1: it does not apply. */

/* ids_named.c: the file of ids=. EINVAL, EUCLEAN with the line: it does not
 * fit. */
int ofs_ids_of_file(struct naming *c, struct ofs_ids *ids,
    struct optimfs_error *err);
/* param_names of the groups, if all have it; a note says that it does not
 * fit. */
int ofs_ids_of_groups(struct naming *c, struct ofs_ids *ids,
    struct optimfs_error *err);
/* ids_model.c: the tensors of the model, for ids=model. EINVAL: there is not
 * exactly one way. */
int ofs_ids_of_model(struct naming *c, struct ofs_ids *ids,
    struct optimfs_error *err);

/* ids_shapes.c */

/* A tensor of the model by its listed name. */
struct ofs_ids_tensor {
	uint32_t name, entry;
};
/* *v, malloc'ed, gets them in the order of their files; a tied tensor once.
 * *order: what that says about the model. */
int ofs_ids_tensors(struct naming *c, struct ofs_ids_tensor **v, uint32_t *n,
    enum ofs_evidence *order, struct optimfs_error *err);

/* What the state of an ID says about the shape of its parameter. */
struct ofs_ids_state {
	uint32_t id;
	uint32_t entry;    /* a tensor for the whole parameter; OFS_NONE */
	uint32_t row, col; /* means over rows and columns; OFS_NONE */
	bool whole;        /* entry is the parameter itself, in float32 */
	bool projected;    /* entry may be smaller than the parameter */
};
/* *v, malloc'ed, gets one for each ID of an optimizer with state, sorted. */
int ofs_ids_states(struct naming *c, uint32_t root, struct ofs_ids_state **v,
    uint32_t *n, struct optimfs_error *err);
/* A number for the shape of a tensor: equal ones have equal numbers. */
uint64_t ofs_ids_shape(const struct naming *c, uint32_t tensor);
/* Does the state have the shape of the tensor? */
bool ofs_ids_same(const struct naming *c, uint32_t tensor,
    const struct ofs_ids_state *s);
/* May it be that of the tensor, which may be larger? Without a shape: never. */
bool ofs_ids_fit(const struct naming *c, uint32_t tensor,
    const struct ofs_ids_state *s);
/* Does the state tell any shape? */
static inline bool ofs_ids_tells(const struct ofs_ids_state *s)
{
	return s->entry != OFS_NONE ||
	    (s->row != OFS_NONE && s->col != OFS_NONE);
}
/* The shape of a tensor, or that which the state has. */
void ofs_ids_print(const struct naming *c, uint32_t tensor, char text[64]);
void ofs_ids_print_state(const struct naming *c, const struct ofs_ids_state *s,
    char text[64]);

/* ids_groups.c */

/* The list of this name ("params", "param_names") of a group of root, if entry
 * is one and is in memory; *group gets the number of the group. NULL for other
 * entries. */
const struct ofs_value *ofs_naming_list(const struct naming *c, uint32_t entry,
    uint32_t root, const char *name, uint32_t *group);
/* The groups of an optimizer, by their numbers. */
struct ofs_ids_groups {
	struct ofs_ids_group {
		const struct ofs_value *ids, *names; /* lists; NULL: unknown */
		bool low_rank;                       /* it has an option rank */
	} * v;
	uint32_t n, cap;
};
int ofs_ids_groups(struct naming *c, uint32_t root, struct ofs_ids_groups *g,
    struct optimfs_error *err);

#endif
