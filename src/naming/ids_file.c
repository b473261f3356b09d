/* ids_file.c - the file that ids= names: parameters in the order of IDs */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "naming/ids_file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/io.h"
#include "base/memory.h"

#define MAX_IDS_FILE (64u << 20)

static int add_line(struct ofs_ids_file *f, struct ofs_str name, bool *blank,
    struct optimfs_error *err)
{
	if (name.len == 0) {
		*blank = f->n > 0;
		return 0;
	}
	if (memchr(name.p, '\0', name.len) != NULL)
		return optimfs_fail(err, EINVAL,
		    "OFS635 %s: line %u is not text", f->file, f->end);
	if (ofs_grow(f->v, f->n, f->cap, err) == -1)
		return -1;
	f->ngroups += f->n == 0 || *blank;
	*blank = false;
	f->v[f->n++] = (struct ofs_ids_line){ name, f->end, f->ngroups - 1 };
	return 0;
}

static int parse(struct ofs_ids_file *f, struct optimfs_error *err)
{
	const char *p = (const char *)f->text.data, *end = p + f->text.len, *nl;
	bool blank = false;

	for (f->end = 1; p < end; f->end++, p = nl + 1) {
		struct ofs_str line = { .p = p };

		nl = memchr(p, '\n', (size_t)(end - p));
		if (nl == NULL)
			nl = end;
		line.len = (uint32_t)(nl - p);
		if (line.len > 0 && p[line.len - 1] == '\r')
			line.len--;
		if (add_line(f, line, &blank, err) == -1)
			return -1;
	}
	return 0;
}

int ofs_ids_file_read(struct ofs_ids_file *f, const char *file,
    struct optimfs_error *err)
{
	*f = (struct ofs_ids_file){ .file = file,
		.text = { .limit = MAX_IDS_FILE } };
	if (ofs_read_named("OFS635 ids", file, &f->text, err) == 0 &&
	    parse(f, err) == 0)
		return 0;
	ofs_ids_file_fini(f);
	return -1;
}

void ofs_ids_file_fini(struct ofs_ids_file *f)
{
	free(f->v);
	ofs_buf_fini(&f->text);
	*f = (struct ofs_ids_file){ 0 };
}
