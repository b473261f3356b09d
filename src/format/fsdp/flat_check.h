/* flat_check.h - state that parameters which lie in one tensor share */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_FSDP_FLAT_CHECK_H
#define OFS_FORMAT_FSDP_FLAT_CHECK_H

#include "layout/render.h"
#include "layout/state_dict.h"

/* Can entries a and b be the state called name of two parameters of one flat
 * parameter? Both are cut, and of one type, or have one value. 1: yes; 0: no;
 * -1: failed. */
int ofs_flat_alike(const struct ofs_render *from, const struct ofs_state *s,
    uint32_t a, uint32_t b, struct optimfs_error *err);

#endif
