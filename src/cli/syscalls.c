/* syscalls.c - system calls that threads which parse can do without */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/syscalls.h"

#include <endian.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The list names what is refused, not what is allowed. What libc, libfuse, MPI
 * and sanitizers call differs from system to system, and a filter that refuses
 * a harmless call of a newer libc would end a mount in the middle of a training
 * run. What a thread may open is limited by Landlock (sandbox.c); the list adds
 * what Landlock does not know. It needs no library: a filter is two instructions
 * for each call. Refused calls fail, they do not kill.
 *
 * A call that a kernel does not have can be in the list, so numbers that are
 * the same for all processors are given where headers are too old. */
#if defined(__x86_64__)
# define PROCESSOR AUDIT_ARCH_X86_64
# define OTHER_ABI 0x40000000u /* x32 */
#elif defined(__aarch64__) && __BYTE_ORDER == __LITTLE_ENDIAN
# define PROCESSOR AUDIT_ARCH_AARCH64
#elif defined(__riscv) && __riscv_xlen == 64
# define PROCESSOR AUDIT_ARCH_RISCV64
#elif defined(__powerpc64__) && __BYTE_ORDER == __LITTLE_ENDIAN
# define PROCESSOR AUDIT_ARCH_PPC64LE
#elif defined(__s390x__)
# define PROCESSOR AUDIT_ARCH_S390X
#else
# define PROCESSOR 0 /* unknown */
#endif
#ifndef OTHER_ABI
# define OTHER_ABI UINT32_MAX /* all numbers are of this one */
#endif

/* Numbers since Linux 5.1 are the same everywhere. */
enum {
	CALL_PIDFD_SEND_SIGNAL = 424,
	CALL_IO_URING_SETUP = 425,
	CALL_IO_URING_ENTER = 426,
	CALL_IO_URING_REGISTER = 427,
	CALL_OPEN_TREE = 428,
	CALL_MOVE_MOUNT = 429,
	CALL_FSOPEN = 430,
	CALL_FSCONFIG = 431,
	CALL_FSMOUNT = 432,
	CALL_FSPICK = 433,
	CALL_PIDFD_OPEN = 434,
	CALL_CLONE3 = 435,
	CALL_PIDFD_GETFD = 438,
	CALL_PROCESS_MADVISE = 440,
	CALL_MOUNT_SETATTR = 442,
	CALL_QUOTACTL_FD = 443,
	CALL_PROCESS_MRELEASE = 448,
	CALL_FCHMODAT2 = 452,
	CALL_SETXATTRAT = 463,
	CALL_REMOVEXATTRAT = 466,
	CALL_OPEN_TREE_ATTR = 467,
	CALL_FILE_SETATTR = 469,
};

