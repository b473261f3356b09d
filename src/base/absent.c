/* absent.c - a path that a user gave and that does not exist */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "base/absent.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"

/* How to get the files that an address stands for. */
static const char *how_to_get(const char *url)
{
	static const char *const known[][2] = {
		{ "gs://", "gcloud storage cp -r, or gcsfuse" },
		{ "az://", "azcopy copy --recursive, or blobfuse2" },
		{ "hdfs://", "hdfs dfs -get" },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strncmp(url, known[i][0], strlen(known[i][0])) == 0)
			return known[i][1];
	return "or mount it, for example with rclone mount";
}

/* Is it HOST:PATH, as for scp(1)? The length of HOST, or 0. */
static size_t host_of(const char *path)
{
	size_t n = 0;

	while (isalnum((unsigned char)path[n]) ||
	    (path[n] != '\0' && strchr("._-@", path[n]) != NULL))
		n++;
	return n > 1 && path[n] == ':' && path[n + 1] != '\0' ? n : 0;
}

/* The longest beginning of path that exists, malloc'ed; "" for the working
 * directory. */
static char *longest(const char *path)
{
	char *above = strdup(path), *slash;

	while (above != NULL && above[0] != '\0' && access(above, F_OK) == -1) {
		slash = strrchr(above, '/');
		if (slash == NULL)
			above[0] = '\0';
		else
			slash[slash == above] = '\0';
		if (slash == above && slash[1] == '\0')
			break;
	}
	return above;
}

static int fail_missing(const char *path, struct optimfs_error *err)
{
	char *above = longest(path);
	const char *rest;
	size_t n;

	if (above == NULL)
		return ofs_no_memory(err);
	n = strlen(above);
	rest = path + n + strspn(path + n, "/");
	optimfs_fail(err, ENOENT,
	    "OFS019 %.200s: No such file or directory: %.200s has no %.*s",
	    path, above[0] == '\0' ? "this directory" : above,
	    (int)strcspn(rest, "/"), rest);
	free(above);
	return -1;
}

int ofs_fail_absent(const char *path, struct optimfs_error *err)
{
	const char *colon = strstr(path, "://");
	size_t host = host_of(path);

	if (strncmp(path, "file://", 7) == 0)
		return optimfs_fail(err, ENOENT,
		    "OFS019 %.200s: No such file or directory: a local path is "
		    "given without file://",
		    path);
	if (path[0] == '~')
		return optimfs_fail(err, ENOENT,
		    "OFS019 %.200s: No such file or directory: the shell "
		    "replaces ~ only without quotes and at the start of a word: "
		    "give \"$HOME/...\"",
		    path);
	if (colon != NULL && colon > path)
		return optimfs_fail(err, ENOENT,
		    "OFS019 %.200s: No such file or directory: it is an "
		    "address, and optimfs reads files: download it (%s), and "
		    "give its path here",
		    path, how_to_get(path));
	if (host > 0)
		return optimfs_fail(err, ENOENT,
		    "OFS019 %.200s: No such file or directory: if it is on "
		    "host %.*s, mount it here (sshfs), or run optimfs there "
		    "(optimfs serve shows it here)",
		    path, (int)host, path);
	return fail_missing(path, err);
}
