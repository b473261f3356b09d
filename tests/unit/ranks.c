/* ranks.c - rank files of every kind, valid and not, through the library */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "mktorch.h"
#include "mkzip.h"
#include "support/listing.h"
#include "tap.h"

/* A rank's file: float32 elements first, first + 1, ... */
struct rank {
	int rank, world;
	float step; /* a 0-dimensional tensor */
	int lr;
	float plain; /* the first element of a tensor that all ranks have */
	bool no_weight;
	int64_t size; /* of the local tensor of w; 0: the correct size */
};

static struct handmade h;
static struct optimfs *fs;
static const char *scene; /* of the current checkpoint, for descriptions */

static void ints(struct ofs_buf *b, size_t n, const int64_t *v)
{
	mk_ops(b, "](");
	for (size_t i = 0; i < n; i++)
		mk_int(b, v[i]);
	mk_ops(b, "e");
}

static void new_object(struct ofs_buf *b, const char *module, const char *name)
{
	mk_global(b, module, name);
	ofs_buf_put(b, ")\x81", 2);
}

static void attribute(struct ofs_buf *b, const char *name, int64_t v)
{
	mk_str(b, name);
	mk_int(b, v);
}

static void shard_metadata(struct ofs_buf *b, size_t n, const int64_t *off,
    const int64_t *size)
{
	new_object(b, "torch.distributed._shard.metadata", "ShardMetadata");
	mk_ops(b, "N}(");
	mk_str(b, "shard_offsets");
	ints(b, n, off);
	mk_str(b, "shard_sizes");
	ints(b, n, size);
	ofs_buf_put(b,
	    "u\x86"
	    "b",
	    3);
}

/* _rebuild_from_type_v2(_rebuild_wrapper_subclass, class, (class, dtype, size),
 * state). The caller appends the state and "tR". */
static void wrapped(struct ofs_buf *b, const char *module, const char *class,
    size_t n, const int64_t *shape)
{
	mk_global(b, "torch._tensor", "_rebuild_from_type_v2");
	mk_ops(b, "(");
	mk_global(b, "torch._utils", "_rebuild_wrapper_subclass");
	mk_global(b, module, class);
	mk_ops(b, "(");
	mk_global(b, module, class);
	mk_global(b, "torch", "float32");
	mk_tuple(b, n, shape);
	mk_ops(b, "t");
}

#define ST "torch.distributed._shard.sharded_tensor."

static void begin_sharded(struct ofs_buf *b, size_t n, const int64_t *shape)
{
	wrapped(b, ST "api", "ShardedTensor", n, shape);
	mk_ops(b, "(](");
}

static void end_sharded(struct ofs_buf *b, size_t n, const int64_t *shape,
    int rank, int world)
{
	mk_ops(b, "e");
	new_object(b, ST "metadata", "ShardedTensorMetadata");
	mk_ops(b, "}(");
	mk_str(b, "size");
	mk_tuple(b, n, shape);
	mk_ops(b, "ub");
	new_object(b, ST "api", "ProcessGroupState");
	mk_ops(b, "}(");
	attribute(b, "global_rank", rank);
	attribute(b, "global_world_size", world);
	mk_ops(b, "ubNNttR");
}

static void begin_shard(struct ofs_buf *b)
{
	new_object(b, ST "shard", "Shard");
	mk_ops(b, "N}(");
	mk_str(b, "tensor");
}

static void end_shard(struct ofs_buf *b, size_t n, const int64_t *off,
    const int64_t *size)
{
	mk_str(b, "metadata");
	shard_metadata(b, n, off, size);
	ofs_buf_put(b,
	    "u\x86"
	    "b",
	    3);
}

static void local(struct ofs_buf *b, const char *key, int64_t n)
{
	mk_tensor(b,
	    &(struct mk_tensor){ .key = key,
		.numel = n,
		.ndim = 1,
		.shape = { n },
		.stride = { 1 } });
}

static void scalar(struct ofs_buf *b, const char *key)
{
	mk_tensor(b, &(struct mk_tensor){ .key = key, .numel = 1 });
}

static void save(const char *name, struct ofs_buf *pickle,
    const void *const *storage, const size_t *size, int n)
{
	struct mkzip z = { 0 };

	mkzip_add(&z, "x/data.pkl", pickle->data, pickle->len);
	for (int i = 0; i < n; i++) {
		char record[32];

		snprintf(record, sizeof(record), "x/data/%d", i);
		mkzip_add(&z, record, storage[i], size[i]);
	}
	mkzip_add(&z, "x/version", "3\n", 2);
	mkzip_end(&z);
	handmade_replace(&h, name, z.b.data, z.b.len);
	mkzip_fini(&z);
	ofs_buf_fini(pickle);
}

