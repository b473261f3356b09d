/* file.c - what a file is by its bytes, and its name */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "archive/safetensors.h"
#include "archive/torch.h"
#include "base/cursor.h"
#include "detect/detect.h"

/* A header length that fits, then "{": bytes of a file of that size. */
static bool safetensors_magic(const uint8_t *p, size_t n, uint64_t size)
{
	uint64_t header;

	if (n < 9)
		return false;
	header = ofs_le64(p);
	return p[8] == '{' && header >= 2 && header <= size - 8 &&
	    header <= OFS_SAFETENSORS_HEADER_MAX;
}

static bool has_end_record(const struct ofs_input *in, uint64_t size)
{
	uint8_t tail[22];

	return size >= sizeof(tail) &&
	    ofs_input_read(in, tail, sizeof(tail), size - sizeof(tail), NULL) ==
	    0 &&
	    memcmp(tail, "PK\5\6", 4) == 0;
}

static bool is_called_safetensors(const char *rel)
{
	const char *dot = strrchr(rel, '.');

	return dot != NULL && strcmp(dot, ".safetensors") == 0;
}

const struct ofs_format *ofs_detect_file(const struct ofs_dir *dir,
    const char *rel, struct optimfs_error *err)
{
	uint8_t head[512];
	struct ofs_input in;
	struct stat st;
	size_t n = sizeof(head);
	int magic;
	bool safetensors, zip;

	if (ofs_dir_open_input(dir, rel, &in, &st, NULL) == -1)
		return NULL;
	if ((uint64_t)st.st_size < n)
		n = (size_t)st.st_size;
	if (ofs_input_read(&in, head, n, 0, NULL) == -1)
		n = 0;
	magic = ofs_torch_magic(head, n);
	safetensors = safetensors_magic(head, n, (uint64_t)st.st_size);
	zip = magic == 1 || has_end_record(&in, (uint64_t)st.st_size);
	ofs_input_close(&in);
	if (safetensors && zip) {
		optimfs_fail(err, EUCLEAN,
		    "OFS662 %s: ambiguous type: a zip archive and safetensors "
		    "at once (-o type=)",
		    rel);
		return NULL;
	}
	if (safetensors)
		return &ofs_format_safetensors;
	/* by its name it should be one: what is wrong with it has a name then */
	if (magic == 0)
		return is_called_safetensors(rel) ? &ofs_format_safetensors
						  : NULL;
	return magic == 4 ? &ofs_format_pickle : &ofs_format_torch;
}
