/* near.c - run beside a device */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/gpu/near.h"

#include <ctype.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

/* Reads a list of processors ("0-15,32-47"). False: it is something else. */
static bool read_list(const char *p, cpu_set_t *set)
{
	CPU_ZERO(set);
	while (isdigit((unsigned char)*p)) {
		unsigned long first, last;
		char *end;

		first = last = strtoul(p, &end, 10);
		if (*end == '-')
			last = strtoul(end + 1, &end, 10);
		for (; first <= last && first < CPU_SETSIZE; first++)
			CPU_SET(first, set);
		p = *end == ',' ? end + 1 : end;
	}
	return *p == '\0' || *p == '\n';
}

bool ofs_near_device(const char *sysfs, const char *device)
{
	char name[32], path[256], list[1024];
	cpu_set_t there, own;
	bool found;
	FILE *f;

	/* the names there have small letters */
	snprintf(name, sizeof(name), "%s", device);
	for (char *p = name; *p != '\0'; p++)
		*p = (char)tolower((unsigned char)*p);
	snprintf(path, sizeof(path), "%s/bus/pci/devices/%s/local_cpulist",
	    sysfs, name);
	f = fopen(path, "re");
	if (f == NULL)
		return false;
	found = fgets(list, sizeof(list), f) != NULL && read_list(list, &there);
	fclose(f);
	if (!found || sched_getaffinity(0, sizeof(own), &own) == -1)
		return false;
	CPU_AND(&there, &there, &own);
	return CPU_COUNT(&there) > 0 &&
	    sched_setaffinity(0, sizeof(there), &there) == 0;
}
