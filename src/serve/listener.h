/* listener.h - a socket that waits for HTTP clients, and who may be one */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_SERVE_LISTENER_H
#define OFS_SERVE_LISTENER_H

#include <stdbool.h>

#include "optimfs/error.h"

#define OFS_TOKEN_MAX 128

/* The module with libmicrohttpd, optimfs-serve.so, exports a struct ofs_mhd
 * (mhd.h) by this name. What changes there changes the name. */
#define OFS_MHD_SYMBOL "optimfs_mhd_1"

struct ofs_mhd;

struct ofs_listener {
	int fd;        /* -1: none */
	bool loopback; /* only processes of this machine reach it */
	char url[128];
	char token[OFS_TOKEN_MAX + 1]; /* what clients must give; "": nothing */
	const struct ofs_mhd *mhd;     /* answers them; it stays loaded */
};

/* Listens at where: PORT, ADDRESS:PORT or [ADDRESS]:PORT; NULL is
 * 127.0.0.1:8080, port 0 any free one. file has the token, in one line; NULL:
 * none. EINVAL (OFS021): where is no address, or what bind(2) says. OFS022: file
 * cannot be read, or has no token. ENOSYS (OFS021): the module that answers is
 * missing. */
int ofs_listen(const char *where, const char *file, struct ofs_listener *l,
    struct optimfs_error *err);
void ofs_listener_close(struct ofs_listener *l);
/* Makes a token of 128 random bits. */
int ofs_listener_make_token(struct ofs_listener *l, struct optimfs_error *err);

#endif
