/* fuzz_dtype.c - arbitrary text as an element of any dtype, and back */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/dtype.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* The printed text of an element parses to the same bits; all NaNs are equal. */
static void back(enum ofs_dtype t, const uint8_t *element)
{
	uint8_t again[16] = { 0 };
	char text[80];
	size_t n = ofs_dtype_print(t, element, text);

	must(n < sizeof(text) && strlen(text) == n);
	if (n == 0) {
		must(t == OFS_DTYPE_NONE);
		return;
	}
	must(ofs_dtype_parse(t, text, n, again) == 0);
	if (strcasestr(text, "nan") == NULL)
		must(memcmp(element, again, ofs_dtype_size(t)) == 0);
}

/* The first byte is the dtype; the rest is used as a text and as an element. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	uint8_t element[16] = { 0 };
	enum ofs_dtype t;
	int rc;

	if (n == 0)
		return 0;
	t = (enum ofs_dtype)(bytes[0] % OFS_NDTYPES);
	rc = ofs_dtype_parse(t, (const char *)bytes + 1, n - 1, element);
	must(rc == 0 || rc == EINVAL || rc == ERANGE);
	if (rc == 0)
		back(t, element);
	memset(element, 0, sizeof(element));
	memcpy(element, bytes + 1, n - 1 < 16 ? n - 1 : 16);
	/* Other bytes than 0 and 1 are true as well, and come back as 1. */
	if (t == OFS_BOOL)
		element[0] &= 1;
	back(t, element);
	return 0;
}
