/* ids.h - names for integer IDs */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_NAMING_IDS_H
#define OFS_NAMING_IDS_H

#include "naming/naming_impl.h"

/* ID i is the name at index i of this list, counted over all groups. */
struct ofs_ids {
	const char *file;
	struct ofs_id {
		uint32_t name; /* string; OFS_NONE: unknown */
		uint32_t line, group;
	} * v;
	uint32_t n, ngroups;
	/* current line while reading, then the number of lines + 1 */
	uint32_t line;
};

/* Read the names that ids= gives, and check them against the optimizer. */
int ofs_naming_ids(struct naming *c, struct optimfs_error *err);
/* The string that ids= gives to a key of the state; OFS_NONE when there is
 * none. */
uint32_t ofs_naming_id_name(const struct naming *c, uint32_t root,
    struct ofs_str id);

/* ids_shapes.c: tensors with the shape of their parameter. */
struct ofs_shapes {
	struct ofs_shaped {
		uint32_t key;   /* of the model: a string; of a state: the ID */
		uint32_t entry; /* OFS_NONE: the ID has no such tensor */
	} * v;
	uint32_t n, cap;
};

void ofs_shapes_sort(struct ofs_shapes *s);
/* The tensors of the model by their listed names, in the order of the model; a
 * tied tensor once. */
int ofs_shapes_of_model(struct naming *c, struct ofs_shapes *s,
    struct optimfs_error *err);
/* One for each ID of c->ids_root, sorted by ID. */
int ofs_shapes_of_state(struct naming *c, struct ofs_shapes *s,
    struct optimfs_error *err);
bool ofs_shapes_same(const struct naming *c, uint32_t a, uint32_t b);
void ofs_shapes_print(const struct naming *c, uint32_t entry, char text[64]);

/* ids_check.c. Check ids against the optimizer c->ids_root. EINVAL with the
 * line. */
int ofs_naming_check_ids(struct naming *c, const struct ofs_ids *ids,
    struct optimfs_error *err);
/* The parameter list of a group of root, if entry is one and is already in
 * memory; *group gets the number of the group. NULL for other entries. */
const struct ofs_value *ofs_naming_params(const struct naming *c,
    uint32_t entry, uint32_t root, uint32_t *group);

/* ids_model.c: fill *ids for ids=model. */
int ofs_naming_ids_of_model(struct naming *c, struct ofs_ids *ids,
    struct optimfs_error *err);

#endif
