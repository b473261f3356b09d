/* reader.c - checkpoints read without a tree */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "support/reader.h"

#include <stdlib.h>
#include <string.h>

#include "read/fetch.h"
#include "store/local.h"
#include "tap.h"

int reader_open(struct reader *r, const char *dir, const char *rel,
    const struct ofs_format *format, const struct optimfs_options *opt,
    struct optimfs_error *err)
{
	struct ofs_part part = {
		.format = format,
		.rel = (char *)(uintptr_t)rel,
		.rank = -1,
	};
	struct ofs_dir d;

	*r = (struct reader){ 0 };
	if (ofs_dir_open(dir, &d, err) == -1)
		return -1;
	d.follow = opt->follow;
	r->cat = ofs_catalog_new(&d, err);
	ofs_dir_close(&d);
	if (r->cat == NULL)
		goto fail;
	r->cat->max_metadata = opt->max_metadata;
	r->cat->parse_mem = opt->parse_mem;
	if (format->read(r->cat, &part, opt, err) == -1 ||
	    ofs_catalog_finish(r->cat, err) == -1)
		goto fail;
	if (ofs_reader_init(&r->r, r->cat,
		ofs_transport_local(r->cat, 1 << 20, err), err) == 0)
		return 0;
fail:
	reader_close(r);
	return -1;
}

void reader_close(struct reader *r)
{
	ofs_reader_fini(&r->r);
	ofs_catalog_free(r->cat);
	*r = (struct reader){ 0 };
}

char *reader_path(const struct reader *r, uint32_t path, const char *sep)
{
	struct ofs_buf b = { 0 };
	uint32_t n;
	const uint32_t *c = ofs_catalog_components(r->cat, path, &n);

	for (uint32_t i = 0; i < n; i++) {
		struct ofs_str str = ofs_catalog_string(r->cat, c[i]);

		if (i > 0)
			ofs_buf_puts(&b, sep);
		ofs_buf_put(&b, str.p, str.len);
	}
	ofs_buf_putc(&b, '\0');
	if (b.bad)
		bail_out("out of memory");
	return (char *)b.data;
}

const struct ofs_entry *reader_find(const struct reader *r, const char *path,
    const char *sep)
{
	const struct ofs_entry *found = NULL;

	for (uint32_t i = 0; i < r->cat->nentries && found == NULL; i++) {
		char *p = reader_path(r, r->cat->entries[i].path, sep);

		if (strcmp(p, path) == 0)
			found = &r->cat->entries[i];
		free(p);
	}
	return found;
}

uint8_t *reader_range(struct reader *r, const struct ofs_tensor *t,
    uint64_t first, uint64_t count, struct optimfs_error *err)
{
	uint8_t *bytes = calloc(count * ofs_dtype_size(t->dtype) + 1, 1);

	if (bytes == NULL)
		bail_out("out of memory");
	if (t->error != OFS_NONE) {
		ofs_catalog_fail(r->cat, t->error, err);
		free(bytes);
		return NULL;
	}
	if (count > 0 &&
	    ofs_fetch_elements(&r->r, t, first, count, bytes, err) == -1) {
		free(bytes);
		bytes = NULL;
	}
	return bytes;
}

uint8_t *reader_tensor(struct reader *r, const struct ofs_tensor *t,
    struct optimfs_error *err)
{
	return reader_range(r, t, 0, ofs_tensor_numel(r->cat, t), err);
}

const struct ofs_note *reader_note(const struct reader *r, const char *part)
{
	for (uint32_t i = 0; i < r->cat->nnotes; i++)
		if (strstr(r->cat->notes[i].text, part) != NULL)
			return &r->cat->notes[i];
	return NULL;
}
