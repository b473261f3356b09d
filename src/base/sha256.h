/* sha256.h - SHA-256 */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_SHA256_H
#define OFS_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

/* FIPS 180-4, of bytes that come in pieces. */
struct ofs_sha256 {
	uint32_t h[8];
	uint64_t n; /* bytes so far */
	uint8_t rest[64];
};
#define OFS_SHA256_HEX 65
void ofs_sha256_init(struct ofs_sha256 *s);
void ofs_sha256_put(struct ofs_sha256 *s, const void *p, size_t n);
/* Ends it: 64 hexadecimal digits and a NUL. */
void ofs_sha256_end(struct ofs_sha256 *s, char hex[OFS_SHA256_HEX]);
/* The same of n bytes at once. */
void ofs_sha256_of(const void *p, size_t n, char hex[OFS_SHA256_HEX]);

#endif