/* Elements [2 rank, 2 rank + 2) of a vector w of 5 elements, of 3 ranks. */
static void save_rank(const char *name, const struct rank *r)
{
	static const int64_t shape[] = { 5 };
	int64_t off = 2 * r->rank, n = off > 5 ? 0 : off + 2 > 5 ? 5 - off : 2;
	float w[2] = { (float)off, (float)off + 1 }, plain[] = { r->plain, 9 };
	const void *storage[] = { w, &r->step, plain };
	size_t size[] = { (size_t)n * 4, 4, 8 };
	struct ofs_buf b = { 0 };

	mk_begin(&b);
	mk_ops(&b, "}(");
	mk_str(&b, "state");
	mk_ops(&b, "}(");
	mk_str(&b, "w");
	mk_ops(&b, "}(");
	mk_str(&b, "exp_avg");
	begin_sharded(&b, 1, shape);
	if (n > 0) {
		begin_shard(&b);
		local(&b, "0", r->size != 0 ? r->size : n);
		end_shard(&b, 1, &off, &n);
	}
	end_sharded(&b, 1, shape, r->rank, r->world);
	mk_str(&b, "step");
	scalar(&b, "1");
	if (!r->no_weight) {
		mk_str(&b, "exp_avg_sq");
		local(&b, "2", 2);
	}
	mk_ops(&b, "uu");
	mk_str(&b, "param_groups");
	mk_ops(&b, "]}(");
	attribute(&b, "lr", r->lr);
	mk_ops(&b, "uau");
	mk_end(&b);
	save(name, &b, storage, size, 3);
}

static const struct rank healthy[] = {
	{ .rank = 0, .world = 3, .step = 5, .lr = 1, .plain = 4 },
	{ .rank = 1, .world = 3, .step = 5, .lr = 1, .plain = 4 },
	{ .rank = 2, .world = 3, .step = 5, .lr = 1, .plain = 4 },
};

static void save_ranks(const struct rank *r, int n)
{
	for (int i = 0; i < n; i++) {
		char name[40];

		snprintf(name, sizeof(name), "optim_rank%d.pt", i);
		save_rank(name, &r[i]);
	}
}

static bool open_path(const char *path, const struct optimfs_options *opt,
    struct optimfs_error *err)
{
	*err = (struct optimfs_error){ 0 };
	fs = optimfs_open(path, opt, err);
	return fs != NULL;
}

static void says(const char *path, const char *want)
{
	char text[4096] = "";
	struct optimfs_error err;
	ssize_t n = listing_read_at(fs, path, text, sizeof(text) - 1, 0, &err);

	is_str(n == -1 ? err.text : text, want, "%s: text of %s", scene, path);
}

static void mentions(const char *path, const char *part)
{
	char text[4096] = "";
	struct optimfs_error err;

	listing_read_at(fs, path, text, sizeof(text) - 1, 0, &err);
	if (!ok(strstr(text, part) != NULL, "%s: %s contains \"%s\"", scene,
		path, part))
		diag("%s", text);
}

static void floats(const char *path, int n, float first)
{
	float got[32], want[32];
	struct optimfs_error err;

	for (int i = 0; i < n; i++)
		want[i] = first + (float)i;
	if (is_int(listing_read_at(fs, path, got, sizeof(got), 0, &err), 4 * n,
		"%s: size of %s", scene, path))
		is_mem(got, want, 4 * (size_t)n, "%s: elements of %s", scene,
		    path);
	else
		diag("%s", err.text);
}

static void refused(const char *path, int code, const char *part)
{
	struct optimfs_error err;
	char text[200];

	is_int(listing_read_at(fs, path, text, sizeof(text), 0, &err), -1,
	    "%s: %s cannot be read", scene, path);
	is_error(err, code, part, "%s: error of %s", scene, path);
}

static void begin(void)
{
	handmade_init(&h);
}

static void end(void)
{
	optimfs_close(fs);
	fs = NULL;
	handmade_fini(&h);
}

static void open_dir(const char *what)
{
	struct optimfs_error err;

	scene = what;
	if (!ok(open_path(h.dir, NULL, &err), "%s: the checkpoint opens", what))
		diag("%s", err.text);
}

static void does_not_open(const char *what, int code, const char *part)
{
	struct optimfs_error err;

	ok(!open_path(h.dir, NULL, &err), "%s: the checkpoint does not open",
	    what);
	is_error(err, code, part, "%s: error text", what);
}

static void merged(void)
{
	struct optimfs_error err;

	begin();
	save_ranks(healthy, 3);
	open_dir("three ranks");
	floats("optim/state/w/exp_avg", 5, 0);
	says("optim/state/w/step", "5.0\n");
	says("optim/param_groups/0/lr", "1\n");
	floats(".optimfs/rank/1/optim/state/w/exp_avg", 2, 2);
	floats(".optimfs/rank/2/optim/state/w/exp_avg", 1, 4);
	says(".optimfs/warnings", "");
	says(".optimfs/missing", "");
	mentions(".optimfs/info.json", "\"world_size\": 3");
	optimfs_close(fs);
	ok(open_path(handmade_path(&h, "optim_rank1.pt"), NULL, &err),
	    "one of three rank files opens");
	scene = "one of three rank files";
	floats("optim/state/w/exp_avg", 5, 0);
	end();
}

