/* truth.c - the manifests of tests/data */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "support/truth.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/io.h"
#include "base/json.h"
#include "tap.h"

const char *data_path(const char *name)
{
	static char *path;
	const char *top = getenv("TOP_SRCDIR");

	free(path);
	if (asprintf(&path, "%s/tests/data/%s", top == NULL ? "." : top,
		name) == -1)
		bail_out("out of memory");
	return path;
}

static uint8_t *read_all(const char *path, size_t *n)
{
	struct stat st;
	int fd = open(path, O_RDONLY);
	uint8_t *p;

	if (fd == -1 || fstat(fd, &st) == -1)
		bail_out("%s cannot be opened (TOP_SRCDIR?)", path);
	*n = (size_t)st.st_size;
	p = malloc(*n + 1);
	if (p == NULL || ofs_pread_all(fd, p, *n, 0, NULL) == -1)
		bail_out("%s cannot be read", path);
	close(fd);
	return p;
}

static char *text(const struct ofs_json *j)
{
	char *s = malloc(j->str.len + 1);

	if (s == NULL)
		bail_out("out of memory");
	memcpy(s, j->str.p, j->str.len);
	s[j->str.len] = '\0';
	return s;
}

static enum ofs_json_token next(struct ofs_json *j)
{
	struct optimfs_error err;
	enum ofs_json_token token = ofs_json_next(j, &err);

	if (token == OFS_JSON_ERROR)
		bail_out("manifest: %s", err.text);
	return token;
}

/* An array of strings and numbers, joined by sep. */
static char *joined(struct ofs_json *j, const char *sep)
{
	struct ofs_buf b = { 0 };
	enum ofs_json_token token = next(j);

	for (bool first = true; (token = next(j)) != OFS_JSON_ARRAY_END;
	     first = false) {
		if (!first)
			ofs_buf_puts(&b, sep);
		ofs_buf_put(&b, j->str.p, j->str.len);
	}
	ofs_buf_putc(&b, '\0');
	if (b.bad)
		bail_out("out of memory");
	return (char *)b.data;
}

static void read_value(struct ofs_json *j, struct truth *t)
{
	static const char *const words[] = {
		[OFS_JSON_TRUE] = "true",
		[OFS_JSON_FALSE] = "false",
		[OFS_JSON_NULL] = "null",
	};
	enum ofs_json_token token = next(j);

	t->literal = token != OFS_JSON_STRING;
	if (token == OFS_JSON_STRING || token == OFS_JSON_NUMBER)
		t->value = text(j);
	else if (token >= OFS_JSON_TRUE)
		t->value = strdup(words[token]);
	else
		bail_out("manifest: a value of an unexpected type");
}

static bool key_is(const struct ofs_json *j, const char *key)
{
	return j->str.len == strlen(key) &&
	    memcmp(j->str.p, key, j->str.len) == 0;
}

static void read_leaf(struct ofs_json *j, struct truth *t)
{
	memset(t, 0, sizeof(*t));
	while (next(j) == OFS_JSON_KEY) {
		char **field = NULL;

		if (key_is(j, "path"))
			t->path = joined(j, TRUTH_SEP);
		else if (key_is(j, "shape"))
			t->shape = joined(j, ",");
		else if (key_is(j, "value"))
			read_value(j, t);
		else if (key_is(j, "bytes")) {
			next(j);
			t->bytes = (uint64_t)j->integer;
		} else if (key_is(j, "dtype"))
			field = &t->dtype;
		else if (key_is(j, "sha256"))
			field = &t->sha256;
		else if (key_is(j, "raw"))
			field = &t->raw;
		else
			bail_out("manifest: unknown key %.*s", (int)j->str.len,
			    j->str.p);
		if (field != NULL) {
			next(j);
			*field = text(j);
		}
	}
}

static int by_path(const void *a, const void *b)
{
	const struct truth *x = a, *y = b;

	return strcmp(x->path, y->path);
}

struct truth *truth_read(const char *name, size_t *n)
{
	struct truth *t = NULL;
	struct ofs_json j;
	char path[PATH_MAX];
	size_t len, cap = 0;
	uint8_t *bytes;

	snprintf(path, sizeof(path), "%s/expected/manifest.json", name);
	bytes = read_all(data_path(path), &len);
	ofs_json_init(&j, bytes, (uint32_t)len);
	*n = 0;
	if (next(&j) != OFS_JSON_ARRAY)
		bail_out("%s: not an array", path);
	while (next(&j) == OFS_JSON_OBJECT) {
		if (*n == cap) {
			cap = cap == 0 ? 256 : 2 * cap;
			t = realloc(t, cap * sizeof(*t));
			if (t == NULL)
				bail_out("out of memory");
		}
		read_leaf(&j, &t[(*n)++]);
	}
	ofs_json_fini(&j);
	free(bytes);
	qsort(t, *n, sizeof(*t), by_path);
	return t;
}

void truth_free(struct truth *t, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(t[i].path);
		free(t[i].dtype);
		free(t[i].shape);
		free(t[i].sha256);
		free(t[i].raw);
		free(t[i].value);
	}
	free(t);
}

const struct truth *truth_find(const struct truth *t, size_t n,
    const char *path)
{
	struct truth key = { .path = (char *)(uintptr_t)path };

	return bsearch(&key, t, n, sizeof(*t), by_path);
}
