/* zero.c - DeepSpeed's file names and partition arithmetic, and inconsistent
 * checkpoints */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/zero/zero.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "format/zero/layout.h"
#include "support/listing.h"
#include "support/truth.h"
#include "tap.h"

static void names(void)
{
	static const struct {
		const char *name;
		int kind, rank, mp; /* -1: not a file of DeepSpeed */
	} table[] = {
		{ "mp_rank_00_model_states.pt", OFS_ZERO_MODEL, 0, 0 },
		{ "mp_rank_113_model_states.pt", OFS_ZERO_MODEL, 0, 113 },
		{ "zero_pp_rank_12_mp_rank_03_model_states.pt",
		    OFS_ZERO_MODEL_PART, 12, 3 },
		{ "zero_pp_rank_0_mp_rank_00_optim_states.pt", OFS_ZERO_OPTIM,
		    0, 0 },
		{ "zero_pp_rank_4_mp_rank_01optim_states.pt", OFS_ZERO_OPTIM, 4,
		    1 },
		{ "bf16_zero_pp_rank_1023_mp_rank_00_optim_states.pt",
		    OFS_ZERO_OPTIM, 1023, 0 },
		{ "fp16_zero_pp_rank_7_mp_rank_00_optim_states.pt",
		    OFS_ZERO_OPTIM, 7, 0 },
		{ "layer_02-model_01-model_states.pt", OFS_ZERO_LAYER, 2, 1 },
		{ "layer_31-model_states.pt", OFS_ZERO_LAYER, 31, 0 },
		{ "layer_2_expert_5_mp_rank_01_model_states.pt",
		    OFS_ZERO_EXPERT, 5, 1 },
		{ "expert_5_mp_rank_00_model_states.pt", OFS_ZERO_EXPERT, 5,
		    0 },
		{ "expp_rank_3_mp_rank_00_optim_states.pt",
		    OFS_ZERO_EXPERT_OPTIM, 3, 0 },
		{ "mp_rank_00", -1, 0, 0 },
		{ "mp_rank__model_states.pt", -1, 0, 0 },
		{ "mp_rank_00_model_states.pt.tmp", -1, 0, 0 },
		{ "xmp_rank_00_model_states.pt", -1, 0, 0 },
		{ "mp_rank_123456789_model_states.pt", -1, 0, 0 },
		{ "mp_rank_-1_model_states.pt", -1, 0, 0 },
		{ "fp32_zero_pp_rank_0_mp_rank_00_optim_states.pt", -1, 0, 0 },
		{ "", -1, 0, 0 },
	};

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		struct ofs_zero_name got = { 0 };
		bool ours = ofs_zero_name(table[i].name, &got);

		ok(ours == (table[i].kind != -1) &&
			(!ours ||
			    ((int)got.kind == table[i].kind &&
				got.rank == table[i].rank &&
				got.mp == table[i].mp)),
		    "file name '%s'", table[i].name);
	}
}

static uint64_t seed = 88172645463325252u;

static uint64_t below(uint64_t n)
{
	seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
	return seed % n;
}

#define MAX_PARAMS 24
#define MAX_GROUPS 4

/* Random groups in the form that ofs_zero_shapes_read gives. */
struct groups {
	struct ofs_zero_shapes s;
	struct ofs_zero_param param[MAX_PARAMS];
	uint64_t numel[MAX_PARAMS];
	uint32_t first[MAX_GROUPS + 1];
};

static void make_groups(struct groups *g)
{
	memset(g, 0, sizeof(*g));
	g->s.param = g->param;
	g->s.numel = g->numel;
	g->s.first = g->first;
	g->s.ngroups = 1 + (uint32_t)below(MAX_GROUPS);
	for (uint32_t i = 0; i < g->s.ngroups; i++) {
		uint32_t n = (uint32_t)below(MAX_PARAMS / MAX_GROUPS + 1);

		g->first[i] = g->s.n;
		while (n-- > 0) {
			g->param[g->s.n].group = i;
			g->numel[g->s.n++] =
			    below(4) == 0 ? below(4) : below(300);
		}
	}
	g->first[g->s.ngroups] = g->s.n;
}

