/* mkflat.c - writes rank files of FSDP1 with flat optimizer state */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "content.h"
#include "item.h"
#include "le.h"
#include "shape.h"
#include "sink.h"

static const char usage[] =
    "usage: mkflat [options] DIR\n"
    "       mkflat -l [options]\n"
    "Write AdamW's state of a transformer as FSDP1 with "
    "use_orig_params=False has it\n"
    "on each rank, and the units.json that -o units= reads; with -l list the\n"
    "parameters: name, shape, and number of exp_avg for mkdcp -v; exp_avg_sq's "
    "is the\n"
    "next.\n"
    "  -r N     ranks [64]\n"
    "  -u N     units: the model itself and its layers [8]\n"
    "  -d N     width; a unit has 16 * N * N elements and some [64]\n"
    "  -x SEED  of the content [0]\n";

/* Parameters of a unit, each dimension as a multiple of the width; 0: none. */
struct param {
	const char *fqn;
	uint64_t by[2];
};
static const struct param of_model[] = {
	{ "tok_embeddings.weight", { 8, 1 } },
	{ "norm.weight", { 1 } },
	{ "output.weight", { 8, 1 } },
};
static const struct param of_layer[] = {
	{ "attention.wq.weight", { 1, 1 } },
	{ "attention.wk.weight", { 1, 1 } },
	{ "attention.wv.weight", { 1, 1 } },
	{ "attention.wo.weight", { 1, 1 } },
	{ "feed_forward.w1.weight", { 4, 1 } },
	{ "feed_forward.w2.weight", { 1, 4 } },
	{ "feed_forward.w3.weight", { 4, 1 } },
	{ "attention_norm.weight", { 1 } },
	{ "ffn_norm.weight", { 1 } },
};
#define NMODEL     (sizeof(of_model) / sizeof(of_model[0]))
#define NLAYER     (sizeof(of_layer) / sizeof(of_layer[0]))
#define MAX_PARAMS NLAYER

static const char *const states[] = { "exp_avg", "exp_avg_sq" };
#define NSTATES 2
/* A unit's storages are its step and then its states. */
#define PER_UNIT (1 + NSTATES)

struct model {
	const char *dir;
	uint64_t ranks, units, width;
	struct content content;
};

struct unit {
	char prefix[NAME_SIZE];
	const struct param *param;
	size_t n;
	uint64_t first; /* number of its first parameter */
	uint64_t numel, shard;
};

static size_t ndim_of(const struct param *p)
{
	return p->by[1] == 0 ? 1 : 2;
}

static uint64_t numel_of(const struct model *m, const struct param *p)
{
	uint64_t n = p->by[0] * m->width;

	return ndim_of(p) == 1 ? n : n * p->by[1] * m->width;
}

static void unit_init(struct unit *u, const struct model *m, uint64_t i)
{
	*u = (struct unit){ .param = of_model, .n = NMODEL };
	if (i > 0) {
		snprintf(u->prefix, sizeof(u->prefix), "layers.%" PRIu64,
		    i - 1);
		u->param = of_layer;
		u->n = NLAYER;
		u->first = NMODEL + (i - 1) * NLAYER;
	}
	for (size_t k = 0; k < u->n; k++)
		u->numel += numel_of(m, &u->param[k]);
	u->shard = (u->numel + m->ranks - 1) / m->ranks;
}

/* Numbers as mkdcp has them, so that its -v knows these tensors too. */
static uint64_t number_of(const struct unit *u, size_t k, size_t state)
{
	return 4 * (u->first + k) + 1 + state;
}

static void put_shape(struct ofs_buf *b, const struct model *m,
    const struct param *p, const char *comma)
{
	ofs_buf_printf(b, "%" PRIu64, p->by[0] * m->width);
	if (ndim_of(p) == 2)
		ofs_buf_printf(b, "%s%" PRIu64, comma, p->by[1] * m->width);
}

/* --- a rank's file: docs/formats/fsdp.md --------------------------------- */

static void put_string(struct ofs_buf *b, const char *s)
{
	ofs_buf_putc(b, 'X');
	put_le(b, strlen(s), 4);
	ofs_buf_puts(b, s);
}