static void disagreeing(void)
{
	struct rank r[3];

	memcpy(r, healthy, sizeof(r));
	r[1].step = 7;
	r[2].lr = 3;
	r[1].plain = 6;
	begin();
	save_ranks(r, 3);
	open_dir("ranks with different values");
	refused("optim/state/w/step", EPROTO,
	    "ranks disagree: 5.0 (rank 0), 7.0 (rank 1), 5.0 (rank 2)");
	says(".optimfs/rank/0/optim/state/w/step", "5.0\n");
	says(".optimfs/rank/1/optim/state/w/step", "7.0\n");
	refused("optim/param_groups/0/lr", EPROTO,
	    "ranks disagree: 1 (rank 0), 1 (rank 1), 3 (rank 2)");
	says(".optimfs/rank/1/optim/param_groups/0/lr", "1\n");
	says(".optimfs/rank/2/optim/param_groups/0/lr", "3\n");
	refused("optim/state/w/exp_avg_sq", EPROTO, "different elements");
	floats("optim/state/w/exp_avg", 5, 0);
	end();
}

/* {"KEY": {"rng": two elements, "seed": RANK, "epoch": 3}}; KEY NULL: only the
 * inner dict. */
static void save_own(const char *name, const char *key, int rank)
{
	float rng[2] = { 10 * (float)rank, 10 * (float)rank + 1 };
	const void *storage[] = { rng };
	struct ofs_buf b = { 0 };

	mk_begin(&b);
	mk_ops(&b, "}(");
	if (key != NULL) {
		mk_str(&b, key);
		mk_ops(&b, "}(");
	}
	mk_str(&b, "rng");
	local(&b, "0", 2);
	attribute(&b, "seed", rank);
	attribute(&b, "epoch", 3);
	mk_ops(&b, key != NULL ? "uu" : "u");
	mk_end(&b);
	save(name, &b, storage, (size_t[]){ sizeof(rng) }, 1);
}

/* Objects of a class that is not on the allow-list. */
static void own_objects(void)
{
	begin();
	save_ranks(healthy, 3);
	for (int i = 0; i < 3; i++) {
		float held[2] = { (float)i, 1 };
		const void *storage[] = { held };
		struct ofs_buf b = { 0 };
		char name[40];

		mk_begin(&b);
		mk_ops(&b, "}(");
		mk_str(&b, "generator");
		mk_global(&b, "my.data", "Generator");
		mk_ops(&b, "(");
		local(&b, "0", 2);
		mk_ops(&b, "tR");
		mk_str(&b, "sampler");
		mk_global(&b, "my.data", "Sampler");
		mk_ops(&b, "(");
		mk_int(&b, i);
		mk_ops(&b, "tR");
		mk_str(&b, "policy");
		mk_global(&b, "my.data", "Policy");
		mk_ops(&b, ")Ru");
		mk_end(&b);
		snprintf(name, sizeof(name), "train_rank%d.pt", i);
		save(name, &b, storage, (size_t[]){ sizeof(held) }, 1);
	}
	open_dir("ranks with objects of their own");
	refused("extra/train/generator/rank0", EPERM,
	    "a tensor is inside an object of class my.data.Generator");
	refused("extra/train/generator/rank2", EPERM,
	    "a tensor is inside an object of class my.data.Generator");
	says("extra/train/sampler/rank0",
	    "{\"__opaque__\": \"my.data.Sampler\", \"xxh64\": \"56c4994912065bbc\"}\n");
	says("extra/train/sampler/rank2",
	    "{\"__opaque__\": \"my.data.Sampler\", \"xxh64\": \"764c9ecec8badc55\"}\n");
	says("extra/train/policy",
	    "{\"__opaque__\": \"my.data.Policy\", \"xxh64\": \"d7d5252d3cbceafa\"}\n");
	end();
}

static void own_state(void)
{
	char name[40];

	begin();
	save_ranks(healthy, 3);
	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "train_rank%d.pt", i);
		save_own(name, NULL, i);
	}
	open_dir("ranks with files of their own state");
	floats("extra/train/rng/rank0", 2, 0);
	floats("extra/train/rng/rank2", 2, 20);
	says("extra/train/seed/rank1", "1\n");
	says("extra/train/epoch", "3\n");
	says(".optimfs/warnings", "");
	end();
	begin();
	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "ck_rank%d.pt", i);
		save_own(name, "model", i);
	}
	open_dir("ranks with different models");
	refused("extra/model/rng", EPROTO, "different elements");
	end();
	begin();
	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "ck_rank%d.pt", i);
		save_own(name, NULL, i);
	}
	open_dir("ranks with different tensors and no other model");
	refused("extra/rng", EPROTO, "different elements");
	end();
}

