/* index_write.c - code that new and edited entries of .metadata share */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/dcp/dcp.h"

#include "base/str.h"

void ofs_dcp_put_size(struct ofs_pkw *w, const uint64_t *v, size_t n)
{
	ofs_pkw_lit(w, "torch.Size(");
	ofs_pkw_dims(w, v, n);
	ofs_pkw_lit(w, ")");
}

void ofs_dcp_put_component(struct ofs_pkw *w, struct ofs_str s, bool index)
{
	uint64_t v = 0;

	if (index && ofs_str_take_number(&s, &v))
		ofs_pkw_int(w, (int64_t)v);
	else
		ofs_pkw_str(w, s.p, s.len);
}