static const int always[] = {
	/* programs and processes */
	SYS_execve, SYS_execveat, SYS_ptrace, SYS_process_vm_readv,
	SYS_process_vm_writev, SYS_kcmp, SYS_tkill, SYS_rt_sigqueueinfo,
	SYS_rt_tgsigqueueinfo, SYS_setpgid, SYS_setsid, SYS_setpriority,
	SYS_sched_setscheduler, SYS_sched_setparam, SYS_sched_setattr,
	SYS_sched_setaffinity, SYS_ioprio_set, SYS_migrate_pages,
	SYS_move_pages, CALL_PIDFD_SEND_SIGNAL, CALL_PIDFD_OPEN,
	CALL_PIDFD_GETFD, CALL_PROCESS_MADVISE, CALL_PROCESS_MRELEASE,
	/* other processes and machines */
	SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_listen,
	SYS_shmget, SYS_shmat, SYS_semget, SYS_msgget, SYS_mq_open,
	/* file systems and name spaces */
	SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, SYS_unshare,
	SYS_setns, SYS_swapon, SYS_swapoff, SYS_quotactl, SYS_acct,
	SYS_name_to_handle_at, SYS_open_by_handle_at, SYS_fanotify_init,
	SYS_mknodat, CALL_OPEN_TREE, CALL_MOVE_MOUNT, CALL_FSOPEN,
	CALL_FSCONFIG, CALL_FSMOUNT, CALL_FSPICK, CALL_MOUNT_SETATTR,
	CALL_QUOTACTL_FD, CALL_OPEN_TREE_ATTR,
	/* the kernel */
	SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load,
	SYS_reboot, SYS_bpf, SYS_perf_event_open, SYS_userfaultfd, SYS_syslog,
	SYS_add_key, SYS_request_key, SYS_keyctl, SYS_settimeofday,
	SYS_clock_settime, SYS_adjtimex, SYS_clock_adjtime, SYS_sethostname,
	SYS_setdomainname, SYS_vhangup, SYS_personality, CALL_IO_URING_SETUP,
	CALL_IO_URING_ENTER, CALL_IO_URING_REGISTER,
	/* identity */
	SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid, SYS_setresuid,
	SYS_setresgid, SYS_setgroups, SYS_setfsuid, SYS_setfsgid, SYS_capset,
/* not on all processors */
#ifdef SYS_kexec_file_load
	SYS_kexec_file_load,
#endif
#ifdef SYS_fork
	SYS_fork,
#endif
#ifdef SYS_vfork
	SYS_vfork,
#endif
#ifdef SYS_mknod
	SYS_mknod,
#endif
#ifdef SYS_iopl
	SYS_iopl, SYS_ioperm, SYS_modify_ldt,
#endif
	-1
};

/* Landlock knows nothing of attributes, but of what is opened: what writes sets
 * the attributes of open files only, and nothing else those of any. */
static const int attributes[] = { SYS_fchmodat, SYS_fchownat, SYS_setxattr,
	SYS_lsetxattr, SYS_removexattr, SYS_lremovexattr, CALL_FCHMODAT2,
	CALL_SETXATTRAT, CALL_REMOVEXATTRAT, CALL_FILE_SETATTR,
#ifdef SYS_chmod
	SYS_chmod, SYS_chown, SYS_lchown,
#endif
#ifdef SYS_utime
	SYS_utime,
#endif
#ifdef SYS_utimes
	SYS_utimes,
#endif
#ifdef SYS_futimesat
	SYS_futimesat,
#endif
	-1 };

/* of a server, which has a socket already */
static const int connections[] = {
	SYS_accept4,
#ifdef SYS_accept
	SYS_accept,
#endif
	-1,
};

static const int read_only[] = { SYS_renameat2, SYS_linkat, SYS_symlinkat,
	SYS_mkdirat, SYS_truncate, SYS_fchmod, SYS_fchown, SYS_utimensat,
	SYS_fsetxattr, SYS_fremovexattr,
#ifdef SYS_renameat
	SYS_renameat,
#endif
#ifdef SYS_rename
	SYS_rename, SYS_link, SYS_symlink, SYS_mkdir, SYS_rmdir,
#endif
	-1 };

/* A call that is refused if a half of an argument ... */
enum half { LOW, HIGH };
enum test {
	EQUAL,
	NOT_EQUAL,
	LACKS, /* has none of the bits of value */
};
struct argument {
	int call;
	unsigned index;
	enum half half;
	enum test test;
	uint32_t value;
};

#define FILTER_MAX 512
_Static_assert(2 * (sizeof(always) + sizeof(attributes) + sizeof(read_only)) /
		sizeof(int) +
	    80 <
	FILTER_MAX,
    "the filter has room for all calls");
struct filter {
	struct sock_filter code[FILTER_MAX];
	unsigned short n;
};

static void put(struct filter *f, uint16_t code, uint8_t yes, uint8_t no,
    uint32_t k)
{
	f->code[f->n++] = (struct sock_filter){ code, yes, no, k };
}

static void load(struct filter *f, size_t offset)
{
	put(f, BPF_LD | BPF_W | BPF_ABS, 0, 0, (uint32_t)offset);
}

#define ANSWER(code) (SECCOMP_RET_ERRNO | (code))

