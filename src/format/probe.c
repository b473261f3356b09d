/* probe.c - file names and first bytes, for detection */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/probe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/step.h"
#include "base/str.h"

/* Reads the beginning and the end of the file. */
static int read_ends(const struct ofs_input *in, struct ofs_file_head *head,
    struct optimfs_error *err)
{
	uint8_t tail[22];

	if (ofs_input_read(in, head->p, head->n, 0, err) == -1) {
		head->n = 0;
		return -1;
	}
	if (head->size < sizeof(tail))
		return 0;
	if (ofs_input_read(in, tail, sizeof(tail), head->size - sizeof(tail),
		err) == -1)
		return -1;
	head->zip_end = memcmp(tail, "PK\5\6", 4) == 0;
	return 0;
}

bool ofs_probe_head(const struct ofs_dir *dir, const char *rel,
    struct ofs_file_head *head)
{
	struct optimfs_error why = { 0 };
	struct ofs_input in;
	struct stat st;

	*head = (struct ofs_file_head){ .name = rel };
	if (rel[0] == '\0')
		return false;
	if (ofs_dir_open_input(dir, rel, &in, &st, &why) == -1) {
		head->failed = ofs_probe_failed(&why) ? why.code : 0;
		return head->failed != 0;
	}
	head->size = (uint64_t)st.st_size;
	head->n =
	    head->size < sizeof(head->p) ? (size_t)head->size : sizeof(head->p);
	if (read_ends(&in, head, &why) == -1)
		head->failed = ofs_probe_failed(&why) ? why.code : 0;
	ofs_input_close(&in);
	return true;
}

bool ofs_probe_first(const struct ofs_file_head *head, const char *end)
{
	const uint8_t *p = head->p;
	size_t n = head->n, k = strlen(end);
	size_t len = n < 30 ? 0 : p[26] | (size_t)p[27] << 8;

	return len > k && 30 + len <= n && memcmp(p, "PK\3\4", 4) == 0 &&
	    memcmp(p + 30 + len - k, end, k) == 0;
}

const char *ofs_probe_extension(const char *name, const char *const *extensions)
{
	const char *dot = strrchr(name, '.');

	for (; dot != NULL && dot != name && extensions != NULL &&
	     *extensions != NULL;
	     extensions++)
		if (strcmp(dot, *extensions) == 0)
			return dot;
	return NULL;
}

bool ofs_probe_has(const struct ofs_names *names, const char *name)
{
	for (size_t i = 0; i < names->n; i++)
		if (strcmp(names->name[i], name) == 0)
			return true;
	return false;
}

bool ofs_probe_failed(const struct optimfs_error *why)
{
	switch (why->code) {
	case EIO:
	case EMFILE:
	case ENFILE:
	case ENOMEM:
	case ESTALE:
		return true;
	default:
		return false;
	}
}

int ofs_probe_start(const struct ofs_dir *dir, const char *rel, uint8_t *p,
    size_t size, size_t *n, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	struct ofs_input in;
	struct stat st;
	int ret = ofs_dir_open_input(dir, rel, &in, &st, &why);

	if (ret == 0) {
		*n = (uint64_t)st.st_size < size ? (size_t)st.st_size : size;
		ret = ofs_input_read(&in, p, *n, 0, &why);
		ofs_input_close(&in);
	}
	if (ret == 0)
		return 1;
	if (!ofs_probe_failed(&why))
		return 0;
	optimfs_fail_with(err, &why);
	return optimfs_fail_in(err, "%s", rel);
}

int ofs_probe_text(const struct ofs_dir *dir, const char *rel, uint64_t max,
    uint8_t **bytes, uint64_t *n, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };

	if (ofs_dir_read_file(dir, rel, max, bytes, n, &why) == 0)
		return 1;
	return ofs_must_stop(&why) || ofs_probe_failed(&why)
	    ? optimfs_fail_with(err, &why)
	    : 0;
}

int ofs_probe_names(const struct ofs_dir *dir, const char *rel,
    struct ofs_names *names, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };

	if (ofs_dir_list_sub(dir, rel, names, &why) == 0)
		return 1;
	return ofs_probe_failed(&why) ? optimfs_fail_with(err, &why) : 0;
}

int ofs_probe_open(const struct ofs_dir *dir, const char *rel,
    struct ofs_dir *sub, struct ofs_names *names, struct optimfs_error *err)
{
	int ret = ofs_probe_names(dir, rel, names, err);

	if (ret == 1 && ofs_dir_open_sub(dir, rel, sub, err) == -1) {
		ofs_names_free(names);
		return -1;
	}
	return ret;
}

bool ofs_probe_is_dir(const struct ofs_dir *dir, const char *rel)
{
	struct stat st;

	return ofs_dir_stat(dir, rel, &st) && S_ISDIR(st.st_mode);
}

bool ofs_probe_is_file(const struct ofs_dir *dir, const char *rel)
{
	struct stat st;

	return ofs_dir_stat(dir, rel, &st) && S_ISREG(st.st_mode);
}

bool ofs_probe_is_empty(const struct ofs_dir *dir, const char *rel)
{
	struct stat st;

	return ofs_dir_stat(dir, rel, &st) && S_ISREG(st.st_mode) &&
	    st.st_size == 0;
}

int ofs_probe_numbers(const char *name, const char *pattern, int *number,
    int max)
{
	int n = 0;

	for (; *pattern != '\0'; pattern++) {
		struct ofs_str s = ofs_str_of(name);
		uint64_t v;

		if (*pattern != '#') {
			if (*name++ != *pattern)
				return -1;
			continue;
		}
		if (n == max || !ofs_str_take_number(&s, &v) || v > 1 << 20)
			return -1;
		number[n++] = (int)v;
		name = s.p;
	}
	return *name == '\0' ? n : -1;
}

bool ofs_probe_match(const char *name, const char *pattern, int *number)
{
	int v, n = ofs_probe_numbers(name, pattern, &v, 1);

	*number = n == 1 ? v : -1;
	return n != -1;
}

int ofs_probe_tracker(const struct ofs_dir *dir, const char *file, char **name,
    struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	uint8_t *bytes;
	uint64_t n;

	if (ofs_dir_read_file(dir, file, 4096, &bytes, &n, &why) == -1) {
		if (why.code == E2BIG)
			return optimfs_fail(err, EPERM,
			    "OFS620 %s/%s: too long for a name", dir->path,
			    file);
		return optimfs_fail_with(err, &why);
	}
	while (n > 0 &&
	    (bytes[n - 1] == '\n' || bytes[n - 1] == '\r' ||
		bytes[n - 1] == ' '))
		n--;
	bytes[n] = '\0';
	if (!ofs_path_stays((char *)bytes, n) ||
	    memchr(bytes, '\n', n) != NULL || memchr(bytes, '/', n) != NULL) {
		optimfs_fail(err, EPERM,
		    "OFS620 %s/%s: '%.*s' leaves the checkpoint", dir->path,
		    file, (int)(n > 100 ? 100 : n), bytes);
		free(bytes);
		return -1;
	}
	*name = (char *)bytes;
	return 0;
}
