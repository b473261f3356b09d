/* dcp_hostile.c - damaged and hostile DCP checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/dcp/dcp.h"
#include "support/dcp_writer.h"
#include "support/pickle_writer.h"
#include "support/reader.h"
#include "tap.h"

/* Every case starts with a sound tensor "bad", which the case damages, a sound
 * tensor "good", which must stay readable, and a value "v". The numbers of
 * cases are those of docs/formats/dcp.md. */

static const float good_data[4] = { 1, 2, 3, 4 }, bad_data[4] = { 5, 6, 7, 8 };

struct base {
	char dir[64];
	struct ofs_buf file; /* __0_0.distcp */
	struct mk_index index;
};

static void base_init(struct base *b)
{
	static const struct mk_dims four = { 1, { 4 } },
				    square = { 2, { 2, 2 } },
				    zero = { 1, { 0 } },
				    zeros = { 2, { 0, 0 } };
	struct mk_tensor *bad = &b->index.tensor[0];
	struct mk_tensor *good = &b->index.tensor[1];

	memset(b, 0, sizeof(*b));
	mk_dir(b->dir);
	b->index.ntensors = 2;
	b->index.nvalues = 1;
	*bad = (struct mk_tensor){
		.key = "bad", .dtype = "float32", .size = four, .nchunks = 1
	};
	bad->chunk[0] = (struct mk_chunk){ .off = zero, .size = four };
	bad->chunk[0].at.file = "__0_0.distcp";
	bad->chunk[0].at.len = (int64_t)mk_write_tensor(&b->file,
	    "FloatStorage", &four, bad_data, sizeof(bad_data));
	*good = (struct mk_tensor){
		.key = "good", .dtype = "float32", .size = square, .nchunks = 1
	};
	good->chunk[0] = (struct mk_chunk){ .off = zeros, .size = square };
	good->chunk[0].at.file = "__0_0.distcp";
	good->chunk[0].at.off = (int64_t)b->file.len;
	good->chunk[0].at.len = (int64_t)mk_write_tensor(&b->file,
	    "FloatStorage", &square, good_data, sizeof(good_data));
	b->index.value[0].key = "v";
	b->index.value[0].at = (struct mk_place){ .file = "__0_0.distcp",
		.off = (int64_t)b->file.len };
	b->index.value[0].at.len =
	    (int64_t)mk_write_object(&b->file, "\x80\x04K\x07.", 5);
}

/* Makes two chunks of bad, [0:2) and [2:4), in the same file. */
static void two_chunks(struct base *b)
{
	static const struct mk_dims two = { 1, { 2 } };
	struct mk_tensor *bad = &b->index.tensor[0];

	bad->nchunks = 2;
	for (int i = 0; i < 2; i++) {
		bad->chunk[i].off = (struct mk_dims){ 1, { 2 * i } };
		bad->chunk[i].size = two;
		bad->chunk[i].at.file = "__0_0.distcp";
		bad->chunk[i].at.off = (int64_t)b->file.len;
		bad->chunk[i].at.len = (int64_t)mk_write_tensor(&b->file,
		    "FloatStorage", &two, bad_data + 2 * i, 8);
	}
}

static void base_write(struct base *b)
{
	struct ofs_buf pk = { 0 };

	mk_write_index(&pk, &b->index);
	mk_file(b->dir, ".metadata", pk.data, pk.len);
	mk_file(b->dir, "__0_0.distcp", b->file.data, b->file.len);
	ofs_buf_fini(&pk);
}

static void base_fini(struct base *b)
{
	ofs_buf_fini(&b->file);
	mk_remove(b->dir);
}

static const struct ofs_tensor *find_tensor(const struct reader *r,
    const char *key)
{
	const struct ofs_entry *e = reader_find(r, key, "/");

	return e == NULL || e->kind != OFS_ENTRY_TENSOR
	    ? NULL
	    : &r->cat->tensors[e->ref];
}

static void check_good(struct reader *r, const char *name)
{
	const struct ofs_tensor *t = find_tensor(r, "good");
	struct optimfs_error err = { 0 };
	uint8_t *bytes = t == NULL ? NULL : reader_tensor(r, t, &err);

	if (!ok(bytes != NULL &&
		    memcmp(bytes, good_data, sizeof(good_data)) == 0,
		"%s: a sound tensor can be read", name))
		diag("%s", err.text);
	free(bytes);
}

/* The expected result of a case. */
enum where {
	MOUNT, /* the checkpoint is refused */
	READ,  /* reading bad fails */
	WORKS, /* bad can be read */
	WARN,  /* bad can be read, and there is a note */
};

struct a_case {
	const char *name;
	void (*damage)(struct base *b);
	enum where where;
	int code;
	const char *text;
};

static void check_bad(struct reader *r, const struct a_case *c)
{
	const struct ofs_tensor *t = find_tensor(r, "bad");
	struct optimfs_error err = { 0 };
	uint8_t *bytes;

	if (!ok(t != NULL, "%s: the tensor is in the catalog", c->name))
		return;
	bytes = reader_tensor(r, t, &err);
	if (c->where == READ) {
		ok(bytes == NULL, "%s: reading the tensor fails", c->name);
		is_error(err, c->code, c->text,
		    "%s: reading the tensor fails with the expected error",
		    c->name);
	} else {
		if (!ok(bytes != NULL &&
			    memcmp(bytes, bad_data, sizeof(bad_data)) == 0,
			"%s: the tensor has the right bytes", c->name))
			diag("%s", err.text);
	}
	free(bytes);
	if (c->where == WARN) {
		const struct ofs_note *note = reader_note(r, c->text);

		if (ok(note != NULL, "%s: a note has %s", c->name, c->text))
			is_int(note->code, c->code,
			    "%s: the note has the expected errno value",
			    c->name);
	}
}

