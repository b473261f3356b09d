/* render.h - a checkpoint as safetensors files */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_SAFETENSORS_RENDER_H
#define OFS_FORMAT_SAFETENSORS_RENDER_H

#include "layout/render.h"

/* The member of __metadata__ that holds what the format has no place for: JSON
 * of {"paths": {key: [component, ...]}, "values": {key: value}}. Paths are
 * those of keys that were joined with dots. */
#define OFS_SAFETENSORS_NOTE "optimfs"

/* The render of ofs_format_safetensors. */
int ofs_safetensors_render(const struct ofs_render *from,
    const struct ofs_layout *to, struct ofs_files **out,
    struct optimfs_error *err);

#endif
