/* cluster/gpu/near.c - the processors beside a device, over a made sysfs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cluster/gpu/near.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tap.h"

static char top[] = "/tmp/optimfs-near.XXXXXX";
static cpu_set_t all; /* that this process may use */
static int mine;      /* one of them */

static void make_dir(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s%s", top, name);
	if (mkdir(path, 0700) == -1)
		bail_out("%s: %s", path, strerror(errno));
}

static void write_list(const char *text)
{
	char path[128];
	FILE *f;

	snprintf(path, sizeof(path),
	    "%s/bus/pci/devices/0000:c1:00.0/local_cpulist", top);
	f = fopen(path, "we");
	if (f == NULL || fputs(text, f) == EOF || fclose(f) != 0)
		bail_out("%s: %s", path, strerror(errno));
}

/* Where does the thread run afterwards: only on mine, or on all? */
static void check(const char *list, bool moves, const char *what)
{
	cpu_set_t want, got;

	write_list(list);
	CPU_ZERO(&want);
	CPU_SET(mine, &want);
	ok(ofs_near_device(top, "0000:C1:00.0") == moves, "%s: %s", what,
	    moves ? "the thread moves" : "the thread stays");
	sched_getaffinity(0, sizeof(got), &got);
	ok(CPU_EQUAL(&got, moves ? &want : &all), "%s: its processors", what);
	sched_setaffinity(0, sizeof(all), &all);
}

int main(void)
{
	char text[64], command[64];

	if (sched_getaffinity(0, sizeof(all), &all) == -1)
		bail_out("%s", strerror(errno));
	while (!CPU_ISSET(mine, &all))
		mine++;
	if (mkdtemp(top) == NULL)
		bail_out("%s: %s", top, strerror(errno));
	make_dir("/bus");
	make_dir("/bus/pci");
	make_dir("/bus/pci/devices");
	make_dir("/bus/pci/devices/0000:c1:00.0");
	snprintf(text, sizeof(text), "%d\n", mine);
	check(text, true, "one processor");
	snprintf(text, sizeof(text), "%d-%d,1020-1023\n", mine, mine);
	check(text, true, "a range, and others that are not here");
	check("1020-1023,99999999999999999999\n", false,
	    "processors that are not here");
	check("\n", false, "an empty list");
	snprintf(text, sizeof(text), "%d,nonsense\n", mine);
	check(text, false, "no list");
	ok(!ofs_near_device(top, "0000:C2:00.0"), "an unknown device");
	ok(!ofs_near_device(top, "../../../../../../../../../../etc"),
	    "no device");
	snprintf(command, sizeof(command), "rm -rf %s", top);
	if (system(command) != 0)
		diag("%s: not removed", top);
	return done_testing();
}
