/* cgroup.c - the memory limits of made control groups */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/cgroup.h"

#include <stdio.h>
#include <string.h>

#include "support/dcp_writer.h"
#include "tap.h"

/* A file below the made root. */
struct file {
	const char *name, *text;
};

#define V2(point, root) \
 "30 23 0:27 " root " " point " rw - cgroup2 cgroup2 rw\n"
#define V1(point, root, ctl) \
 "35 31 0:32 " root " " point " rw - cgroup cgroup rw," ctl "\n"
#define NONE         UINT64_MAX
#define UNLIMITED_V1 "9223372036854771712\n"

static const struct {
	const char *name, *cgroup, *mountinfo;
	uint64_t limit;
	struct file file[5];
} cases[] = {
	{ "no control groups", "", "", NONE, { { 0 } } },
	{ "version 2, no limit", "0::/a\n", V2("/cg", "/"), NONE,
	    { { "cg/a/memory.max", "max\n" },
		{ "cg/a/memory.high", "max\n" } } },
	{ "version 2, memory.max", "0::/a\n", V2("/cg", "/"), 4096,
	    { { "cg/a/memory.max", "4096\n" },
		{ "cg/a/memory.high", "max\n" } } },
	{ "version 2, memory.high", "0::/a\n", V2("/cg", "/"), 4096,
	    { { "cg/a/memory.max", "8192\n" },
		{ "cg/a/memory.high", "4096\n" } } },
	{ "version 2, a smaller limit above", "0::/a/b/c\n", V2("/cg", "/"),
	    4096,
	    { { "cg/a/b/c/memory.max", "65536\n" },
		{ "cg/a/b/memory.max", "max\n" },
		{ "cg/a/memory.max", "4096\n" } } },
	{ "version 2, a smaller limit beside", "0::/a/b\n", V2("/cg", "/"),
	    65536,
	    { { "cg/a/b/memory.max", "65536\n" },
		{ "cg/a/bb/memory.max", "4096\n" } } },
	{ "version 2, in a name space", "0::/\n", V2("/cg", "/"), 4096,
	    { { "cg/memory.max", "4096\n" } } },
	{ "version 2, mounted outside of the name space", "0::/\n",
	    V2("/cg", "/../.."), 4096, { { "cg/memory.max", "4096\n" } } },
	{ "version 2, a part is mounted", "0::/docker/id/sub\n",
	    V2("/cg", "/docker/id"), 4096,
	    { { "cg/sub/memory.max", "max\n" },
		{ "cg/memory.max", "4096\n" } } },
	{ "version 2, another part is mounted", "0::/docker/id\n",
	    V2("/cg", "/docker/i"), NONE, { { "cg/memory.max", "4096\n" } } },
	{ "version 2, outside of the name space", "0::/../a\n", V2("/cg", "/"),
	    NONE, { { "a/memory.max", "4096\n" } } },
	{ "version 2, a mount point with a space", "0::/a\n",
	    V2("/c\\040g", "/"), 4096, { { "c g/a/memory.max", "4096\n" } } },
	{ "version 2, no number", "0::/a\n", V2("/cg", "/"), NONE,
	    { { "cg/a/memory.max", "many\n" } } },
	{ "version 1", "4:memory:/a\n3:cpu:/b\n0::/\n",
	    V1("/cg/cpu", "/", "cpu") V1("/cg/memory", "/", "memory"), 4096,
	    { { "cg/memory/a/memory.limit_in_bytes", "4096\n" },
		{ "cg/cpu/b/memory.limit_in_bytes", "1\n" },
		{ "cg/memory/memory.limit_in_bytes", UNLIMITED_V1 } } },
	{ "version 1, several controllers", "4:cpu,memory,pids:/a\n",
	    V1("/cg", "/", "cpu,memory,pids"), 4096,
	    { { "cg/a/memory.limit_in_bytes", "4096\n" } } },
	{ "version 1, only the group of a container is mounted",
	    "4:memory:/docker/id\n", V1("/cg", "/docker/id", "memory"), 4096,
	    { { "cg/memory.limit_in_bytes", "4096\n" } } },
	{ "version 1, a limit above what is mounted", "4:memory:/docker/id\n",
	    V1("/cg", "/docker/id", "memory"), 4096,
	    { { "cg/memory.limit_in_bytes", "65536\n" },
		{ "cg/memory.stat",
		    "cache 7\nhierarchical_memory_limit 4096\nrss 1\n" } } },
	{ "both versions", "4:memory:/a\n0::/b\n",
	    V1("/cg/memory", "/", "memory") V2("/cg/unified", "/"), 4096,
	    { { "cg/memory/a/memory.limit_in_bytes", "65536\n" },
		{ "cg/unified/b/memory.max", "4096\n" } } },
};

static void put(const char *root, const char *name, const char *text)
{
	mk_file(root, name, text, strlen(text));
}

int main(void)
{
	char root[64];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		mk_dir(root);
		put(root, "proc/self/cgroup", cases[i].cgroup);
		put(root, "proc/self/mountinfo", cases[i].mountinfo);
		for (size_t k = 0; cases[i].file[k].name != NULL; k++)
			put(root, cases[i].file[k].name, cases[i].file[k].text);
		ok(ofs_cgroup_memory(root) == cases[i].limit, "%s",
		    cases[i].name);
		mk_remove(root);
	}
	ok(ofs_cgroup_memory("/nowhere") == NONE, "no /proc");
	return done_testing();
}
