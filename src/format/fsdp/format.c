/* format.c - the format of FSDP1's rank files, beyond torch.save */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "format/fsdp/render.h"
#include "format/fsdp/units.h"
#include "layout/option.h"

static int check_options(const struct optimfs_options *opt,
    struct optimfs_error *err)
{
	if (opt->units == NULL || strcmp(opt->units, OFS_UNITS_NONE) == 0 ||
	    access(opt->units, R_OK) == 0)
		return 0;
	return optimfs_fail(err, errno == ENOENT ? ENOENT : EINVAL,
	    "OFS162 units=%s: %m", opt->units);
}

static bool option(const char *s, size_t n, struct ofs_layout *l)
{
	if (ofs_option_is(s, n, "orig"))
		l->flat = OFS_FLAT_ORIG;
	else if (ofs_option_is(s, n, "flat"))
		l->flat = OFS_FLAT_PACK;
	else if (ofs_option_is(s, n, "fill=zero"))
		l->fill_zero = true;
	else
		return ofs_option_keys(s, n, l) || ofs_option_crc(s, n, l) ||
		    ofs_option_narrow(s, n, l);
	return true;
}

static const struct ofs_view_kind views[] = {
	{ .name = "fsdp", .ranked = true },
	{ .name = NULL },
};

const struct ofs_format ofs_format_fsdp = {
	.name = "fsdp",
	.ranks_file = OFS_UNITS_FILE,
	.check_options = check_options,
	.keep_options = ofs_units_option,
	.views = views,
	.option = option,
	.render = &ofs_fsdp_render,
};
