/* space.c - mirrors: the nodes of the tree with other contents */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "fs/fs.h"

static void set(uint64_t *bits, uint32_t i)
{
	bits[i / 64] |= (uint64_t)1 << (i % 64);
}

static bool get(const uint64_t *bits, uint32_t i)
{
	return bits[i / 64] >> (i % 64) & 1;
}

/* Marks the files that the mirror has and the directories above them. The root
 * always exists: it has a name in .optimfs. */
static void *make_present(const struct ofs_snapshot *snap,
    const struct ofs_space *s)
{
	const struct ofs_tree *tree = &snap->tree;
	uint64_t *bits = calloc((size_t)tree->n / 64 + 1, sizeof(*bits));

	if (bits == NULL)
		return NULL;
	set(bits, 0);
	for (uint32_t i = 0; i < tree->n; i++) {
		uint32_t entry = tree->node[i].entry;

		if (entry == OFS_NONE ||
		    !s->ops->holds(snap, s, &snap->cat->entries[entry]))
			continue;
		for (uint32_t up = i; !get(bits, up);
		     up = tree->node[up].parent)
			set(bits, up);
	}
	return bits;
}

const void *ofs_space_table(struct ofs_snapshot *snap,
    const struct ofs_space *s, _Atomic(void *) *table,
    void *(*make)(const struct ofs_snapshot *snap, const struct ofs_space *s),
    struct optimfs_error *err)
{
	void *made = atomic_load_explicit(table, memory_order_acquire);

	if (made == NULL) {
		pthread_mutex_lock(&snap->fs->lock);
		made = atomic_load(table);
		if (made == NULL) {
			made = make(snap, s);
			atomic_store_explicit(table, made,
			    memory_order_release);
		}
		pthread_mutex_unlock(&snap->fs->lock);
	}
	if (made == NULL)
		ofs_no_memory(err);
	return made;
}

int ofs_space_has(struct ofs_snapshot *snap, struct ofs_space *s,
    uint32_t index, struct optimfs_error *err)
{
	const uint64_t *bits;

	if (s->ops->holds == NULL)
		return 1;
	bits = ofs_space_table(snap, s, &s->present, make_present, err);
	return bits == NULL ? -1 : get(bits, index);
}

static void make_inos(struct ofs_snapshot *snap)
{
	uint64_t *ino = snap->static_ino;

	ino[OFS_STATIC_TOP] = ofs_tree_ino(ofs_tree_node_ino(&snap->tree, 0),
	    ofs_static_nodes[OFS_STATIC_TOP].name);
	for (int i = OFS_STATIC_TOP + 1; i < OFS_NSTATIC; i++)
		ino[i] =
		    ofs_tree_ino(ino[OFS_STATIC_TOP], ofs_static_nodes[i].name);
}

const char *ofs_mirror_root(uint32_t space)
{
	for (int i = 0; i < OFS_NSTATIC; i++)
		if (ofs_static_nodes[i].space == space)
			return ofs_static_nodes[i].name;
	return "rank";
}

int ofs_spaces_init(struct ofs_snapshot *snap, struct optimfs_error *err)
{
	static const struct ofs_space_ops *const mirrors[OFS_SPACE_RANK] = {
		[OFS_SPACE_TREE] = &ofs_space_tree,
		[OFS_SPACE_LAYOUT] = &ofs_space_layout,
		[OFS_SPACE_NPY] = &ofs_space_npy,
		[OFS_SPACE_NPY32] = &ofs_space_npy32,
		[OFS_SPACE_STAT] = &ofs_space_stat,
		[OFS_SPACE_F32] = &ofs_space_f32,
	};
	char name[16];
	int *ranks;
	size_t n;

	if (ofs_all_ranks(snap->cat, &ranks, &n, err) == -1)
		return -1;
	snap->space = calloc(OFS_SPACE_RANK + n, sizeof(*snap->space));
	if (snap->space == NULL) {
		free(ranks);
		return ofs_no_memory(err);
	}
	make_inos(snap);
	snap->nspaces = OFS_SPACE_RANK + (uint32_t)n;
	snap->space[OFS_SPACE_TREE].ino = ofs_tree_node_ino(&snap->tree, 0);
	for (int i = 0; i < OFS_NSTATIC; i++)
		if (ofs_static_nodes[i].space != OFS_SPACE_TREE)
			snap->space[ofs_static_nodes[i].space].ino =
			    snap->static_ino[i];
	for (uint32_t i = 0; i < OFS_SPACE_RANK; i++)
		snap->space[i].ops = mirrors[i];
	for (size_t i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%d", ranks[i]);
		snap->space[OFS_SPACE_RANK + i] = (struct ofs_space){
			.ops = &ofs_space_rank,
			.rank = ranks[i],
			.ino = ofs_tree_ino(snap->static_ino[OFS_STATIC_RANK],
			    name),
		};
	}
	free(ranks);
	return 0;
}

void ofs_spaces_fini(struct ofs_snapshot *snap)
{
	for (uint32_t i = 0; i < snap->nspaces; i++) {
		free(snap->space[i].present);
		free(snap->space[i].order);
	}
	free(snap->space);
	snap->space = NULL;
	snap->nspaces = 0;
}
