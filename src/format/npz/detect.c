/* detect.c - detection of NumPy's files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "archive/npy.h"
#include "format/npz/npz.h"
#include "format/probe.h"

/* Is the first record of an archive a .npy array? */
static bool starts_with_array(const uint8_t *p, size_t n)
{
	static const char end[] = ".npy";
	size_t len = n < 30 ? 0 : p[26] | (size_t)p[27] << 8;

	return len >= sizeof(end) && 30 + len <= n &&
	    memcmp(p, "PK\3\4", 4) == 0 &&
	    memcmp(p + 30 + len - (sizeof(end) - 1), end, sizeof(end) - 1) == 0;
}

static int bid_file(const struct ofs_file_head *h, struct optimfs_error *err)
{
	(void)err;
	if (h->n >= OFS_NPY_MAGIC_LEN &&
	    memcmp(h->p, OFS_NPY_MAGIC, OFS_NPY_MAGIC_LEN) == 0)
		return 95;
	return starts_with_array(h->p, h->n) ? 95 : 0;
}

/* Without .npy: a single array is more often data than state. */
static const char *const extensions[] = { ".npz", NULL };

const struct ofs_format ofs_format_npz = {
	.name = "npz",
	.title = "NumPy arrays (npz)",
	.extensions = extensions,
	.generic = true,
	.bid_file = bid_file,
	.read = ofs_npz_read,
	.read_only = true,
};
