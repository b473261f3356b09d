/* npz.c - .npz and .npy files, valid and malformed */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/npz/npz.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/npy.h"
#include "support/dcp_writer.h"
#include "support/reader.h"
#include "support/truth.h"
#include "tap.h"

static const struct optimfs_options defaults;

static void is_values(struct reader *r, const char *path, const void *want,
    size_t n)
{
	const struct ofs_entry *e = reader_find(r, path, "|");
	struct optimfs_error err = { 0 };
	uint8_t *got;

	if (!ok(e != NULL && e->kind == OFS_ENTRY_TENSOR, "%s is a tensor",
		path))
		return;
	got = reader_tensor(r, &r->cat->tensors[e->ref], &err);
	if (ok(got != NULL, "%s can be read", path))
		is_mem(got, want, n, "%s has the expected values", path);
	else
		diag("%s", err.text);
	free(got);
}

static void is_refused(struct reader *r, const char *path, int number,
    const char *part)
{
	const struct ofs_entry *e = reader_find(r, path, "|");
	const struct ofs_note *note;

	if (!ok(e != NULL && e->kind == OFS_ENTRY_ITEM,
		"%s is an item that cannot be read", path))
		return;
	note = &r->cat->notes[r->cat->items[e->ref].error];
	is_int(note->number, number, "%s: error code", path);
	if (!ok(strstr(note->text, part) != NULL,
		"%s: the error contains \"%s\"", path, part))
		diag("%s", note->text);
}

/* Files written by NumPy; see tests/data/numpy/make.py. These are arrays of
 * np.savez and of np.savez_compressed. */
static void real_state(const char *name)
{
	static const float six[] = { 0, 1, 2, 3, 4, 5 }, three[] = { 1, 2, 3 };
	static const double wide[] = { 0, 1, 2, 3, 4, 5 };
	static const int16_t small[] = { 0, 1, 2, 3, 4, 5 };
	static const uint8_t mask[] = { 1, 0 };
	static const int64_t step = 7;
	struct optimfs_error err = { 0 };
	struct reader r;

	if (!ok(reader_open(&r, data_path("numpy"), name, &ofs_format_npz,
		    &defaults, &err) == 0,
		"%s opens", name)) {
		diag("%s", err.text);
		return;
	}
	is_values(&r, "model|layers.0.weight", six, sizeof(six));
	is_values(&r, "model|layers.0.bias", three, sizeof(three));
	is_values(&r, "model|fortran", wide, sizeof(wide));
	is_values(&r, "model|both", small, sizeof(small));
	is_values(&r, "optim|state|layers.0.weight|step", &step, sizeof(step));
	is_values(&r, "extra|mask", mask, sizeof(mask));
	ok(reader_find(&r, "extra|empty", "|") != NULL,
	    "an empty array is in the catalog");
	is_refused(&r, "extra|names", 665, "a NumPy array of type '<U1'");
	is_refused(&r, "extra|objects", 665, "a NumPy array of type '|O'");
	is_refused(&r, "extra|record", 665, "a NumPy array of records");
	reader_close(&r);
}

static void real_ones(void)
{
	static const float six[] = { 0, 1, 2, 3, 4, 5 };
	static const uint16_t four[] = { 0, 1, 2, 3 };
	int32_t *large = malloc(1500000 * sizeof(*large));
	struct optimfs_error err = { 0 };
	struct reader r;

	real_state("state.npz");
	real_state("compressed.npz");
	for (int i = 0; i < 1500000; i++)
		large[i] = i / 1500;
	reader_open(&r, data_path("numpy"), "compressed.npz", &ofs_format_npz,
	    &defaults, &err);
	is_values(&r, "model|large", large, 1500000 * sizeof(*large));
	reader_close(&r);
	free(large);
	reader_open(&r, data_path("numpy"), "piped.npz", &ofs_format_npz,
	    &defaults, &err);
	is_values(&r, "model|w", six, sizeof(six));
	reader_close(&r);

	if (!ok(reader_open(&r, data_path("numpy"), "array.npy",
		    &ofs_format_npz, &defaults, &err) == 0,
		"a file of np.save opens"))
		return;
	is_values(&r, "array", four, sizeof(four));
	reader_close(&r);
}

/* Parses text as a header of version 1. */
static int parse(struct ofs_npy *npy, const char *text, enum ofs_dtype as,
    struct optimfs_error *err)
{
	uint8_t b[1024] = OFS_NPY_MAGIC "\1";
	size_t n = strlen(text);
	uint32_t length;

	b[8] = (uint8_t)n;
	b[9] = (uint8_t)(n >> 8);
	memcpy(b + 10, text, n);
	*err = (struct optimfs_error){ 0 };
	if (ofs_npy_length(b, 10 + n, &length, err) == -1)
		return -1;
	return ofs_npy_parse(npy, b, length, as, err);
}

#define HEAD "{'descr': '<f4', 'fortran_order': False, 'shape': "

