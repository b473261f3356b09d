/* family_impl.h - the state of renaming */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FAMILY_FAMILY_IMPL_H
#define OFS_FAMILY_FAMILY_IMPL_H

#include <stdbool.h>
#include <stdint.h>

#include "family/facts.h"
#include "family/family.h"
#include "family/rules.h"

/* What a rule says of a name. */
struct ofs_verdict {
	enum {
		OFS_NAME_UNKNOWN, /* no rule covers it */
		OFS_NAME_SAME,    /* it is one of the names that are wanted */
		OFS_NAME_OUT,     /* left out */
		OFS_NAME_SPLIT,   /* it becomes the parts of the rule */
		OFS_NAME_JOIN,    /* it is one of them */
	} kind;
	const struct ofs_family_rule *rule;
	uint32_t star[OFS_FAMILY_STARS];
	unsigned part; /* OFS_NAME_JOIN: which part, and of which layer */
	uint32_t layer;
};

/* A tensor of the result that is joined from several: its entries, as a list. */
struct ofs_family_group {
	uint32_t tree; /* its path */
	const struct ofs_family_rule *rule;
	uint32_t member, nmembers; /* the first; how many */
	uint32_t first; /* entry of the source, whose place it takes */
};
struct ofs_family_member {
	uint32_t entry, layer, part, next;
};

struct ofs_renaming {
	const struct ofs_catalog *base;
	struct ofs_catalog *cat;
	struct ofs_reader *reader; /* of base */
	const struct ofs_model_files *source;
	const struct ofs_families *families;
	const struct ofs_family *family;
	struct ofs_facts facts;
	bool back, lean, bare;
	uint32_t *shape_of; /* of each string that is a name: a tensor of the
			     * parameter's shape; OFS_NONE: unknown, or no name */
	uint8_t *is_name;   /* of each string of base */
	uint32_t *to;       /* of each entry of base: the one it became */
	struct ofs_family_group *group;
	uint32_t ngroups, group_cap;
	uint32_t *group_of;    /* of each entry of base; OFS_NONE */
	struct ofs_map groups; /* by tree path */
	struct ofs_family_member *member;
	uint32_t nmembers, member_cap;
	uint32_t nchanged; /* names that a rule covers */
	struct ofs_renamed *out;
	struct optimfs_error *err;
};

/* lookup.c */

/* The index of the parameter's name in the tree path of an entry; OFS_NONE: it
 * is of none. */
uint32_t ofs_renaming_name_at(const struct ofs_catalog *cat,
    const struct ofs_entry *e);
/* Is it a list of names of parameters in a group of the optimizer? */
bool ofs_renaming_is_list(const struct ofs_catalog *cat,
    const struct ofs_entry *e);
/* What becomes of the name that is this string of the catalog? -1: ENOMEM. */
int ofs_renaming_look_up(struct ofs_renaming *r, struct ofs_str name,
    struct ofs_verdict *v);
/* How many layers the tensors of a name have that a stacked rule splits: 1
 * without a stack. 0: unknown. */
uint64_t ofs_renaming_layers(const struct ofs_renaming *r,
    const struct ofs_verdict *v, uint32_t name);
/* The name of a part of a layer, or with OFS_NAME_JOIN of the whole; a string of
 * the catalog, or OFS_NONE. */
uint32_t ofs_renaming_part_name(struct ofs_renaming *r,
    const struct ofs_verdict *v, uint64_t layer, unsigned part);

/* family.c: add an entry as e, with another place in the tree. */
int ofs_renaming_add(struct ofs_renaming *r, const struct ofs_entry *e,
    uint32_t tree, enum ofs_entry_kind kind, uint32_t ref);
/* Another tensor with the elements of this one; OFS_NONE. */
uint32_t ofs_renaming_twin(struct ofs_renaming *r, uint32_t tensor);
/* Has the tensor one element, which every part of its parameter has as it is? */
bool ofs_renaming_is_single(const struct ofs_catalog *cat,
    const struct ofs_tensor *t);
/* Is the tensor what the rule makes of it without being cut? */
bool ofs_renaming_is_whole(const struct ofs_family_rule *rule);

/* split.c: the entries that one becomes. */
int ofs_renaming_split(struct ofs_renaming *r, const struct ofs_entry *e,
    uint32_t at, const struct ofs_verdict *v);

/* join.c */

/* Note an entry that is to be joined with others. */
int ofs_renaming_join(struct ofs_renaming *r, uint32_t entry, uint32_t at,
    const struct ofs_verdict *v);
/* Add what they become. */
int ofs_renaming_joined(struct ofs_renaming *r, struct ofs_family_group *g);

/* lists.c: a list of names with the names of the result; *value gets it, or
 * OFS_NONE if it is none. */
int ofs_renaming_list(struct ofs_renaming *r, const struct ofs_entry *e,
    uint32_t *value);

#endif