/* A direct model of DeepSpeed: writes all elements of a group, numbered from 1,
 * into the partitions of the ranks. 0 is padding. */
static void flatten(const struct groups *g, uint32_t group, int stage,
    uint32_t world, uint64_t part, uint64_t *flat)
{
	uint64_t at = 0, id = 1;

	for (uint32_t p = g->first[group]; p < g->first[group + 1]; p++) {
		uint64_t n = g->numel[p], each = (n + world - 1) / world;

		for (uint64_t k = 0; k < n; k++)
			if (stage == 3)
				flat[k / each * part + at + k % each] = id++;
			else
				flat[at + k] = id++;
		at += stage == 3 ? each : n;
	}
}

/* The slices of all ranks, in order, give the numbers back in order. */
static bool unflatten(const struct ofs_zero_layout *l, const struct groups *g,
    uint32_t group, const uint64_t *flat, uint64_t part)
{
	uint64_t id = 1, lean;

	for (uint32_t p = g->first[group]; p < g->first[group + 1]; p++) {
		uint64_t next = 0;

		for (uint32_t r = 0; r < l->world; r++) {
			struct ofs_flat_slice s = ofs_zero_slice(l, p, r);

			if (ofs_zero_part(l, group, r, &lean) != part ||
			    lean > part)
				return false;
			if (s.count == 0)
				continue;
			if (s.first != next || s.at + s.count > lean)
				return false;
			for (uint64_t k = 0; k < s.count; k++)
				if (flat[r * part + s.at + k] != id++)
					return false;
			next += s.count;
		}
		if (next != g->numel[p])
			return false;
	}
	return true;
}

static bool round_trip(int stage, uint32_t world)
{
	struct ofs_zero_layout l;
	struct groups g;
	bool good = true;

	make_groups(&g);
	if (ofs_zero_layout_init(&l, &g.s, stage, world, NULL) == -1)
		return false;
	for (uint32_t i = 0; i < g.s.ngroups && good; i++) {
		uint64_t lean, part = ofs_zero_part(&l, i, 0, &lean);
		uint64_t *flat = calloc(part * world + 1, sizeof(*flat));

		flatten(&g, i, stage, world, part, flat);
		good = unflatten(&l, &g, i, flat, part) &&
		    (stage == 3 || part % 2 == 0);
		free(flat);
	}
	ofs_zero_layout_fini(&l);
	return good;
}

static void properties(void)
{
	int bad = 0;

	for (int i = 0; i < 6000; i++)
		bad += !round_trip(2 + (int)below(2), 1 + (uint32_t)below(64));
	is_int(bad, 0,
	    "slices of 6000 random layouts give all elements in order");
}

/* A copy of a checkpoint in a temporary directory, to be changed. */

struct copy {
	char dir[64], tag[96];
};

static void copy_file(const char *from, const char *to)
{
	char buf[65536];
	FILE *a = fopen(from, "r"), *b = fopen(to, "w");
	size_t n;

	if (a == NULL || b == NULL)
		bail_out("%s, %s: %m", from, to);
	while ((n = fread(buf, 1, sizeof(buf), a)) > 0)
		if (fwrite(buf, 1, n, b) != n)
			bail_out("%s: %m", to);
	fclose(a);
	if (fclose(b) != 0)
		bail_out("%s: %m", to);
}

static void copy_dir(const char *from, const char *to)
{
	DIR *d = opendir(from);
	struct dirent *e;

	if (d == NULL)
		bail_out("%s: %m", from);
	while ((e = readdir(d)) != NULL) {
		char a[512], b[512];
		struct stat st;

		if (e->d_name[0] == '.')
			continue;
		snprintf(a, sizeof(a), "%.250s/%.250s", from, e->d_name);
		snprintf(b, sizeof(b), "%.250s/%.250s", to, e->d_name);
		if (stat(a, &st) == 0 && S_ISREG(st.st_mode))
			copy_file(a, b);
	}
	closedir(d);
}