static void run(const struct a_case *c)
{
	static const struct optimfs_options opt;
	struct optimfs_error err = { 0 };
	struct reader r;
	struct base b;
	int ret;

	base_init(&b);
	if (c->damage != NULL)
		c->damage(&b);
	base_write(&b);
	ret = reader_open(&r, b.dir, "", &ofs_format_dcp, &opt, &err);
	if (c->where == MOUNT) {
		is_int(ret, -1, "%s: the checkpoint is refused", c->name);
		is_error(err, c->code, c->text,
		    "%s: the checkpoint fails with the expected error",
		    c->name);
	} else if (ok(ret == 0, "%s: the checkpoint is read", c->name)) {
		check_good(&r, c->name);
		check_bad(&r, c);
	} else {
		diag("%s", err.text);
	}
	reader_close(&r);
	base_fini(&b);
}

/* Ways to damage the index. */

#define BAD (&b->index.tensor[0])
#define AT  (&b->index.tensor[0].chunk[0].at)

static void d04(struct base *b)
{
	AT->file = "__1_0.distcp";
}
static void d06_past(struct base *b)
{
	AT->off = 1 << 20;
}
static void d06_max(struct base *b)
{
	AT->off = INT64_MAX;
}
static void d06_wrap(struct base *b)
{
	AT->off = 100;
	AT->len = INT64_MAX;
}
static void d07_zero(struct base *b)
{
	AT->len = 0;
}
static void d08(struct base *b)
{
	BAD->size = (struct mk_dims){ 3,
		{ 4194305, 4194305, INT64_C(211106198978564) } };
	BAD->chunk[0].off = (struct mk_dims){ 3, { 0, 0, 0 } };
	BAD->chunk[0].size = BAD->size;
}
static void d12_dim(struct base *b)
{
	BAD->size.v[0] = -4;
}
static void d12_offset(struct base *b)
{
	BAD->chunk[0].off.v[0] = -1;
}
static void d12_size(struct base *b)
{
	BAD->chunk[0].size.v[0] = -1;
}
static void d12_place(struct base *b)
{
	AT->off = -1;
}
static void d12_length(struct base *b)
{
	AT->len = -8;
}
static void d13_rank(struct base *b)
{
	BAD->chunk[0].off = (struct mk_dims){ 2, { 0, 0 } };
	BAD->chunk[0].size = (struct mk_dims){ 2, { 4, 1 } };
}
static void d13_uneven(struct base *b)
{
	BAD->chunk[0].size = (struct mk_dims){ 2, { 4, 1 } };
}
static void d14(struct base *b)
{
	two_chunks(b);
	BAD->chunk[1].size.v[0] = 3;
}
static void d14_wrap(struct base *b)
{
	two_chunks(b);
	BAD->chunk[1].off.v[0] = INT64_MAX;
	BAD->chunk[1].size.v[0] = INT64_MAX;
}
static void d15(struct base *b)
{
	two_chunks(b);
	BAD->chunk[1].off.v[0] = 1;
}
static void d16(struct base *b)
{
	BAD->nchunks = 2;
	BAD->chunk[1] = BAD->chunk[0];
	/* An item's key can be there only once, so both chunks have the same
	 * item. */
	BAD->chunk[1].at.file = NULL;
}
static void d16_shared(struct base *b)
{
	BAD->repeated = 1000;
}
static void d21_reverse(struct base *b)
{
	AT->file = NULL;
}
static void d21(struct base *b)
{
	b->index.stray_item = "nobody";
}
static void d21_offset(struct base *b)
{
	static struct mk_dims other = { 1, { 1 } };

	BAD->chunk[0].stored_off = &other;
}
static void d22(struct base *b)
{
	/* the value overlaps the item of bad */
	b->index.value[0].at.off = 10;
}
static void d23(struct base *b)
{
	AT->file = "/etc/passwd";
}
static void d24_up(struct base *b)
{
	AT->file = "../x";
}
static void d24_middle(struct base *b)
{
	AT->file = "a/../../x";
}
static void d24_end(struct base *b)
{
	AT->file = "a/..";
}
static void d25(struct base *b)
{
	AT->file = "sub/dir/__0_0.distcp";
	mk_file(b->dir, AT->file, b->file.data, b->file.len);
}
static void d26_empty(struct base *b)
{
	AT->file = "";
}
static void d26_dot(struct base *b)
{
	AT->file = ".";
}
static void d26_slash(struct base *b)
{
	AT->file = "/";
}
static void d26_long(struct base *b)
{
	static char name[5001];

	memset(name, 'a', sizeof(name) - 1);
	AT->file = name;
}
static void d26_nul(struct base *b)
{
	AT->file = "__0_0.distcp\0x";
	AT->file_len = 14;
}
static void d26_deep(struct base *b)
{
	static char name[600];

	for (int i = 0; i < 256; i++)
		memcpy(name + 2 * i, "a/", 2);
	name[511] = '\0';
	AT->file = name;
}
static void link_to(struct base *b, const char *target)
{
	char path[128];

	AT->file = "__1_0.distcp";
	snprintf(path, sizeof(path), "%s/__1_0.distcp", b->dir);
	if (symlink(target, path) == -1)
		bail_out("symlink: %m");
}
static void d27(struct base *b)
{
	link_to(b, "__0_0.distcp");
}
static void d27_component(struct base *b)
{
	char path[128];

	AT->file = "up/__0_0.distcp";
	snprintf(path, sizeof(path), "%s/up", b->dir);
	if (symlink(".", path) == -1)
		bail_out("symlink: %m");
}
static void d29(struct base *b)
{
	char path[128];

	AT->file = "__1_0.distcp";
	snprintf(path, sizeof(path), "%s/__1_0.distcp", b->dir);
	if (mkfifo(path, 0600) == -1)
		bail_out("mkfifo: %m");
}
static void d29_dir(struct base *b)
{
	AT->file = "__1_0.distcp";
	mk_file(b->dir, "__1_0.distcp/x", "", 0);
}
static void d31(struct base *b)
{
	char old[128], new[128];

	base_write(b);
	snprintf(old, sizeof(old), "%s/__0_0.distcp", b->dir);
	snprintf(new, sizeof(new), "%s/__1_0.distcp", b->dir);
	if (link(old, new) == -1)
		bail_out("link: %m");
	AT->file = "__1_0.distcp";
}
static void d32(struct base *b)
{
	/* the item of good, which has another shape */
	AT->off = b->index.tensor[1].chunk[0].at.off;
	AT->len = b->index.tensor[1].chunk[0].at.len;
}
static void d33_unknown(struct base *b)
{
	BAD->dtype = "float31";
}
static void d33_quantized(struct base *b)
{
	BAD->dtype = "qint8";
}
static void d34_sparse(struct base *b)
{
	BAD->layout = "torch.sparse_coo";
}
static void d34_format(struct base *b)
{
	BAD->format = 7;
}
static void d34_last(struct base *b)
{
	BAD->format = 1; /* any memory format: the item's strides decide */
}
static void d35_type(struct base *b)
{
	b->index.planner = MK_ODD_PLANNER;
}
static void d35_paths(struct base *b)
{
	b->index.planner = MK_BAD_PATHS;
}
static void d35_stray(struct base *b)
{
	b->index.stray_key = "nobody";
}
static void d35_absent(struct base *b)
{
	BAD->no_path = true;
}
static void d37(struct base *b)
{
	AT->transform = "stream.rot13/1";
}
static void d37_version(struct base *b)
{
	AT->transform = "stream.zstd/2";
}
static void d37_digits(struct base *b)
{
	AT->transform = "stream.zstd/10";
}
static void d37_domain(struct base *b)
{
	AT->transform = "stream.zstd@evil.org/1";
}
static void d37_two(struct base *b)
{
	AT->transform = "stream.zstd/1";
	AT->transform2 = "stream.zstd/1";
}
static void d39(struct base *b)
{
	mk_file(b->dir, "__9_0.distcp", "stale", 5);
}
static void d39_empty(struct base *b)
{
	mk_file(b->dir, "__9_0.distcp", "", 0);
}

