/* location.c - the stored location of an item in a DCP index */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "format/dcp/dcp.h"

/* "stream.zstd/1": a name, an optional "@domain", and a version whose first
 * number must be known. Later numbers of a version are compatible (PyTorch,
 * _extension.py). */
static bool is_zstd(struct ofs_str s)
{
	static const char name[] = "stream.zstd/1";
	size_t n = sizeof(name) - 1;

	return s.len >= n && memcmp(s.p, name, n) == 0 &&
	    (s.len == n || s.p[n] == '.');
}

/* The codec of an item; -1 for one that is not supported, with *text and *what
 * for the message. */
static int codec_of(const struct ofs_pickle *doc, uint32_t node,
    const char **text, struct ofs_str *what)
{
	*what = (struct ofs_str){ "", 0 };
	*text = "transforms that are not a list of names";
	if (node == OFS_NONE)
		return OFS_PLAIN;
	if (!ofs_pk_is_sequence(doc, node))
		return -1;
	if (ofs_pk_len(doc, node) == 0)
		return OFS_PLAIN;
	*what = ofs_pk_str(doc, ofs_pk_item(doc, node, 0));
	*text = ofs_pk_len(doc, node) > 1 ? "several transforms, first"
					  : "unknown transform";
	return ofs_pk_len(doc, node) == 1 && is_zstd(*what) ? OFS_ZSTD : -1;
}

/* The rank in "__3_0.distcp", which may have a prefix; -1 when there is
 * none. */
static int rank_of_file(const char *path)
{
	const char *at, *last = NULL;
	unsigned long rank;
	char *end;

	for (at = ofs_path_last(path); (at = strstr(at, "__")) != NULL; at++)
		last = at + 2;
	if (last == NULL || *last < '0' || *last > '9')
		return -1;
	rank = strtoul(last, &end, 10);
	return *end == '_' && rank < 1 << 20 ? (int)rank : -1;
}

uint32_t ofs_dcp_object(struct ofs_dcp *d, const struct ofs_pickle *doc,
    uint32_t node, struct optimfs_error *err)
{
	struct ofs_str rel = ofs_pk_str(doc, node);
	const char *sub = d->part->rel;
	struct ofs_dcp_seen *seen = &d->objects[node % OFS_DCP_SEEN];
	uint32_t object;
	char *path;

	/* an index has each of its few files thousands of times */
	if (seen->doc == doc && seen->node == node)
		return seen->index;
	if (!ofs_path_stays(rel.p, rel.len)) {
		optimfs_fail(err, EPERM,
		    "OFS620 path '%.*s' leaves the checkpoint",
		    OFS_STR_ARGS(rel, 200));
		return OFS_NONE;
	}
	if (asprintf(&path, "%s%s%.*s", sub, sub[0] == '\0' ? "" : "/",
		(int)rel.len, rel.p) == -1) {
		ofs_no_memory(err);
		return OFS_NONE;
	}
	object = ofs_catalog_object(d->cat, path, rank_of_file(path), err);
	free(path);
	if (object != OFS_NONE)
		*seen = (struct ofs_dcp_seen){ doc, node, object };
	return object;
}

int ofs_dcp_extent(struct ofs_dcp *d, const struct ofs_pickle *doc,
    const struct ofs_dcp_place *place, struct ofs_extent *at,
    struct optimfs_error *why, struct optimfs_error *err)
{
	const char *words;
	struct ofs_str what;
	int codec = codec_of(doc, place->transforms, &words, &what);

	why->code = 0;
	*at = (struct ofs_extent){
		.off = place->off,
		.len = place->len,
		.object = ofs_dcp_object(d, doc, place->path, err),
		.encoding = OFS_TORCH_ITEM,
	};
	if (at->object == OFS_NONE)
		return -1;
	if (codec == -1) {
		optimfs_fail(why, EOPNOTSUPP, "OFS619 %s '%.*s'", words,
		    OFS_STR_ARGS(what, 200));
		return 0;
	}
	at->codec = (uint8_t)codec;
	return 0;
}

uint32_t ofs_dcp_problem(struct ofs_dcp *d, struct ofs_str name, int code,
    const char *text, struct optimfs_error *err)
{
	struct optimfs_error why;

	optimfs_fail_as(&why, code, "%s", text);
	optimfs_fail_in(&why, "%.*s", OFS_STR_ARGS(name, 200));
	return ofs_catalog_error(d->cat, &why, err);
}