static void copy_init(struct copy *c, const char *name)
{
	char from[512];

	snprintf(c->dir, sizeof(c->dir), "%s/zero.XXXXXX", tap_tmpdir());
	if (mkdtemp(c->dir) == NULL)
		bail_out("%s: %m", c->dir);
	snprintf(c->tag, sizeof(c->tag), "%s/global_step3", c->dir);
	if (mkdir(c->tag, 0700) == -1)
		bail_out("%s: %m", c->tag);
	snprintf(from, sizeof(from), "%.450s/ckpt", data_path(name));
	copy_dir(from, c->dir);
	snprintf(from, sizeof(from), "%.450s/ckpt/global_step3",
	    data_path(name));
	copy_dir(from, c->tag);
}

static void empty(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	while (d != NULL && (e = readdir(d)) != NULL) {
		char path[512];

		snprintf(path, sizeof(path), "%.250s/%.250s", dir, e->d_name);
		unlink(path);
	}
	if (d != NULL)
		closedir(d);
	rmdir(dir);
}

static void copy_fini(struct copy *c)
{
	empty(c->tag);
	empty(c->dir);
}

static const char *in_tag(const struct copy *c, const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", c->tag, name);
	return path;
}

/* Replaces the first occurrence of n bytes by others. */
static void patch(const struct copy *c, const char *name, size_t n,
    const void *what, const void *with)
{
	char buf[65536], *at;
	FILE *f = fopen(in_tag(c, name), "r+");
	size_t len;

	if (f == NULL)
		bail_out("%s: %m", name);
	len = fread(buf, 1, sizeof(buf), f);
	at = memmem(buf, len, what, n);
	if (at == NULL)
		bail_out("%s has nothing to change", name);
	fseek(f, at - buf, SEEK_SET);
	fwrite(with, 1, n, f);
	if (fclose(f) != 0)
		bail_out("%s: %m", name);
}

static struct optimfs *open_copy(const struct copy *c,
    struct optimfs_error *err)
{
	*err = (struct optimfs_error){ 0 };
	return optimfs_open(c->dir, NULL, err);
}

/* Reads the beginning of a file: 0, or -1 with err. */
static int read_file(struct optimfs *fs, const char *path,
    struct optimfs_error *err)
{
	char buf[4096];

	return listing_read_at(fs, path, buf, sizeof(buf), 0, err) == -1 ? -1
									 : 0;
}

#define OPTIM(rank) "bf16_zero_pp_rank_" #rank "_mp_rank_00_optim_states.pt"
#define MODEL       "mp_rank_00_model_states.pt"
/* A parameter that is divided between both ranks. */
#define SPLIT "blocks.1.fc_out.weight"

