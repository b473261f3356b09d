/* crc.h - the CRC-32 of zip, gzip and zlib */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_CRC_H
#define OFS_BASE_CRC_H

#include <stddef.h>
#include <stdint.h>

/* The CRC of n more bytes. crc is that of the bytes before, 0 at the start. */
uint32_t ofs_crc32(uint32_t crc, const void *p, size_t n);

/* The CRC of two runs of bytes laid end to end; the second has len bytes. */
uint32_t ofs_crc32_combine(uint32_t first, uint32_t second, uint64_t len);

#endif
