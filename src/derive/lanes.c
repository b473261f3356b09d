/* lanes.c - vectorised arithmetic of sums, for this CPU */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "derive/lanes.h"

#include <string.h>

/* The compiler translates vector types to instructions. A distribution builds
 * for the oldest CPU, so there are several variants, chosen at run time. The
 * build disables the contraction of w * x + s, which would change bits. */

#define WIDTH     2
#define NAME(x)   x##_two
#define NAME_TEXT "two doubles"
#define TARGET
#include "derive/lanes_impl.h"

#if defined(__x86_64__)
# define WIDTH     4
# define NAME(x)   x##_four
# define NAME_TEXT "AVX2"
# define TARGET    __attribute__((target("avx2")))
# include "derive/lanes_impl.h"

# define WIDTH     8
# define NAME(x)   x##_eight
# define NAME_TEXT "AVX-512"
# define TARGET    __attribute__((target("avx512f")))
# include "derive/lanes_impl.h"
#endif

const struct ofs_lanes *ofs_lanes(unsigned i)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f") && i-- == 0)
		return &lanes_eight;
	if (__builtin_cpu_supports("avx2") && i-- == 0)
		return &lanes_four;
#endif
	return i == 0 ? &lanes_two : NULL;
}