/* One change, and the effect on reading two files. */
static const struct fault {
	const char *what, *base, *file;
	size_t n;
	const char *from, *to;
	const char *bad; /* a file that then fails */
	int code;        /* with this error */
	const char *text;
	const char *good; /* a file that can still be read */
} faults[] = {
	{ "one rank with another step", "z2_ws2_nozip", OPTIM(1), 6,
	    "\0\0\x40\x40PK", "\0\0\x80\x40PK", "optim/state/emb.weight/step",
	    EPROTO, "OFS674", "optim/state/gain/step" },
	{ "padding larger than a partition", "z2_ws2_nozip", OPTIM(1), 24,
	    "group_paddingsqf]qg(K\2K\2", "group_paddingsqf]qg(K\x3K\2",
	    "optim/state/emb.weight/exp_avg", EUCLEAN, "OFS161",
	    "optim/state/gain/exp_avg" },
	{ "param_shapes that differ from the slices", "z2_ws2_nozip", MODEL, 34,
	    "(X\n\0\0\0emb.weightq\xc1"
	    "ctorch\nSize\nq\xc2K\r",
	    "(X\n\0\0\0emb.weightq\xc1"
	    "ctorch\nSize\nq\xc2K\xff",
	    "optim/state/emb.weight/exp_avg", EUCLEAN, "OFS16",
	    "optim/state/gain/exp_avg" },
	{ "stage 3, param_shapes that differ from the slices",
	    "v0.18.5_z3_ws2_nozip", "zero_pp_rank_0_mp_rank_00_model_states.pt",
	    18,
	    "q\xcf"
	    "ctorch\nSize\nq\xd0K\r",
	    "q\xcf"
	    "ctorch\nSize\nq\xd0K\xff",
	    "optim/state/emb.weight/exp_avg", EUCLEAN, "OFS160",
	    "optim/state/gain/exp_avg" },
	{ "a fragment outside its partition", "z2_ws2_nozip", OPTIM(1), 3,
	    "M\x12\1", "M\xff\xff", "optim/state/emb.weight/fp32", EUCLEAN,
	    "OFS675", "optim/state/gain/fp32" },
	{ "overlapping fragments", "z2_ws2_nozip", OPTIM(1), 10, "numelqsK@X",
	    "numelqsKAX", "optim/state/emb.weight/fp32", EUCLEAN, "OFS675",
	    "optim/state/gain/fp32" },
	{ "one rank with another option", "z2_ws2_nozip", OPTIM(1), 9,
	    "G?\x84z\xe1G\xae\x14{", "G?\x84z\xe1G\xae\x14z",
	    "optim/param_groups/0/lr", EPROTO, "OFS674",
	    "optim/param_groups/1/lr" },
	{ "one rank with another dtype", "z2_ws2_nozip", OPTIM(1), 12,
	    "FloatStorage", "ShortStorage", "optim/state/" SPLIT "/fp32",
	    EUCLEAN, "OFS527", "optim/state/gain/fp32" },
	{ "one rank without a state", "z2_ws2_nozip", OPTIM(1), 10,
	    "exp_avg_sq", "exp_avg_sr", "optim/state/" SPLIT "/exp_avg_sq",
	    EUCLEAN, "OFS165", "optim/state/" SPLIT "/exp_avg" },
	{ "one rank without a group", "z2_ws2_nozip", OPTIM(1), 6, "K\1}q,(",
	    "K\5}q,(", "optim/state/final_ln.weight/exp_avg", EUCLEAN, "OFS165",
	    "optim/state/" SPLIT "/exp_avg" },
	{ "a partition that begins too late", "z2_ws2_nozip", OPTIM(1), 17,
	    "6qRh\x16M\xe6\1tqSQK\0M\xe4\1", "6qRh\x16M\xe6\1tqSQK\xffM\xe4\1",
	    "optim/state/" SPLIT "/fp32", EUCLEAN, "OFS528",
	    "optim/state/gain/fp32" },
};

/* One change that prevents opening. */
static const struct {
	const char *what, *file;
	size_t n;
	const char *from, *to;
	int code;
	const char *text;
} denials[] = {
	{ "partition counts that differ between ranks", OPTIM(1), 8,
	    "qi(K\2K\2e", "qi(K\3K\3e", EPROTO, "OFS674" },
	{ "partition counts that differ between groups", OPTIM(1), 8,
	    "qi(K\2K\2e", "qi(K\2K\3e", EPROTO, "OFS674" },
	{ "a partition count of 0", OPTIM(1), 8, "qi(K\2K\2e", "qi(K\0K\0e",
	    EUCLEAN, "OFS695" },
	{ "a missing partition count", OPTIM(1), 15, "partition_count",
	    "partition_sum..", EUCLEAN, "OFS695" },
	{ "missing flat groups", OPTIM(1), 16, "single_partition",
	    "double_partition", EUCLEAN, "OFS695" },
	{ "missing param_shapes", MODEL, 16, "\f\0\0\0param_shapes",
	    "\f\0\0\0param_shoves", EUCLEAN, "OFS695" },
	{ "an invalid shape in param_shapes", MODEL, 16,
	    "q\xc1"
	    "ctorch\nSize\nq\xc2",
	    "q\xc1"
	    "ctorch\nSbze\nq\xc2",
	    EUCLEAN, "OFS695" },
};

