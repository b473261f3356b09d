/* file_name.h - keys as names of files, and back */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_NAMING_FILE_NAME_H
#define OFS_NAMING_FILE_NAME_H

#include <stdbool.h>
#include <stddef.h>

#define OFS_NAME_MAX 255

/* Encode key[0..n) as a path component (optimfs(5), "Names"): control bytes,
 * "/" and "%" as %XX, "." and ".." as %2E, the empty key as "%"; a long key is
 * truncated and hashed. NUL-terminated; returns the length. Injective except
 * for hashed names. */
size_t ofs_name_encode(const char *key, size_t n, char name[OFS_NAME_MAX + 1]);
/* Append suffix to name. When the result is too long, name is truncated and
 * hashed like a long key. Returns the length. */
size_t ofs_name_suffix(const char *name, const char *suffix,
    char out[OFS_NAME_MAX + 1]);
/* name without suffix; false when it does not end with it, or has nothing more,
 * or is too long. */
bool ofs_name_bare(const char *name, const char *suffix,
    char bare[OFS_NAME_MAX + 1]);
/* name was made by ofs_name_suffix with a suffix of that length: the number of
 * bytes of the original that it begins with, 0 when it was not truncated. */
size_t ofs_name_kept(const char *name, size_t suffix);
/* Decode a name to its key; false when it was hashed or is not a result of
 * ofs_name_encode. key has room for n bytes; *len gets its length. */
bool ofs_name_decode(const char *name, size_t n, char *key, size_t *len);

#endif