static void put_9_bytes(struct ofs_buf *b)
{
	pw_tuple_open(b);
	pw_long(b, "\0\0\0\0\0\0\0\x80\0", 9);
	pw_tuple_close(b);
}
static void put_255_bytes(struct ofs_buf *b)
{
	static const uint8_t big[255] = { [254] = 1 };

	pw_tuple_open(b);
	pw_long(b, big, sizeof(big));
	pw_tuple_close(b);
}
static void put_short_long(struct ofs_buf *b)
{
	pw_tuple_open(b);
	pw_long(b, "\4", 1);
	pw_tuple_close(b);
}
static void put_long_8(struct ofs_buf *b)
{
	pw_tuple_open(b);
	pw_long(b, "\4\0\0\0\0\0\0\0", 8);
	pw_tuple_close(b);
}
static void put_true(struct ofs_buf *b)
{
	pw_tuple_open(b);
	pw_bool(b, 1);
	pw_tuple_close(b);
}
static void put_float(struct ofs_buf *b)
{
	pw_tuple_open(b);
	pw_float(b, 4);
	pw_tuple_close(b);
}
static void put_str(struct ofs_buf *b)
{
	pw_str(b, "4");
}
static void put_none(struct ofs_buf *b)
{
	pw_none(b);
}
static void put_65(struct ofs_buf *b)
{
	static const int64_t ones[65] = { 1 };

	pw_size(b, ones, 65);
}
static void put_negative(struct ofs_buf *b)
{
	pw_long(b, "\xff", 1);
}
static void put_int(struct ofs_buf *b)
{
	pw_int(b, 3);
}
static void put_foreign(struct ofs_buf *b)
{
	pw_object_open(b, "my.pkg", "Whatever");
	pw_object_close(b);
}

#define PUT(name, member, fn)     \
 static void name(struct base *b) \
 {                                \
  b->index.member = fn;           \
 }
PUT(p20_9, size, put_9_bytes)
PUT(p20_255, size, put_255_bytes)
PUT(p20_1, size, put_short_long)
PUT(p20_8, size, put_long_8)
PUT(p21_offset, offset, put_negative)
PUT(p22_bool, size, put_true)
PUT(p22_float, size, put_float)
PUT(p22_str, size, put_str)
PUT(p22_none, size, put_none)
PUT(p22_offset, offset, put_none)
PUT(dims_65, size, put_65)
PUT(meta_int, meta, put_int)
PUT(meta_foreign, meta, put_foreign)

static void p35_meta(struct base *b)
{
	b->index.twice_meta = true;
}
static void p35_storage(struct base *b)
{
	b->index.twice_storage = true;
}
static void no_storage(struct base *b)
{
	b->index.no_storage = true;
}

