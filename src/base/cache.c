/* cache.c - the directories of the cache of Hugging Face */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/cache.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

size_t ofs_cache_root(const char *real)
{
	char blobs[PATH_MAX + 16];
	const char *at = NULL;
	struct stat st;
	size_t n;

	for (const char *p = real; (p = strstr(p, "/snapshots")) != NULL; p++)
		if (p[10] == '/' || p[10] == '\0')
			at = p;
	n = at == NULL ? strlen(real) : (size_t)(at - real);
	if (n == 0 || n > PATH_MAX)
		return 0;
	snprintf(blobs, sizeof(blobs), "%.*s/blobs", (int)n, real);
	if (stat(blobs, &st) == -1 || !S_ISDIR(st.st_mode))
		return 0;
	snprintf(blobs, sizeof(blobs), "%.*s/snapshots", (int)n, real);
	return stat(blobs, &st) == 0 && S_ISDIR(st.st_mode) ? n : 0;
}
