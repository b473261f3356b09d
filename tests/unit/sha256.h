/* sha256.h - the digest that manifests of tests/data give */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SHA256_H
#define SHA256_H

#include <stddef.h>

/* Of n bytes, as 64 lower-case hexadecimal digits. */
void sha256_hex(const void *p, size_t n, char hex[65]);

#endif