#define GENERATION(name, g)       \
 static void name(struct base *b) \
 {                                \
  b->index.generation = g;        \
 }
GENERATION(torch_2_7, MK_TORCH_2_7)
GENERATION(torch_2_3, MK_TORCH_2_3)
GENERATION(torch_2_0, MK_TORCH_2_0)
GENERATION(with_getattr, MK_GETATTR)
GENERATION(megatron, MK_MEGATRON)
GENERATION(olmo, MK_OLMO)

static void torch_1_13(struct base *b)
{
	b->index.generation = MK_TORCH_1_13;
	b->index.planner = MK_NO_PLANNER;
}

static const struct a_case cases[] = {
	{ "sound checkpoint", NULL, WORKS, 0, NULL },
	{ "index of torch 2.7", torch_2_7, WORKS, 0, NULL },
	{ "index of torch 2.3", torch_2_3, WORKS, 0, NULL },
	{ "index of torch 2.0", torch_2_0, WORKS, 0, NULL },
	{ "index of torch 1.13", torch_1_13, WORKS, 0, NULL },
	{ "index of Python 3.11.2", with_getattr, WORKS, 0, NULL },
	{ "Megatron's Metadata", megatron, WORKS, 0, NULL },
	{ "OLMo-core's _StorageInfo", olmo, WORKS, 0, NULL },

	{ "D04 missing file", d04, READ, EIO, "OFS140" },
	{ "D06 offset past the end", d06_past, READ, EUCLEAN, "OFS604" },
	{ "D06 offset 2^63-1", d06_max, READ, EUCLEAN, "OFS604" },
	{ "D06 offset plus length overflows", d06_wrap, READ, EUCLEAN,
	    "OFS604" },
	{ "D07 length 0", d07_zero, READ, EUCLEAN, "OFS605" },
	{ "D08 size overflows", d08, READ, EUCLEAN, "OFS606" },
	{ "D12 negative dim", d12_dim, MOUNT, EUCLEAN, "OFS417" },
	{ "D12 negative offset", d12_offset, MOUNT, EUCLEAN, "OFS417" },
	{ "D12 negative size", d12_size, MOUNT, EUCLEAN, "OFS417" },
	{ "D12 negative place", d12_place, MOUNT, EUCLEAN, "OFS417" },
	{ "D12 negative length", d12_length, MOUNT, EUCLEAN, "OFS417" },
	{ "D13 chunk with another number of dimensions", d13_rank, READ,
	    EUCLEAN, "OFS608" },
	{ "D13 chunk with offsets and sizes of unequal length", d13_uneven,
	    READ, EUCLEAN, "OFS608" },
	{ "D14 chunk outside the tensor", d14, READ, EUCLEAN, "OFS609" },
	{ "D14 chunk far outside the tensor", d14_wrap, READ, EUCLEAN,
	    "OFS609" },
	{ "D15 overlapping chunks", d15, READ, EUCLEAN, "OFS610" },
	{ "D16 duplicate chunk", d16, WORKS, 0, NULL },
	{ "D16 one chunk a thousand times", d16_shared, MOUNT, E2BIG,
	    "OFS444" },
	{ "D21 item of an unknown key", d21, WARN, EUCLEAN, "OFS613" },
	{ "D21 chunk without an item", d21_reverse, READ, EIO, "OFS607" },
	{ "D21 item at another offset", d21_offset, READ, EIO, "OFS607" },
	{ "D22 items that share bytes", d22, WARN, EUCLEAN, "OFS614" },
	{ "D22 two chunks in one item", d16, WARN, EUCLEAN, "OFS614" },
	{ "D23 absolute path", d23, MOUNT, EPERM, "OFS620" },
	{ "D24 .. at the beginning", d24_up, MOUNT, EPERM, "OFS620" },
	{ "D24 .. in the middle", d24_middle, MOUNT, EPERM, "OFS620" },
	{ "D24 .. at the end", d24_end, MOUNT, EPERM, "OFS620" },
	{ "D25 file in a subdirectory", d25, WORKS, 0, NULL },
	{ "D26 empty path", d26_empty, MOUNT, EPERM, "OFS620" },
	{ "D26 path .", d26_dot, MOUNT, EPERM, "OFS620" },
	{ "D26 path /", d26_slash, MOUNT, EPERM, "OFS620" },
	{ "D26 path of 5000 bytes", d26_long, MOUNT, EPERM, "OFS620" },
	{ "D26 path with a NUL", d26_nul, MOUNT, EPERM, "OFS620" },
	{ "D26 path of 256 components", d26_deep, MOUNT, EPERM, "OFS620" },
	{ "D27 symbolic link to a file", d27, READ, EPERM, "OFS621" },
	{ "D27 symbolic link to a directory", d27_component, READ, EPERM,
	    "OFS621" },
	{ "D29 FIFO instead of a file", d29, READ, EUCLEAN, "OFS602" },
	{ "D29 directory instead of a file", d29_dir, READ, EUCLEAN, "OFS602" },
	{ "D31 hard link", d31, WORKS, 0, NULL },
	{ "D32 item of another tensor", d32, READ, EUCLEAN, "OFS615" },
	{ "D33 unknown dtype", d33_unknown, READ, EOPNOTSUPP, "OFS616" },
	{ "D33 quantized dtype in the index only", d33_quantized, READ, EUCLEAN,
	    "OFS615" },
	{ "D34 sparse layout", d34_sparse, READ, EOPNOTSUPP, "OFS617" },
	{ "D34 memory format 7", d34_format, READ, EOPNOTSUPP, "OFS617" },
	{ "D34 channels last", d34_last, WORKS, 0, NULL },
	{ "D35 planner_data is str", d35_type, WARN, EUCLEAN, "OFS618" },
	{ "D35 paths are floats", d35_paths, WARN, EUCLEAN, "OFS618" },
	{ "D35 path of an unknown key", d35_stray, WARN, EUCLEAN, "OFS618" },
	{ "D35 key without path", d35_absent, WORKS, 0, NULL },
	{ "D37 unknown transform", d37, READ, EOPNOTSUPP, "OFS619" },
	{ "D37 unknown version of a transform", d37_version, READ, EOPNOTSUPP,
	    "OFS619" },
	{ "D37 version that begins with a known one", d37_digits, READ,
	    EOPNOTSUPP, "OFS619" },
	{ "D37 transform of another domain", d37_domain, READ, EOPNOTSUPP,
	    "OFS619" },
	{ "D37 two transforms", d37_two, READ, EOPNOTSUPP, "OFS619" },
	{ "D39 file that the index does not name", d39, WARN, 0, "OFS622" },

	{ "P20 integer of 9 bytes", p20_9, MOUNT, ERANGE,
	    "OFS416 size of TensorStorageMetadata is an integer of 9 bytes" },
	{ "P20 integer of 255 bytes", p20_255, MOUNT, ERANGE, "OFS416" },
	{ "P20 integer of 1 byte", p20_1, WORKS, 0, NULL },
	{ "P20 integer of 8 bytes", p20_8, WORKS, 0, NULL },
	{ "P21 negative offset", p21_offset, MOUNT, EUCLEAN,
	    "negative offset of _StorageInfo -1" },
	{ "P22 size that is True", p22_bool, MOUNT, EUCLEAN, "OFS418 size" },
	{ "P22 size that is a float", p22_float, MOUNT, EUCLEAN,
	    "OFS418 size" },
	{ "P22 size that is a str", p22_str, MOUNT, EUCLEAN, "OFS418 size" },
	{ "P22 size that is None", p22_none, MOUNT, EUCLEAN, "OFS418 size" },
	{ "P22 offset that is None", p22_offset, MOUNT, EUCLEAN,
	    "offset of _StorageInfo is None" },
	{ "shape of 65 dimensions", dims_65, MOUNT, EUCLEAN, "OFS608" },
	{ "P35 state_dict_metadata twice", p35_meta, MOUNT, EUCLEAN, "OFS428" },
	{ "P35 storage_data twice", p35_storage, MOUNT, EUCLEAN, "OFS428" },
	{ "P49 no storage_data", no_storage, MOUNT, EUCLEAN, "OFS442" },
};

