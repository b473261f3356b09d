/* quant_state.h - what bitsandbytes says about a weight of 4 bits */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_DERIVE_QUANT_STATE_H
#define OFS_DERIVE_QUANT_STATE_H

#include <stdint.h>

#include "optimfs/error.h"

#include "base/types.h"

/* The longest text that is parsed, in bytes. */
#define OFS_QUANT_STATE_MAX 4096u

struct ofs_quant_state {
	uint64_t block;  /* elements that share a scale */
	uint64_t nested; /* scales that share one of theirs; 0: they have none */
	float offset;    /* is added to a scale that has a scale */
	uint64_t shape[OFS_MAX_DIMS];
	unsigned ndim;
};

/* Parses the JSON text of a tensor X.quant_state.bitsandbytes__nf4. EUCLEAN: it
 * is not one, or a number is missing, zero or too large. */
int ofs_quant_state_parse(const void *text, uint32_t n,
    struct ofs_quant_state *out, struct optimfs_error *err);

#endif
