/* types.h - types that all components use */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_TYPES_H
#define OFS_BASE_TYPES_H

#include <stdint.h>

/* Arrays have 32-bit indexes; this is the index of no item. */
#define OFS_NONE UINT32_MAX

/* The most dimensions that a tensor has. */
#define OFS_MAX_DIMS 64

/* A borrowed string of bytes; it may hold NULs. */
struct ofs_str {
	const char *p;
	uint32_t len;
};

#endif