static void missing_rank(void)
{
	struct optimfs_error err;
	float got[5];

	begin();
	save_ranks(healthy, 3);
	unlink(handmade_path(&h, "optim_rank1.pt"));
	open_dir("a missing rank file");
	mentions(".optimfs/missing", "OFS140 the file of rank 1 of 3");
	mentions(".optimfs/missing", "OFS180");
	is_int(listing_read_at(fs, "optim/state/w/exp_avg", got, 8, 0, &err), 8,
	    "a missing rank file: elements before it can be read");
	refused("optim/state/w/exp_avg", EIO, "OFS607");
	says("optim/state/w/step", "5.0\n");
	floats(".optimfs/rank/2/optim/state/w/exp_avg", 1, 4);
	end();
}

static void surplus(void)
{
	struct rank r = healthy[2];

	begin();
	save_ranks(healthy, 3);
	r.rank = 5;
	r.world = 8;
	r.step = 2;
	save_rank("optim_rank5.pt", &r);
	open_dir("a file of a larger job");
	mentions(".optimfs/warnings", "OFS181 optim_rank5.pt is left out");
	says("optim/state/w/step", "5.0\n");
	end();
}

static void mixed(void)
{
	struct rank r[3];

	memcpy(r, healthy, sizeof(r));
	r[1].world = 4;
	begin();
	save_ranks(r, 3);
	does_not_open("rank files of 3 and of 4 ranks", EPROTO, "OFS674");
	end();
	memcpy(r, healthy, sizeof(r));
	r[2].rank = 1;
	begin();
	save_ranks(r, 3);
	does_not_open("two files of one rank", EUCLEAN, "OFS181");
	end();
}

static void missing_key(void)
{
	struct optimfs_options strict = { .strict = true };
	struct optimfs_error err;
	struct rank r[3];

	memcpy(r, healthy, sizeof(r));
	r[2].no_weight = true;
	begin();
	save_ranks(r, 3);
	open_dir("a rank without a tensor that rank 0 has");
	says(".optimfs/missing",
	    "OFS182 rank 2 has no optim.state.w.exp_avg_sq, rank 0 has\n");
	optimfs_close(fs);
	ok(!open_path(h.dir, &strict, &err),
	    "strict refuses a rank without a tensor that rank 0 has");
	is_error(err, EUCLEAN, "OFS182",
	    "strict and a rank without a tensor: error text");
	end();
	memcpy(r, healthy, sizeof(r));
	r[0].no_weight = true;
	begin();
	save_ranks(r, 3);
	open_dir("a tensor that only rank 0 lacks");
	says(".optimfs/missing", "");
	ok(listing_read_at(fs, "optim/state/w/exp_avg_sq", &err, 4, 0, &err) ==
		4,
	    "a tensor that only rank 0 lacks can be read");
	end();
}

static void wrong_local(void)
{
	struct rank r[3];

	memcpy(r, healthy, sizeof(r));
	r[1].size = 1;
	begin();
	save_ranks(r, 3);
	open_dir("a local tensor that does not fit its shard");
	refused("optim/state/w/exp_avg", EUCLEAN, "");
	says("optim/state/w/step", "5.0\n");
	end();
}

/* A DTensor w of n elements on a 2 x 2 mesh. */
struct spec {
	const char *placement[2]; /* "Shard", "_StridedShard", ... */
	int64_t split, n, at[2], mesh[2], local;
	float first[4];
	enum { OLDER, V2_10, V2_14 } torch;
};

/* The first rank of a mesh. It is written only if it is not 0. */
static int base;

/* A dimension of a mesh as PyTorch 2.14 writes it. */
static void put_axis(struct ofs_buf *b, size_t n, const int64_t *shape)
{
	new_object(b, "torch.distributed._mesh_layout", "_FlatLayout");
	mk_ops(b, "}(");
	mk_str(b, "shape");
	mk_tuple(b, n, shape);
	mk_ops(b, "ub");
}

/* A last dimension of length 1 is written as () or, otherwise, as its length
 * and 1. */
static void put_axes(struct ofs_buf *b, const int64_t *mesh)
{
	const int64_t last[] = { mesh[1], 1 };

	new_object(b, "torch.distributed._mesh_layout", "_MeshLayout");
	mk_ops(b, "}(");
	mk_str(b, "axes");
	put_axis(b, 1, mesh);
	put_axis(b, mesh[1] == 1 ? 0 : 2, last);
	ofs_buf_put(b, "\x86", 1);
	mk_ops(b, "ub");
}

