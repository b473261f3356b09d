/* detect.c - detection of NumPy's files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "base/npy.h"
#include "format/npz/npz.h"
#include "format/probe.h"

static int bid_file(const struct ofs_file_head *h, struct optimfs_error *err)
{
	(void)err;
	if (h->n >= OFS_NPY_MAGIC_LEN &&
	    memcmp(h->p, OFS_NPY_MAGIC, OFS_NPY_MAGIC_LEN) == 0)
		return 95;
	return ofs_probe_first(h, ".npy") ? 95 : 0;
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