/* Cases that need more than one change of the index. */

static int open_dir(struct reader *r, const char *dir,
    const struct optimfs_options *opt, struct optimfs_error *err)
{
	static const struct optimfs_options defaults;

	return reader_open(r, dir, "", &ofs_format_dcp,
	    opt == NULL ? &defaults : opt, err);
}

static void refuse(const char *name, const char *dir,
    const struct optimfs_options *opt, int code, const char *text)
{
	struct optimfs_error err = { 0 };
	struct reader r;

	is_int(open_dir(&r, dir, opt, &err), -1,
	    "%s: the checkpoint is refused", name);
	is_error(err, code, text,
	    "%s: the checkpoint fails with the expected error", name);
	reader_close(&r);
}

static void entries_of_unknown_kind(void)
{
	static void (*const damages[])(struct base *) = { meta_int,
		meta_foreign };
	struct optimfs_error err = { 0 };
	const struct ofs_entry *e;
	struct reader r;
	struct base b;

	for (int i = 0; i < 2; i++) {
		base_init(&b);
		damages[i](&b);
		base_write(&b);
		if (ok(open_dir(&r, b.dir, NULL, &err) == 0,
			"an index with an entry of unknown kind is read")) {
			check_good(&r, "entry of unknown kind");
			e = reader_find(&r, "bad", "/");
			ok(e != NULL && e->kind == OFS_ENTRY_ITEM &&
				r.cat->items[e->ref].error != OFS_NONE,
			    "an entry of unknown kind is an item with an "
			    "error");
			ok(reader_note(&r, "OFS625 bad: neither") != NULL,
			    "an entry of unknown kind is noted with its key");
		}
		reader_close(&r);
		base_fini(&b);
	}
}

static void without_index(void)
{
	struct base b;
	char path[128];

	base_init(&b);
	mk_file(b.dir, "__0_0.distcp", b.file.data, b.file.len);
	refuse("D01 no .metadata", b.dir, NULL, EUCLEAN, "OFS601");
	mk_file(b.dir, ".metadata.tmp", "", 0);
	refuse("D01 .metadata.tmp without .metadata", b.dir, NULL, EUCLEAN,
	    ".metadata.tmp");
	snprintf(path, sizeof(path), "%s/__0_0.distcp", b.dir);
	unlink(path);
	refuse("D02 .metadata.tmp alone", b.dir, NULL, EBUSY, "OFS258");
	mk_file(b.dir, ".metadata/x", "", 0);
	refuse("D03 .metadata is a directory", b.dir, NULL, EUCLEAN, "OFS602");
	base_fini(&b);
	base_init(&b);
	snprintf(path, sizeof(path), "%s/.metadata", b.dir);
	if (mkfifo(path, 0600) == -1)
		bail_out("mkfifo: %m");
	refuse("D03 .metadata is a FIFO", b.dir, NULL, EUCLEAN, "OFS602");
	base_fini(&b);
}

