/* random.h - pseudo-random numbers, the same in every run */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TAP_RANDOM_H
#define TAP_RANDOM_H

#include <stdint.h>

/* SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number
 * generators, 2014). Any seed is good; neighbouring seeds give unrelated
 * numbers. */
static inline uint64_t tap_random(uint64_t *seed)
{
	uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* 0 to n - 1; 0 if n is 0. */
static inline uint64_t tap_below(uint64_t *seed, uint64_t n)
{
	return n == 0 ? 0 : tap_random(seed) % n;
}

#endif