static void deny(void)
{
	for (size_t i = 0; i < sizeof(denials) / sizeof(*denials); i++) {
		struct optimfs_error err;
		struct copy c;

		copy_init(&c, "deepspeed/z2_ws2_nozip");
		patch(&c, denials[i].file, denials[i].n, denials[i].from,
		    denials[i].to);
		ok(open_copy(&c, &err) == NULL,
		    "%s: the checkpoint does not open", denials[i].what);
		is_error(err, denials[i].code, denials[i].text,
		    "%s: error text", denials[i].what);
		copy_fini(&c);
	}
}

/* A universal checkpoint with files of other parameters, without a file, and
 * with a truncated one. */
static void universal(void)
{
	static const char *const bad[] = { "optim/state/emb.weight/fp32",
		"model/emb.weight", "model/head.weight" };
	char command[1024], dir[64] = "/tmp/zero.XXXXXX", text[4096] = "";
	struct optimfs_error err;
	struct optimfs *fs;

	if (mkdtemp(dir) == NULL)
		bail_out("%s: %m", dir);
	snprintf(command, sizeof(command),
	    "cp -r '%s'/. %s && cd %s/global_step3_universal/zero && "
	    "chmod -R u+w . && cp gain/fp32.pt emb.weight/fp32.pt && "
	    "rm small/fp32.pt && echo x > pos.txt && "
	    "head -c 100 gain/exp_avg.pt > x && mv x gain/exp_avg.pt && "
	    "mkdir ../tmp",
	    data_path("deepspeed/v0.18.5_z3_ws4_subgroups/ckpt_universal"), dir,
	    dir);
	if (system(command) != 0)
		bail_out("%s", command);
	fs = optimfs_open(dir, NULL, &err);
	if (!ok(fs != NULL, "an inconsistent universal checkpoint opens"))
		bail_out("%s", err.text);
	for (size_t i = 0; i < 3; i++) {
		is_int(read_file(fs, bad[i], &err), -1, "%s cannot be read",
		    bad[i]);
		is_error(err, EUCLEAN, "OFS160", "%s: error text", bad[i]);
	}
	is_int(read_file(fs, "model/small", &err), -1,
	    "a parameter without fp32.pt cannot be read");
	is_error(err, EIO, "zero/small/fp32.pt is missing",
	    "a parameter without fp32.pt: error text");
	is_int(read_file(fs, "optim/state/gain/exp_avg", &err), -1,
	    "a truncated state file cannot be read");
	ok(err.code != 0, "a truncated state file: there is an error: %s",
	    err.text);
	is_int(read_file(fs, "optim/state/gain/fp32", &err), 0,
	    "a valid state file can be read");
	ok(listing_read_at(fs, ".optimfs/warnings", text, sizeof(text) - 1, 0,
	       &err) > 0 &&
		strstr(text, "OFS699 global_step3_universal/tmp/") != NULL,
	    "an unfinished conversion is a warning");
	optimfs_close(fs);
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	if (system(command) != 0)
		bail_out("%s", command);
}

static void test_fault(const struct fault *l)
{
	struct optimfs_error err;
	struct optimfs *fs;
	struct copy c;
	char base[64];

	snprintf(base, sizeof(base), "deepspeed/%s", l->base);
	copy_init(&c, base);
	patch(&c, l->file, l->n, l->from, l->to);
	fs = open_copy(&c, &err);
	if (ok(fs != NULL, "%s: the checkpoint opens", l->what)) {
		ok(read_file(fs, l->bad, &err) == -1, "%s: %s cannot be read",
		    l->what, l->bad);
		is_error(err, l->code, l->text, "%s: error text", l->what);
		ok(read_file(fs, l->good, &err) == 0, "%s: %s can be read",
		    l->what, l->good);
	} else {
		diag("%s", err.text);
	}
	optimfs_close(fs);
	copy_fini(&c);
}

