/* option.h - options of views that several formats have */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_LAYOUT_OPTION_H
#define OFS_LAYOUT_OPTION_H

#include <stdbool.h>
#include <stddef.h>

#include "layout/render.h"

/* Are the n bytes at s this word? */
bool ofs_option_is(const char *s, size_t n, const char *word);
/* Each takes what it is called after into *l: only= and dtype=, keys=fqn, crc,
 * zstd and zstd=LEVEL. false: it is something else, or has another value. */
bool ofs_option_narrow(const char *s, size_t n, struct ofs_layout *l);
bool ofs_option_keys(const char *s, size_t n, struct ofs_layout *l);
bool ofs_option_crc(const char *s, size_t n, struct ofs_layout *l);
bool ofs_option_zstd(const char *s, size_t n, struct ofs_layout *l);
/* A number from 1 on, up to max, in its one spelling, so that a view has one
 * name: how many digits; 0: it is none. */
size_t ofs_option_number(const char *s, uint32_t max, uint32_t *v);

#endif
