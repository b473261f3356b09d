/* module.c - parts of the program that are loaded when they are wanted */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/module.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

void *ofs_module_load(const char *name, const char *symbol, int flags,
    char why[256])
{
	const char *dir = getenv("OPTIMFS_MODULES");
	void *module, *found;
	char path[4096];

	snprintf(path, sizeof(path), "%s/optimfs-%s.so",
	    dir != NULL ? dir : MODULE_DIR, name);
	module = dlopen(path, RTLD_NOW | flags);
	found = module == NULL ? NULL : dlsym(module, symbol);
	if (found == NULL)
		snprintf(why, 256, "%s", dlerror());
	return found;
}
