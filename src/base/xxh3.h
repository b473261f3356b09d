/* xxh3.h - XXH3, computed as this CPU does it fastest */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_XXH3_H
#define OFS_BASE_XXH3_H

#include <xxhash.h>
#ifdef HAVE_XXH_X86DISPATCH
# include <xxh_x86dispatch.h>
#endif

#endif
