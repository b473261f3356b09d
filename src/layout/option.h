/* option.h - options of views that several formats have */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_OPTION_H
#define OFS_LAYOUT_OPTION_H

#include <stdbool.h>
#include <stddef.h>

#include "layout/render.h"

/* Is s[0..n) this word? */
bool ofs_option_is(const char *s, size_t n, const char *word);
/* Each parses the option it is named after into *l: only=, dtype=, dequantize,
 * names= with heads=, groups= and vocab=; keys=fqn; crc; zstd and zstd=LEVEL.
 * false for any other option or value. */
bool ofs_option_narrow(const char *s, size_t n, struct ofs_layout *l);
bool ofs_option_keys(const char *s, size_t n, struct ofs_layout *l);
bool ofs_option_crc(const char *s, size_t n, struct ofs_layout *l);
bool ofs_option_zstd(const char *s, size_t n, struct ofs_layout *l);
/* Parse a number from 1 to max without leading zeros, so that a view has one
 * name. Returns the number of digits, 0 when it is not one. */
size_t ofs_option_number(const char *s, uint32_t max, uint32_t *v);

#endif
