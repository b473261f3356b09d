/* errname.c - the names of errno values */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/errname.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

#if defined HAVE_STRERRORNAME_NP && !defined OFS_OWN_ERRNAMES
const char *ofs_errname(int code)
{
	return strerrorname_np(code);
}
#else
/* For glibc before 2.32: the errors of files, memory, networks and devices. */
# define NAME(code) \
  {                 \
   code, #code      \
  }
static const struct {
	int code;
	const char *name;
} names[] = {
	NAME(E2BIG),
	NAME(EACCES),
	NAME(EAGAIN),
	NAME(EBADF),
	NAME(EBADFD),
	NAME(EBADMSG),
	NAME(EBUSY),
	NAME(ECANCELED),
	NAME(ECHILD),
	NAME(ECONNABORTED),
	NAME(ECONNREFUSED),
	NAME(ECONNRESET),
	NAME(EDEADLK),
	NAME(EDOM),
	NAME(EDQUOT),
	NAME(EEXIST),
	NAME(EFAULT),
	NAME(EFBIG),
	NAME(EHOSTDOWN),
	NAME(EHOSTUNREACH),
	NAME(EILSEQ),
	NAME(EINTR),
	NAME(EINVAL),
	NAME(EIO),
	NAME(EISDIR),
	NAME(ELOOP),
	NAME(EMFILE),
	NAME(EMLINK),
	NAME(ENAMETOOLONG),
	NAME(ENETUNREACH),
	NAME(ENFILE),
	NAME(ENODATA),
	NAME(ENODEV),
	NAME(ENOENT),
	NAME(ENOLCK),
	NAME(ENOMEM),
	NAME(ENOSPC),
	NAME(ENOSYS),
	NAME(ENOTCONN),
	NAME(ENOTDIR),
	NAME(ENOTEMPTY),
	NAME(ENOTTY),
	NAME(ENXIO),
	NAME(EOPNOTSUPP),
	NAME(EOVERFLOW),
	NAME(EPERM),
	NAME(EPIPE),
	NAME(EPROTO),
	NAME(ERANGE),
	NAME(EREMOTEIO),
	NAME(EROFS),
	NAME(ESHUTDOWN),
	NAME(ESPIPE),
	NAME(ESRCH),
	NAME(ESTALE),
	NAME(ETIMEDOUT),
	NAME(ETXTBSY),
	NAME(EUCLEAN),
	NAME(EXDEV),
};

const char *ofs_errname(int code)
{
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (names[i].code == code)
			return names[i].name;
	return NULL;
}
#endif
