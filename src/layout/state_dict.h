/* state_dict.h - a section of the tree as the nested dicts of a program */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_STATE_DICT_H
#define OFS_LAYOUT_STATE_DICT_H

#include "base/buf.h"
#include "layout/archive.h"
#include "layout/render.h"
#include "pickle/write.h"

/* A dict, a list, a tuple or a leaf. Children are linked in the order of their
 * entries. */
struct ofs_state_node {
	uint32_t key;   /* component of a path */
	uint32_t entry; /* OFS_NONE for a container */
	uint32_t parent, child, last, next;
	bool list;
	uint32_t tuple; /* the number of items of a tuple, else 0 */
	bool numbers;   /* the keys are integers */
};

struct ofs_state {
	const struct ofs_catalog *cat;
	struct ofs_state_node *node; /* 0 is the root */
	uint32_t n, cap;
	bool optim; /* this is the section optim */
	bool ordered; /* the entries are in the order of a state dict */
};

/* Build it from the entries below section, without the name of the section. */
int ofs_state_build(struct ofs_state *s, const struct ofs_render *from,
    const struct ofs_layout *to, const char *section,
    struct optimfs_error *err);
/* The same from n entries, without the first skip components of their paths in
 * the tree. */
int ofs_state_build_of(struct ofs_state *s, const struct ofs_catalog *cat,
    const uint32_t *entries, uint32_t n, uint32_t skip, bool optim,
    struct optimfs_error *err);
void ofs_state_fini(struct ofs_state *s);

/* The child of node with key word, or OFS_NONE; the key of a node. */
uint32_t ofs_state_child(const struct ofs_state *s, uint32_t node,
    const char *word);
struct ofs_str ofs_state_key(const struct ofs_state *s, uint32_t node);
bool ofs_state_key_is(const struct ofs_state *s, uint32_t node,
    const char *word);

/* Make the archive of a section, "SECTION.pt" in the layout to: 1; 0: nothing is
 * in it. */
int ofs_state_archive(struct ofs_torch_new *a, const struct ofs_render *from,
    const struct ofs_layout *to, const char *section,
    struct optimfs_error *err);

/* The parts of this, for other layouts. */
struct ofs_optim_groups;
struct ofs_state_pickler {
	const struct ofs_state *s;
	const struct ofs_render *from;
	struct ofs_pkw w;
	struct ofs_torch_new
	    *a; /* NULL: the pickle is only compared; tensors are numbers */
	/* optims: groups of an optimizer are a list of dicts, in whatever form
	 * the source has them. ids: parameters are numbers (keys=id). */
	bool optims, ids;
	struct ofs_optim_groups *groups; /* the groups of node optim */
	uint32_t optim;
	struct optimfs_error *err;
};
void ofs_state_pickler_init(struct ofs_state_pickler *p,
    const struct ofs_state *s, const struct ofs_render *from,
    struct ofs_buf *out, struct ofs_torch_new *a, struct optimfs_error *err);
/* Pickle a node and all below it. */
int ofs_state_put(struct ofs_state_pickler *p, uint32_t node);
/* Pickle a leaf. */
int ofs_state_put_entry(struct ofs_state_pickler *p, const struct ofs_entry *e);
/* Pickle a list of dicts: the options of each group, then params. The parameter
 * with index i has the number id[i], and is left out when that is negative.
 * Without id it is i, or its name when p has no ids. */
int ofs_state_put_groups(struct ofs_state_pickler *p,
    const struct ofs_optim_groups *g, const int64_t *id);

#endif
