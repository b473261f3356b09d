/* lanes.c - vectorised arithmetic of sums, for this CPU */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "derive/lanes.h"

#include <string.h>

#define VECTORS_IMPL "derive/lanes_impl.h"
#include "base/vectors.h"

const struct ofs_lanes *ofs_lanes(unsigned i)
{
	return ofs_variant(i, VARIANTS(lanes));
}