static void refuse(struct filter *f, int call, int code)
{
	put(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 1, (uint32_t)call);
	put(f, BPF_RET | BPF_K, 0, 0, ANSWER((uint32_t)code));
}

static void refuse_all(struct filter *f, const int *call)
{
	for (; *call != -1; call++)
		refuse(f, *call, EPERM);
}

static void refuse_if(struct filter *f, const struct argument *a)
{
	size_t at =
	    (a->half == LOW) == (__BYTE_ORDER == __LITTLE_ENDIAN) ? 0 : 4;
	uint16_t op = a->test == LACKS ? BPF_JSET : BPF_JEQ;
	uint8_t met = a->test == EQUAL ? 0 : 1;

	put(f, BPF_JMP | BPF_JEQ | BPF_K, 0, 4, (uint32_t)a->call);
	load(f, offsetof(struct seccomp_data, args[a->index]) + at);
	put(f, (uint16_t)(BPF_JMP | op | BPF_K), met, 1 - met, a->value);
	put(f, BPF_RET | BPF_K, 0, 0, ANSWER(EPERM));
	load(f, offsetof(struct seccomp_data, nr));
}

static void make(struct filter *f, bool write, bool accept)
{
	const uint32_t self = (uint32_t)getpid();
	const struct argument arguments[] = {
		/* glibc falls back to it where there is no clone3 */
		{ SYS_clone, 0, LOW, LACKS, CLONE_THREAD },
		/* does that process exist? */
		{ SYS_kill, 1, LOW, NOT_EQUAL, 0 },
		{ SYS_tgkill, 0, LOW, NOT_EQUAL, self },
		{ SYS_prlimit64, 0, LOW, NOT_EQUAL, 0 },
		/* without a path, of an open file */
		{ SYS_utimensat, 1, LOW, NOT_EQUAL, 0 },
		{ SYS_utimensat, 1, HIGH, NOT_EQUAL, 0 },
		/* input for the shell of a terminal */
		{ SYS_ioctl, 1, LOW, EQUAL, TIOCSTI },
		{ SYS_ioctl, 1, LOW, EQUAL, TIOCLINUX },
		{ SYS_ioctl, 1, LOW, EQUAL, (uint32_t)FS_IOC_SETFLAGS },
		{ SYS_ioctl, 1, LOW, EQUAL, (uint32_t)FS_IOC_FSSETXATTR },
	};

	load(f, offsetof(struct seccomp_data, arch));
	put(f, BPF_JMP | BPF_JEQ | BPF_K, 1, 0, PROCESSOR);
	put(f, BPF_RET | BPF_K, 0, 0, ANSWER(EPERM));
	load(f, offsetof(struct seccomp_data, nr));
	put(f, BPF_JMP | BPF_JGE | BPF_K, 0, 1, OTHER_ABI);
	put(f, BPF_RET | BPF_K, 0, 0, ANSWER(EPERM));
	for (size_t i = 0; i < sizeof(arguments) / sizeof(arguments[0]); i++)
		refuse_if(f, &arguments[i]);
	refuse(f, CALL_CLONE3, ENOSYS); /* its flags are in memory */
	refuse_all(f, always);
	refuse_all(f, attributes);
	if (!accept)
		refuse_all(f, connections);
	if (!write)
		refuse_all(f, read_only);
	put(f, BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
}

int ofs_syscalls_limit(bool write, bool accept, struct optimfs_error *err)
{
	struct filter f = { .n = 0 };
	struct sock_fprog program = { .filter = f.code };

	if (PROCESSOR == 0)
		return optimfs_fail(err, EOPNOTSUPP,
		    "system calls: no list for this processor");
	make(&f, write, accept);
	program.len = f.n;
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == -1)
		return optimfs_fail(err, EOPNOTSUPP, "seccomp: %m");
	return 0;
}

const int *ofs_syscalls_refused(unsigned list)
{
	static const int *const lists[] = { always, attributes, read_only,
		connections };

	return list < 4 ? lists[list] : NULL;
}
