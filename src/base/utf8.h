/* utf8.h - validation of one UTF-8 character */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_UTF8_H
#define OFS_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The length in bytes, 1 to 4, of the character at p, where n bytes are
 * readable. 0 when n is 0 or the bytes are not valid UTF-8 (RFC 3629: no
 * overlong forms, no surrogates, nothing above U+10FFFF). */
size_t ofs_utf8_length(const uint8_t *p, size_t n);

#endif
