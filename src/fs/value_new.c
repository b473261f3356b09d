/* value_new.c - check a text before it replaces another */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <string.h>

#include "base/dtype.h"
#include "fs/fs.h"
#include "rewrite/new_value.h"

int ofs_text_fits(struct ofs_snapshot *snap, uint32_t node, const char *text,
    size_t n, struct ofs_buf *canonical, uint8_t element[16],
    struct optimfs_error *err)
{
	uint32_t entry = snap->tree.node[node].entry;
	const struct ofs_tensor *t =
	    ofs_tree_tensor(&snap->tree, snap->cat, node);
	struct ofs_entry_new new;
	char shown[80];
	int ret = 0;

	if (ofs_entry_new(&snap->reader, entry, text, n, &new, err) == -1)
		return -1;
	if (t != NULL && element != NULL)
		memcpy(element, new.element, sizeof(new.element));
	if (t != NULL && canonical != NULL) {
		ofs_buf_put(canonical, shown,
		    ofs_dtype_print(t->dtype, new.element, shown));
		ofs_buf_putc(canonical, '\n');
	} else if (canonical != NULL) {
		ret = ofs_value_text(snap, node, new.doc,
		    ofs_pickle_root(new.doc), canonical, err);
	}
	ofs_pickle_free(new.doc);
	return ret;
}
