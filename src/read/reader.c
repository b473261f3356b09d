/* reader.c - the resources for reading a catalog's tensors */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "read/reader.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "base/memory.h"

static int allocate(struct ofs_reader *r, struct optimfs_error *err)
{
	const struct ofs_catalog *cat = r->cat;

	r->nshards = cat->nshards;
	r->nderived = cat->nderived;
	/* its pages are allocated when shards are used */
	r->place = calloc((size_t)cat->nshards + 1, sizeof(*r->place));
	r->compared = calloc((size_t)cat->nshards + 1, sizeof(*r->compared));
	r->prepared = calloc((size_t)cat->nderived + 1, sizeof(*r->prepared));
	return r->place != NULL && r->compared != NULL && r->prepared != NULL
	    ? 0
	    : ofs_no_memory(err);
}

int ofs_reader_init(struct ofs_reader *r, const struct ofs_catalog *cat,
    struct ofs_transport *t, struct optimfs_error *err)
{
	*r = (struct ofs_reader){ .cat = cat, .transport = t };
	if (t == NULL)
		return -1;
	if (allocate(r, err) == 0)
		return 0;
	ofs_reader_fini(r);
	return -1;
}

int ofs_reader_share(struct ofs_reader *r, const struct ofs_reader *of,
    const struct ofs_catalog *cat, struct optimfs_error *err)
{
	*r = (struct ofs_reader){ .cat = cat, .transport = of->transport };
	if (allocate(r, err) == 0)
		return 0;
	ofs_reader_unshare(r);
	return -1;
}

void ofs_reader_unshare(struct ofs_reader *r)
{
	r->transport = NULL;
	ofs_reader_fini(r);
}

void ofs_reader_fini(struct ofs_reader *r)
{
	for (uint32_t i = 0; r->place != NULL && i < r->nshards; i++)
		free(atomic_load_explicit(&r->place[i], memory_order_relaxed));
	for (uint32_t i = 0; r->prepared != NULL && i < r->nderived; i++)
		free(atomic_load_explicit(&r->prepared[i],
		    memory_order_relaxed));
	free(r->place);
	free((void *)r->compared);
	free(r->prepared);
	ofs_transport_close(r->transport);
	*r = (struct ofs_reader){ 0 };
}
