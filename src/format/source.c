/* source.c - the checkpoint in its own files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "rewrite/source.h"

#include "format/format.h"

static const char *const listed[] = { "source", NULL };

static const struct ofs_view_kind views[] = {
	{ .name = "source", .own = true, .listed = listed },
	{ .name = NULL },
};

static bool no_option(const char *s, size_t n, struct ofs_layout *l)
{
	(void)s, (void)n, (void)l;
	return false;
}

/* Not a format to read, but a view: the files are in the format that they have. */
const struct ofs_format ofs_format_source = {
	.name = "source",
	.views = views,
	.option = no_option,
	.render = &ofs_source_files,
};