/* The file of a rank is missing: the data of other ranks can be read. */
static void missing(const char *base, const char *file)
{
	struct optimfs_error err;
	struct optimfs_file *f;
	struct optimfs_attr attr;
	struct optimfs *fs;
	struct copy c;
	float v[4];

	copy_init(&c, base);
	unlink(in_tag(&c, file));
	fs = open_copy(&c, &err);
	if (!ok(fs != NULL, "%s without %s opens: %s", base, file, err.text))
		return;
	optimfs_resolve(fs, "optim/state/blocks.0.fc_out.weight/exp_avg", &attr,
	    &err);
	is_u64(attr.size, 840,
	    "%s: a tensor with a missing part keeps its size", base);
	ok(optimfs_file_open(fs, attr.node, &f, &err) == 0,
	    "%s: a tensor with a missing part opens", base);
	is_int((int)optimfs_file_read(f, v, sizeof(v), 0, &err), 16,
	    "%s: the existing part can be read", base);
	ok(optimfs_file_read(f, v, sizeof(v), 836, &err) == -1,
	    "%s: the missing part cannot be read", base);
	is_error(err, EIO, "OFS607", "%s: the missing part: error text", base);
	optimfs_file_close(f);
	ok(read_file(fs, ".optimfs/missing", &err) == 0,
	    "%s: .optimfs/missing can be read", base);
	optimfs_close(fs);
	copy_fini(&c);
}

/* Checkpoints that do not open. */
static void refused(void)
{
	static const struct {
		const char *latest;
		size_t n;
		int code;
		const char *text;
	} latest[] = {
		{ "../../x", 7, EPERM, "OFS620" },
		{ "global\nstep3", 12, EPERM, "OFS620" },
		{ "global_step3\0x", 14, EPERM, "OFS620" },
		{ "global_step500", 14, EIO, "OFS676" },
	};
	struct optimfs_error err;
	struct optimfs *fs;
	char path[256], *big;
	struct copy c;
	FILE *f;

	copy_init(&c, "deepspeed/z2_ws2_nozip");
	snprintf(path, sizeof(path), "%s/latest", c.dir);
	for (size_t i = 0; i < sizeof(latest) / sizeof(*latest); i++) {
		f = fopen(path, "w");
		fwrite(latest[i].latest, 1, latest[i].n, f);
		fclose(f);
		ok(open_copy(&c, &err) == NULL,
		    "invalid \"latest\" %zu is refused", i);
		is_error(err, latest[i].code, latest[i].text,
		    "invalid \"latest\" %zu: error text", i);
	}
	big = calloc(1, 1 << 20);
	f = fopen(path, "w");
	fwrite(big, 1, 1 << 20, f);
	fclose(f);
	free(big);
	ok(open_copy(&c, &err) == NULL, "\"latest\" of 1 MiB is refused");
	is_error(err, EPERM, "OFS620", "\"latest\" of 1 MiB: error text");
	unlink(path);
	fs = open_copy(&c, &err);
	ok(fs != NULL, "without \"latest\" the only directory is opened");
	optimfs_close(fs);
	copy_file(in_tag(&c, OPTIM(1)), path);
	unlink(path);
	snprintf(path, sizeof(path), "%s/zero_pp_rank_1_mp_rank_00_%s", c.tag,
	    "optim_states.pt");
	copy_file(in_tag(&c, OPTIM(1)), path);
	ok(open_copy(&c, &err) == NULL, "two files of one rank are refused");
	is_error(err, EUCLEAN, "OFS181", "two files of one rank: error text");
	unlink(path);
	unlink(in_tag(&c, MODEL));
	ok(open_copy(&c, &err) == NULL,
	    "a checkpoint without model files is refused");
	is_error(err, EIO, "OFS140",
	    "a checkpoint without model files: error text");
	copy_fini(&c);
}

/* A file left behind by a larger job. */
static void surplus(void)
{
	struct optimfs_error err;
	struct optimfs *fs;
	struct copy c;
	char path[256];

	copy_init(&c, "deepspeed/z2_ws2_nozip");
	snprintf(path, sizeof(path), "%s/%s", c.tag, OPTIM(2));
	copy_file(in_tag(&c, OPTIM(1)), path);
	fs = open_copy(&c, &err);
	ok(fs != NULL && read_file(fs, "optim/state/gain/exp_avg", &err) == 0,
	    "a file of an additional rank does not disturb a tensor");
	ok(fs != NULL && read_file(fs, "optim/state/gain/step", &err) == 0,
	    "a file of an additional rank does not disturb a step");
	optimfs_close(fs);
	copy_fini(&c);
}

