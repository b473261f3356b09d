/* newmount.h - mounting without a mount point */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_NEWMOUNT_H
#define OFS_BASE_NEWMOUNT_H

/* fsopen(2), fsconfig(2) and fsmount(2). glibc has them from 2.36 on; Linux
 * since 5.2. */
#ifdef HAVE_FSOPEN
# include <sys/mount.h>
#else
# include <linux/mount.h>
# include <sys/syscall.h>
# include <unistd.h>

static inline int fsopen(const char *type, unsigned flags)
{
	return (int)syscall(__NR_fsopen, type, flags);
}
static inline int fsconfig(int fs, unsigned command, const char *key,
    const void *value, int aux)
{
	return (int)syscall(__NR_fsconfig, fs, command, key, value, aux);
}
static inline int fsmount(int fs, unsigned flags, unsigned attributes)
{
	return (int)syscall(__NR_fsmount, fs, flags, attributes);
}
#endif

#endif
