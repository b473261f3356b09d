/* moves.h - which keys of a pickle's dicts change when entries get new names */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_TORCH_MOVES_H
#define OFS_FORMAT_TORCH_MOVES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "rewrite/route.h"

/* An entry of the pickle that gets another name, or is removed. */
struct ofs_torch_move {
	const struct ofs_key *from, *to; /* to NULL: it is removed */
	uint32_t n;                      /* components of each */

	/* Results. renamed: the key of this pair becomes to[at], and nothing
	 * else has to be done. covered: it goes with the pair, which is
	 * dropped, because another one takes its name. */
	bool renamed, covered;
	uint32_t node, item, at;
};

/* A key is changed where all that is below it moves in the same way, or is
 * removed. The values stay as they are stored, whatever their classes. Moves
 * for which this is impossible stay without a result. */
int ofs_torch_moves(struct ofs_routes *routes, struct ofs_torch_move *v,
    size_t n, struct optimfs_error *err);

#endif
