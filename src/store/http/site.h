/* site.h - a directory on a server, and all below it */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_STORE_HTTP_SITE_H
#define OFS_STORE_HTTP_SITE_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/io.h"
#include "base/keys.h"
#include "plan/plan.h"
#include "store/http/blocks.h"
#include "store/http/client.h"
#include "store/http/disk.h"
#include "store/http/url.h"

/* A site is a namespace (base/io.h). What is known of it is a table of names,
 * each with its place in a tree. A directory is listed when something in it is
 * asked for, and once: a site is as it was found. Each file is one state of it:
 * the size, and the tag or time that came with it first; what comes later must be
 * of the same state. */

enum ofs_http_what {
	OFS_HTTP_ABSENT, /* the server was asked for it, and has none */
	OFS_HTTP_FILE,
	OFS_HTTP_DIR,
};
struct ofs_http_node {
	enum ofs_http_what what;
	uint32_t parent, child, next; /* OFS_NONE: none */
	bool listed;                  /* of a directory: children are known */
	bool partly;                  /* ... but there may be others */
	bool asked;                   /* of a file: for its tag */
	struct ofs_http_version is;
	/* As it was shown first; ino 0: not yet. */
	uint64_t ino;
	int64_t mtime_ns;
	/* Of a file that is read onward: where the next read begins, and how
	 * much was fetched for the last one. */
	uint64_t onward, window;
	/* Of a file: what came of it by lists, and a block for each of them. */
	uint64_t listed_bytes;
	/* Of a file: the server that is asked, and the first of others that have
	 * it; OFS_NONE: none. */
	uint32_t host, copy;
	/* Why a directory could not be listed, and when that was. */
	struct optimfs_error *why;
	int64_t why_ms;
};

/* A server of a site. Mostly there is one. Of several, each has a part of the
 * files (nodes.h). */
struct ofs_http_host {
	char *root;        /* its address, escaped; it ends in a slash */
	int64_t failed_ms; /* when it did not answer; 0: it does */
	bool has_lists;    /* it sends lists of segments (answer.h) */
};
/* A file that another server has, too. */
struct ofs_http_copy {
	uint32_t host, next; /* OFS_NONE: the last one */
	struct ofs_http_version is;
};

struct ofs_http_site {
	struct ofs_namespace names;
	const struct ofs_http_kind *kind;
	const struct ofs_http *http;
	struct ofs_http_host *host;
	uint32_t nhosts, host_cap;
	char *shown; /* the address as the user gave it, for messages */
	struct ofs_http_login login;
	/* The address of what is listed, and the path in it that is the root:
	 * for kinds that list by another address. */
	char *base, *prefix;
	bool
	    pinned; /* the address says which state it is: nothing can change */
	bool deep;  /* too much to be listed at once */
	struct ofs_http_counters count;
	struct ofs_http_blocks *blocks;
	struct ofs_http_disk *disk; /* NULL: none */
	atomic_uint refs;
	pthread_mutex_t lock; /* protects what follows; held while listing */
	struct ofs_keys paths;
	struct ofs_http_node *node; /* by the numbers of paths; 0: the root */
	uint32_t cap;
	/* The server did not answer a request that nobody waited for. */
	struct optimfs_error late;
	int64_t late_ms;
	uint32_t listing; /* the server whose names are added */
	struct ofs_http_copy *copy;
	uint32_t ncopies, copy_cap;
};

/* How a kind of server lists its files. */
struct ofs_http_kind {
	const char *scheme;
	/* Reads who asks from files and the environment, once in a process,
	 * before it is confined; NULL: nothing is needed. */
	int (*prepare)(const struct ofs_http *http, struct optimfs_error *err);
	/* Sets login of a site, and *root, malloc'ed, for the directory of the
	 * address. */
	int (*open)(struct ofs_http_site *s, const struct ofs_url *url,
	    char **root, struct optimfs_error *err);
	/* Adds what is in a directory, with ofs_http_add. ENOENT: it does not
	 * exist. EACCES, EOPNOTSUPP: it cannot be listed. */
	int (*list)(struct ofs_http_site *s, uint32_t dir,
	    struct optimfs_error *err);
};
extern const struct ofs_http_kind ofs_http_web, ofs_http_web_tls, ofs_http_s3,
    ofs_http_hub;

/* A site for the directory of url, with one reference; shown as the first n bytes
 * of address. */
struct ofs_http_site *ofs_http_site_new(const struct ofs_http_kind *kind,
    const char *address, size_t n, const struct ofs_url *url, unsigned timeout,
    struct optimfs_error *err);
/* Adds a server of the same kind. */
int ofs_http_site_add(struct ofs_http_site *s, const struct ofs_url *url,
    struct optimfs_error *err);
/* Is there such a file in the root? ENOENT (OFS019); EINVAL (OFS920): it could be
 * the name of none. */
int ofs_http_has_file(struct ofs_http_site *s, const char *name,
    struct optimfs_error *err);

static inline struct ofs_http_site *ofs_http_site_of(const struct ofs_namespace
	*names)
{
	return (struct ofs_http_site *)(uintptr_t)names;
}

/* For kinds: */
/* Adds a name to a directory. A name that could not be one of a file here is
 * passed over. is: of a file; NULL: nothing is known. */
int ofs_http_add(struct ofs_http_site *s, uint32_t dir, const char *name,
    bool is_dir, const struct ofs_http_version *is, struct optimfs_error *err);
/* Adds a path below a directory, with the directories in between. */
int ofs_http_add_path(struct ofs_http_site *s, uint32_t dir, const char *path,
    bool is_dir, const struct ofs_http_version *is, struct optimfs_error *err);
/* All directories that are known are complete. */
void ofs_http_all_listed(struct ofs_http_site *s);
/* The address of a path on a server of the site, malloc'ed. */
char *ofs_http_address(const struct ofs_http_site *s, uint32_t host,
    const char *path, const char *end, struct optimfs_error *err);
/* The lock is held. */
static inline const char *ofs_http_path(const struct ofs_http_site *s,
    uint32_t node)
{
	return s->paths.v[node].p;
}

/* The path of a file, and its state; its tag may become known. */
const char *ofs_http_version(struct ofs_http_site *s, uint32_t file,
    struct ofs_http_version *is);
/* Is it worth a request to learn the tag of the file? True once for each. */
bool ofs_http_asks_tag(struct ofs_http_site *s, uint32_t file);
/* Keeps what an answer of a server says of it; is becomes what is known then.
 * ESTALE (OFS751): that is another state. */
int ofs_http_confirm(struct ofs_http_site *s, uint32_t file, uint32_t host,
    struct ofs_http_version *is, struct optimfs_error *err);

#endif
