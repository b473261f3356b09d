/* ids.h - names for integer IDs */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_NAMING_IDS_H
#define OFS_NAMING_IDS_H

#include "naming/naming_impl.h"

/* IDs are places in this list: 0, 1, ... over all groups. */
struct ofs_ids {
	const char *file;
	struct ofs_id {
		uint32_t name; /* string; OFS_NONE: not known */
		uint32_t line, group;
	} * v;
	uint32_t n, ngroups;
	uint32_t line; /* while it is read; then the one after the last */
};

/* Read what ids= names, and match it with the optimizer. */
int ofs_naming_ids(struct naming *c, struct optimfs_error *err);
/* The string that ids= calls a state's key; OFS_NONE: nothing. */
uint32_t ofs_naming_id_name(const struct naming *c, uint32_t root,
    struct ofs_str id);

/* ids_shapes.c: tensors that are shaped as their parameter. */
struct ofs_shapes {
	struct ofs_shaped {
		uint32_t key;   /* the model's: a string; a state's: its ID */
		uint32_t entry; /* OFS_NONE for an ID that has no such tensor */
	} * v;
	uint32_t n, cap;
};

int ofs_shapes_add(struct ofs_shapes *s, uint32_t key, uint32_t entry,
    struct optimfs_error *err);
void ofs_shapes_sort(struct ofs_shapes *s);
/* The model's, by the names they are listed by, in the model's order, each
 * tied one once. */
int ofs_shapes_of_model(struct naming *c, struct ofs_shapes *s,
    struct optimfs_error *err);
/* One for each ID of c->ids_root, sorted by ID. */
int ofs_shapes_of_state(struct naming *c, struct ofs_shapes *s,
    struct optimfs_error *err);
bool ofs_shapes_same(const struct naming *c, uint32_t a, uint32_t b);
void ofs_shapes_print(const struct naming *c, uint32_t entry, char text[64]);

/* ids_check.c. Do they fit the optimizer c->ids_root? EINVAL with the
 * line. */
int ofs_naming_check_ids(struct naming *c, const struct ofs_ids *ids,
    struct optimfs_error *err);
/* The list of parameters of a group of root, where it is a value that is known
 * without reading; *group gets the group's number. NULL for other entries. */
const struct ofs_value *ofs_naming_params(const struct naming *c,
    uint32_t entry, uint32_t root, uint32_t *group);

/* ids_model.c. ids=model: fill *ids. */
int ofs_naming_ids_of_model(struct naming *c, struct ofs_ids *ids,
    struct optimfs_error *err);

#endif
