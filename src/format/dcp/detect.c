/* detect.c - detection of checkpoints of torch.distributed.checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "base/str.h"
#include "format/dcp/dcp.h"
#include "format/dcp/render.h"
#include "format/dcp/update.h"
#include "format/probe.h"
#include "layout/option.h"

bool ofs_dcp_is_data(const char *name)
{
	return ofs_str_ends(ofs_str_of(name), ".distcp");
}

int ofs_dcp_index_rank(const char *name)
{
	int rank;

	return ofs_probe_match(name, "__#.metadata", &rank) ? rank : -1;
}

int ofs_dcp_sure(const struct ofs_names *names)
{
	int sure = 0;

	for (size_t i = 0; i < names->n && sure < 95; i++) {
		const char *name = names->name[i];

		if (strcmp(name, OFS_DCP_INDEX) == 0 ||
		    ofs_dcp_index_rank(name) != -1)
			sure = 95;
		else if (ofs_dcp_is_data(name))
			sure = 80;
		else if (strcmp(name, OFS_DCP_TMP) == 0 && sure < 60)
			sure = 60;
	}
	return sure;
}

static int bid(const struct ofs_dir *dir, const struct ofs_names *names,
    struct optimfs_error *err)
{
	(void)dir;
	(void)err;
	return ofs_dcp_sure(names);
}

static bool is_index(const char *name)
{
	return strcmp(name, OFS_DCP_INDEX) == 0 ||
	    ofs_dcp_index_rank(name) != -1;
}

/* Blobs have a header, not archives: there are no checksums and no
 * compression. */
static bool option(const char *s, size_t n, struct ofs_layout *l)
{
	if (ofs_option_is(s, n, "keys=source"))
		l->keys = OFS_KEYS_SOURCE;
	else
		return ofs_option_narrow(s, n, l) || ofs_option_keys(s, n, l) ||
		    (l->variant == OFS_DCP_ARCHIVES &&
			(ofs_option_crc(s, n, l) || ofs_option_zstd(s, n, l)));
	return true;
}

static const char *const listed[] = { "dcp@1", "dcp@16", "dcp@2", "dcp@32",
	"dcp@4", "dcp@64", "dcp@8", NULL };

static const struct ofs_view_kind views[] = {
	{ .name = "dcp", .ranked = true, .listed = listed },
	{ .name = "dcp-st", .ranked = true, .variant = OFS_DCP_BLOBS },
	{ .name = NULL },
};

/* Only the options show that fused parameters of Megatron-FSDP, which are stored in
 * parts, are one. */
const char *const *ofs_dcp_stays(const struct ofs_catalog *cat)
{
	static const char *const options[] = { "optim/param_groups", NULL };
	bool fused = false, grouped = false;

	for (uint32_t i = 0; i < cat->nentries && !(fused && grouped); i++) {
		const struct ofs_entry *e = &cat->entries[i];
		struct ofs_str first, second;
		const uint32_t *c;
		uint32_t n;

		if (e->tree == OFS_NONE || e->key != OFS_KEY_FIXED)
			continue;
		c = ofs_catalog_components(cat, e->tree, &n);
		if (n < 2)
			continue;
		first = ofs_catalog_string(cat, OFS_PATH_STR(c[0]));
		second = ofs_catalog_string(cat, OFS_PATH_STR(c[1]));
		fused |= ofs_str_is(first, "model");
		grouped |= ofs_str_is(first, "optim") &&
		    ofs_str_is(second, "param_groups");
	}
	return fused && grouped ? options : NULL;
}

const struct ofs_format ofs_format_dcp = {
	.name = "dcp",
	.title = "PyTorch distributed checkpoint (dcp)",
	.holes = true,
	.bid = bid,
	.is_index = is_index,
	.is_shard = ofs_dcp_is_data,
	.read = ofs_dcp_read,
	.views = views,
	.option = option,
	.render = &ofs_dcp_render,
	.update = ofs_dcp_update,
	.stays = ofs_dcp_stays,
};