static void wrong_pickles(void)
{
#define BYTES(s) s, sizeof(s) - 1
	static const struct {
		const char *name, *bytes;
		size_t n;
		const char *text;
	} pickles[] = {
		{ "P01 empty file", BYTES(""), "OFS401" },
		{ "P49 list", BYTES("\x80\4]."),
		    "top object is list, expected Metadata" },
		{ "P49 dict", BYTES("\x80\4}."), "top object is dict" },
		{ "P49 None", BYTES("\x80\4N."), "OFS442" },
		{ "P49 empty instance",
		    BYTES("\x80\4\x8c\1m\x8c\1C\x93)\x81}b."), "OFS442" },
		{ "P36 keys that contain themselves",
		    BYTES("\x80\4cm\nC\n)\x81\x94}\x8c\x13"
			  "state_dict_metadatah\0sb."),
		    "OFS429" },
		{ "P36 items that contain themselves",
		    BYTES("\x80\4cm\nC\n)\x81\x94}(\x8c\x13"
			  "state_dict_metadata}\x8c\x0c"
			  "storage_datah\0ub."),
		    "OFS429" },
	};
	struct base b;

	for (size_t i = 0; i < sizeof(pickles) / sizeof(pickles[0]); i++) {
		base_init(&b);
		mk_file(b.dir, ".metadata", pickles[i].bytes, pickles[i].n);
		refuse(pickles[i].name, b.dir, NULL, EUCLEAN, pickles[i].text);
		base_fini(&b);
	}
}

/* Two threads find a fault each. */
static void two_faults(void)
{
	struct optimfs_error err = { 0 };
	struct reader r;
	struct base b;

	base_init(&b);
	b.index.twice_meta = true;
	b.index.twice_storage = true;
	base_write(&b);
	ok(open_dir(&r, b.dir, NULL, &err) == -1 &&
		strstr(err.text, ".metadata: duplicate key") != NULL &&
		strstr(err.text, "in storage_data") != NULL,
	    "P35: of an index with both tables twice, storage_data is named");
	reader_close(&r);
	base_fini(&b);
}

static void limits(void)
{
	struct optimfs_options opt = { .max_metadata = 100 };
	struct base b;

	base_init(&b);
	base_write(&b);
	refuse("P47 index larger than max_metadata", b.dir, &opt, E2BIG,
	    "OFS440");
	opt = (struct optimfs_options){ .parse_mem = 1000 };
	refuse("P48 index that needs more than parse_mem", b.dir, &opt, ENOMEM,
	    "OFS441");
	base_fini(&b);
}

/* P04: An index that is cut anywhere is refused with EUCLEAN. */
static void truncated(void)
{
	struct ofs_buf pk = { 0 };
	struct optimfs_error err;
	struct reader r;
	struct base b;
	size_t bad = 0;

	base_init(&b);
	mk_write_index(&pk, &b.index);
	for (size_t n = 0; n < pk.len; n++) {
		mk_file(b.dir, ".metadata", pk.data, n);
		err.code = 0;
		if (open_dir(&r, b.dir, NULL, &err) == 0 ||
		    err.code != EUCLEAN) {
			diag("cut at %zu: %s", n, err.text);
			bad++;
		}
		reader_close(&r);
	}
	is_u64(bad, 0, "P04: all %zu prefixes of an index are refused", pk.len);
	ofs_buf_fini(&pk);
	base_fini(&b);
}

/* P05: An index with one bit changed is refused, or the tensors that can be
 * read have the right bytes. */
static void flipped(void)
{
	struct ofs_buf pk = { 0 };
	struct optimfs_error err = { 0 };
	struct reader r;
	struct base b;
	size_t refused = 0, wrong = 0;

	base_init(&b);
	base_write(&b);
	mk_write_index(&pk, &b.index);
	for (size_t i = 0; i < pk.len; i++) {
		const struct ofs_tensor *t;
		uint8_t *bytes;

		pk.data[i] ^= 1;
		mk_file(b.dir, ".metadata", pk.data, pk.len);
		pk.data[i] ^= 1;
		if (open_dir(&r, b.dir, NULL, &err) == -1) {
			refused++;
			continue;
		}
		t = find_tensor(&r, "good");
		bytes = t == NULL ? NULL : reader_tensor(&r, t, &err);
		if (bytes != NULL &&
		    (ofs_tensor_bytes(r.cat, t) != sizeof(good_data) ||
			memcmp(bytes, good_data, sizeof(good_data)) != 0))
			wrong++;
		free(bytes);
		reader_close(&r);
	}
	ok(refused > 0,
	    "P05: %zu of %zu indexes with a changed bit are refused", refused,
	    pk.len);
	is_u64(wrong, 0,
	    "P05: an index with a changed bit never gives wrong bytes");
	ofs_buf_fini(&pk);
	base_fini(&b);
}

/* D05: Shards before the end of a truncated file can be read. */
static void short_file(void)
{
	struct optimfs_error err = { 0 };
	const struct ofs_tensor *t;
	struct reader r;
	struct base b;
	uint8_t *bytes;

	base_init(&b);
	two_chunks(&b);
	b.file.len = (size_t)b.index.tensor[0].chunk[1].at.off + 20;
	base_write(&b);
	if (!ok(open_dir(&r, b.dir, NULL, &err) == 0,
		"D05: a checkpoint with a truncated file is read")) {
		base_fini(&b);
		return;
	}
	t = find_tensor(&r, "bad");
	bytes = reader_range(&r, t, 0, 2, &err);
	ok(bytes != NULL && memcmp(bytes, bad_data, 8) == 0,
	    "D05: a shard before the end of the file can be read");
	free(bytes);
	ok(reader_range(&r, t, 2, 2, &err) == NULL,
	    "D05: a shard past the end of the file fails");
	is_int(err.code, EIO,
	    "D05: a shard past the end of the file fails with EIO");
	ok(reader_note(&r, "OFS603 __0_0.distcp has") != NULL,
	    "D05: a note says that the file is short");
	reader_close(&r);
	base_fini(&b);
}

