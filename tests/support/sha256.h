/* sha256.h - SHA-256, used in the manifests of tests/data */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SHA256_H
#define SHA256_H

#include <stddef.h>

/* FIPS 180-4 of n bytes, as 64 hexadecimal digits. */
void sha256_hex(const void *p, size_t n, char hex[65]);

#endif
