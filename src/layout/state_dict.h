/* state_dict.h - a section of the tree as the nested dicts that a program saves */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_STATE_DICT_H
#define OFS_LAYOUT_STATE_DICT_H

#include "base/buf.h"
#include "layout/archive_many.h"
#include "layout/render.h"
#include "pickle/write.h"

/* A dict, a list or a leaf. Children are linked in the order of entries. */
struct ofs_state_node {
	uint32_t key;   /* a component: a string, OFS_PATH_INDEX or'ed */
	uint32_t entry; /* OFS_NONE: a container */
	uint32_t parent, child, last, next;
	bool list;
	bool numbers; /* its keys are integers */
};

struct ofs_state {
	const struct ofs_catalog *cat;
	struct ofs_state_node *node; /* 0 is the root */
	uint32_t n, cap;
	bool optim; /* the section is */
};

/* What lies below section, without the section's name. */
int ofs_state_build(struct ofs_state *s, const struct ofs_render *from,
    const struct ofs_layout *to, const char *section,
    struct optimfs_error *err);
void ofs_state_fini(struct ofs_state *s);

/* The child of node that is called word; OFS_NONE. A node's key. */
uint32_t ofs_state_child(const struct ofs_state *s, uint32_t node,
    const char *word);
struct ofs_str ofs_state_key(const struct ofs_state *s, uint32_t node);

/* Pickle all of it, as to says. Each tensor becomes a storage of a, in the
 * order they come. */
int ofs_state_pickle(const struct ofs_state *s, const struct ofs_render *from,
    const struct ofs_layout *to, struct ofs_buf *out, struct ofs_torch_new *a,
    struct optimfs_error *err);

/* Its parts, for what is laid out another way. */
struct ofs_optim_groups;
struct ofs_state_pickler {
	const struct ofs_state *s;
	const struct ofs_render *from;
	struct ofs_pkw w;
	struct ofs_torch_new
	    *a; /* NULL: only to compare; tensors are numbers */
	/* Groups of an optimizer are a list of dicts, however the source has
	 * them; with ids parameters are numbers: keys=id. */
	bool optims, ids;
	struct ofs_optim_groups *groups; /* of optimizer node optim */
	uint32_t optim;
	struct optimfs_error *err;
};
void ofs_state_pickler_init(struct ofs_state_pickler *p,
    const struct ofs_state *s, const struct ofs_render *from,
    struct ofs_buf *out, struct ofs_torch_new *a, struct optimfs_error *err);
/* A node and all below it. */
int ofs_state_put(struct ofs_state_pickler *p, uint32_t node);
/* A leaf. */
int ofs_state_put_entry(struct ofs_state_pickler *p, const struct ofs_entry *e);
/* A list of dicts: the options of a group, then params. Of the name with index
 * i that is id[i], left out when negative; without id it is i, or the name
 * itself where p has no ids. */
int ofs_state_put_groups(struct ofs_state_pickler *p,
    const struct ofs_optim_groups *g, const int64_t *id);

#endif
