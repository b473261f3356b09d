/* render.h - a checkpoint as safetensors files */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_SAFETENSORS_RENDER_H
#define OFS_FORMAT_SAFETENSORS_RENDER_H

#include "layout/render.h"

/* The render of ofs_format_safetensors. */
extern const struct ofs_files_ops ofs_safetensors_render;

#endif
