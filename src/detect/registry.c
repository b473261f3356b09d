/* registry.c - all formats */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "detect/registry.h"

#include <string.h>

/* A format is registered by its line here: ofs_format_NAME, which its own
 * directory defines. Of equal bids the first one's wins. */
#define FORMATS(X)      \
 X(dcp)                 \
 X(megatron)            \
 X(fsdp)                \
 X(safetensors)         \
 X(torch)               \
 X(pickle)              \
 X(npz)                 \
 X(universal)           \
 X(deepspeed)           \
 X(torch_checkpointing) \
 X(delta)               \
 X(raw)                 \
 X(source)

#define DECLARE(f) extern const struct ofs_format ofs_format_##f;
#define POINTER(f) &ofs_format_##f,

FORMATS(DECLARE)

static const struct ofs_format *const formats[] = { FORMATS(POINTER) NULL };

const struct ofs_format *ofs_format_at(size_t i)
{
	return formats[i];
}

const struct ofs_format *ofs_format_find(const char *name)
{
	for (size_t i = 0; formats[i] != NULL; i++)
		if (formats[i]->read != NULL &&
		    strcmp(formats[i]->name, name) == 0)
			return formats[i];
	return NULL;
}

bool ofs_format_is_index(const char *name)
{
	for (size_t i = 0; formats[i] != NULL; i++)
		if (formats[i]->is_index != NULL && formats[i]->is_index(name))
			return true;
	return false;
}

bool ofs_format_is_shard(const char *name)
{
	for (size_t i = 0; formats[i] != NULL; i++)
		if (formats[i]->is_shard != NULL && formats[i]->is_shard(name))
			return true;
	return false;
}

const struct ofs_view_kind *ofs_view_kind_at(unsigned i,
    const struct ofs_format **format)
{
	for (size_t f = 0; formats[f] != NULL; f++)
		for (const struct ofs_view_kind *v = formats[f]->views;
		     v != NULL && v->name != NULL; v++)
			if (i-- == 0) {
				*format = formats[f];
				return v;
			}
	return NULL;
}

const char *optimfs_type(unsigned i)
{
	for (size_t f = 0; formats[f] != NULL; f++)
		if (formats[f]->read != NULL && i-- == 0)
			return formats[f]->name;
	return NULL;
}

const char *optimfs_layout(unsigned i, bool *ranked)
{
	const struct ofs_format *format;
	const struct ofs_view_kind *v = ofs_view_kind_at(i, &format);

	if (v == NULL || v->own)
		return NULL;
	*ranked = v->ranked;
	return v->name;
}
