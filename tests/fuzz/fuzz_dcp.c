/* fuzz_dcp.c - arbitrary bytes as .metadata of DCP, read into a catalog */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/io.h"
#include "format/dcp/dcp.h"
#include "format/megatron/megatron.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* An empty directory, so that every file that an index names is missing. */
static struct ofs_catalog *new_catalog(void)
{
	static char path[] = "/tmp/fuzz_dcp.XXXXXX";
	static int made;
	struct ofs_dir dir = { .fd = -1 };
	struct ofs_catalog *cat;

	if (!made) {
		must(mkdtemp(path) != NULL);
		made = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		must(made > 0 && rmdir(path) == 0);
	}
	dir.fd = fcntl(made, F_DUPFD_CLOEXEC, 3);
	dir.path = strdup(path);
	must(dir.fd != -1 && dir.path != NULL);
	cat = ofs_catalog_new(&dir, NULL);
	must(cat != NULL);
	return cat;
}

static int build(struct ofs_dcp *d, uint8_t *bytes, size_t n)
{
	const struct ofs_pickle_limits limits = { .memory = 64 << 20 };
	struct ofs_dcp_index index;
	int ret;

	if (ofs_dcp_index_open(&index, bytes, n, &limits, NULL) == -1)
		return -1;
	index.object = ofs_catalog_object(d->cat, ".metadata", -1, NULL);
	d->index = &index;
	d->nindex = 1;
	ret = ofs_dcp_add_keys(d, NULL) == -1 ||
		ofs_dcp_check_unused(d, NULL) == -1 ||
		ofs_dcp_check_planner(d, NULL) == -1 ||
		ofs_dcp_check_overlap(d, NULL) == -1
	    ? -1
	    : 0;
	ofs_dcp_index_fini(&index);
	ofs_map_fini(&d->by_name);
	free(d->key);
	if (ret == 0)
		ret = ofs_dcp_resolve_blobs(d, NULL) == -1 ||
			ofs_dcp_expand_items(d, NULL) == -1
		    ? -1
		    : 0;
	free(d->blob);
	free(d->pending);
	return ret;
}

/* Invariants of a catalog that other code relies on. */
static void check(const struct ofs_catalog *cat)
{
	for (uint32_t i = 0; i < cat->nobjects; i++) {
		const char *path = cat->objects[i].path;

		must(ofs_path_stays(path, strlen(path)));
		must(cat->objects[i].missing);
	}
	for (uint32_t i = 0; i < cat->nitems; i++)
		must(cat->items[i].at.object < cat->nobjects);
	for (uint32_t i = 0; i < cat->ntensors; i++) {
		const struct ofs_tensor *t = &cat->tensors[i];

		must(ofs_tensor_bytes(cat, t) <= INT64_MAX);
		must(t->shard <= cat->nshards &&
		    t->nshards <= cat->nshards - t->shard);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	static char none[] = "";
	struct ofs_part part = { .rel = none, .rank = -1 };
	struct ofs_dcp d = { .cat = new_catalog(), .part = &part };
	uint8_t *copy = malloc(n + 1);

	must(copy != NULL);
	memcpy(copy, bytes, n);
	/* An index of Megatron-Core gets its entries merged. */
	if (build(&d, copy, n) == 0 &&
	    (n % 2 == 1 || ofs_format_megatron.join(d.cat, NULL) == 0) &&
	    ofs_catalog_finish(d.cat, NULL) == 0)
		check(d.cat);
	ofs_catalog_free(d.cat);
	return 0;
}
