/* state.h - a section of the tree as the nested dicts that a program saves */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STATE_H
#define OFS_STATE_H

#include "buf.h"
#include "format/pickle_write.h"
#include "format/render.h"
#include "format/torch_new.h"

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
};

/* What lies below section, without the section's name. */
int ofs_state_build(struct ofs_state *s, const struct ofs_render *from,
    const struct ofs_layout *to, const char *section,
    struct optimfs_error *err);
void ofs_state_fini(struct ofs_state *s);

/* Pickle all of it. Each tensor becomes a storage of a, in the order they
 * come. */
int ofs_state_pickle(const struct ofs_state *s, const struct ofs_render *from,
    const struct ofs_layout *to, struct ofs_buf *out, struct ofs_torch_new *a,
    struct optimfs_error *err);

#endif
