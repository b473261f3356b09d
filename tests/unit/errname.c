/* errname.c - names of errno values where libc has none */
/* SPDX-License-Identifier: Apache-2.0 */
#define OFS_OWN_ERRNAMES
#include "base/errname.c"

#include "tap.h"

int main(void)
{
	is_str(ofs_errname(EIO), "EIO", "one of many");
	ok(ofs_errname(0) == NULL && ofs_errname(9999) == NULL, "no error");
#ifdef HAVE_STRERRORNAME_NP
	for (int code = 1; code < 134; code++)
		if (ofs_errname(code) != NULL)
			is_str(ofs_errname(code), strerrorname_np(code),
			    "%d is what libc calls it", code);
#endif
	return done_testing();
}
