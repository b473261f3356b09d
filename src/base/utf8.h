/* utf8.h - one UTF-8 character: is it valid, may it be shown? */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_UTF8_H
#define OFS_BASE_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* The length in bytes, 1 to 4, of the character at p, where n bytes are
 * readable. 0 when n is 0 or the bytes are not valid UTF-8 (RFC 3629: no
 * overlong forms, no surrogates, nothing above U+10FFFF). */
size_t ofs_utf8_length(const uint8_t *p, size_t n);
/* The code point of a valid character of n bytes. */
uint32_t ofs_utf8_code(const uint8_t *p, size_t n);

/* As above, but also 0 when the character must not be shown as it is. All text
 * of others (names, values, messages with them) that goes to a terminal, a line
 * of a file, JSON or a page is escaped by this rule. Left out are controls (C0,
 * DEL, C1), which terminals obey; marks that change the direction of text;
 * characters without width and other invisible ones, with which two names look
 * alike; byte order marks; and separators of lines other than '\n'. */
size_t ofs_utf8_shown(const uint8_t *p, size_t n);
/* Replace the bytes of what must not be shown by '?'. */
void ofs_utf8_disarm(char *text);

#endif
