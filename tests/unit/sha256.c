/* sha256.c - FIPS 180-4, for test data only */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sha256.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static uint32_t rotate(uint32_t v, int n)
{
	return v >> n | v << (32 - n);
}

/* The first 32 bits of the fraction of a root of the i-th prime. */
static uint32_t constant(int i, int root)
{
	int prime = 2;

	while (i > 0) {
		int d = 2;

		prime++;
		while (prime % d != 0)
			d++;
		i -= d == prime;
	}
	long double v =
	    root == 2 ? sqrtl((long double)prime) : cbrtl((long double)prime);

	return (uint32_t)((v - floorl(v)) * 4294967296.0L);
}

static void block(uint32_t h[8], const uint32_t k[64], const uint8_t *p)
{
	uint32_t w[64], v[8];

	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
		    (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
	for (int i = 16; i < 64; i++)
		w[i] = w[i - 16] + w[i - 7] +
		    (rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^
			w[i - 15] >> 3) +
		    (rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^
			w[i - 2] >> 10);
	memcpy(v, h, sizeof(v));
	for (int i = 0; i < 64; i++) {
		uint32_t a = v[0], e = v[4];
		uint32_t t1 = v[7] +
		    (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) +
		    ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i];
		uint32_t t2 = (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22)) +
		    ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));

		memmove(v + 1, v, 7 * sizeof(*v));
		v[4] += t1;
		v[0] = t1 + t2;
	}
	for (int i = 0; i < 8; i++)
		h[i] += v[i];
}

void sha256_hex(const void *p, size_t n, char hex[65])
{
	uint32_t h[8], k[64];
	const uint8_t *at = p;
	uint8_t last[128] = { 0 };
	size_t left = n, tail;

	for (int i = 0; i < 64; i++)
		k[i] = constant(i, 3);
	for (int i = 0; i < 8; i++)
		h[i] = constant(i, 2);
	for (; left >= 64; left -= 64, at += 64)
		block(h, k, at);
	memcpy(last, at, left);
	last[left] = 0x80;
	tail = left < 56 ? 64 : 128;
	for (int i = 0; i < 8; i++)
		last[tail - 1 - (size_t)i] =
		    (uint8_t)((uint64_t)n * 8 >> 8 * i);
	for (size_t i = 0; i < tail; i += 64)
		block(h, k, last + i);
	for (int i = 0; i < 8; i++)
		sprintf(hex + 8 * i, "%08x", h[i]);
}