static void put_mesh(struct ofs_buf *b, const struct spec *s)
{
	new_object(b, "torch.distributed.device_mesh", "DeviceMesh");
	mk_ops(b, "}(");
	if (s->torch == V2_14) {
		mk_str(b, "_layout");
		put_axes(b, s->mesh);
	} else if (s->torch == OLDER) {
		mk_str(b, "mesh");
		mk_tensor(b,
		    &(struct mk_tensor){ .key = "0",
			.numel = 4,
			.ndim = 2,
			.shape = { 2, 2 },
			.stride = { 2, 1 } });
	} else {
		mk_str(b, "_layout");
		new_object(b, "torch.distributed._mesh_layout", "_MeshLayout");
		mk_ops(b, "}(");
		mk_str(b, "shape");
		mk_tuple(b, 2, s->mesh);
		mk_ops(b, "ub");
	}
	mk_str(b, "_coordinate_on_dim");
	mk_tuple(b, 2, s->at);
	if (base != 0) {
		mk_str(b,
		    s->torch == OLDER ? "_flatten_mesh_list"
				      : "_flatten_rank_map");
		mk_tuple(b, 4,
		    (int64_t[]){ base, base + 1, base + 2, base + 3 });
	}
	attribute(b, "_rank", base + s->mesh[1] * s->at[0] + s->at[1]);
	mk_ops(b, "ub");
}

static void put_dtensor(struct ofs_buf *b, const struct spec *s)
{
	wrapped(b, "torch.distributed.tensor", "DTensor", 1, &s->n);
	mk_ops(b, "N}(");
	mk_str(b, "_local_tensor");
	local(b, "0", s->local);
	mk_str(b, "_spec");
	new_object(b, "torch.distributed.tensor._dtensor_spec", "DTensorSpec");
	mk_ops(b, "}(");
	mk_str(b, "mesh");
	put_mesh(b, s);
	mk_str(b, "placements");
	mk_ops(b, "(");
	for (int i = 0; i < 2; i++) {
		new_object(b, "torch.distributed.tensor.placement_types",
		    s->placement[i]);
		mk_ops(b, "}(");
		attribute(b, "dim", 0);
		attribute(b, "split_factor", s->split);
		mk_ops(b, "ub");
	}
	mk_ops(b, "tubu");
	ofs_buf_put(b, "\x86tR", 3);
}

static void save_named(int rank, const char *key, const struct spec *s)
{
	const void *storage[] = { s->first };
	size_t size[] = { (size_t)s->local * 4 };
	struct ofs_buf b = { 0 };
	char name[40];

	mk_begin(&b);
	mk_ops(&b, "}(");
	mk_str(&b, key);
	put_dtensor(&b, s);
	mk_ops(&b, "u");
	mk_end(&b);
	snprintf(name, sizeof(name), "model_rank%d.pt", rank);
	save(name, &b, storage, size, 1);
}

static void save_dtensor(int rank, const struct spec *s)
{
	save_named(rank, "w", s);
}

static void save_mesh(const struct spec *s, const float first[4][4])
{
	for (int i = 0; i < 4; i++) {
		struct spec t = *s;

		t.at[0] = i / 2;
		t.at[1] = i % 2;
		memcpy(t.first, first[i], sizeof(t.first));
		save_dtensor(i, &t);
	}
}

static void dtensors(void)
{
	const struct spec in_pieces = { { "Shard", "_StridedShard" }, 2, 8,
		{ 0 }, { 2, 2 }, 2, { 0 }, V2_10 };
	struct spec hsdp = { { "Replicate", "Shard" }, 1, 4, { 0 }, { 2, 2 }, 2,
		{ 0 }, V2_10 };

	begin();
	save_mesh(&in_pieces,
	    (const float[4][4]){ { 0, 2 }, { 1, 3 }, { 4, 6 }, { 5, 7 } });
	open_dir("a strided shard in pieces");
	floats("model/w", 8, 0);
	end();
	for (int torch = OLDER; torch <= V2_14; torch++) {
		hsdp.torch = torch;
		begin();
		save_mesh(&hsdp,
		    (const float[4][4]){
			{ 0, 1 }, { 2, 3 }, { 0, 1 }, { 2, 3 } });
		open_dir("replicated DTensors");
		floats("model/w", 4, 0);
		floats(".optimfs/rank/3/model/w", 2, 2);
		says(".optimfs/warnings", "");
		end();
	}
}

/* In PyTorch 2.14 a dimension of a mesh may have an empty shape. */
static void empty_axis(void)
{
	struct spec s = { { "Shard", "Shard" }, 1, 4, { 0 }, { 2, 1 }, 2, { 0 },
		V2_14 };

	begin();
	for (int i = 0; i < 2; i++) {
		s.at[0] = i;
		s.first[0] = (float)(2 * i);
		s.first[1] = s.first[0] + 1;
		save_dtensor(i, &s);
	}
	open_dir("a mesh dimension with an empty shape");
	floats("model/w", 4, 0);
	says(".optimfs/warnings", "");
	says(".optimfs/missing", "");
	end();
}

/* A CheckpointableTensor w of 8 elements: n boxes of two elements in a local
 * tensor of four. */
struct boxes {
	int64_t global[2], local[2], n, nlocal;
};

