/* render.h - a checkpoint as safetensors files */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_SAFETENSORS_RENDER_H
#define OFS_FORMAT_SAFETENSORS_RENDER_H

#include "layout/render.h"

/* The render of ofs_format_safetensors. */
int ofs_safetensors_render(const struct ofs_render *from,
    const struct ofs_layout *to, struct ofs_files **out,
    struct optimfs_error *err);

#endif