/* Replaces all occurrences. */
static void replace_all(const struct copy *c, const char *name,
    const char *what, const char *with)
{
	static char buf[1 << 20];
	size_t len, n = strlen(what);
	FILE *f = fopen(in_tag(c, name), "r+");

	if (f == NULL)
		bail_out("%s: %m", name);
	len = fread(buf, 1, sizeof(buf), f);
	for (char *at = buf;
	     (at = memmem(at, len - (size_t)(at - buf), what, n)) != NULL;)
		memcpy(at, with, n);
	rewind(f);
	fwrite(buf, 1, len, f);
	if (fclose(f) != 0)
		bail_out("%s: %m", name);
}

#define STAGE(rank) "bf16_zero_pp_rank_" #rank "_mp_rank_01_optim_states.pt"

static void copy_stage(const struct copy *c, const char *from, const char *to)
{
	char path[256];

	snprintf(path, sizeof(path), "%s", in_tag(c, from));
	copy_file(path, in_tag(c, to));
}

/* A second model-parallel rank with the same names has slices of the same
 * parameters; with other names it is a pipeline stage. */
static void stages(void)
{
	static const char *const names[][2] = { { "emb.", "emc." },
		{ "blocks.", "blockz." }, { "final_", "finaj_" },
		{ "gain", "gaim" }, { "small", "smalm" },
		{ "frozen", "frozem" }, { "head", "heae" }, { "counter", "cc" },
		{ "pos", "por" } };
	static const char *const stage[] = { "mp_rank_01_model_states.pt",
		STAGE(0), STAGE(1) };
	struct optimfs_error err;
	struct optimfs_attr attr;
	struct optimfs *fs;
	struct copy c;

	copy_init(&c, "deepspeed/z2_ws2_bf16");
	copy_stage(&c, MODEL, stage[0]);
	copy_stage(&c, OPTIM(0), stage[1]);
	copy_stage(&c, OPTIM(1), stage[2]);
	ok(open_copy(&c, &err) == NULL, "tensor parallelism is refused");
	is_error(err, EOPNOTSUPP, "OFS696", "tensor parallelism: error text");
	for (size_t i = 0; i < 9; i++)
		for (size_t k = 0; k < 3; k++)
			if (strlen(names[i][0]) == strlen(names[i][1]))
				replace_all(&c, stage[k], names[i][0],
				    names[i][1]);
	copy_file(data_path("deepspeed/z2_ws2_bf16/ckpt_universal/"
			    "global_step3_universal/zero/emb.weight/fp32.pt"),
	    in_tag(&c, "layer_03-model_00-model_states.pt"));
	fs = open_copy(&c, &err);
	if (!ok(fs != NULL, "two pipeline stages open: %s", err.text))
		return;
	ok(read_file(fs, "optim/state/emb.weight/fp32", &err) == 0 &&
		read_file(fs, "optim/state/emc.weight/fp32", &err) == 0 &&
		read_file(fs, "optim/state/gaim/step", &err) == 0 &&
		read_file(fs, "model/gaim", &err) == 0,
	    "parameters of both stages can be read: %s", err.text);
	ok(optimfs_resolve(fs, "model/3.param", &attr, &err) == 0 &&
		attr.size == 520,
	    "the parameters of a layer file have the layer's number");
	ok(optimfs_resolve(fs, "optim/param_groups/0/params", &attr, &err) ==
		    0 &&
		attr.size == 2 * 101,
	    "params of a group lists the parameters of both stages");
	optimfs_close(fs);
	copy_fini(&c);
}

/* With any byte changed, or truncated anywhere, the checkpoint opens or fails
 * with an error. */
