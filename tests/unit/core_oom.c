/* core_oom.c - failure of each allocation in catalog, plan, locator and journal */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "catalog/catalog.h"
#include "handmade.h"
#include "journal/journal.h"
#include "oom.h"
#include "plan/composition.h"
#include "plan/plan.h"
#include "read/locate.h"
#include "store/local.h"
#include "tap.h"

static char scratch[64];

/* A tensor of 41 rows and 41 shards: row 7 is stored twice, row 40 is missing.
 * Both make a note in the catalog. */
static int fill(struct ofs_catalog *cat, struct optimfs_error *err)
{
	uint64_t shape[] = { 41, 3 }, box[] = { 0, 0, 1, 3 };
	struct ofs_shard s = { .at.len = 12, .view = OFS_NONE };
	struct ofs_entry e = { .kind = OFS_ENTRY_TENSOR };
	struct ofs_tensor t = { .ndim = 2,
		.grid_ndim = 2,
		.dtype = OFS_FLOAT32,
		.nshards = 41,
		.error = OFS_NONE };
	uint32_t name;

	t.shape = t.grid = ofs_catalog_dims(cat, shape, 2, err);
	name = ofs_catalog_str(cat, "w", 1, err);
	s.at.object = ofs_catalog_object(cat, "data", 0, err);
	if (t.shape == OFS_NONE || name == OFS_NONE || s.at.object == OFS_NONE)
		return -1;
	for (uint64_t i = 0; i < t.nshards; i++) {
		box[0] = i < 40 ? i : 7;
		s.at.off = 12 * i;
		s.box = ofs_catalog_dims(cat, box, 4, err);
		if (s.box == OFS_NONE ||
		    ofs_catalog_shard(cat, &s, err) == OFS_NONE)
			return -1;
	}
	e.path = e.tree = ofs_catalog_path(cat, &name, 1, err);
	if (e.path == OFS_NONE ||
	    ofs_catalog_tensor(cat, &t, err) == OFS_NONE ||
	    ofs_catalog_entry(cat, &e, err) == OFS_NONE)
		return -1;
	return ofs_catalog_finish(cat, err);
}

static struct ofs_catalog *build(struct optimfs_error *err)
{
	struct ofs_catalog *cat;
	struct ofs_dir dir;

	if (ofs_dir_open(scratch, &dir, err) == -1)
		return NULL;
	cat = ofs_catalog_new(&dir, err);
	ofs_dir_close(&dir);
	if (cat != NULL && fill(cat, err) == -1) {
		ofs_catalog_free(cat);
		cat = NULL;
	}
	return cat;
}

/* Plans a read of a header and of the tensor without its last row. */
static int read_some(const struct ofs_catalog *cat, struct ofs_reader *r,
    struct optimfs_error *err)
{
	struct ofs_composition c = { 0 };
	struct ofs_plan plan = { 0 };
	uint8_t buf[600];
	int ret = -1;

	if (ofs_composition_bytes(&c, "header", 6, err) == 0 &&
	    ofs_composition_box(&c, cat, 0, NULL, err) == 0)
		ret = ofs_composition_plan(&c, cat, 0, 6 + 40 * 12, buf,
		    ofs_locate, r, &plan, err);
	ofs_plan_fini(&plan);
	ofs_composition_fini(&c);
	return ret;
}

static int read_all(const struct ofs_catalog *cat, struct optimfs_error *err)
{
	struct ofs_reader r;
	int ret = ofs_reader_init(&r, cat,
	    ofs_transport_local(cat, 1 << 20, err), err);

	if (ret == 0)
		ret = read_some(cat, &r, err);
	ofs_reader_fini(&r);
	return ret;
}

static int everything(struct optimfs_error *err)
{
	struct ofs_catalog *cat = build(err);
	int ret;

	if (cat == NULL)
		return -1;
	ret = cat->tensors[0].error != OFS_NONE || cat->nreplicas != 1 ||
		cat->nnotes != 2
	    ? -2
	    : read_all(cat, err);
	ofs_catalog_free(cat);
	return ret;
}

/* A record for which there is no memory is not a torn end, which would be cut
 * off. */
static void journal(void)
{
	const struct ofs_record r = { .type = 9, .a = "a/path", .b = "x" };
	struct ofs_journal j = { .fd = memfd_create("journal", MFD_CLOEXEC) };
	struct optimfs_error err = { 0 };
	uint64_t records, dropped;
	size_t wrong = 0;
	bool done = false;

	if (ofs_journal_trim(&j, &err) == -1 ||
	    ofs_journal_append(&j, &r, &err) == -1 ||
	    ofs_journal_append(&j, &r, &err) == -1)
		bail_out("%s", err.text);
	for (long n = 1; n < 100 && !done; n++) {
		int ret;

		left = n;
		ret =
		    ofs_journal_load(&j, NULL, NULL, &records, &dropped, &err);
		done = left > 0;
		left = -1;
		wrong += ret == -1 ? err.code != ENOMEM : dropped != 0;
	}
	ok(done && records == 2, "a journal of two records is read");
	is_u64(wrong, 0,
	    "a failed allocation while a journal is read causes ENOMEM");
	close(j.fd);
}

int main(void)
{
	struct handmade h;
	size_t wrong = 0;
	bool done = false;
	int ret = -1;
	long n;

	handmade_init(&h);
	handmade_file(&h, "data", (uint8_t[492]){ 0 }, 492);
	strcpy(scratch, h.dir);
	for (n = 1; n < 10000 && !done; n++) {
		struct optimfs_error err = { 0 };

		left = n;
		ret = everything(&err);
		done = left > 0; /* no allocation failed */
		left = -1;
		/* functions that only free memory ignore the failure of an
		 * allocation */
		if (ret == -2 || (ret == -1 && err.code != ENOMEM)) {
			diag("call %ld: %d %s", n, ret, err.text);
			wrong++;
		}
	}
	is_int(ret, 0, "all calls succeed when no allocation fails");
	ok(n > 100, "the calls allocate memory more than 100 times (%ld)", n);
	is_u64(wrong, 0, "each failed allocation causes ENOMEM");
	handmade_fini(&h);
	journal();
	return done_testing();
}