/* A tensor that covers storage number key; one dimension, or none. */
static void put_tensor(struct ofs_buf *b, uint64_t key, uint64_t numel,
    bool scalar)
{
	char name[24];

	snprintf(name, sizeof(name), "%" PRIu64, key);
	ofs_buf_puts(b, "ctorch._utils\n_rebuild_tensor_v2\n((");
	put_string(b, "storage");
	ofs_buf_puts(b, "ctorch\nFloatStorage\n");
	put_string(b, name);
	put_string(b, "cpu");
	put_int(b, numel);
	ofs_buf_put(b, "tQK\0", 4);
	if (scalar) {
		ofs_buf_puts(b, "))");
	} else {
		put_int(b, numel);
		ofs_buf_puts(b, "\x85K\1\x85");
	}
	ofs_buf_puts(b,
	    "\x89"
	    "ccollections\nOrderedDict\n)RtR");
}

static void put_unit_state(struct ofs_buf *b, const struct unit *u, uint64_t i)
{
	put_int(b, i);
	ofs_buf_puts(b, "}(");
	put_string(b, "step");
	put_tensor(b, i * PER_UNIT, 1, true);
	for (size_t s = 0; s < NSTATES; s++) {
		put_string(b, states[s]);
		put_tensor(b, i * PER_UNIT + 1 + s, u->shard, false);
	}
	ofs_buf_putc(b, 'u');
}

/* The only param group: the options of mkdcp, without the opcodes that make each a
 * pickle of its own, and the IDs of the units. */
static void put_group(struct ofs_buf *b, const struct model *m)
{
	const struct checkpoint c = { .optim = true };
	struct ofs_buf value = { 0 };
	size_t last = checkpoint_nobjects(&c) - 1;

	ofs_buf_puts(b, "}(");
	for (size_t i = 0; i < last; i++) {
		put_string(b, checkpoint_option(i));
		checkpoint_object(&c, i, &value);
		if (value.bad)
			die("out of memory");
		ofs_buf_put(b, value.data + 2, value.len - 3);
		value.len = 0;
	}
	ofs_buf_fini(&value);
	put_string(b, checkpoint_option(last));
	ofs_buf_puts(b, "](");
	for (uint64_t i = 0; i < m->units; i++)
		put_int(b, i);
	ofs_buf_puts(b, "eu");
}

/* Equal on every rank; only the storages differ. */
static void put_pickle(struct ofs_buf *b, const struct model *m)
{
	struct unit u;

	ofs_buf_puts(b, "\x80\2}(");
	put_string(b, "state");
	ofs_buf_puts(b, "}(");
	for (uint64_t i = 0; i < m->units; i++) {
		unit_init(&u, m, i);
		put_unit_state(b, &u, i);
	}
	ofs_buf_putc(b, 'u');
	put_string(b, "param_groups");
	ofs_buf_putc(b, ']');
	put_group(b, m);
	ofs_buf_puts(b, "au.");
	if (b->bad)
		die("out of memory");
}

static struct part slice(const struct content *c, uint64_t tensor,
    uint64_t numel, uint64_t off, uint64_t len)
{
	return (struct part){ c, tensor,
		{ .ndim = 1,
		    .shape = { numel },
		    .offset = { off },
		    .size = { len } } };
}

/* The shard of a rank: slices of parameters, then zeros as padding. */
static void put_shard(struct archive *a, const struct model *m,
    const struct unit *u, uint64_t rank, size_t state)
{
	const struct content zeros = { m->content.dtype, 0, true };
	struct part part[MAX_PARAMS + 1];
	uint64_t from = rank * u->shard, to = from + u->shard, begin = 0;
	size_t n = 0;

	for (size_t k = 0; k < u->n; k++) {
		uint64_t numel = numel_of(m, &u->param[k]);
		uint64_t lo = from > begin ? from : begin;
		uint64_t hi = to < begin + numel ? to : begin + numel;

		if (lo < hi)
			part[n++] = slice(&m->content, number_of(u, k, state),
			    numel, lo - begin, hi - lo);
		begin += numel;
	}
	if (to > begin) {
		uint64_t pad = from > begin ? u->shard : to - begin;

		part[n++] = slice(&zeros, 0, pad, 0, pad);
	}
	item_storage(a, part, n, true);
}

static void write_rank(const struct model *m, uint64_t rank,
    const struct ofs_buf *pickle)
{
	const struct content step = { m->content.dtype, 1000, true };
	const struct part one = { .content = &step };
	char path[PATH_SIZE];
	struct archive *a;
	struct sink s;
	struct unit u;

	snprintf(path, sizeof(path), "%s/optim_rank%" PRIu64 ".pt", m->dir,
	    rank);
	sink_open(&s, path, 0);
	sink_begin(&s);
	a = item_begin(&s, pickle->data, pickle->len, m->units * PER_UNIT);
	for (uint64_t i = 0; i < m->units; i++) {
		unit_init(&u, m, i);
		item_storage(a, &one, 1, true);
		for (size_t k = 0; k < NSTATES; k++)
			put_shard(a, m, &u, rank, k);
	}
	item_finish(a);
	sink_close(&s);
}