static void put_corners(struct ofs_buf *b, const char *name, int64_t n,
    const int64_t *v)
{
	mk_str(b, name);
	mk_ops(b, "(");
	for (int64_t i = 0; i < n; i++)
		mk_tuple(b, 1, &v[i]);
	mk_ops(b, "t");
}

static void save_boxes(int rank, const struct boxes *x, const float first[4])
{
	static const int64_t shape[] = { 8 }, size[] = { 2, 2 };
	static const int64_t four[] = { 4 }, one[] = { 1 };
	const void *storage[] = { first };
	struct ofs_buf b = { 0 };
	char name[40];

	mk_begin(&b);
	mk_ops(&b, "}(");
	mk_str(&b, "w");
	mk_global(&b, "torch._tensor", "_rebuild_from_type_v2");
	mk_ops(&b, "(");
	mk_global(&b, "torch._utils", "_rebuild_tensor_v2");
	mk_global(&b, "torch", "Tensor");
	mk_ops(&b, "(");
	mk_storage(&b, "FloatStorage", "0", 4);
	mk_int(&b, 0);
	mk_tuple(&b, 1, four);
	mk_tuple(&b, 1, one);
	ofs_buf_putc(&b, 0x89);
	mk_global(&b, "collections", "OrderedDict");
	mk_ops(&b, ")Rt}(");
	mk_str(&b, "global_shape");
	mk_tuple(&b, 1, shape);
	put_corners(&b, "global_offsets", x->n, x->global);
	put_corners(&b, "local_offsets", x->nlocal, x->local);
	put_corners(&b, "local_sizes", x->n, size);
	mk_ops(&b, "utRu");
	mk_end(&b);
	snprintf(name, sizeof(name), "model_rank%d.pt", rank);
	save(name, &b, storage, (size_t[]){ 16 }, 1);
}

static void checkpointables(void)
{
	const struct boxes good[] = { { { 0, 6 }, { 2, 0 }, 2, 2 },
		{ { 2, 4 }, { 0, 2 }, 2, 2 } };
	const struct boxes outside = { { 0, 2 }, { 0, 3 }, 2, 2 };
	const struct boxes fewer = { { 0, 2 }, { 0, 2 }, 2, 1 };

	begin();
	save_boxes(0, &good[0], (const float[]){ 6, 7, 0, 1 });
	save_boxes(1, &good[1], (const float[]){ 2, 3, 4, 5 });
	open_dir("CheckpointableTensors");
	floats("model/w", 8, 0);
	says(".optimfs/warnings", "");
	says(".optimfs/missing", "");
	end();
	begin();
	save_boxes(0, &outside, (const float[]){ 0, 1, 2, 3 });
	open_dir("a box outside its local tensor");
	refused("model/w", EUCLEAN, "a box is not within");
	end();
	begin();
	save_boxes(0, &fewer, (const float[]){ 0, 1, 2, 3 });
	open_dir("fewer offsets than boxes");
	refused("model/w", EUCLEAN,
	    "local_offsets has another number of boxes");
	end();
}

/* Only the tensors say what the numbers in these file names are. */
static void names_with_numbers(void)
{
	static const char *const names[] = { "#.pt", "gpu#.pt", "ckpt-#.bin",
		"optim-0000#-of-00003.pt", "optim_#_of_3.pt", "state_#_x.th",
		"rank_#", "step_#.pth.tar" };
	char name[64];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		begin();
		for (int r = 0; r < 3; r++) {
			snprintf(name, sizeof(name), "%s", names[i]);
			*strchr(name, '#') = (char)('0' + r);
			save_rank(name, &healthy[r]);
		}
		open_dir(names[i]);
		floats("optim/state/w/exp_avg", 5, 0);
		says(".optimfs/missing", "");
		end();
	}
}

