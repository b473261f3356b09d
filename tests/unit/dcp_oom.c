/* dcp_oom.c - checkpoints read when memory ends, at every call */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/format.h"
#include "support/truth.h"
#include "tap.h"

/* The linker turns every call of the allocator into one of these (--wrap):
 * the one that fails is left - 1 calls away. */
static long left = -1;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static bool fails(void)
{
	return left > 0 && --left == 0;
}

void *__wrap_malloc(size_t n)
{
	return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return fails() ? NULL : __real_realloc(p, n);
}

/* Fail call 1, 2, 3 ... of reading a checkpoint, until none fails. Each must
 * end in ENOMEM, or not have needed the memory; the sanitizers see leaks. */
static void sweep(const char *name)
{
	static const struct optimfs_options opt;
	struct optimfs_error err;
	struct ofs_catalog *cat;
	uint32_t entries;
	size_t wrong = 0, missed = 0;
	long n = 0;

	cat = ofs_read_checkpoint(data_path(name), &opt, &err);
	if (!ok(cat != NULL, "%s: reads", name)) {
		diag("%s", err.text);
		return;
	}
	entries = cat->nentries;
	ofs_catalog_free(cat);
	do {
		err = (struct optimfs_error){ 0 };
		left = ++n;
		cat = ofs_read_checkpoint(data_path(name), &opt, &err);
		if (left > 0) {
			ofs_catalog_free(cat);
			break;
		}
		if (cat == NULL && err.code != ENOMEM) {
			diag("call %ld: %s", n, err.text);
			wrong++;
		}
		if (cat != NULL && cat->nentries != entries)
			missed++;
		ofs_catalog_free(cat);
	} while (n < 1000000);
	left = -1;
	is_u64(wrong, 0, "%s: %ld calls, each fails with ENOMEM", name, n - 1);
	is_u64(missed, 0, "%s: or misses nothing", name);
}

int main(void)
{
	sweep("pytorch/dcp_torch113/ckpt");
	sweep("pytorch/dcp_dtensor_shapes_w4/ckpt");
	sweep("extra/dcp_variants/dcp_nocoll");
	sweep("extra/dcp_variants/dcp_safetensors");
	sweep("extra/trainers/acc_v2_SHARDED_STATE_DICT");
	sweep("pytorch/safetensors_plain/ckpt");
	return done_testing();
}
