/* render_walk.c - the items that one rank of a DCP checkpoint stores */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "base/memory.h"
#include "format/dcp/dcp.h"
#include "format/dcp/render.h"

/* Tensors are cut along dim 0 as torch.chunk and FSDP2 do: chunks of ceil(rows
 * / shards); ranks beyond the last row have none. Tensors that are not cut go
 * to the ranks in turn, and so do replicas: of all ranks with a box, one stores
 * it.
 *
 * So a rank has every nranks-th leaf of those that are not cut, and every
 * replicas-th of those that are, unless they have too few chunks. Most of
 * thousands of ranks have no chunk of small tensors: the largest number of
 * chunks in each run of NEAR leaves allows a walk to skip the run. */

#define NEAR 64u

int ofs_dcp_walk_init(struct ofs_dcp_files *f, struct optimfs_error *err)
{
	f->most = calloc((size_t)f->nleaves / NEAR + 1, sizeof(*f->most));
	if (f->most == NULL)
		return ofs_no_memory(err);
	for (uint32_t i = 0; i < f->nleaves; i++) {
		const struct ofs_dcp_leaf *l = &f->leaf[i];

		if (l->rows != 0 && l->nchunks > f->most[i / NEAR])
			f->most[i / NEAR] = l->nchunks;
	}
	return 0;
}

/* The first number from i on that equals rest modulo n. */
static uint64_t next_of(uint64_t i, uint32_t n, uint32_t rest)
{
	return i + (rest + n - i % n) % n;
}

void ofs_dcp_walk_begin(struct ofs_dcp_walk *w, const struct ofs_dcp_files *f,
    uint32_t rank, enum ofs_dcp_kind kind, uint32_t leaf, uint64_t end)
{
	*w = (struct ofs_dcp_walk){
		.f = f,
		.rank = rank,
		.chunk = rank % f->to.shards,
		.copy = rank / f->to.shards,
		.whole = next_of(leaf, f->nranks, rank),
		.end = end,
		.kind = kind,
	};
	w->cut = next_of(leaf, f->to.replicas, w->copy);
}

/* The next leaf that is not cut. */
static uint64_t find_whole(struct ofs_dcp_walk *w)
{
	const struct ofs_dcp_files *f = w->f;

	for (; w->whole < f->nleaves; w->whole += f->nranks) {
		const struct ofs_dcp_leaf *l = &f->leaf[w->whole];

		if (l->rows == 0 &&
		    (l->nchunks == 0) == (w->kind == OFS_DCP_VALUES))
			break;
	}
	return w->whole;
}

static uint64_t find_cut(struct ofs_dcp_walk *w)
{
	const struct ofs_dcp_files *f = w->f;
	uint32_t step = f->to.replicas;

	while (w->cut < f->nleaves) {
		if (f->most[w->cut / NEAR] <= w->chunk) {
			w->cut =
			    next_of((w->cut / NEAR + 1) * NEAR, step, w->copy);
			continue;
		}
		if (f->leaf[w->cut].rows != 0 &&
		    f->leaf[w->cut].nchunks > w->chunk)
			break;
		w->cut += step;
	}
	return w->cut;
}

/* The next leaf of this kind. */
static bool find_leaf(struct ofs_dcp_walk *w)
{
	uint64_t whole = find_whole(w);
	uint64_t cut = w->kind == OFS_DCP_VALUES ? UINT64_MAX : find_cut(w);
	bool is_whole = whole < cut;

	if ((is_whole ? whole : cut) >= w->f->nleaves)
		return false;
	w->leaf = (uint32_t)(is_whole ? whole : cut);
	w->of_leaf = is_whole ? 0 : w->chunk;
	if (is_whole)
		w->whole += w->f->nranks;
	else
		w->cut += w->f->to.replicas;
	return true;
}

bool ofs_dcp_walk_next(struct ofs_dcp_walk *w)
{
	bool blobs = w->f->to.variant == OFS_DCP_BLOBS;

	if (w->kind == OFS_DCP_HEADER)
		ofs_dcp_walk_begin(w, w->f, w->rank, OFS_DCP_TENSORS, 0,
		    w->end);
	if (!find_leaf(w)) {
		if (w->kind == OFS_DCP_TENSORS)
			return false;
		w->kind = OFS_DCP_HEADER;
		return blobs || ofs_dcp_walk_next(w);
	}
	w->off = w->end;
	if (w->kind == OFS_DCP_VALUES || !blobs)
		w->off = ofs_dcp_place(&w->end,
		    ofs_dcp_stored_size(w->f, w->leaf, w->of_leaf));
	return true;
}
