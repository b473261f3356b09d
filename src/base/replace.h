/* replace.h - a file that gets its name when it is complete */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_BASE_REPLACE_H
#define OFS_BASE_REPLACE_H

#include <stdint.h>
#include <sys/types.h>

#include "optimfs/error.h"

struct ofs_replace {
	int fd;           /* write here */
	char *dest;       /* NULL: the destination itself is written */
	char *beside;     /* a name beside the destination */
	const char *name; /* the new file's name now; NULL: none */
};

/* The mode of a file or directory that is made from another one: mode, without
 * access for those who may not read the source, whose mode and group these
 * are. */
mode_t ofs_made_mode(mode_t mode, uint32_t source, uint64_t gid);

/* Begins a file that is to be dest, a borrowed path. Until ofs_replace_finish
 * it has no name if the file system allows that, so that a process that is
 * killed leaves nothing. As with cp(1), symbolic links are followed, a file that
 * is replaced keeps its permissions, owner and group, as far as this process may
 * set them, and a device, pipe or socket is opened instead: a new file must not
 * take its name. */
int ofs_replace_open(struct ofs_replace *r, const char *dest,
    struct optimfs_error *err);
/* As above, for name in the directory dir, where others may write: a symbolic
 * link there is an error (ELOOP, OFS020), and so is a device, pipe or socket.
 * shown is its path, for messages. */
int ofs_replace_open_at(struct ofs_replace *r, int dir, const char *name,
    const char *shown, struct optimfs_error *err);
/* Closes the file, and gives it its name. */
int ofs_replace_finish(struct ofs_replace *r, struct optimfs_error *err);
/* Removes the file if it was not finished. */
void ofs_replace_fini(struct ofs_replace *r);

#endif