/* The number in these file names can be a step or a rank. */
static void numbered_checkpoints(void)
{
	struct rank ranks[3];

	begin();
	save_rank("checkpoint_0.pt", &healthy[0]);
	save_rank("checkpoint_1.pt", &healthy[1]);
	save_rank("checkpoint_2.pt", &healthy[2]);
	open_dir("numbered files of different ranks");
	floats("optim/state/w/exp_avg", 5, 0);
	says(".optimfs/missing", "");
	end();
	begin();
	save_rank("checkpoint_0.pt", &healthy[0]);
	save_rank("checkpoint_2.pt", &healthy[2]);
	open_dir("numbered files of ranks with one missing");
	mentions(".optimfs/missing", "OFS140 the file of rank 1 of 3");
	end();
	begin();
	save_rank("checkpoint_0.pt", &healthy[0]);
	save_rank("checkpoint_1.pt", &healthy[0]);
	/* then they are steps */
	does_not_open("numbered files of one rank", ENOENT,
	    "give one of: checkpoint_0.pt, checkpoint_1.pt");
	end();
	memcpy(ranks, healthy, sizeof(ranks));
	ranks[1].world = 2;
	begin();
	save_rank("checkpoint_0.pt", &ranks[0]);
	save_rank("checkpoint_1.pt", &ranks[1]);
	does_not_open("numbered files of jobs of which none is complete",
	    EPROTO, "OFS674 checkpoint_1.pt is of a save by 2 ranks");
	end();
	ranks[0].world = 2;
	begin();
	save_rank("checkpoint_0.pt", &ranks[0]);
	save_rank("checkpoint_1.pt", &ranks[1]);
	save_rank("checkpoint_2.pt", &healthy[2]);
	open_dir("numbered files of a complete job and of one before it");
	says("optim/param_groups/0/lr", "1\n");
	mentions(".optimfs/missing", "OFS607 state.w.exp_avg: 1 of 5");
	mentions(".optimfs/warnings", "OFS181 checkpoint_2.pt is left out");
	end();
	begin();
	save_rank("checkpoint_0.pt", &healthy[0]);
	handmade_replace(&h, "checkpoint_1.pt", "no archive", 10);
	open_dir("a numbered file that cannot be read");
	says("optim/param_groups/0/lr", "1\n");
	end();
}

/* Two replicas of two shards, with only the files of ranks a and b. */
static void replicas_of(int a, int b)
{
	const struct spec hsdp = { { "Replicate", "Shard" }, 1, 4, { 0 },
		{ 2, 2 }, 2, { 0 }, OLDER };
	char name[40];

	begin();
	save_mesh(&hsdp,
	    (const float[4][4]){ { 0, 1 }, { 2, 3 }, { 0, 1 }, { 2, 3 } });
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof(name), "model_rank%d.pt", i);
		if (i != a && i != b)
			unlink(handmade_path(&h, name));
	}
	open_dir("HSDP with only some ranks");
}

static void spare_ranks(void)
{
	replicas_of(2, 3);
	floats("model/w", 4, 0);
	says(".optimfs/missing", "");
	mentions(".optimfs/warnings",
	    "OFS183 model_rank2.pt: 2 of 4 rank files");
	end();
	replicas_of(0, 3);
	floats("model/w", 4, 0);
	says(".optimfs/missing", "");
	end();
	replicas_of(0, 2);
	mentions(".optimfs/missing", "OFS140 the file of rank 1 of 4");
	mentions(".optimfs/missing", "OFS180 model_rank0.pt: 2 of 4");
	refused("model/w", EIO, "OFS607");
	end();
}

/* Two stages of a pipeline, each with its own mesh of four ranks. */
static void save_stages(const char *second, int torch)
{
	struct spec s = { { "Replicate", "Shard" }, 1, 4, { 0 }, { 2, 2 }, 2,
		{ 0 }, torch };

	for (int i = 0; i < 8; i++) {
		base = i < 4 ? 0 : 4;
		s.at[0] = i / 2 % 2;
		s.at[1] = i % 2;
		s.first[0] = (float)(10 * (i / 4) + 2 * (i % 2));
		s.first[1] = s.first[0] + 1;
		save_named(i, i < 4 ? "w" : second, &s);
	}
	base = 0;
}

static void stages(void)
{
	for (int torch = OLDER; torch <= V2_14; torch++) {
		begin();
		save_stages("v", torch);
		open_dir("pipeline stages with separate meshes");
		floats("model/w", 4, 0);
		floats("model/v", 4, 10);
		says(".optimfs/warnings", "");
		says(".optimfs/missing", "");
		mentions(".optimfs/info.json", "\"world_size\": 8");
		end();
	}
	begin();
	save_stages("w", OLDER);
	open_dir("pipeline stages with one tensor name");
	refused("model/w", EPROTO, "rank 2 and rank 4 have different elements");
	end();
}

/* A pipeline stage with parameters and IDs of its own, and one matrix. */
static void save_own_ids(int rank)
{
	static const int64_t ids[] = { 0, 1, 2 };
	float w[] = { (float)rank, 1, 2, 3 };
	const void *storage[] = { w };
	size_t size[] = { sizeof(w) };
	struct mk_tensor t = { .key = "0",
		.numel = 4,
		.ndim = 2,
		.shape = { 2, 2 },
		.stride = { 2, 1 } };
	struct ofs_buf b = { 0 };
	char name[40];

	mk_begin(&b);
	mk_ops(&b, "}(");
	mk_str(&b, "model");
	mk_ops(&b, "}(");
	mk_str(&b, rank == 0 ? "a" : "b");
	mk_tensor(&b, &t);
	mk_ops(&b, "u");
	mk_str(&b, "optim");
	mk_ops(&b, "}(");
	mk_str(&b, "state");
	mk_ops(&b, "}(");
	mk_int(&b, 0);
	mk_ops(&b, "}(");
	mk_str(&b, "exp_avg");
	mk_tensor(&b, &t);
	mk_ops(&b, "uu");
	mk_str(&b, "param_groups");
	mk_ops(&b, "]}(");
	mk_str(&b, "params");
	ints(&b, rank == 0 ? 3 : 2, ids);
	mk_ops(&b, "uauu");
	mk_end(&b);
	snprintf(name, sizeof(name), "rank%d.pt", rank);
	save(name, &b, storage, size, 1);
}

