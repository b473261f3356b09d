/* module.h - the module that talks to servers: optimfs-http.so */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_MODULE_H
#define OFS_STORE_HTTP_MODULE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "optimfs/error.h"

#include "base/buf.h"

/* The module sends requests and keeps what comes. It knows no listings, and
 * judges nothing: what an answer means, and whether to ask again, is decided by
 * the caller (client.c), in a thread that may be confined. The module has
 * threads of its own, which are not, so it must be opened before the sandbox is
 * entered.
 *
 * It exports a struct ofs_http_ops called optimfs_http_module. What changes here
 * gets a new version, and a module of another one is not used. */
#define OFS_HTTP_VERSION 6
#define OFS_HTTP_SYMBOL  "optimfs_http_module"

/* The most bytes of the headers of an answer. */
#define OFS_HTTP_HEADERS_MAX (64u << 10)

struct ofs_http_module;

struct ofs_http_config {
	unsigned timeout; /* seconds that a server may be silent; 0: no limit */
	unsigned connections; /* to one server */
	const char *agent;
};

/* Who signs, with a signature of version 4 of AWS; session NULL: without. */
struct ofs_http_signer {
	const char *key, *secret, *session;
};

/* How to say who asks, to the server of the URL only; what is NULL is not
 * used. */
struct ofs_http_login {
	const char *bearer; /* a token */
	/* Who signs now; what it returns stays valid. NULL: nobody. renew: that
	 * one is said to have expired: 0: there is another one. */
	const struct ofs_http_signer *(*signer)(void);
	int (*renew)(const struct ofs_http_signer *was,
	    struct optimfs_error *err);
	const char *region; /* of signatures */
	bool netrc;         /* as ~/.netrc says */
	/* Redirections to other servers are followed. */
	bool redirects;
	/* Why signer returns NULL, for messages. The module does not use it. */
	const char *(*missing)(void);
	const char *ca;      /* file of certificates to trust; NULL: as usual */
	bool requester_pays; /* signed requests say that whoever asks pays */
	/* A redirection is to the same bytes each time, and can be used again,
	 * without a token. The module does not use it. */
	bool stable;
};

enum ofs_http_end {
	OFS_HTTP_WHOLE,     /* the answer is complete, whatever its status */
	OFS_HTTP_FAILED,    /* no answer, or part of one: it may work again */
	OFS_HTTP_UNREACHED, /* the same: there is no connection */
	OFS_HTTP_LATE,      /* the same: nothing came for timeout seconds */
	OFS_HTTP_TOO_LONG,  /* the body has more bytes than there is room for */
	OFS_HTTP_REFUSED, /* it cannot work: certificate, protocol, redirects */
};

enum ofs_http_take {
	OFS_HTTP_TAKEN,
	OFS_HTTP_LATER, /* there is no room now */
	OFS_HTTP_NEVER, /* they are wrong, or nobody wants them any more */
};

struct ofs_http_request {
	const char *url;
	const char *const *header; /* "Name: value", ended by NULL */
	const struct ofs_http_login *login;
	const struct ofs_http_signer *signer; /* NULL: it is not signed */
	const char *method;                   /* NULL: GET */
	const void *send;                     /* nsend bytes; NULL: no body */
	size_t nsend;
	/* The SHA-256 of these bytes, which is signed; NULL: they are a form. */
	const char *digest;
	unsigned timeout; /* for all of it, in seconds; 0: none but that of
			   * the module */
	bool direct;      /* by no proxy */
	/* Bytes [first, first + n) are wanted; n 0: all. */
	uint64_t first, n;
	uint8_t *into; /* for n bytes, of an answer 200 or 206 */
	/* Takes the next n bytes of such an answer in place of into, in a thread
	 * of the module; NULL: into does. What is refused for now is offered
	 * again after go_on. n 0: would there be room for more? */
	enum ofs_http_take (*take)(void *ctx, const struct ofs_http_request *q,
	    const void *p, size_t n);
	void *take_ctx;

	/* Set by perform: */
	enum ofs_http_end end;
	int status;             /* of HTTP; 0: there was no answer */
	uint64_t got;           /* bytes that are in into, or were taken */
	struct ofs_buf headers; /* of the last answer, as they came */
	struct ofs_buf body;    /* of others, and with n 0, up to its limit */
	bool is_dir;            /* the URL that answered ends in a slash */
	/* That URL, malloc'ed, which the caller frees, if redirections led to
	 * it. */
	char *location;
	char why[256];

	void *priv; /* of the module */
};

/* The elements of a document of XML. */
#define OFS_HTTP_TEXT_MOST 4096
struct ofs_http_elements {
	/* Called at the end of each element; depth 0 is the root. text: its
	 * characters, if it has no elements; "" if they are more than
	 * OFS_HTTP_TEXT_MOST bytes. -1: ends the parsing. */
	int (*each)(void *ctx, unsigned depth, const char *name,
	    const char *text, struct optimfs_error *err);
	void *ctx;
};

struct ofs_http_ops {
	unsigned version;
	const char *name;
	struct ofs_http_module *(*open)(const struct ofs_http_config *config,
	    struct optimfs_error *err);
	/* Sends n requests at once and waits for all answers. Thread-safe. */
	void (*perform)(struct ofs_http_module *m, struct ofs_http_request *q,
	    size_t n);
	/* In the calling thread. EUCLEAN (OFS924): it is no XML; or as each(). */
	int (*parse)(const void *xml, size_t n,
	    const struct ofs_http_elements *elements,
	    struct optimfs_error *err);
	/* There may be room for what was refused. Does not wait. */
	void (*go_on)(struct ofs_http_module *m);
};

#endif
