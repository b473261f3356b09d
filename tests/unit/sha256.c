/* sha256.c - tests for base/sha256.c: both ways give what FIPS 180-4 says */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/sha256.h"

#include <stdlib.h>
#include <string.h>

#include "base/sha256_impl.h"
#include "tap.h"

static const char *hex_of(const void *p, size_t n)
{
	static char hex[OFS_SHA256_HEX];

	ofs_sha256_of(p, n, hex);
	return hex;
}

int main(void)
{
	char *a = malloc(1000000), hex[OFS_SHA256_HEX];
	uint32_t plain[8] = { 1, 2, 3, 4, 5, 6, 7, 8 }, fast[8];
	struct ofs_sha256 s;
	size_t n = 0;

	memset(a, 'a', 1000000);
	is_str(hex_of("", 0),
	    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
	    "nothing");
	is_str(hex_of("abc", 3),
	    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
	    "abc");
	is_str(hex_of(a, 1000000),
	    "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0",
	    "a million of a");
	ofs_sha256_init(&s);
	for (size_t k = 1; n < 1000000; n += k, k = k % 200 + 1)
		ofs_sha256_put(&s, a, k < 1000000 - n ? k : 1000000 - n);
	ofs_sha256_end(&s, hex);
	is_str(hex, hex_of(a, 1000000), "in pieces it is the same");
	if (ofs_sha256_fast() != NULL) {
		for (size_t i = 0; i < 1000000; i++)
			a[i] = (char)(i * i / 3);
		memcpy(fast, plain, sizeof(fast));
		ofs_sha256_blocks(plain, (uint8_t *)a, 15625);
		ofs_sha256_fast()(fast, (uint8_t *)a, 15625);
		ok(memcmp(plain, fast, sizeof(fast)) == 0,
		    "instructions of the processor give the same");
	} else {
		skip(1, "this processor has no instructions for it");
	}
	free(a);
	return done_testing();
}
