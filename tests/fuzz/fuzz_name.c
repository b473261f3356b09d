/* fuzz_name.c - arbitrary bytes as a key, and as a file name */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "naming/file_name.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* Every key must have a file name: one that decodes to the key, or a hash. */
static void as_key(const char *key, size_t n)
{
	char name[OFS_NAME_MAX + 1], back[OFS_NAME_MAX];
	size_t len = ofs_name_encode(key, n, name), got;

	must(len > 0 && len <= OFS_NAME_MAX && strlen(name) == len);
	must(strchr(name, '/') == NULL);
	must(strcmp(name, ".") != 0 && strcmp(name, "..") != 0);
	if (ofs_name_decode(name, len, back, &got))
		must(got == n && memcmp(back, key, n) == 0);
	else
		must(n > 66 && name[len - 17] == '~');
}

/* A name that decodes must be the name of the decoded key. */
static void as_name(const char *name, size_t n)
{
	char *key = malloc(n + 1), again[OFS_NAME_MAX + 1];
	size_t len;

	must(key != NULL);
	if (ofs_name_decode(name, n, key, &len)) {
		must(len <= n);
		must(ofs_name_encode(key, len, again) == n);
		must(memcmp(again, name, n) == 0);
	}
	free(key);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	as_key((const char *)bytes, n);
	as_name((const char *)bytes, n);
	return 0;
}
