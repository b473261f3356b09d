/* sha256.c - SHA-256 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/sha256.h"

#include <stdio.h>
#include <string.h>

#include "base/sha256_impl.h"

const uint32_t ofs_sha256_k[64] = { 0x428a2f98, 0x71374491, 0xb5c0fbcf,
	0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
	0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7,
	0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
	0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8,
	0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85,
	0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e,
	0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
	0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c,
	0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee,
	0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
	0xc67178f2 };

static uint32_t ror(uint32_t x, int n)
{
	return x >> n | x << (32 - n);
}

/* A round; what was h comes next as a. */
#define ROUND(a, b, c, d, e, f, g, h, i)                     \
 do {                                                        \
  uint32_t t = (h) + (ror(e, 6) ^ ror(e, 11) ^ ror(e, 25)) + \
      (((e) & (f)) ^ (~(e) & (g))) + ofs_sha256_k[i] + w[i]; \
                                                             \
  (d) += t;                                                  \
  (h) = t + (ror(a, 2) ^ ror(a, 13) ^ ror(a, 22)) +          \
      (((a) & (b)) ^ ((a) & (c)) ^ ((b) & (c)));             \
 } while (0)

static void block(uint32_t h[8], const uint8_t *p)
{
	uint32_t w[64], v[8];

	for (int i = 0; i < 16; i++)
		w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
		    (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
	for (int i = 16; i < 64; i++)
		w[i] = w[i - 16] + w[i - 7] +
		    (ror(w[i - 15], 7) ^ ror(w[i - 15], 18) ^ w[i - 15] >> 3) +
		    (ror(w[i - 2], 17) ^ ror(w[i - 2], 19) ^ w[i - 2] >> 10);
	memcpy(v, h, sizeof(v));
	for (int i = 0; i < 64; i += 8) {
		ROUND(v[0], v[1], v[2], v[3], v[4], v[5], v[6], v[7], i);
		ROUND(v[7], v[0], v[1], v[2], v[3], v[4], v[5], v[6], i + 1);
		ROUND(v[6], v[7], v[0], v[1], v[2], v[3], v[4], v[5], i + 2);
		ROUND(v[5], v[6], v[7], v[0], v[1], v[2], v[3], v[4], i + 3);
		ROUND(v[4], v[5], v[6], v[7], v[0], v[1], v[2], v[3], i + 4);
		ROUND(v[3], v[4], v[5], v[6], v[7], v[0], v[1], v[2], i + 5);
		ROUND(v[2], v[3], v[4], v[5], v[6], v[7], v[0], v[1], i + 6);
		ROUND(v[1], v[2], v[3], v[4], v[5], v[6], v[7], v[0], i + 7);
	}
	for (int i = 0; i < 8; i++)
		h[i] += v[i];
}

void ofs_sha256_blocks(uint32_t h[8], const uint8_t *p, size_t n)
{
	for (; n > 0; n--, p += 64)
		block(h, p);
}

void ofs_sha256_init(struct ofs_sha256 *s)
{
	*s = (struct ofs_sha256){ .h = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372,
				      0xa54ff53a, 0x510e527f, 0x9b05688c,
				      0x1f83d9ab, 0x5be0cd19 } };
}

void ofs_sha256_put(struct ofs_sha256 *s, const void *p, size_t n)
{
	ofs_sha256_blocks_fn *fast = ofs_sha256_fast(),
			     *blocks = fast != NULL ? fast : ofs_sha256_blocks;
	const uint8_t *at = p;
	size_t have = s->n % 64;

	s->n += n;
	if (have > 0 && have + n >= 64) {
		memcpy(s->rest + have, at, 64 - have);
		blocks(s->h, s->rest, 1);
		at += 64 - have;
		n -= 64 - have;
		have = 0;
	}
	blocks(s->h, at, n / 64);
	at += n - n % 64;
	n %= 64;
	if (n > 0)
		memcpy(s->rest + have, at, n);
}

void ofs_sha256_end(struct ofs_sha256 *s, char hex[OFS_SHA256_HEX])
{
	uint8_t last[72] = { 0x80 };
	uint64_t bits = s->n * 8;
	size_t pad = (s->n % 64 < 56 ? 56 : 120) - s->n % 64;

	for (int i = 0; i < 8; i++)
		last[pad + (size_t)i] = (uint8_t)(bits >> (56 - 8 * i));
	ofs_sha256_put(s, last, pad + 8);
	for (int i = 0; i < 8; i++)
		snprintf(hex + 8 * i, 9, "%08x", s->h[i]);
}

void ofs_sha256_of(const void *p, size_t n, char hex[OFS_SHA256_HEX])
{
	struct ofs_sha256 s;

	ofs_sha256_init(&s);
	ofs_sha256_put(&s, p, n);
	ofs_sha256_end(&s, hex);
}
