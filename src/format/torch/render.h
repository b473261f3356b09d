/* render.h - a checkpoint as model.pt and optim.pt */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_TORCH_RENDER_H
#define OFS_FORMAT_TORCH_RENDER_H

#include "layout/render.h"

/* The render of ofs_format_torch. */
extern const struct ofs_files_ops ofs_torch_render;

#endif
