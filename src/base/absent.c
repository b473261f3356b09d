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

/* What to do about an address that is not read. */
static const char *how_to_get(const char *url)
{
	static const char lower[] = "write it in small letters";
	static const char azure[] = "download it (azcopy copy --recursive), "
				    "mount it (blobfuse2), or serve it (rclone "
				    "serve http)";
	static const struct {
		const char *scheme, *what;
	} known[] = {
		{ "gs",
		    "read it by s3:// (urls.md says how), download it (gcloud "
		    "storage cp -r), or mount it (gcsfuse)" },
		{ "az", azure },
		{ "abfs", azure },
		{ "abfss", azure },
		{ "wasb", azure },
		{ "wasbs", azure },
		{ "hdfs", "download it (hdfs dfs -get)" },
		{ "s3a", "write s3://" },
		{ "s3n", "write s3://" },
		{ "s3", lower },
		{ "hf", lower },
		{ "http", lower },
		{ "https", lower },
	};
	size_t n = strcspn(url, ":");

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (strlen(known[i].scheme) == n &&
		    strncasecmp(url, known[i].scheme, n) == 0)
			return known[i].what;
	return "download it, mount it (rclone mount), or serve it (rclone serve "
	       "http)";
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
		    "OFS019 %.80s: No such file or directory: not an address "
		    "that optimfs reads: %s",
		    path, how_to_get(path));
	if (host > 0)
		return optimfs_fail(err, ENOENT,
		    "OFS019 %.200s: No such file or directory: if it is on "
		    "host %.*s, mount it here (sshfs), or run optimfs there "
		    "(optimfs serve shows it here)",
		    path, (int)host, path);
	return fail_missing(path, err);
}
