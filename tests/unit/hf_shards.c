/* format/safetensors/hf_shards.c - safetensors files that hold shards */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "format/safetensors/safetensors.h"
#include "support/dcp_writer.h"
#include "support/reader.h"
#include "tap.h"

static void names(void)
{
	static const struct {
		const char *name;
		int rank, part, parts;
	} cases[] = {
		{ "shard-00001-model-00001-of-00001.safetensors", 0, 1, 1 },
		{ "shard-00012-model-00002-of-00003.safetensors", 11, 2, 3 },
		{ "shard-00000-model-00001-of-00001.safetensors", -1, 0, 0 },
		{ "shard-00001-model-00002-of-00001.safetensors", -1, 0, 0 },
		{ "shard-00001-model-00001-of-00001.safetensors.tmp", -1, 0,
		    0 },
		{ "model-00001-of-00001.safetensors", -1, 0, 0 },
		{ "shard--0001-model-00001-of-00001.safetensors", -1, 0, 0 },
		{ "shard- 0001-model-00001-of-00001.safetensors", -1, 0, 0 },
	};
	int rank, part, parts;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		bool is =
		    ofs_hf_shard_name(cases[i].name, &rank, &part, &parts);

		ok(is == (cases[i].rank != -1) &&
			(!is ||
			    (rank == cases[i].rank && part == cases[i].part &&
				parts == cases[i].parts)),
		    "rank, part and number of parts of %s", cases[i].name);
	}
}

/* The safetensors file of a rank with a tensor w of two floats. */
static void put(const char *dir, int rank, const char *info, const char *tensor,
    const float *data)
{
	struct ofs_buf header = { 0 }, b = { 0 };
	char name[64];

	ofs_buf_puts(&header, "{");
	if (info != NULL) {
		ofs_buf_puts(&header,
		    "\"__metadata__\":{\"DCP_SHARDING_INFO\":\"");
		ofs_buf_json(&header, info, strlen(info));
		ofs_buf_puts(&header, "\"},");
	}
	ofs_buf_printf(&header, "\"w\":%s}", tensor);
	for (int i = 0; i < 8; i++)
		ofs_buf_putc(&b, (int)(header.len >> (8 * i) & 0xff));
	ofs_buf_put(&b, header.data, header.len);
	ofs_buf_put(&b, data, 8);
	snprintf(name, sizeof(name),
	    "shard-%05d-model-00001-of-00001.safetensors", rank + 1);
	mk_file(dir, name, b.data, b.len);
	ofs_buf_fini(&header);
	ofs_buf_fini(&b);
}

#define FLOATS "{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"

/* Reads a checkpoint of rank 0 and of the given rank, whose header is as
 * given. */
static int open_two(struct reader *r, const char *info, const char *tensor,
    int rank, struct optimfs_error *err)
{
	static const float data[] = { 1, 2, 3, 4 };
	static const struct optimfs_options opt;
	char dir[64];
	int ret;

	mk_dir(dir);
	put(dir, 0, "{\"w\":{\"saved_offsets\":[0],\"x\":[{}]},\"v\":{}}",
	    FLOATS, data);
	put(dir, rank, info, tensor, data + 2);
	ret = reader_open(r, dir, "", &ofs_format_safetensors, &opt, err);
	mk_remove(dir);
	return ret;
}

static const struct ofs_tensor *tensor_w(const struct reader *r)
{
	const struct ofs_entry *e = reader_find(r, "w", "/");

	return &r->cat->tensors[e->ref];
}

/* PyTorch writes no file where a rank has nothing to save. */
static void is_warning(const struct reader *r, const char *text)
{
	const struct ofs_note *note = reader_note(r, text);

	ok(note != NULL && note->kind == OFS_NOTE_WARNING,
	    "a gap in the ranks is a warning with the name of the file");
}

