/* listener.c - a socket that waits for HTTP clients, and who may be one */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "serve/listener.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/error.h"
#include "base/module.h"

#define BACKLOG 128

/* Cuts where into a host and a port. */
static int cut(const char *where, char host[256], char port[16],
    struct optimfs_error *err)
{
	const char *colon = strrchr(where, ':');
	const char *p = colon == NULL ? where : colon + 1;
	size_t n = colon == NULL ? 0 : (size_t)(colon - where);

	if (n > 1 && where[0] == '[' && where[n - 1] == ']') {
		where++;
		n -= 2;
	}
	if (*p == '\0' || p[strspn(p, "0123456789")] != '\0' ||
	    strlen(p) >= 16 || n >= 256 || (colon != NULL && n == 0))
		return optimfs_fail(err, EINVAL,
		    "OFS021 --listen %.200s: not PORT, ADDRESS:PORT or "
		    "[ADDRESS]:PORT",
		    where);
	if (colon == NULL)
		strcpy(host, "127.0.0.1");
	else {
		memcpy(host, where, n);
		host[n] = '\0';
	}
	strcpy(port, p);
	return 0;
}

static bool is_loopback(const struct sockaddr_storage *a)
{
	if (a->ss_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)a)
				 ->sin_addr.s_addr) >>
		    24 ==
		    127;
	return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)a)
					 ->sin6_addr);
}

/* Fills url and loopback by the address that the socket got. */
static int name(struct ofs_listener *l, struct optimfs_error *err)
{
	struct sockaddr_storage a;
	socklen_t n = sizeof(a);
	char host[NI_MAXHOST], port[NI_MAXSERV];
	bool six;

	if (getsockname(l->fd, (struct sockaddr *)&a, &n) == -1 ||
	    getnameinfo((struct sockaddr *)&a, n, host, sizeof(host), port,
		sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
		return optimfs_fail(err, errno, "OFS021 --listen: %m");
	six = a.ss_family == AF_INET6;
	l->loopback = is_loopback(&a);
	snprintf(l->url, sizeof(l->url), "http://%s%.60s%s:%.8s/",
	    six ? "[" : "", host, six ? "]" : "", port);
	return 0;
}

static int open_socket(const struct addrinfo *a)
{
	const int one = 1;
	int fd =
	    socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);

	if (fd == -1)
		return -1;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
	    bind(fd, a->ai_addr, a->ai_addrlen) == 0 &&
	    listen(fd, BACKLOG) == 0)
		return fd;
	close(fd);
	return -1;
}

static int read_token(const char *file, struct ofs_listener *l,
    struct optimfs_error *err)
{
	FILE *f = fopen(file, "re");

	if (f == NULL)
		return optimfs_fail(err, errno,
		    "OFS022 --token-file %.200s: %m", file);
	if (fgets(l->token, sizeof(l->token), f) == NULL)
		l->token[0] = '\0';
	fclose(f);
	l->token[strcspn(l->token, "\r\n")] = '\0';
	if (l->token[0] == '\0')
		return optimfs_fail(err, EINVAL,
		    "OFS022 --token-file %.200s: it has no token in its first "
		    "line",
		    file);
	return 0;
}

static int load(struct ofs_listener *l, struct optimfs_error *err)
{
	char why[256];

	l->mhd = ofs_module_load("serve", OFS_MHD_SYMBOL, RTLD_LOCAL, why);
	return l->mhd != NULL
	    ? 0
	    : optimfs_fail(err, ENOSYS,
		  "OFS021 optimfs serve needs its module and libmicrohttpd "
		  "(Debian: libmicrohttpd12), and %s",
		  why);
}

int ofs_listen(const char *where, const char *file, struct ofs_listener *l,
    struct optimfs_error *err)
{
	const struct addrinfo hints = { .ai_flags = AI_PASSIVE | AI_NUMERICSERV,
		.ai_socktype = SOCK_STREAM };
	char host[256], port[16];
	struct addrinfo *list;
	int ret;

	*l = (struct ofs_listener){ .fd = -1 };
	if (load(l, err) == -1)
		return -1;
	if (file != NULL && read_token(file, l, err) == -1)
		return -1;
	where = where != NULL ? where : "127.0.0.1:8080";
	if (cut(where, host, port, err) == -1)
		return -1;
	ret = getaddrinfo(host, port, &hints, &list);
	if (ret != 0)
		return optimfs_fail(err, EINVAL, "OFS021 --listen %.200s: %s",
		    where, gai_strerror(ret));
	l->fd = open_socket(list);
	freeaddrinfo(list);
	if (l->fd == -1)
		return optimfs_fail(err, errno, "OFS021 --listen %.200s: %m",
		    where);
	return name(l, err);
}

void ofs_listener_close(struct ofs_listener *l)
{
	if (l->fd != -1)
		close(l->fd);
	l->fd = -1;
}

int ofs_listener_make_token(struct ofs_listener *l, struct optimfs_error *err)
{
	unsigned char bits[16];

	if (getrandom(bits, sizeof(bits), 0) != (ssize_t)sizeof(bits))
		return optimfs_fail(err, EIO, "OFS022 no random numbers: %m");
	for (size_t i = 0; i < sizeof(bits); i++)
		snprintf(l->token + 2 * i, 3, "%02x", bits[i]);
	return 0;
}