/* D09, D18: Large shapes cost nothing, and holes cannot be read. */
static void hole(void)
{
	struct optimfs_error err = { 0 };
	const struct ofs_tensor *t;
	struct reader r;
	struct base b;
	uint8_t *bytes;

	base_init(&b);
	b.index.tensor[0].size.v[0] = INT64_C(1) << 40;
	base_write(&b);
	if (!ok(open_dir(&r, b.dir, NULL, &err) == 0,
		"D09: a checkpoint with a tensor of 4 TiB is read")) {
		base_fini(&b);
		return;
	}
	t = find_tensor(&r, "bad");
	is_u64(ofs_tensor_bytes(r.cat, t), UINT64_C(1) << 42,
	    "D09: the tensor has a size of 4 TiB");
	bytes = reader_range(&r, t, 0, 4, &err);
	ok(bytes != NULL && memcmp(bytes, bad_data, 16) == 0,
	    "D09: the part of the tensor that is stored can be read");
	free(bytes);
	ok(reader_range(&r, t, 2, 4, &err) == NULL,
	    "D18: reading a hole fails");
	is_error(err, EIO, "OFS607", "D18: reading a hole fails with OFS607");
	reader_close(&r);
	base_fini(&b);
}

/* D10, D11: Tensors without elements, and without dimensions. */
static void no_dims(void)
{
	static const struct mk_dims none = { 0, { 0 } },
				    empty = { 2, { 0, 3 } },
				    zeros = { 2, { 0, 0 } };
	struct optimfs_error err = { 0 };
	struct mk_tensor *bad;
	const struct ofs_tensor *t;
	struct reader r;
	struct base b;
	uint8_t *bytes;

	base_init(&b);
	bad = &b.index.tensor[0];
	bad->size = bad->chunk[0].off = bad->chunk[0].size = none;
	bad->chunk[0].at.off = (int64_t)b.file.len;
	bad->chunk[0].at.len = (int64_t)mk_write_tensor(&b.file, "FloatStorage",
	    &none, bad_data, 4);
	b.index.tensor[2] = *bad;
	bad = &b.index.tensor[2];
	bad->key = "empty";
	bad->size = bad->chunk[0].size = empty;
	bad->chunk[0].off = zeros;
	bad->chunk[0].at.off = (int64_t)b.file.len;
	bad->chunk[0].at.len =
	    (int64_t)mk_write_tensor(&b.file, "FloatStorage", &empty, "", 0);
	b.index.ntensors = 3;
	base_write(&b);
	if (!ok(open_dir(&r, b.dir, NULL, &err) == 0,
		"D10: a checkpoint with an empty tensor is read"))
		diag("%s", err.text);
	t = find_tensor(&r, "bad");
	bytes = reader_tensor(&r, t, &err);
	ok(bytes != NULL && memcmp(bytes, bad_data, 4) == 0,
	    "D11: a tensor without dimensions has one element");
	free(bytes);
	t = find_tensor(&r, "empty");
	is_u64(ofs_tensor_bytes(r.cat, t), 0,
	    "D10: a tensor with a dimension of 0 has no bytes");
	is_int((int)t->error, (int)OFS_NONE,
	    "D10: a tensor with a dimension of 0 has no error");
	reader_close(&r);
	base_fini(&b);
}

/* D30: A huge sparse file costs nothing. */
static void sparse_file(void)
{
	struct optimfs_error err = { 0 };
	struct reader r;
	struct base b;
	char path[128];

	base_init(&b);
	base_write(&b);
	snprintf(path, sizeof(path), "%s/__0_0.distcp", b.dir);
	if (truncate(path, INT64_C(1) << 42) == -1)
		skip(2, "no sparse files here");
	else if (ok(open_dir(&r, b.dir, NULL, &err) == 0,
		     "D30: a checkpoint with a sparse file of 4 TiB is read"))
		check_good(&r, "D30");
	reader_close(&r);
	base_fini(&b);
}

/* D38: The files of several ranks are missing. */
static void missing_ranks(void)
{
	static char names[8][24];
	struct optimfs_error err = { 0 };
	const struct ofs_note *note;
	struct mk_tensor *bad;
	struct reader r;
	struct base b;

	base_init(&b);
	bad = &b.index.tensor[0];
	bad->size.v[0] = 8;
	bad->nchunks = 8;
	for (int i = 0; i < 8; i++) {
		bad->chunk[i] = bad->chunk[0];
		bad->chunk[i].off.v[0] = i;
		bad->chunk[i].size.v[0] = 1;
		snprintf(names[i], sizeof(names[i]), "__%d_0.distcp",
		    i == 0 ? 0 : 7 + i);
		bad->chunk[i].at.file = names[i];
	}
	base_write(&b);
	if (ok(open_dir(&r, b.dir, NULL, &err) == 0,
		"D38: a checkpoint without the files of seven ranks is read")) {
		check_good(&r, "D38");
		is_int(r.cat->world_size, 15,
		    "D38: ranks with missing files count for the world size");
		note = reader_note(&r, "OFS180");
		ok(note != NULL && strstr(note->text, "ranks 8 to 14") != NULL,
		    "D38: the ranks with missing files are noted");
		ok(reader_note(&r, "OFS140 __8_0.distcp") != NULL,
		    "D38: the missing files are noted");
	}
	reader_close(&r);
	base_fini(&b);
}

