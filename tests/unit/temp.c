/* temp.c - unnamed temporary files, with and without O_TMPFILE */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/temp.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tap.h"

static int refuse; /* what O_TMPFILE fails with; 0: it succeeds */
static int taken;  /* number of names that exist already */

/* Replaces the function that the library calls. */
int openat(int at, const char *path, int flags, ...)
{
	va_list ap;
	mode_t mode;

	va_start(ap, flags);
	mode = va_arg(ap, mode_t);
	va_end(ap);
	if (refuse != 0 && (flags & O_TMPFILE) == O_TMPFILE) {
		errno = refuse;
		return -1;
	}
	if (refuse != 0 && (flags & O_EXCL) != 0 && taken-- > 0) {
		errno = EEXIST;
		return -1;
	}
	return (int)syscall(SYS_openat, at, path, flags, mode);
}

static int names_in(const char *dir)
{
	DIR *d = opendir(dir);
	int n = -2; /* "." and ".." */

	if (d == NULL)
		bail_out("%s", dir);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static void works(const char *dir, const char *what)
{
	int at = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd;
	struct stat st;
	char c = 0;

	fd = ofs_temp_open(at, ".");
	ok(fd != -1 && pwrite(fd, "x", 1, 0) == 1 && pread(fd, &c, 1, 0) == 1 &&
		c == 'x',
	    "%s: the file is read and written", what);
	ok(fstat(fd, &st) == 0 && st.st_nlink == 0 &&
		(st.st_mode & 0777) == 0600 && names_in(dir) == 0,
	    "%s: the file has no name", what);
	close(fd);
	fd = ofs_temp_open(AT_FDCWD, dir);
	ok(fd != -1 && names_in(dir) == 0,
	    "%s: a file is opened by the path of its directory", what);
	close(fd);
	close(at);
}

int main(void)
{
	char dir[] = "/tmp/optimfs-temp-XXXXXX";

	if (mkdtemp(dir) == NULL)
		bail_out("%s", dir);
	works(dir, "with O_TMPFILE");
	refuse = EOPNOTSUPP;
	works(dir, "without O_TMPFILE");
	refuse = EISDIR;
	taken = 3;
	works(dir, "an old kernel, and three names taken");
	taken = 1000;
	ok(ofs_temp_open(AT_FDCWD, dir) == -1 && errno == EEXIST,
	    "all names taken: EEXIST");
	refuse = ENOSPC;
	taken = 0;
	ok(ofs_temp_open(AT_FDCWD, dir) == -1 && errno == ENOSPC,
	    "a full disk: ENOSPC");
	ok(ofs_temp_open(AT_FDCWD, "/nowhere/at/all") == -1,
	    "a missing directory: fails");
	rmdir(dir);
	return done_testing();
}
