/* items.c - values of a DCP checkpoint that contain several leaves */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "archive/torch.h"
#include "base/step.h"
#include "base/str.h"
#include "catalog/budget.h"
#include "format/dcp/dcp.h"
#include "format/torch_file/walk.h"
#include "store/local.h"
#include "store/transport.h"

/* PyTorch 2.3 and older stored a dictionary or list without tensors as one
 * pickled value, for example all of param_groups. If it belongs to an
 * optimizer, its leaves must have the paths that newer releases give them, so
 * it is read at mount. Other values stay one file. */

static bool key_is(const struct ofs_catalog *cat, uint32_t c, const char *key)
{
	return (c & OFS_PATH_INDEX) == 0 && ofs_catalog_string_is(cat, c, key);
}

/* "optim", "optimizer", "optimizer_0", "optimizers" ... */
static bool is_optimizer(const struct ofs_catalog *cat, uint32_t c)
{
	struct ofs_str s = ofs_catalog_string(cat, c);

	return (c & OFS_PATH_INDEX) == 0 && s.len >= 5 &&
	    memcmp(s.p, "optim", 5) == 0;
}

bool ofs_dcp_structural(const struct ofs_catalog *cat, const uint32_t *c,
    uint32_t n)
{
	uint32_t last = c[n - 1], before = n > 1 ? c[n - 2] : OFS_NONE;
	bool inside = false;

	if (key_is(cat, last, "param_groups") || is_optimizer(cat, last))
		return true;
	if (before == OFS_NONE)
		return false;
	if (key_is(cat, before, "param_groups") &&
	    ofs_str_all_digits(ofs_catalog_string(cat, last)))
		return true;
	for (uint32_t i = 0; i + 1 < n; i++)
		inside = inside || is_optimizer(cat, c[i]);
	return inside &&
	    (key_is(cat, last, "state") || key_is(cat, before, "state") ||
		key_is(cat, before, "optimizers"));
}

/* Reads an archive for ofs_torch_open. */
struct source {
	struct ofs_transport *t;
	const struct ofs_extent *at;
};

static int read_source(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct source *s = ctx;

	return ofs_transport_read(s->t, s->at, off, len, buf, err);
}

static int add_leaves(struct ofs_catalog *cat, struct ofs_pickle *doc,
    const struct ofs_zip *zip, const struct ofs_dcp_pending *p,
    struct optimfs_error *err)
{
	struct ofs_torch_archive archive = {
		.at = p->item.at,
		.zip = zip,
		.big_endian = zip->big_endian,
	};
	uint32_t n, *path = ofs_catalog_copy_components(cat, p->path, &n, err);
	int ret;

	if (path == NULL)
		return -1;
	ret = ofs_torch_add(cat, doc, ofs_pickle_root(doc), &archive, path, n,
	    err);
	free(path);
	return ret;
}

/* An item that cannot be opened stays a file, whose reads give the reason;
 * later errors fail the mount. */
static int expand(struct ofs_dcp *d, struct ofs_transport *t,
    const struct ofs_dcp_pending *p, struct optimfs_error *err)
{
	struct ofs_pickle_limits limits = ofs_pickle_budget(d->cat);
	struct source source = { t, &p->item.at };
	struct optimfs_error why = { 0 };
	struct ofs_pickle *doc = NULL;
	struct ofs_zip zip = { 0 };
	uint64_t size;
	int ret;

	if (ofs_transport_length(t, &p->item.at, &size, &why) == 0)
		doc = ofs_torch_open(size, &limits, read_source, &source, &zip,
		    &why);
	if (doc == NULL && ofs_must_fail(&why))
		return optimfs_fail_with(err, &why);
	if (doc == NULL)
		return ofs_catalog_add(d->cat, p->path, OFS_ENTRY_ITEM,
		    ofs_catalog_item(d->cat, &p->item, err), OFS_KEY_FREE, err);
	if (ofs_catalog_doc(d->cat, doc, err) == OFS_NONE) {
		ofs_pickle_free(doc);
		ret = -1;
	} else {
		ret = add_leaves(d->cat, doc, &zip, p, err);
	}
	ofs_zip_fini(&zip);
	return ret;
}

int ofs_dcp_expand_items(struct ofs_dcp *d, struct optimfs_error *err)
{
	struct ofs_transport *t;
	int ret = 0;

	if (d->npending == 0)
		return 0;
	t = ofs_transport_of(d->cat, OFS_DCP_EXPAND_ITEM, err);
	if (t == NULL)
		return -1;
	for (uint32_t i = 0; i < d->npending && ret == 0; i++)
		ret = expand(d, t, &d->pending[i], err);
	ofs_transport_close(t);
	return ret;
}
