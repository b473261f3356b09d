/* cmd_units.c - optimfs units-script: a helper for training jobs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>

#include "cli/args.h"
#include "tools/verbs.h"

/* contrib/dump_units.py. It is also a file of the package; a program that was
 * copied to another machine has no package. */
static const char script[] = {
#include "tools/dump_units.inc"
};

static int run_units(const struct ofs_verb *self, int argc, char **argv)
{
	struct ofs_args a;
	const char *value;
	int status;

	ofs_args_init(&a, self, argc, argv, NULL, NULL);
	switch (ofs_args_next(&a, &value, &status)) {
	case OFS_ARGS_END:
		break;
	case OFS_ARGS_OPERAND:
		return ofs_tool_usage(self, "it takes no argument");
	default:
		return status;
	}
	fwrite(script, 1, sizeof(script), stdout);
	return ofs_tool_finish(OFS_EXIT_OK);
}

const struct ofs_verb ofs_verb_units_script = {
	.name = "units-script",
	.synopsis = "",
	.summary =
	    "print dump_units.py, which writes units.json in an FSDP1 job",
	.run = run_units,
};