/* D39: A rank that had nothing to write leaves an empty file. */
static void idle_rank(void)
{
	struct optimfs_error err = { 0 };
	struct reader r;
	struct base b;

	base_init(&b);
	d39_empty(&b);
	base_write(&b);
	if (ok(open_dir(&r, b.dir, NULL, &err) == 0,
		"D39: a checkpoint with an empty data file is read"))
		ok(reader_note(&r, "OFS622") == NULL,
		    "D39: an empty data file causes no warning");
	reader_close(&r);
	base_fini(&b);
}

/* Values: their places are checked like those of tensors. The contents of a
 * hostile value (D36) are not looked at until it is read. */
static void values(void)
{
	static const char hostile[] = "\x80\x04\x8c\2os\x8c\6system\x93\x8c\2ls"
				      "\x85R.";
	struct optimfs_error err = { 0 };
	const struct ofs_entry *e;
	struct ofs_pickle *doc;
	struct reader r;
	struct base b;
	int64_t i;

	base_init(&b);
	b.index.nvalues = 4;
	b.index.value[1] = b.index.value[0];
	b.index.value[1].key = "nowhere";
	b.index.value[1].at.file = NULL;
	b.index.value[2] = b.index.value[0];
	b.index.value[2].key = "hostile";
	b.index.value[2].at.off = (int64_t)b.file.len;
	b.index.value[2].at.len =
	    (int64_t)mk_write_object(&b.file, hostile, sizeof(hostile) - 1);
	b.index.value[3] = b.index.value[0];
	b.index.value[3].key = "coded";
	b.index.value[3].at.transform = "stream.rot13/1";
	base_write(&b);
	if (!ok(open_dir(&r, b.dir, NULL, &err) == 0,
		"a checkpoint with odd values is read")) {
		diag("%s", err.text);
		base_fini(&b);
		return;
	}
	ok(reader_note(&r, "os.system") == NULL,
	    "D36: reading the index does not look into values");
	e = reader_find(&r, "v", "/");
	doc = ofs_locate_item(&r.r, &r.cat->items[e->ref], &err);
	ok(doc != NULL && ofs_pk_int(doc, ofs_pickle_root(doc), &i) && i == 7,
	    "a sound value can be read");
	ofs_pickle_free(doc);
	ok(reader_note(&r, "OFS613 nowhere:") != NULL,
	    "a value without a place is noted");
	ok(reader_note(&r, "OFS619 coded:") != NULL,
	    "a value with an unknown transform is noted");
	e = reader_find(&r, "hostile", "/");
	doc = ofs_locate_item(&r.r, &r.cat->items[e->ref], &err);
	ok(doc == NULL ||
		ofs_pk_kind(doc, ofs_pickle_root(doc)) == OFS_PK_OBJECT,
	    "D36: a hostile value is data, or is refused");
	ofs_pickle_free(doc);
	reader_close(&r);
	base_fini(&b);
}

/* Options of Megatron-FSDP, equal in their bytes: a tensor, the same archive as a
 * pickled value, and a value that is not an archive, but its element. */
static void options_of_two_kinds(void)
{
	static const struct mk_dims none = { 0, { 0 } };
	struct optimfs_error err = { 0 };
	struct mk_tensor *lr;
	struct reader r;
	struct base b;

	base_init(&b);
	lr = &b.index.tensor[0];
	*lr = (struct mk_tensor){ .key = "lr.a",
		.dtype = "float32",
		.nchunks = 1,
		.path = { "optimizer", "param_to_group_meta", "a", "lr" } };
	lr->chunk[0].off = lr->chunk[0].size = none;
	lr->chunk[0].at = (struct mk_place){ .file = "__0_0.distcp",
		.off = (int64_t)b.file.len };
	lr->chunk[0].at.len = (int64_t)mk_write_tensor(&b.file, "FloatStorage",
	    &none, bad_data, 4);
	b.index.value[1] = (struct mk_value){ .key = "lr.b",
		.at = lr->chunk[0].at,
		.path = { "optimizer", "param_to_group_meta", "b", "lr" } };
	b.index.value[2] = (struct mk_value){ .key = "lr.c",
		.at = { .file = "__0_0.distcp",
		    .off = (int64_t)b.file.len,
		    .len = 4 },
		.path = { "optimizer", "param_to_group_meta", "c", "lr" } };
	ofs_buf_put(&b.file, bad_data, 4);
	b.index.nvalues = 3;
	base_write(&b);
	if (!ok(open_dir(&r, b.dir, NULL, &err) == 0,
		"a checkpoint with options of two kinds is read"))
		diag("%s", err.text);
	else
		for (int i = 0; i < 3; i++) {
			char path[64];

			snprintf(path, sizeof(path),
			    "optimizer/param_groups/%d/lr", i);
			ok(reader_find(&r, path, "/") != NULL,
			    "a tensor and values with its bytes are options of "
			    "different groups: %d",
			    i);
		}
	reader_close(&r);
	base_fini(&b);
}

int main(void)
{
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		run(&cases[i]);
	entries_of_unknown_kind();
	without_index();
	wrong_pickles();
	two_faults();
	limits();
	truncated();
	flipped();
	short_file();
	hole();
	no_dims();
	sparse_file();
	missing_ranks();
	idle_rank();
	values();
	options_of_two_kinds();
	return done_testing();
}
