/* file_name.c - keys as names of files, and back */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "naming/file_name.h"

#include <stdint.h>
#include <string.h>
#include <xxhash.h>

#include "base/utf8.h"

/* A truncated name ends in "~" and 16 lower-case hexadecimal digits, the hash
 * of the whole key. A key that ends so itself is escaped, so that no other name
 * does. */
#define KEPT     200
#define HASH_LEN 17

/* What one byte or character of the key becomes. Names are truncated between
 * units. */
struct unit {
	char text[4];
	size_t len;
	size_t taken; /* number of bytes of the key */
};

static bool hex_digit(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

static bool looks_hashed(const char *p, size_t n)
{
	if (n != HASH_LEN || p[0] != '~')
		return false;
	for (size_t i = 1; i < n; i++)
		if (!hex_digit(p[i]))
			return false;
	return true;
}

static void escape(struct unit *u, uint8_t c)
{
	static const char hex[] = "0123456789ABCDEF";

	u->text[0] = '%';
	u->text[1] = hex[c >> 4];
	u->text[2] = hex[c & 15];
	u->len = 3;
	u->taken = 1;
}

static struct unit next_unit(const char *p, size_t n)
{
	struct unit u;
	size_t k = ofs_utf8_shown((const uint8_t *)p, n);
	uint8_t c = (uint8_t)*p;

	if (k == 0 || c == '/' || c == '%' || looks_hashed(p, n)) {
		escape(&u, c);
		return u;
	}
	memcpy(u.text, p, k);
	u.len = u.taken = k;
	return u;
}

static bool dots(const char *key, size_t n)
{
	return (n == 1 && key[0] == '.') ||
	    (n == 2 && key[0] == '.' && key[1] == '.');
}

/* Is the key its own name? Most are. */
static bool plain(const char *key, size_t n)
{
	if (n == 0 || n > OFS_NAME_MAX || dots(key, n))
		return false;
	for (size_t i = 0; i < n; i++)
		if (key[i] < 0x20 || key[i] > 0x7e || key[i] == '/' ||
		    key[i] == '%')
			return false;
	return n < HASH_LEN || !looks_hashed(key + n - HASH_LEN, HASH_LEN);
}

static size_t put_hash(const char *key, size_t n, char *at)
{
	static const char hex[] = "0123456789abcdef";
	uint64_t h = XXH64(key, n, 0);

	at[0] = '~';
	for (int i = 0; i < 16; i++)
		at[1 + i] = hex[h >> (60 - 4 * i) & 15];
	at[HASH_LEN] = '\0';
	return HASH_LEN;
}

size_t ofs_name_encode(const char *key, size_t n, char name[OFS_NAME_MAX + 1])
{
	size_t len = 0, cut = 0, i = 0;
	struct unit u;

	if (plain(key, n)) {
		memcpy(name, key, n);
		name[n] = '\0';
		return n;
	}
	if (n == 0) {
		memcpy(name, "%", 2);
		return 1;
	}
	if (dots(key, n)) {
		memcpy(name, "%2E%2E", 3 * n);
		name[3 * n] = '\0';
		return 3 * n;
	}
	while (i < n) {
		u = next_unit(key + i, n - i);
		if (len + u.len > OFS_NAME_MAX)
			return cut + put_hash(key, n, name + cut);
		memcpy(name + len, u.text, u.len);
		len += u.len;
		i += u.taken;
		if (len <= KEPT)
			cut = len;
	}
	name[len] = '\0';
	return len;
}

/* The length of the longest prefix of name, at most max, that splits neither a
 * character nor a "%XX". */
static size_t whole_units(const char *name, size_t max)
{
	size_t n = max;

	while (n > 0 && ((uint8_t)name[n] & 0xc0) == 0x80)
		n--;
	if (n > 0 && name[n - 1] == '%')
		n--;
	else if (n > 1 && name[n - 2] == '%')
		n -= 2;
	return n;
}

size_t ofs_name_suffix(const char *name, const char *suffix,
    char out[OFS_NAME_MAX + 1])
{
	size_t n = strlen(name), k = strlen(suffix), kept = n;

	if (n + k > OFS_NAME_MAX) {
		kept = whole_units(name, KEPT);
		put_hash(name, n, out + kept);
	}
	memcpy(out, name, kept);
	if (kept < n)
		n = kept + HASH_LEN;
	memcpy(out + n, suffix, k + 1);
	return n + k;
}

bool ofs_name_bare(const char *name, const char *suffix,
    char bare[OFS_NAME_MAX + 1])
{
	size_t n = strlen(name), k = strlen(suffix);

	if (n <= k || n > OFS_NAME_MAX || strcmp(name + n - k, suffix) != 0)
		return false;
	memcpy(bare, name, n - k);
	bare[n - k] = '\0';
	return true;
}

size_t ofs_name_kept(const char *name, size_t suffix)
{
	size_t n = strlen(name);

	if (n < HASH_LEN + suffix || n > KEPT + HASH_LEN + suffix)
		return 0;
	n -= HASH_LEN + suffix;
	return looks_hashed(name + n, HASH_LEN) ? n : 0;
}

static int unhex(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Decode %XX. The caller encodes the result to check that it gives name. */
static bool unescape(const char *name, size_t n, char *key, size_t *len)
{
	size_t out = 0;

	for (size_t i = 0; i < n; i++) {
		if (name[i] != '%') {
			key[out++] = name[i];
			continue;
		}
		if (n - i < 3 || unhex(name[i + 1]) < 0 ||
		    unhex(name[i + 2]) < 0)
			return false;
		key[out++] =
		    (char)(unhex(name[i + 1]) << 4 | unhex(name[i + 2]));
		i += 2;
	}
	*len = out;
	return true;
}

bool ofs_name_decode(const char *name, size_t n, char *key, size_t *len)
{
	char again[OFS_NAME_MAX + 1];
	size_t out = 0;

	if (n == 0 || n > OFS_NAME_MAX ||
	    (n >= HASH_LEN && looks_hashed(name + n - HASH_LEN, HASH_LEN)))
		return false;
	if (!(n == 1 && name[0] == '%') && !unescape(name, n, key, &out))
		return false;
	if (ofs_name_encode(key, out, again) != n ||
	    memcmp(again, name, n) != 0)
		return false;
	*len = out;
	return true;
}
