/* detect.h - safetensors files, and the index of a model in several */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_FORMAT_SAFETENSORS_DETECT_H
#define OFS_FORMAT_SAFETENSORS_DETECT_H


#include "format/format.h"

extern const struct ofs_format ofs_format_safetensors;

#endif
