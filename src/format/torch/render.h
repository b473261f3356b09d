/* render.h - a checkpoint as model.pt and optim.pt */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_TORCH_RENDER_H
#define OFS_FORMAT_TORCH_RENDER_H

#include "layout/render.h"

/* The render of ofs_format_torch. */
int ofs_torch_render(const struct ofs_render *from, const struct ofs_layout *to,
    struct ofs_files **out, struct optimfs_error *err);

#endif
