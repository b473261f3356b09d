/* name.c - encoding of keys as file names, and decoding */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/utf8.h"
#include "naming/file_name.h"
#include "random.h"
#include "tap.h"

static const struct {
	const char *key;
	size_t n;
	const char *name;
} table[] = {
#define K(k, e)       \
 {                    \
  k, sizeof(k) - 1, e \
 }
	K("layers.0.attn.weight", "layers.0.attn.weight"),
	K("a/b", "a%2Fb"),
	K(".", "%2E"),
	K("..", "%2E%2E"),
	K("...", "..."),
	K(".hidden", ".hidden"),
	K(".optimfs", ".optimfs"),
	K("", "%"),
	K("%", "%25"),
	K("100%", "100%25"),
	K("%2F", "%252F"),
	K("a\0b", "a%00b"),
	K("a\nb\tc\x1b[2J", "a%0Ab%09c%1B[2J"),
	K("\x7f", "%7F"),
	K("\xcf\x80.w", "\xcf\x80.w"),
	K("\xe2\x80\xae", "%E2%80%AE"),
	K("\xff", "%FF"),
	K("\xed\xa0\x80", "%ED%A0%80"),
	K("\xc3", "%C3"),
	K("a\xc3(", "a%C3("),
	K("-rf", "-rf"),
	K("a b$(c)'\"", "a b$(c)'\""),
	K("CASE", "CASE"),
	K("w~0123456789abcdef", "w%7E0123456789abcdef"),
	K("~0123456789abcdef", "%7E0123456789abcdef"),
	K("w~0123456789abcdef0", "w~0123456789abcdef0"),
	K("w~0123456789ABCDEF", "w~0123456789ABCDEF"),
	K("w~2", "w~2"),
};

static bool round_trip(const char *key, size_t n)
{
	char name[OFS_NAME_MAX + 1], back[OFS_NAME_MAX + 1];
	size_t len, got;

	memset(name, 'x', sizeof(name));
	len = ofs_name_encode(key, n, name);
	if (len == 0 || len > OFS_NAME_MAX || strlen(name) != len)
		return false;
	if (strchr(name, '/') != NULL || strcmp(name, ".") == 0 ||
	    strcmp(name, "..") == 0)
		return false;
	for (size_t i = 0; i < len;) {
		size_t k = ofs_utf8_length((uint8_t *)name + i, len - i);

		if (k == 0 || (uint8_t)name[i] < 0x20 || name[i] == 0x7f)
			return false;
		i += k;
	}
	if (!ofs_name_decode(name, len, back, &got))
		return len >= 197 + 17 && name[len - 17] == '~';
	return got == n && memcmp(back, key, n) == 0;
}

static void rows(void)
{
	char name[OFS_NAME_MAX + 1];

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		ofs_name_encode(table[i].key, table[i].n, name);
		is_str(name, table[i].name, "%s", table[i].name);
		ok(round_trip(table[i].key, table[i].n),
		    "%s: its key survives encoding and decoding",
		    table[i].name);
	}
}

/* Returns n copies of unit followed by tail; freed by the caller. */
static char *repeat(const char *unit, size_t n, const char *tail)
{
	size_t k = strlen(unit);
	char *s = malloc(n * k + strlen(tail) + 1);

	if (s == NULL)
		bail_out("no memory");
	for (size_t i = 0; i < n; i++)
		memcpy(s + i * k, unit, k);
	strcpy(s + n * k, tail);
	return s;
}

static void cut_at(const char *unit, size_t n, const char *tail, size_t kept)
{
	char name[OFS_NAME_MAX + 1], want[32], back[OFS_NAME_MAX];
	char *key = repeat(unit, n, tail);
	size_t len = ofs_name_encode(key, strlen(key), name);

	snprintf(want, sizeof(want), "~%016llx",
	    (unsigned long long)XXH64(key, strlen(key), 0));
	is_u64(len, kept + 17,
	    "%zu x \"%s\": the name is cut to %zu bytes and a hash", n, unit,
	    kept);
	is_str(name + kept, want,
	    "%zu x \"%s\": the name ends with the hash of the key", n, unit);
	ok(!ofs_name_decode(name, len, back, &len),
	    "%zu x \"%s\": a hashed name does not decode", n, unit);
	free(key);
}

