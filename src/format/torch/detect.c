/* detect.c - detection of files of torch.save and pickle.dump */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "archive/torch.h"
#include "format/probe.h"
#include "format/torch/torch.h"
#include "format/torch/update.h"
#include "layout/option.h"

/* .tar, too: the examples of PyTorch call what torch.save writes so. */
static const char *const extensions[] = { ".pt", ".pth", ".bin", ".ckpt",
	".tar", ".pyth", ".th", NULL };
static const char *const pickle_extensions[] = { ".pkl", ".pickle", NULL };

static bool has_torch_name(const char *name)
{
	return ofs_probe_extension(name, extensions) != NULL;
}

static int bid_torch(const struct ofs_file_head *h, struct optimfs_error *err)
{
	(void)err;
	switch (ofs_torch_magic(h->p, h->n)) {
	case OFS_TORCH_ZIP:
		return ofs_probe_first(h, "/data.pkl") ? 95
		    : has_torch_name(h->name)          ? 60
						       : 10;
	case OFS_TORCH_STREAM:
		return 100;
	case OFS_TORCH_TAR:
	case OFS_TORCH_OLD_STREAM:
		return has_torch_name(h->name) ? 60 : 10;
	case OFS_TORCH_GIT_LFS: /* so that it is named */
		return has_torch_name(h->name) ? 60 : 0;
	default:
		return 0;
	}
}

static int bid_pickle(const struct ofs_file_head *h, struct optimfs_error *err)
{
	(void)err;
	if (ofs_torch_magic(h->p, h->n) != OFS_TORCH_PICKLE)
		return 0;
	return ofs_probe_extension(h->name, pickle_extensions) != NULL ? 80
								       : 30;
}

static bool option(const char *s, size_t n, struct ofs_layout *l)
{
	if (ofs_option_is(s, n, "keys=id"))
		l->keys = OFS_KEYS_ID;
	else
		return ofs_option_keys(s, n, l) || ofs_option_crc(s, n, l) ||
		    ofs_option_narrow(s, n, l);
	return true;
}

static const char *const listed[] = { "torch", NULL };

static const struct ofs_view_kind views[] = {
	{ .name = "torch", .listed = listed },
	{ .name = NULL },
};

const struct ofs_format ofs_format_torch = {
	.name = "torch",
	.title = "torch.save (torch)",
	.extensions = extensions,
	.ranked = true,
	.writer = ofs_torch_writer,
	.bid_file = bid_torch,
	.read = ofs_torch_read,
	.views = views,
	.option = option,
	.render = &ofs_torch_render,
	.update = ofs_torch_update,
};

const struct ofs_format ofs_format_pickle = {
	.name = "pickle",
	.extensions = pickle_extensions,
	.generic = true,
	.ranked = true,
	.bid_file = bid_pickle,
	.bare = true,
	.read = ofs_torch_read,
	.update = ofs_torch_update,
};
