/* module.h - parts of the program that are loaded when they are wanted */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_MODULE_H
#define OFS_BASE_MODULE_H

#include <stdbool.h>

/* Is optimfs-NAME.so installed? */
bool ofs_module_exists(const char *name);
/* Loads optimfs-NAME.so and finds symbol. It stays loaded, because libraries of
 * MPI and CUDA cannot be unloaded. flags as for dlopen. NULL: the reason is in
 * why. */
void *ofs_module_load(const char *name, const char *symbol, int flags,
    char why[256]);

#endif