static void limits(void)
{
	char a[OFS_NAME_MAX + 1], b[OFS_NAME_MAX + 1];
	char *key = repeat("x", 255, ""), *other;

	is_u64(ofs_name_encode(key, 255, a), 255,
	    "a key of 255 bytes keeps its length");
	ok(round_trip(key, 255),
	    "a key of 255 bytes survives encoding and decoding");
	free(key);
	cut_at("x", 256, "", 200);
	cut_at("x", 65536, "", 200);
	cut_at("\xcf\x80", 128, "", 200);
	cut_at("\xe2\x82\xac", 86, "", 198);
	cut_at("\xf0\x9f\x98\x80", 64, "", 200);
	cut_at("/", 86, "", 198);
	cut_at("a/", 66, "", 200);
	key = repeat("x", 300, "a");
	other = repeat("x", 300, "b");
	ofs_name_encode(key, 301, a);
	ofs_name_encode(other, 301, b);
	ok(memcmp(a, b, 200) == 0 && strcmp(a, b) != 0,
	    "two long keys with a common beginning have different names");
	free(other);
	/* This key is what the long one's name looks like. It must not get that
	 * name. */
	is_u64(ofs_name_encode(a, strlen(a), b), 219,
	    "a key that looks like a hashed name is encoded");
	ok(strcmp(a, b) != 0,
	    "a key that looks like a hashed name gets another name");
	free(key);
}

static void suffixes(void)
{
	static const struct {
		const char *unit;
		size_t n, kept;
	} cases[] = { { "x", 251, 251 }, { "x", 252, 200 },
		{ "\xcf\x80", 126, 200 }, { "\xe2\x82\xac", 84, 198 },
		{ "%2F", 84, 198 }, { "x%2F", 63, 200 },
		{ "\xf0\x9f\x98\x80", 63, 200 } };
	char name[OFS_NAME_MAX + 1];

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *key = repeat(cases[i].unit, cases[i].n, "");
		size_t kept = cases[i].kept, cut = strlen(key) > kept;

		is_u64(ofs_name_suffix(key, ".npy", name), kept + cut * 17 + 4,
		    "a suffix after %zu x \"%s\": length of the name",
		    cases[i].n, cases[i].unit);
		ok(strncmp(name, key, kept) == 0,
		    "a suffix after %zu x \"%s\": the key begins the name",
		    cases[i].n, cases[i].unit);
		is_str(name + strlen(name) - 4, ".npy",
		    "a suffix after %zu x \"%s\": it ends the name", cases[i].n,
		    cases[i].unit);
		is_u64(ofs_name_kept(name, 4), cut * kept,
		    "a suffix after %zu x \"%s\": kept length of the key",
		    cases[i].n, cases[i].unit);
		free(key);
	}
}

static void refused(void)
{
	static const char *const names[] = { "", ".", "..", "a/b", "%2f", "%41",
		"%G0", "%2", "a%", "%%", "a\x01", "\xff", "%2E%2", "%2E.",
		"x~0123456789abcdef", "%7E" };
	char key[OFS_NAME_MAX + 1];
	size_t len;

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		ok(!ofs_name_decode(names[i], strlen(names[i]), key, &len),
		    "\"%s\" does not decode, since no key has this name",
		    names[i]);
}

/* Prefers bytes that the encoding treats specially. */
static char random_byte(uint64_t *s)
{
	static const char special[] = "/%.~0123abcdef\xcf\x80\xf0\x9f\x98\xed";
	uint32_t r = (uint32_t)tap_random(s);

	return r % 3 == 0 ? (char)(r >> 8)
			  : special[(r >> 8) % (sizeof(special) - 1)];
}

static void property(void)
{
	char key[400];
	uint64_t seed = 20240607;
	int bad = 0;

	for (int i = 0; i < 200000; i++) {
		size_t n = tap_random(&seed) % (i % 16 == 0 ? sizeof(key) : 24);

		for (size_t j = 0; j < n; j++)
			key[j] = random_byte(&seed);
		bad += !round_trip(key, n);
	}
	is_int(bad, 0, "200000 random keys survive encoding and decoding");
}

int main(void)
{
	rows();
	limits();
	suffixes();
	refused();
	property();
	return done_testing();
}