/* --- units.json ---------------------------------------------------------- */

static void put_unit(struct ofs_buf *b, const struct model *m,
    const struct unit *u)
{
	ofs_buf_printf(b, "{\"prefix\":\"%s\",\"fqns\":[", u->prefix);
	for (size_t k = 0; k < u->n; k++)
		ofs_buf_printf(b, "%s\"%s\"", k == 0 ? "" : ",",
		    u->param[k].fqn);
	ofs_buf_puts(b, "],\"shapes\":[");
	for (size_t k = 0; k < u->n; k++) {
		ofs_buf_puts(b, k == 0 ? "[" : ",[");
		put_shape(b, m, &u->param[k], ",");
		ofs_buf_putc(b, ']');
	}
	ofs_buf_printf(b,
	    "],\"world_size\":%" PRIu64 ",\"use_orig_params\":false,"
	    "\"strategy\":\"ShardingStrategy.FULL_SHARD\","
	    "\"unpadded_unsharded_size\":[%" PRIu64 "],"
	    "\"sharded_size\":[%" PRIu64 "],\"dtype\":\"torch.float32\"}",
	    m->ranks, u->numel, u->shard);
}

static void write_units(const struct model *m)
{
	struct ofs_buf b = { 0 };
	char path[PATH_SIZE];
	struct unit u;
	struct sink s;

	ofs_buf_putc(&b, '[');
	for (uint64_t i = 0; i < m->units; i++) {
		unit_init(&u, m, i);
		ofs_buf_puts(&b, i == 0 ? "\n" : ",\n");
		put_unit(&b, m, &u);
	}
	ofs_buf_puts(&b, "\n]\n");
	if (b.bad)
		die("out of memory");
	snprintf(path, sizeof(path), "%s/units.json", m->dir);
	sink_open(&s, path, 0);
	sink_put(&s, b.data, b.len);
	sink_close(&s);
	ofs_buf_fini(&b);
}

static void write_checkpoint(const struct model *m)
{
	struct ofs_buf pickle = { 0 };

	if (mkdir(m->dir, 0755) == -1 && errno != EEXIST)
		die("%s: %s", m->dir, strerror(errno));
	put_pickle(&pickle, m);
	for (uint64_t rank = 0; rank < m->ranks; rank++)
		write_rank(m, rank, &pickle);
	ofs_buf_fini(&pickle);
	write_units(m);
}

static void list(const struct model *m)
{
	struct ofs_buf b = { 0 };
	struct unit u;

	for (uint64_t i = 0; i < m->units; i++) {
		unit_init(&u, m, i);
		for (size_t k = 0; k < u.n; k++) {
			ofs_buf_printf(&b, "%s%s%s ", u.prefix,
			    u.prefix[0] == '\0' ? "" : ".", u.param[k].fqn);
			put_shape(&b, m, &u.param[k], ",");
			ofs_buf_printf(&b, " %" PRIu64 "\n",
			    number_of(&u, k, 0));
		}
	}
	if (b.bad || fwrite(b.data, 1, b.len, stdout) != b.len ||
	    fflush(stdout) != 0)
		die("cannot write the list");
	ofs_buf_fini(&b);
}

static int fail_usage(void)
{
	fputs(usage, stderr);
	return 2;
}

int main(int argc, char **argv)
{
	struct model m = { .ranks = 64,
		.units = 8,
		.width = 64,
		.content = { .dtype = content_dtype("float32") } };
	bool only_list = false;
	int opt;

	while ((opt = getopt(argc, argv, "r:u:d:x:l")) != -1)
		switch (opt) {
		case 'r':
			m.ranks = number(optarg);
			break;
		case 'u':
			m.units = number(optarg);
			break;
		case 'd':
			m.width = number(optarg);
			break;
		case 'x':
			m.content.seed = number(optarg);
			break;
		case 'l':
			only_list = true;
			break;
		default:
			return fail_usage();
		}
	if (optind + (only_list ? 0 : 1) != argc || m.ranks == 0 ||
	    m.units == 0 || m.width == 0)
		return fail_usage();
	if (only_list) {
		list(&m);
		return 0;
	}
	m.dir = argv[optind];
	write_checkpoint(&m);
	return 0;
}
