/* module.c - parts of the program that are loaded when they are wanted */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/module.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void find_module(const char *name, char path[PATH_MAX])
{
	const char *dir = getenv("OPTIMFS_MODULES");

	snprintf(path, PATH_MAX, "%s/optimfs-%s.so",
	    dir != NULL ? dir : MODULE_DIR, name);
}

bool ofs_module_exists(const char *name)
{
	char path[PATH_MAX];

	find_module(name, path);
	return access(path, R_OK) == 0;
}

/* Lazy: libcurl brings 20 libraries, of which most functions are never called. A
 * module itself is linked to look up its own at once. */
void *ofs_module_load(const char *name, const char *symbol, int flags,
    char why[256])
{
	void *module, *found;
	char path[PATH_MAX];

	find_module(name, path);
	module = dlopen(path, RTLD_LAZY | flags);
	found = module == NULL ? NULL : dlsym(module, symbol);
	if (found == NULL)
		snprintf(why, 256, "%s", dlerror());
	return found;
}