static void damage(const char *name, const char *file)
{
	struct optimfs_error err;
	struct optimfs *fs;
	struct copy c;
	struct stat st;
	size_t opened = 0, silent = 0, n = 0;

	copy_init(&c, name);
	if (stat(in_tag(&c, file), &st) == -1)
		bail_out("%s: %m", file);
	for (off_t at = 0; at < st.st_size && at < 6000; at += 7, n++) {
		FILE *f = fopen(in_tag(&c, file), "r+");
		int was;

		fseek(f, at, SEEK_SET);
		was = fgetc(f);
		fseek(f, at, SEEK_SET);
		fputc(was ^ (1 << at % 8), f);
		fclose(f);
		fs = open_copy(&c, &err);
		opened += fs != NULL;
		silent += fs == NULL && err.code == 0;
		optimfs_close(fs);
		f = fopen(in_tag(&c, file), "r+");
		fseek(f, at, SEEK_SET);
		fputc(was, f);
		fclose(f);
	}
	is_u64(silent, 0, "%s: with a byte changed, each failure has an error",
	    file);
	ok(opened > 0 && opened <= n,
	    "%s: with a byte changed, %zu of %zu checkpoints open", file,
	    opened, n);
	while (st.st_size > 0) {
		st.st_size -= st.st_size < 97 ? st.st_size : 97;
		if (truncate(in_tag(&c, file), st.st_size) == -1)
			bail_out("%s: %m", file);
		fs = open_copy(&c, &err);
		silent += fs == NULL && err.code == 0;
		optimfs_close(fs);
	}
	is_u64(silent, 0, "%s: truncated anywhere, each failure has an error",
	    file);
	copy_fini(&c);
}

static void says(const char *ck, struct optimfs *fs, const char *path,
    const char *name, const char *want)
{
	struct optimfs_attr attr;
	char key[64], *value = NULL;
	size_t n = 0;

	snprintf(key, sizeof(key), "user.optimfs.%s", name);
	if (optimfs_resolve(fs, path, &attr, NULL) == 0)
		(void)optimfs_getxattr(fs, attr.node, key, &value, &n, NULL);
	ok(value == NULL ? want == NULL
			 : want != NULL && strlen(want) == n &&
		    memcmp(value, want, n) == 0,
	    "%s: %s of %s is %s", ck, name, path,
	    want == NULL ? "not known" : want);
	free(value);
}

/* Attributes of a parameter that are recorded beside its elements. */
static void attributes(const char *name, const char *group)
{
	struct optimfs_error err = { 0 };
	struct optimfs *fs = optimfs_open(data_path(name), NULL, &err);

	if (fs == NULL)
		bail_out("%s: %s", name, err.text);
	says(name, fs, "optim/state/emb.weight/exp_avg", "requires_grad",
	    "true");
	says(name, fs, "model/emb.weight", "unit", group);
	says(name, fs, "optim/param_groups/0/lr", "unit", NULL);
	says(name, fs, "model/frozen.weight", "requires_grad", "false");
	says(name, fs, "model/frozen.weight", "unit", NULL);
	says(name, fs, "model/frozen.weight", "index", NULL);
	optimfs_close(fs);
}

int main(void)
{
	names();
	attributes("deepspeed/z3_ws2_bf16/ckpt", "0");
	attributes("deepspeed/z2_ws2_bf16/ckpt", "0");
	attributes("deepspeed/v0.18.5_z3_ws4_subgroups/ckpt_universal", "0");
	properties();
	for (size_t i = 0; i < sizeof(faults) / sizeof(*faults); i++)
		test_fault(&faults[i]);
	deny();
	universal();
	missing("deepspeed/z2_ws2_nozip", OPTIM(1));
	missing("deepspeed/v0.18.5_z3_ws2_nozip", OPTIM(1));
	missing("deepspeed/z3_ws2_bf16", OPTIM(1));
	refused();
	surplus();
	stages();
	damage("deepspeed/z2_ws2_nozip", OPTIM(1));
	damage("deepspeed/z2_ws2_nozip", MODEL);
	damage("deepspeed/v0.18.5_z3_ws2_nozip",
	    "zero_pp_rank_0_mp_rank_00_model_states.pt");
	damage("deepspeed/v0.18.5_z3_ws2_nozip", OPTIM(0));
	return done_testing();
}
