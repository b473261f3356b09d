/* errname.c - the built-in names of errno values, used where libc has none */
/* SPDX-License-Identifier: Apache-2.0 */
#define OFS_OWN_ERRNAMES
#include "base/errname.c"

#include "tap.h"

int main(void)
{
	is_str(ofs_errname(EIO), "EIO", "ofs_errname(EIO) is \"EIO\"");
	ok(ofs_errname(0) == NULL && ofs_errname(9999) == NULL,
	    "ofs_errname gives NULL for 0 and for an unknown number");
#ifdef HAVE_STRERRORNAME_NP
	for (int code = 1; code < 134; code++)
		if (ofs_errname(code) != NULL)
			is_str(ofs_errname(code), strerrorname_np(code),
			    "the name of errno %d is that of libc", code);
#endif
	return done_testing();
}
