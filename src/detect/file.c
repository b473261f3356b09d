/* file.c - the format of a file, from its bytes and its name */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "detect/detect.h"
#include "detect/registry.h"
#include "format/probe.h"

const struct ofs_format *ofs_detect_name(const char *name)
{
	const struct ofs_format *f;

	for (size_t i = 0; (f = ofs_format_at(i)) != NULL; i++)
		if (ofs_probe_extension(name, f->extensions) != NULL)
			return f;
	return NULL;
}

const struct ofs_format *ofs_detect_file(const struct ofs_dir *dir,
    const char *rel, struct optimfs_error *err)
{
	const struct ofs_format *f, *best = NULL;
	struct ofs_file_head head;
	int bid, highest = 0;

	if (!ofs_probe_head(dir, rel, &head))
		return NULL;
	if (head.failed != 0) { /* the reader of such files says so */
		best = ofs_detect_name(rel);
		if (best == NULL)
			optimfs_fail(err, head.failed,
			    "OFS755 %s/%s: the first bytes: %s", dir->path, rel,
			    strerror(head.failed));
		return best;
	}
	for (size_t i = 0; (f = ofs_format_at(i)) != NULL; i++) {
		bid = f->bid_file == NULL ? 0 : f->bid_file(&head, err);
		if (bid == -1)
			return NULL;
		if (bid > highest) {
			highest = bid;
			best = f;
		}
	}
	return best;
}
