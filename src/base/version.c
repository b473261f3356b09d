/* version.c - the version of optimfs, and its build options */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <pthread.h>
#include <stdio.h>
#include <xxhash.h>
#include <zlib.h>
#ifdef HAVE_ZSTD
# include <zstd.h>
#endif

#include "optimfs/optimfs.h"

const char *optimfs_version(void)
{
	return PACKAGE_VERSION;
}

#ifdef HAVE_ZSTD
static const char *zstd(void)
{
	return ZSTD_versionString();
}
#else
static const char *zstd(void)
{
	return "none";
}
#endif

static char features[128];

static void describe(void)
{
	unsigned x = XXH_versionNumber();

	snprintf(features, sizeof(features),
	    "zlib %s, xxhash %u.%u.%u, zstd %s", zlibVersion(), x / 10000,
	    x / 100 % 100, x % 100, zstd());
}

const char *optimfs_features(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;

	pthread_once(&once, describe);
	return features;
}
