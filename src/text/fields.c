/* fields.c - objects that are nothing but their fields */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "text/fields.h"

bool ofs_is_namespace(const struct ofs_pickle *doc, uint32_t node,
    uint32_t *fields)
{
	uint32_t state;

	if (ofs_pk_kind(doc, node) != OFS_PK_OBJECT ||
	    (!ofs_pk_is(doc, node, "argparse", "Namespace") &&
		!ofs_pk_is(doc, node, "types", "SimpleNamespace")) ||
	    ofs_pk_len(doc, ofs_pk_args(doc, node)) != 0)
		return false;
	state = ofs_pk_state(doc, node);
	if (state != OFS_NONE && ofs_pk_kind(doc, state) != OFS_PK_DICT)
		return false;
	*fields = state;
	return true;
}

bool ofs_is_empty_deque(const struct ofs_pickle *doc, uint32_t node)
{
	return ofs_pk_kind(doc, node) == OFS_PK_OBJECT &&
	    ofs_pk_is(doc, node, "collections", "deque") &&
	    ofs_pk_state(doc, node) == OFS_NONE &&
	    ofs_pk_len(doc, ofs_pk_item(doc, ofs_pk_args(doc, node), 0)) == 0;
}
