/* vectors.h - a variant of some functions for each vector width */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_VECTORS_H
#define OFS_BASE_VECTORS_H

#include <stddef.h>

/* A file that includes this one has defined VECTORS_IMPL, a header that is
 * included once per width, with these macros:
 * WIDTH: doubles in a vector; NAME(x): x for this width; NAME_TEXT: for people;
 * TARGET: the attribute of functions that use vectors.
 * The header defines a static const NAME(TABLE) of the functions, and undefines
 * no macro but its own. ofs_variant(i, VARIANTS(TABLE)) is the address of the
 * i-th of them that this CPU supports, the fastest first; NULL after the last.
 *
 * The compiler translates vector types to instructions. A distribution builds
 * for the oldest CPU, so there are several variants, chosen at run time. The
 * build disables the contraction of x * y + z, which would change bits. */

#define WIDTH     2
#define NAME(x)   x##_two
#define NAME_TEXT "two doubles"
#define TARGET
#include VECTORS_IMPL
#undef WIDTH
#undef NAME
#undef NAME_TEXT
#undef TARGET

#if defined(__x86_64__)
# define WIDTH     4
# define NAME(x)   x##_four
# define NAME_TEXT "AVX2"
# define TARGET    __attribute__((target("avx2")))
# include VECTORS_IMPL
# undef WIDTH
# undef NAME
# undef NAME_TEXT
# undef TARGET

# define WIDTH     8
# define NAME(x)   x##_eight
# define NAME_TEXT "AVX-512"
# define TARGET    __attribute__((target("avx512f")))
# include VECTORS_IMPL
# undef WIDTH
# undef NAME
# undef NAME_TEXT
# undef TARGET

# define VARIANTS(table) &table##_two, &table##_four, &table##_eight
#else
# define VARIANTS(table) &table##_two, NULL, NULL
#endif

static inline const void *ofs_variant(unsigned i, const void *two,
    const void *four, const void *eight)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f") && i-- == 0)
		return eight;
	if (__builtin_cpu_supports("avx2") && i-- == 0)
		return four;
#else
	(void)four;
	(void)eight;
#endif
	return i == 0 ? two : NULL;
}

#endif