static void headers(void)
{
	static const struct {
		const char *text;
		int code;
		const char *part;
	} cases[] = {
		{ "", EUCLEAN, "OFS664" },
		{ "{}", EUCLEAN, "OFS664" },
		{ HEAD "(2)}", EUCLEAN, "OFS664" },
		{ HEAD "(-1,)}", EUCLEAN, "OFS664" },
		{ HEAD "(2, 3", EUCLEAN, "OFS664" },
		{ HEAD "(2,)", EUCLEAN, "OFS664" },
		{ HEAD "(2,)} x", EUCLEAN, "OFS664" },
		{ HEAD "(2,), 'shape': (3,)}", EUCLEAN, "OFS664" },
		{ HEAD "(2,), 'more': 1}", EUCLEAN, "OFS664" },
		{ HEAD "(18446744073709551616,)}", EUCLEAN, "OFS664" },
		{ HEAD "(4294967296, 4294967296)}", EUCLEAN, "OFS664" },
		{ HEAD "__import__('os')}", EUCLEAN, "OFS664" },
		{ "{'descr': '\\x3cf4'}", EUCLEAN, "OFS664" },
		{ "{'descr': '', 'fortran_order': False, 'shape': ()}",
		    EOPNOTSUPP, "OFS665" },
		{ "{'descr': '|V2', 'fortran_order': False, 'shape': ()}",
		    EOPNOTSUPP, "OFS665" },
		{ "{'descr': '<V1', 'fortran_order': False, 'shape': ()}",
		    EOPNOTSUPP, "which does not say what its bytes are" },
	};
	static const uint8_t future[] = OFS_NPY_MAGIC "\4\0\0\0\0",
			     long_one[] = OFS_NPY_MAGIC "\2\0\377\377\377\377";
	struct optimfs_error err;
	struct ofs_npy npy;
	uint32_t length;

	is_int(parse(&npy, HEAD "(2L, 3), } \n", OFS_DTYPE_NONE, &err), 0,
	    "a header with a Python 2 integer is parsed");
	is_u64(npy.bytes, 24, "a header with shape (2, 3): size of the data");
	is_int(parse(&npy, HEAD "()}", OFS_DTYPE_NONE, &err), 0,
	    "a header with shape () is parsed");
	is_u64(npy.bytes, 4, "a header with shape (): size of the data");
	is_int(parse(&npy,
		   "{'descr': '<V2', 'fortran_order': False, 'shape': (3,)}",
		   OFS_DTYPE_NONE, &err),
	    0, "a header with '<V2' is parsed");
	is_int(npy.dtype, OFS_BFLOAT16, "a header with '<V2': dtype");
	is_int(parse(&npy,
		   "{'descr': '<V1', 'fortran_order': False, 'shape': (3,)}",
		   OFS_FLOAT8_E5M2, &err),
	    0, "a header with '<V1' is parsed for a tensor of such a type");
	is_int(npy.dtype, OFS_FLOAT8_E5M2,
	    "the type of '<V1' is that of the tensor");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		is_int(parse(&npy, cases[i].text, OFS_DTYPE_NONE, &err), -1,
		    "header \"%s\" is refused", cases[i].text);
		is_error(err, cases[i].code, cases[i].part,
		    "header \"%s\": error text", cases[i].text);
	}
	ofs_npy_length(future, sizeof(future) - 1, &length, &err);
	is_error(err, EOPNOTSUPP, "OFS665",
	    "an unknown version is not supported");
	ofs_npy_length(long_one, sizeof(long_one) - 1, &length, &err);
	is_error(err, EUCLEAN, "OFS664", "a header of 4 GiB is refused");
	ofs_npy_length(future, 5, &length, &err);
	is_error(err, EUCLEAN, "OFS664",
	    "a file shorter than the magic is refused");
}

/* Arrays that are shorter than their shape or header. */
static void sizes(void)
{
	static const char header[] = HEAD "(2,)}";
	struct optimfs_error err = { 0 };
	struct ofs_buf b = { 0 };
	struct reader r;
	char dir[64];

	mk_dir(dir);
	ofs_buf_put(&b, OFS_NPY_MAGIC "\1\0", 8);
	ofs_buf_putc(&b, (int)strlen(header));
	ofs_buf_putc(&b, 0);
	ofs_buf_puts(&b, header);
	ofs_buf_put(&b, "1234567", 7);
	mk_file(dir, "short.npy", b.data, b.len);
	mk_file(dir, "cut.npy", b.data, 20);
	is_int(reader_open(&r, dir, "short.npy", &ofs_format_npz, &defaults,
		   &err),
	    0, "an array with too few elements opens");
	is_refused(&r, "short", 664, "7 bytes of elements");
	reader_close(&r);
	is_int(reader_open(&r, dir, "cut.npy", &ofs_format_npz, &defaults,
		   &err),
	    0, "an array with half a header opens");
	is_refused(&r, "cut", 664, "a header of");
	reader_close(&r);
	ofs_buf_fini(&b);
	mk_remove(dir);
}

int main(void)
{
	real_ones();
	headers();
	sizes();
	return done_testing();
}
