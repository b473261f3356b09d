/* fuzz_npy.c - arbitrary .npy headers: the size must be that of shape and dtype */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/npy.h"
#include "base/checked.h"

static void check(int good)
{
	if (!good)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct optimfs_error err = { 0 };
	struct ofs_npy npy;
	uint32_t length;
	uint64_t bytes;

	if (ofs_npy_length(p, n, &length, &err) == -1) {
		check(err.code != 0 && strncmp(err.text, "OFS", 3) == 0);
		return 0;
	}
	check(length <= OFS_NPY_HEADER_MAX);
	if (length > n)
		return 0;
	if (ofs_npy_parse(&npy, p, length, OFS_DTYPE_NONE, &err) == -1) {
		check(err.code != 0 && strncmp(err.text, "OFS", 3) == 0);
		return 0;
	}
	check(npy.ndim <= OFS_MAX_DIMS);
	bytes = ofs_dtype_size(npy.dtype);
	check(bytes > 0);
	for (unsigned i = 0; i < npy.ndim; i++)
		check(ofs_mul_u64(bytes, npy.shape[i], &bytes));
	check(bytes == npy.bytes);
	return 0;
}
