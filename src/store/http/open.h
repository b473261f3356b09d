/* open.h - opening what an address names */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_OPEN_H
#define OFS_STORE_HTTP_OPEN_H

#include <stdbool.h>

#include "optimfs/error.h"
#include "optimfs/optimfs.h"

#include "base/io.h"

/* The timeout of struct optimfs_options in seconds, 0: no limit. */
static inline unsigned ofs_http_timeout(unsigned option)
{
	return option == 0 ? 30 : option == OPTIMFS_NO_TIMEOUT ? 0 : option;
}

/* Is it an address, SCHEME://...? Whether it can be read, open says. */
bool ofs_http_is_address(const char *path);
/* Fails for an address, where something was to be written: EROFS (OFS926). */
int ofs_http_refuse(const char *path, struct optimfs_error *err);
/* What opening an address needs and a confined thread may not do. */
int ofs_http_prepare(const char *address, const struct optimfs_options *options,
    struct optimfs_error *err);
/* Opens what an address names: dir is a directory with the only reference of its
 * site, and *rel the name of the file in it, or "". ENOENT (OFS019): neither. */
int ofs_http_open(const char *address, unsigned timeout, struct ofs_dir *dir,
    char **rel, struct optimfs_error *err);

/* The same for a directory. */
int ofs_http_open_dir(const char *address, unsigned timeout,
    struct ofs_dir *dir, struct optimfs_error *err);
/* The address of a name in the directory of an address, malloc'ed; NULL: no
 * memory. */
char *ofs_http_below(const char *address, const char *name);

#endif
