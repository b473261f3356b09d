/* crc.c - the CRC-32 of zip, gzip and zlib */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/crc.h"

#include <zlib.h>
#ifdef HAVE_DEFLATE
# include <libdeflate.h>
#endif

/* libdeflate uses carry-less multiplication where the processor has it, ten
 * times as fast as zlib 1.2. It takes a null pointer for "start over". */
uint32_t ofs_crc32(uint32_t crc, const void *p, size_t n)
{
	if (n == 0)
		return crc;
#ifdef HAVE_DEFLATE
	return libdeflate_crc32(crc, p, n);
#else
	return (uint32_t)crc32_z(crc, p, n);
#endif
}

uint32_t ofs_crc32_combine(uint32_t first, uint32_t second, uint64_t len)
{
	return (uint32_t)crc32_combine64(first, second, (z_off64_t)len);
}