static void good(void)
{
	struct optimfs_error err = { 0 };
	struct reader r;

	if (!ok(open_two(&r, "{\"w\":{\"saved_offsets\":[2]}}", FLOATS, 1,
		    &err) == 0,
		"two shards with offsets are read")) {
		diag("%s", err.text);
		return;
	}
	is_u64(ofs_tensor_numel(r.cat, tensor_w(&r)), 4,
	    "two shards of two elements make a tensor of four");
	is_u64(tensor_w(&r)->nshards, 2,
	    "the tensor of two shards has two shards");
	is_int(r.cat->world_size, 2,
	    "files of two ranks give a world size of 2");
	ok(reader_note(&r, "OFS") == NULL,
	    "a complete checkpoint has no notes");
	reader_close(&r);
	if (ok(open_two(&r, "{\"w\":{\"saved_offsets\":[2]}}", FLOATS, 3,
		   &err) == 0,
		"a checkpoint with a gap in its ranks is read"))
		is_warning(&r, "OFS184 shard-00002-model-00001-of-00001");
	reader_close(&r);
	if (ok(open_two(&r, NULL, FLOATS, 1, &err) == 0,
		"a file without DCP_SHARDING_INFO is read"))
		is_u64(ofs_tensor_numel(r.cat, tensor_w(&r)), 2,
		    "a file without DCP_SHARDING_INFO has the whole tensor");
	reader_close(&r);
}

static void refused(void)
{
	static const char *const infos[] = { "[]", "{", "{} x", "{\"w\":3}",
		"{\"w\":{\"saved_offsets\":4}}",
		"{\"w\":{\"saved_offsets\":[-1]}}",
		"{\"w\":{\"saved_offsets\":[1.5]}}",
		"{\"w\":{\"saved_offsets\":[0]}", "{\"w\":{\"other\":nul}}" };
	struct optimfs_error err;
	struct reader r;

	for (size_t i = 0; i < sizeof(infos) / sizeof(infos[0]); i++) {
		err = (struct optimfs_error){ 0 };
		is_int(open_two(&r, infos[i], FLOATS, 1, &err), -1,
		    "sharding info %s is refused", infos[i]);
		is_error(err, EUCLEAN, "OFS628",
		    "sharding info %s fails with OFS628", infos[i]);
		reader_close(&r);
	}
}

static void spoiled(void)
{
	static const struct {
		const char *info, *tensor;
		int code;
		const char *text;
	} cases[] = {
		{ "{\"w\":{\"saved_offsets\":[2,0]}}", FLOATS, EUCLEAN,
		    "OFS609 w: a shard does not have" },
		{ "{\"w\":{\"saved_offsets\":[]}}", FLOATS, EUCLEAN,
		    "OFS609 w: a shard does not have" },
		{ "{\"w\":{\"saved_offsets\":[9223372036854775807]}}", FLOATS,
		    EUCLEAN, "OFS606" },
		{ "{\"w\":{\"saved_offsets\":[1]}}", FLOATS, EUCLEAN,
		    "OFS610" },
		{ "{\"w\":{\"saved_offsets\":[2]}}",
		    "{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[0,8]}",
		    EPROTO, "OFS674 w: its shards differ" },
		{ "{\"w\":{\"saved_offsets\":[2,0]}}",
		    "{\"dtype\":\"F32\",\"shape\":[2,1],"
		    "\"data_offsets\":[0,8]}",
		    EPROTO, "OFS674 w: its shards differ" },
	};
	struct optimfs_error err;
	struct reader r;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		err = (struct optimfs_error){ 0 };
		if (!ok(open_two(&r, cases[i].info, cases[i].tensor, 1, &err) ==
			    0,
			"%s: the checkpoint is read", cases[i].info))
			continue;
		ok(reader_tensor(&r, tensor_w(&r), &err) == NULL,
		    "%s: reading the tensor fails", cases[i].info);
		is_error(err, cases[i].code, cases[i].text,
		    "%s: the error says why", cases[i].info);
		reader_close(&r);
	}
}

int main(void)
{
	names();
	good();
	refused();
	spoiled();
	return done_testing();
}
