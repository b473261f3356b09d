/* boxes.c - a range of a block, as boxes of a parameter */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "format/megatron/megatron.h"

uint64_t ofs_megatron_next_box(const uint64_t *block, unsigned int d,
    uint64_t lo, uint64_t hi, uint64_t *at, uint64_t *size)
{
	uint64_t pitch[OFS_MAX_DIMS + 1], rest = lo, n;
	unsigned int k = 0;

	pitch[d] = 1;
	for (unsigned int i = d; i-- > 0;)
		pitch[i] = pitch[i + 1] * block[i];
	for (unsigned int i = 0; i < d; i++) {
		at[i] = rest / pitch[i + 1];
		rest %= pitch[i + 1];
	}
	/* the outermost dimension in which a whole step fits */
	while (lo % pitch[k + 1] != 0 || hi - lo < pitch[k + 1])
		k++;
	n = (hi - lo) / pitch[k + 1];
	if (n > block[k] - at[k])
		n = block[k] - at[k];
	for (unsigned int i = 0; i < d; i++)
		size[i] = i < k ? 1 : i == k ? n : block[i];
	return n * pitch[k + 1];
}

int ofs_megatron_box(struct ofs_catalog *cat, unsigned int d,
    const uint64_t *at, const uint64_t *size, uint64_t offset, uint64_t numel,
    struct ofs_shard *s, struct optimfs_error *err)
{
	uint64_t box[2 * OFS_MAX_DIMS], stride[OFS_MAX_DIMS], pitch = 1;
	struct ofs_view v = { .offset = offset, .numel = numel };

	for (unsigned int i = d; i-- > 0;) {
		stride[i] = pitch;
		pitch *= size[i];
	}
	memcpy(box, at, d * sizeof(*at));
	memcpy(box + d, size, d * sizeof(*size));
	s->box = ofs_catalog_dims(cat, box, 2 * (size_t)d, err);
	v.stride = ofs_catalog_dims(cat, stride, d, err);
	s->view = ofs_catalog_view(cat, &v, err);
	return s->view == OFS_NONE ? -1 : 0;
}
