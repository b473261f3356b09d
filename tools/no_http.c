/* no_http.c - the command of a build that has no HTTP server */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/verbs.h"

static int run_without_http(const struct ofs_verb *self, int argc, char **argv)
{
	(void)argc;
	(void)argv;
	ofs_tool_say("%s: this program was built without an HTTP server: "
		     "configure it with libmicrohttpd (Debian: "
		     "libmicrohttpd-dev)",
	    self->name);
	return OFS_EXIT_UNSUPPORTED;
}

const struct ofs_verb ofs_verb_serve = {
	.name = "serve",
	.synopsis = "CHECKPOINT",
	.summary =
	    "not in this program, which was built without an HTTP server",
	.run = run_without_http,
};