static void own_ids(void)
{
	begin();
	save_own_ids(0);
	save_own_ids(1);
	open_dir("pipeline stages with IDs of their own");
	floats("model/a", 4, 0);
	refused("optim/param_groups/0/params", EPROTO,
	    "ranks disagree: [0, 1, 2] (rank 0), [0, 1] (rank 1)");
	refused("optim/state/0/exp_avg", EPROTO, "different elements");
	floats(".optimfs/rank/0/optim/state/0/exp_avg", 4, 0);
	end();
}

static void hostile(void)
{
	static const struct {
		const char *name;
		struct spec s;
		int code;
		const char *text;
	} cases[] = {
		{ "a DTensor of partial sums",
		    { { "Shard", "Partial" }, 1, 4, { 0 }, { 2, 2 }, 2, { 0 },
			V2_10 },
		    EOPNOTSUPP, "OFS692" },
		{ "a DTensor with an unknown placement",
		    { { "Shard", "Fancy" }, 1, 4, { 0 }, { 2, 2 }, 2, { 0 },
			V2_10 },
		    EOPNOTSUPP, "OFS692" },
		{ "a strided shard with factor 0",
		    { { "Shard", "_StridedShard" }, 0, 4, { 0 }, { 2, 2 }, 2,
			{ 0 }, V2_10 },
		    EUCLEAN, "OFS691" },
		{ "a mesh of size 0",
		    { { "Shard", "Shard" }, 1, 4, { 0 }, { 0, 2 }, 2, { 0 },
			V2_10 },
		    EUCLEAN, "OFS691" },
		{ "a mesh of 2^80 ranks",
		    { { "Shard", "Shard" }, 1, 4, { 0 },
			{ (int64_t)1 << 40, (int64_t)1 << 40 }, 2, { 0 },
			V2_10 },
		    EUCLEAN, "OFS691" },
		{ "a rank outside its mesh",
		    { { "Shard", "Shard" }, 1, 4, { 2, 0 }, { 2, 2 }, 2, { 0 },
			V2_10 },
		    EUCLEAN, "OFS691" },
		{ "a local tensor of another shape",
		    { { "Shard", "Shard" }, 1, 4, { 0 }, { 2, 2 }, 2, { 0 },
			V2_10 },
		    EUCLEAN, "OFS693" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		begin();
		save_dtensor(0, &cases[i].s);
		open_dir(cases[i].name);
		refused("model/w", cases[i].code, cases[i].text);
		end();
	}
}

/* A shard whose tensor is again a ShardedTensor, and so on. The innermost is at
 * 4, the others at 2. */
static void save_nested(int depth, int nshards)
{
	static const int64_t shape[] = { 8 }, size[] = { 2 }, four[] = { 4 };
	static const float w[] = { 6, 7 };
	const void *storage[] = { w };
	struct ofs_buf b = { 0 };

	mk_begin(&b);
	mk_ops(&b, "}(");
	mk_str(&b, "w");
	for (int i = 0; i < depth; i++) {
		begin_sharded(&b, 1, shape);
		begin_shard(&b);
	}
	local(&b, "0", 2);
	for (int i = 0; i < depth; i++) {
		int64_t off = i + 1 == depth ? four[0] : 2;

		end_shard(&b, 1, &off, size);
		for (int k = 1; k < nshards && i == 0; k++) {
			begin_shard(&b);
			local(&b, "0", 2);
			end_shard(&b, 1, &off, size);
		}
		end_sharded(&b, 1, shape, 0, 1);
	}
	mk_ops(&b, "u");
	mk_end(&b);
	save("x.pt", &b, storage, (size_t[]){ 8 }, 1);
}

static void nested(void)
{
	begin();
	save_nested(2, 1);
	open_dir("a shard that is a ShardedTensor");
	floats(".optimfs/rank/0/model/w", 2, 6);
	end();
	begin();
	save_nested(2, 2);
	open_dir("a shard that is a ShardedTensor of several shards");
	refused("model/w", EOPNOTSUPP, "OFS692");
	end();
	begin();
	save_nested(5, 1);
	open_dir("ShardedTensors nested five deep");
	refused("model/w", EUCLEAN, "OFS691");
	end();
}

int main(void)
{
	merged();
	disagreeing();
	own_state();
	own_objects();
	missing_rank();
	surplus();
	mixed();
	missing_key();
	wrong_local();
	dtensors();
	empty_axis();
	checkpointables();
	names_with_numbers();
	numbered_checkpoints();
	spare_ranks();
	stages();
	own_ids();
	hostile();
	nested();
	return done_testing();
}
