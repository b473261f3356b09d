/* sha256_fast.c - SHA-256 by instructions of x86 processors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdbool.h>

#include "base/sha256_impl.h"

#if defined(__x86_64__)

# include <cpuid.h>
# include <immintrin.h>

# define TARGET __attribute__((target("sha,sse4.1,ssse3")))

/* Intel, "Intel SHA Extensions": the state is kept as ABEF and CDGH. */
struct state {
	__m128i abef, cdgh;
};

TARGET static struct state load(const uint32_t h[8])
{
	__m128i cdab =
	    _mm_shuffle_epi32(_mm_loadu_si128((const void *)h), 0xb1);
	__m128i efgh =
	    _mm_shuffle_epi32(_mm_loadu_si128((const void *)(h + 4)), 0x1b);

	return (struct state){ _mm_alignr_epi8(cdab, efgh, 8),
		_mm_blend_epi16(efgh, cdab, 0xf0) };
}

TARGET static void store(struct state s, uint32_t h[8])
{
	__m128i feba = _mm_shuffle_epi32(s.abef, 0x1b);
	__m128i dchg = _mm_shuffle_epi32(s.cdgh, 0xb1);

	_mm_storeu_si128((void *)h, _mm_blend_epi16(feba, dchg, 0xf0));
	_mm_storeu_si128((void *)(h + 4), _mm_alignr_epi8(dchg, feba, 8));
}

/* Words t to t + 3 of the schedule, of the 16 before them. */
TARGET static __m128i next(const __m128i m[4], int i)
{
	__m128i last = m[(i + 3) % 4];
	__m128i sum =
	    _mm_add_epi32(_mm_sha256msg1_epu32(m[i % 4], m[(i + 1) % 4]),
		_mm_alignr_epi8(last, m[(i + 2) % 4], 4));

	return _mm_sha256msg2_epu32(sum, last);
}

TARGET static void add_blocks(uint32_t h[8], const uint8_t *p, size_t n)
{
	const __m128i swap =
	    _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
	struct state s = load(h), was;
	__m128i m[4], w;

	for (; n > 0; n--, p += 64) {
		was = s;
		for (int i = 0; i < 4; i++)
			m[i] =
			    _mm_shuffle_epi8(_mm_loadu_si128((const void *)(p +
						 16 * i)),
				swap);
		for (int i = 0; i < 16; i++) {
			w = _mm_add_epi32(m[i % 4],
			    _mm_loadu_si128((const void *)(ofs_sha256_k +
				4 * i)));
			s.cdgh = _mm_sha256rnds2_epu32(s.cdgh, s.abef, w);
			w = _mm_shuffle_epi32(w, 0x0e);
			s.abef = _mm_sha256rnds2_epu32(s.abef, s.cdgh, w);
			if (i < 12)
				m[i % 4] = next(m, i);
		}
		s.abef = _mm_add_epi32(s.abef, was.abef);
		s.cdgh = _mm_add_epi32(s.cdgh, was.cdgh);
	}
	store(s, h);
}

static bool has_instructions(void)
{
	unsigned a, b, c, d;

	return __builtin_cpu_supports("sse4.1") &&
	    __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & 1u << 29) != 0;
}

ofs_sha256_blocks_fn *ofs_sha256_fast(void)
{
	/* 0: not known yet */
	static _Atomic int has;

	if (has == 0)
		has = has_instructions() ? 1 : -1;
	return has == 1 ? add_blocks : NULL;
}

#else

ofs_sha256_blocks_fn *ofs_sha256_fast(void)
{
	return NULL;
}

#endif
