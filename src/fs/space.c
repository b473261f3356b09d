/* space.c - mirrors: the tree's nodes shown once more as something else */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "fs/fs.h"

static void set(uint64_t *bits, uint32_t i)
{
	bits[i / 64] |= (uint64_t)1 << (i % 64);
}

static bool get(const uint64_t *bits, uint32_t i)
{
	return bits[i / 64] >> (i % 64) & 1;
}

/* Files that the mirror holds, and the directories on the way to them. The
 * root is always there: it has a name in .optimfs. */
static uint64_t *make_present(const struct optimfs *fs,
    const struct ofs_space *s)
{
	const struct ofs_tree *tree = &fs->tree;
	uint64_t *bits = calloc((size_t)tree->n / 64 + 1, sizeof(*bits));

	if (bits == NULL)
		return NULL;
	set(bits, 0);
	for (uint32_t i = 0; i < tree->n; i++) {
		uint32_t entry = tree->node[i].entry;

		if (entry == OFS_NONE ||
		    !s->ops->holds(fs, s, &fs->cat->entries[entry]))
			continue;
		for (uint32_t up = i; !get(bits, up);
		     up = tree->node[up].parent)
			set(bits, up);
	}
	return bits;
}

int ofs_space_has(struct optimfs *fs, struct ofs_space *s, uint32_t index,
    struct optimfs_error *err)
{
	uint64_t *bits;

	if (s->ops->holds == NULL)
		return 1;
	bits = atomic_load_explicit(&s->present, memory_order_acquire);
	if (bits == NULL) {
		pthread_mutex_lock(&fs->lock);
		bits = atomic_load(&s->present);
		if (bits == NULL) {
			bits = make_present(fs, s);
			atomic_store_explicit(&s->present, bits,
			    memory_order_release);
		}
		pthread_mutex_unlock(&fs->lock);
	}
	if (bits == NULL)
		return optimfs_fail(err, ENOMEM, "names of a mirror");
	return get(bits, index);
}

static void make_inos(struct optimfs *fs)
{
	uint64_t *ino = fs->static_ino;

	ino[OFS_STATIC_TOP] = ofs_tree_ino(fs->tree.node[0].ino,
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

int ofs_spaces_init(struct optimfs *fs, struct optimfs_error *err)
{
	char name[16];
	int *ranks;
	size_t n;

	if (ofs_all_ranks(fs->cat, &ranks, &n, err) == -1)
		return -1;
	fs->space = calloc(OFS_SPACE_RANK + n, sizeof(*fs->space));
	if (fs->space == NULL) {
		free(ranks);
		return optimfs_fail(err, ENOMEM, "table of %zu ranks", n);
	}
	make_inos(fs);
	fs->nspaces = OFS_SPACE_RANK + (uint32_t)n;
	fs->space[OFS_SPACE_TREE] = (struct ofs_space){ .ops = &ofs_space_tree,
		.ino = fs->tree.node[0].ino };
	fs->space[OFS_SPACE_LAYOUT] = (struct ofs_space){
		.ops = &ofs_space_layout,
		.ino = fs->static_ino[OFS_STATIC_LAYOUT],
	};
	fs->space[OFS_SPACE_NPY] = (struct ofs_space){ .ops = &ofs_space_npy,
		.ino = fs->static_ino[OFS_STATIC_NPY] };
	fs->space[OFS_SPACE_NPY32] = (struct ofs_space){
		.ops = &ofs_space_npy32,
		.ino = fs->static_ino[OFS_STATIC_NPY32],
	};
	fs->space[OFS_SPACE_STAT] = (struct ofs_space){ .ops = &ofs_space_stat,
		.ino = fs->static_ino[OFS_STATIC_STAT] };
	for (size_t i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "%d", ranks[i]);
		fs->space[OFS_SPACE_RANK + i] = (struct ofs_space){
			.ops = &ofs_space_rank,
			.rank = ranks[i],
			.ino =
			    ofs_tree_ino(fs->static_ino[OFS_STATIC_RANK], name),
		};
	}
	free(ranks);
	return 0;
}

void ofs_spaces_fini(struct optimfs *fs)
{
	for (uint32_t i = 0; i < fs->nspaces; i++) {
		free(fs->space[i].present);
		free(fs->space[i].order);
	}
	free(fs->space);
	fs->space = NULL;
	fs->nspaces = 0;
}
