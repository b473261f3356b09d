/* file_name.h - keys as names of files, and back */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_NAMING_FILE_NAME_H
#define OFS_NAMING_FILE_NAME_H

#include <stdbool.h>
#include <stddef.h>

#define OFS_NAME_MAX 255

/* key[0..n) as one path component (optimfs(5), "Names"): control bytes, "/"
 * and "%" as %XX, "." and ".." as %2E, the empty key as "%", a long one cut and
 * hashed. NUL-terminated; returns its length. Injective but for hashing. */
size_t ofs_name_encode(const char *key, size_t n, char name[OFS_NAME_MAX + 1]);
/* name with suffix behind it; where that is too long, name is cut and hashed as
 * a long key is. Returns its length. */
size_t ofs_name_suffix(const char *name, const char *suffix,
    char out[OFS_NAME_MAX + 1]);
/* How much of the original begins name, which ofs_name_suffix made with a
 * suffix of so many bytes; 0 when it was not cut. */
size_t ofs_name_kept(const char *name, size_t suffix);
/* The key a name stands for; false when it was hashed or was never made by
 * ofs_name_encode. key has room for n bytes; *len gets its length. */
bool ofs_name_decode(const char *name, size_t n, char *key, size_t *len);

#endif
