/* newmount.h - mounting without a mount point */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_NEWMOUNT_H
#define OFS_BASE_NEWMOUNT_H

/* fsopen(2), fsconfig(2) and fsmount(2), which Linux has since 5.2. The functions
 * of glibc 2.36 are not used: what is built with it then also runs with 2.34. */
#ifdef HAVE_FSOPEN
# include <sys/mount.h> /* the constants; <linux/mount.h> redefines them */
#else
# include <linux/mount.h>
#endif
#include <sys/syscall.h>
#include <unistd.h>

static inline int ofs_fsopen(const char *type, unsigned flags)
{
	return (int)syscall(__NR_fsopen, type, flags);
}
static inline int ofs_fsconfig(int fs, unsigned command, const char *key,
    const void *value, int aux)
{
	return (int)syscall(__NR_fsconfig, fs, command, key, value, aux);
}
static inline int ofs_fsmount(int fs, unsigned flags, unsigned attributes)
{
	return (int)syscall(__NR_fsmount, fs, flags, attributes);
}

#endif
