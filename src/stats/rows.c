/* rows.c - vectorised sums for this CPU */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "stats/rows.h"

#include <stdint.h>
#include <string.h>

#define VECTORS_IMPL "stats/rows_impl.h"
#include "base/vectors.h"

const struct ofs_rows *ofs_rows(unsigned i)
{
	return ofs_variant(i, VARIANTS(rows));
}
