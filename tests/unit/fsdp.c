/* format/fsdp/join.c - joining of FSDP1 rank files, for random models and
 * ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "handmade.h"
#include "mktorch.h"
#include "mkzip.h"
#include "random.h"
#include "support/listing.h"
#include "tap.h"

#define MAX_PARAMS 24
#define MAX_UNITS  4

/* Defects of a rank file. In a model, parameters of a unit follow each other;
 * element e of parameter i is i * 1000 + e. */
enum defect {
	SOUND,
	STEPS_DIFFER,
	STATE_LACKS,
	STATE_SHORT,
	LISTS_DIFFER,
	DTYPE_DIFFERS,
	ORPHAN,
	NESTED,  /* no defect: nested state, in every rank's file */
	IGNORED, /* no defect: a further ID, whose parameter is in no unit */
	UNKNOWN  /* as IGNORED, but the model has no such parameter */
};

/* How IDs get their names. */
enum names {
	BY_ORDER,  /* from "parameters" of the units file */
	BY_GROUPS, /* from "param_groups" of the units file */
	BY_FILE    /* from the file of the option ids */
};

struct model {
	enum defect defect; /* of the file of rank 1 */
	bool whole; /* NO_SHARD: each rank has all parameters unflattened */
	uint32_t nunits, nparams, world, align;
	uint32_t unit[MAX_PARAMS]; /* of each parameter */
	uint32_t rows[MAX_PARAMS], columns[MAX_PARAMS];
	char name[MAX_PARAMS][24];
	uint32_t param[MAX_PARAMS]; /* of each ID, with use_orig_params */
};

/* The elements that a rank holds of a parameter or of a unit. */
struct slice {
	float v[8192];
	uint32_t n;
};

static uint64_t seed = 88172645463325252u;

static uint32_t below(uint32_t n)
{
	return (uint32_t)(tap_random(&seed) % n);
}

static void make(struct model *m, uint32_t world)
{
	static const uint32_t aligns[] = { 0, 4, 8 };

	memset(m, 0, sizeof(*m));
	m->world = world;
	m->align = aligns[below(3)];
	m->nunits = 1 + below(MAX_UNITS);
	for (uint32_t u = 0; u < m->nunits; u++)
		for (uint32_t k = 1 + below(5); k > 0; k--) {
			uint32_t i = m->nparams++;

			m->unit[i] = u;
			m->param[i] = i;
			m->rows[i] = 1 + below(20);
			m->columns[i] = 1 + below(12);
			snprintf(m->name[i], sizeof(m->name[i]), "m%u.p%u", u,
			    i);
		}
}

static void shuffle(struct model *m)
{
	for (uint32_t i = m->nparams; i > 1; i--) {
		uint32_t k = below(i), old = m->param[k];

		m->param[k] = m->param[i - 1];
		m->param[i - 1] = old;
	}
}

/* Lays out the parameters of a unit as FSDP does. owner[g] is the parameter of
 * element g, -1 for padding. Returns the padded length. */
static uint32_t flatten(const struct model *m, uint32_t unit, float *flat,
    int *owner)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->nparams; i++) {
		if (m->unit[i] != unit)
			continue;
		while (m->align > 0 && n % m->align != 0)
			owner[n] = -1, flat[n++] = 42;
		for (uint32_t e = 0; e < m->rows[i] * m->columns[i]; e++)
			owner[n] = (int)i, flat[n++] = (float)(i * 1000 + e);
	}
	while (n % m->world != 0 && (m->align > 0 || !m->whole))
		owner[n] = -1, flat[n++] = m->align > 0 ? 42 : 0;
	return n;
}

/* The state of an ID on a rank. The ID is that of a parameter with
 * use_orig_params, otherwise that of a unit. */
static void hold(const struct model *m, uint32_t id, uint32_t rank,
    struct slice *s)
{
	static float flat[8192];
	static int owner[8192];
	uint32_t param = m->param[id];
	uint32_t unit = m->align > 0 ? m->unit[param] : id;
	uint32_t n = flatten(m, unit, flat, owner), shard = n / m->world;

	s->n = 0;
	if (m->whole) {
		rank = 0;
		shard = n;
	}
	for (uint32_t g = rank * shard; g < (rank + 1) * shard; g++)
		if (m->align == 0 || owner[g] == (int)param)
			s->v[s->n++] = flat[g];
}

static void put_state(struct ofs_buf *b, const struct model *m,
    enum defect defect, uint32_t id, int64_t offset, uint32_t n, int64_t total)
{
	struct mk_tensor t = { .numel = total,
		.offset = offset,
		.ndim = 1,
		.shape = { n },
		.stride = { 1 } };

	if (m->whole && m->align > 0) {
		t.ndim = 2;
		t.shape[0] = m->rows[m->param[id]];
		t.shape[1] = t.stride[0] = m->columns[m->param[id]];
		t.stride[1] = 1;
	}
	mk_int(b, id);
	mk_ops(b, "}(");
	mk_str(b, "step");
	mk_int(b, defect == STEPS_DIFFER ? 8 : 7);
	mk_str(b, "exp_avg");
	mk_tensor(b, &t);
	t.shape[0] -= defect == STATE_SHORT;
	if (defect == DTYPE_DIFFERS) {
		t.type = "IntStorage"; /* with its own storage */
		t.key = "1";
	}
	if (defect != STATE_LACKS) {
		mk_str(b, "exp_avg_sq");
		mk_tensor(b, &t);
	}
	if (defect == NESTED) {
		struct mk_tensor square = { .numel = total,
			.ndim = 2,
			.shape = { 2, 2 },
			.stride = { 2, 1 } };

		mk_str(b, "pre");
		mk_ops(b, "}(");
		mk_str(b, "L");
		mk_tensor(b, &square);
		mk_str(b, "slice");
		mk_tensor(b, &t);
		mk_str(b, "n");
		mk_int(b, 5);
		mk_ops(b, "u");
	}
	mk_ops(b, "u");
}

/* Writes the file of a rank. All its tensors share one storage, which begins
 * with what all ranks have: state of a parameter in no unit. */
static void write_rank(struct handmade *h, const struct model *m, uint32_t rank)
{
	static const float all[4] = { 1, 2, 3, 4 };
	uint32_t nids = m->align > 0 ? m->nparams : m->nunits;
	struct mkzip z = { .b = { 0 } };
	struct ofs_buf b = { 0 }, data = { 0 };
	static struct slice s;
	int64_t total = 4, at = 4;
	enum defect defect =
	    rank == 1 || m->defect == NESTED ? m->defect : SOUND;
	char name[32];

	ofs_buf_put(&data, all, sizeof(all));
	for (uint32_t id = 0; id < nids; id++) {
		hold(m, id, rank % m->world, &s);
		ofs_buf_put(&data, s.v, s.n * sizeof(*s.v));
		total += s.n;
	}
	mk_begin(&b);
	mk_ops(&b, "}(");
	mk_str(&b, "state");
	mk_ops(&b, "}(");
	for (uint32_t id = 0; id < nids; id++) {
		hold(m, id, rank % m->world, &s);
		if (s.n > 0)
			put_state(&b, m, defect, id, at, s.n, total);
		at += s.n;
	}
	if (m->defect >= IGNORED)
		put_state(&b, m, SOUND, nids++, 0, 4, total);
	if (defect == ORPHAN)
		put_state(&b, m, SOUND, 99, 0, 4, total);
	mk_ops(&b, "u");
	mk_str(&b, "param_groups");
	mk_ops(&b, "]}(");
	mk_str(&b, "params");
	mk_ops(&b, "](");
	for (uint32_t id = 0; id < nids; id++)
		mk_int(&b, defect == LISTS_DIFFER ? nids - id : id);
	mk_ops(&b, "euau");
	mk_end(&b);
	mkzip_add(&z, "archive/data.pkl", b.data, b.len);
	mkzip_add(&z, "archive/data/0", data.data, data.len);
	if (defect == DTYPE_DIFFERS)
		mkzip_add(&z, "archive/data/1", data.data, data.len);
	mkzip_add(&z, "archive/version", "3\n", 2);
	mkzip_end(&z);
	snprintf(name, sizeof(name), "optim_rank%u.pt", rank);
	handmade_file(h, name, z.b.data, z.b.len);
	mkzip_fini(&z);
	ofs_buf_fini(&b);
	ofs_buf_fini(&data);
}

static void put_unit(struct ofs_buf *b, const struct model *m, uint32_t unit,
    bool shapes)
{
	const char *sep = "";

	for (uint32_t i = 0; i < m->nparams; i++) {
		if (m->unit[i] != unit)
			continue;
		if (shapes)
			ofs_buf_printf(b, "%s[%u,%u]", sep, m->rows[i],
			    m->columns[i]);
		else
			ofs_buf_printf(b, "%s\"%s\"", sep, m->name[i]);
		sep = ",";
	}
}

static void write_file(const char *path, struct ofs_buf *b)
{
	FILE *f = fopen(path, "w");

	if (f == NULL || b->bad ||
	    (b->len > 0 && fwrite(b->data, 1, b->len, f) != b->len))
		bail_out("%s cannot be written", path);
	fclose(f);
	ofs_buf_fini(b);
}

static void write_ids(const struct model *m, const char *path)
{
	struct ofs_buf b = { 0 };

	for (uint32_t i = 0; i < m->nparams; i++)
		ofs_buf_printf(&b, "%s%s\n",
		    i % 2 == 0 ? "" : "_fsdp_wrapped_module.",
		    m->name[m->param[i]]);
	write_file(path, &b);
}

static void write_units(const struct model *m, const char *path,
    enum names names)
{
	static float flat[8192];
	static int owner[8192];
	struct ofs_buf b = { 0 };

	ofs_buf_puts(&b, "{\"units\":[");
	for (uint32_t u = 0; u < m->nunits; u++) {
		uint32_t n = flatten(m, u, flat, owner);

		ofs_buf_printf(&b, "%s{\"strategy\":\"%s\",\"fqns\":[",
		    u > 0 ? "," : "", m->whole ? "NO_SHARD" : "FULL_SHARD");
		put_unit(&b, m, u, false);
		ofs_buf_puts(&b, "],\"requires_grad\":[");
		for (uint32_t i = 0, k = 0; i < m->nparams; i++)
			if (m->unit[i] == u)
				ofs_buf_puts(&b, k++ > 0 ? ",true" : "true");
		ofs_buf_puts(&b, "],\"shapes\":[");
		put_unit(&b, m, u, true);
		ofs_buf_printf(&b,
		    "],\"world_size\":%u,\"sharded_size\":[%u],"
		    "\"use_orig_params\":%s,\"numels_with_padding\":[",
		    m->world, m->whole ? n : n / m->world,
		    m->align > 0 ? "true" : "false");
		if (m->align == 0)
			while (n > 0 && owner[n - 1] == -1)
				n--;
		for (uint32_t g = 0, from = 0; g < n; g++)
			if (g + 1 == n || owner[g + 1] != owner[g]) {
				ofs_buf_printf(&b, "%s%u", from > 0 ? "," : "",
				    g + 1 - from);
				from = g + 1;
			}
		ofs_buf_puts(&b, "]}");
	}
	ofs_buf_puts(&b, "]");
	if (m->defect == IGNORED)
		ofs_buf_puts(&b, ",\"parameters\":[\"extra.w\"]");
	if (names != BY_FILE) {
		ofs_buf_printf(&b, ",\"%s\":[",
		    names == BY_GROUPS ? "param_groups" : "parameters");
		for (uint32_t i = 0; i < m->nparams; i++)
			ofs_buf_printf(&b, "%s\"%s\"", i > 0 ? "," : "",
			    m->name[m->param[i]]);
		ofs_buf_puts(&b, m->defect >= IGNORED ? ",\"extra.w\"]" : "]");
	}
	ofs_buf_puts(&b, "}");
	write_file(path, &b);
}

/* Appends the floats of a file to s; false if it cannot be read. */
static bool read_floats(struct optimfs *fs, const char *path, struct slice *s)
{
	ssize_t n = listing_read_at(fs, path, s->v + s->n,
	    sizeof(s->v) - s->n * sizeof(*s->v), 0, NULL);

	if (n < 0)
		return false;
	s->n += (uint32_t)n / sizeof(*s->v);
	return true;
}

static bool is_param(const struct model *m, uint32_t i, const struct slice *s)
{
	if (s->n != m->rows[i] * m->columns[i])
		return false;
	for (uint32_t e = 0; e < s->n; e++)
		if (s->v[e] != (float)(i * 1000 + e))
			return false;
	return true;
}

/* Every parameter has its elements, and those in the directories of the ranks
 * are its slices in order. */
static bool comes_back(const struct model *m, struct optimfs *fs)
{
	static struct slice s;
	char path[160];

	for (uint32_t i = 0; i < m->nparams; i++) {
		snprintf(path, sizeof(path), "optim/state/%s/exp_avg",
		    m->name[i]);
		s.n = 0;
		if (!read_floats(fs, path, &s) || !is_param(m, i, &s)) {
			diag("%s", path);
			return false;
		}
		s.n = 0;
		for (uint32_t r = 0; r < m->world; r++) {
			snprintf(path, sizeof(path),
			    ".optimfs/rank/%u/optim/state/%s/exp_avg", r,
			    m->name[i]);
			if (m->whole)
				s.n = 0;
			read_floats(fs, path, &s);
			if (m->whole && !is_param(m, i, &s))
				return false;
		}
		if (!is_param(m, i, &s)) {
			diag("pieces of %s: %u", m->name[i], s.n);
			return false;
		}
	}
	return true;
}

static void temporary(char path[96])
{
	int fd;

	snprintf(path, 96, "/tmp/optimfs-units-XXXXXX");
	fd = mkstemp(path);
	if (fd == -1)
		bail_out("no temporary file");
	close(fd);
}

/* Copies the files of a directory of fs. */
struct copy {
	struct optimfs *fs;
	struct handmade *h;
	bool good;
};

static int copy_file(void *ctx, const struct optimfs_dirent *entry)
{
	struct copy *c = ctx;
	struct optimfs_file *file;
	uint64_t size;
	uint8_t *p;

	if (optimfs_file_open(c->fs, entry->attr->node, &file, NULL) == -1) {
		c->good = false;
		return 1;
	}
	size = optimfs_file_size(file);
	p = malloc(size + 1);
	if (p == NULL)
		bail_out("out of memory");
	c->good = size == entry->attr->size &&
	    optimfs_file_read(file, p, size, 0, NULL) == (ssize_t)size;
	handmade_file(c->h, entry->name, p, size);
	free(p);
	optimfs_file_close(file);
	return !c->good;
}

/* The view fsdp@, with random ranks and form, reads as the same parameters
 * again, with the units file that the view has. */
static bool again(struct model m, struct optimfs *fs)
{
	static const char *const forms[] = { "", ",orig", ",flat" };
	uint32_t copies = 1 + below(2);
	const char *form = forms[below(3)];
	struct optimfs_error err = { 0 };
	struct optimfs_attr attr;
	struct handmade h;
	struct copy copy = { fs, &h, false };
	struct optimfs *view;
	char name[80];
	bool good;

	m.world = 1 + below(9);
	m.whole = m.world == 1;
	snprintf(name, sizeof(name), ".optimfs/view/fsdp@%ux%u%s", copies,
	    m.world, form);
	handmade_init(&h);
	if (optimfs_resolve(fs, name, &attr, &err) == 0 &&
	    optimfs_readdir(fs, attr.node, 0, true, copy_file, &copy, &err) ==
		-1)
		copy.good = false;
	view = copy.good ? optimfs_open(h.dir, NULL, &err) : NULL;
	good = view != NULL && comes_back(&m, view);
	if (!good)
		diag("%s: %s", name, err.text);
	optimfs_close(view);
	handmade_fini(&h);
	return good;
}

/* copies: HYBRID_SHARD, the number of groups of ranks that hold everything. */
static bool identity(uint32_t world, uint32_t copies, bool whole)
{
	struct optimfs_options o = { 0 };
	struct optimfs_error err = { 0 };
	struct optimfs *fs;
	struct handmade h;
	struct model m;
	enum names names = (enum names)below(3);
	char units[96], ids[96];
	bool good = false;

	temporary(units);
	temporary(ids);
	make(&m, world);
	m.whole = whole;
	if (m.align > 0 && names != BY_ORDER)
		shuffle(&m);
	handmade_init(&h);
	for (uint32_t r = 0; r < world * copies; r++)
		write_rank(&h, &m, r);
	write_units(&m, units, names);
	write_ids(&m, ids);
	o.units = units;
	if (names == BY_FILE)
		o.ids = ids;
	fs = optimfs_open(h.dir, &o, &err);
	if (fs == NULL)
		diag("%s", err.text);
	else
		good = comes_back(&m, fs) && again(m, fs);
	if (!good)
		diag("world %u, align %u, %u units, %u parameters, names %d",
		    world, m.align, m.nunits, m.nparams, (int)names);
	optimfs_close(fs);
	handmade_fini(&h);
	unlink(units);
	unlink(ids);
	return good;
}

static const struct model small = { .nunits = 1,
	.nparams = 2,
	.world = 4,
	.align = 4,
	.rows = { 6, 5 },
	.columns = { 4, 3 },
	.param = { 0, 1 },
	.name = { "a.weight", "b.weight" } };

/* Opens two matrices over four ranks. The file of rank 1 may have a defect, the
 * last files may be missing. */
static struct optimfs *open_small(struct handmade *h, enum defect defect,
    bool with_units, uint32_t nfiles, struct optimfs_error *err)
{
	struct model m = small;
	char units[96];
	struct optimfs_options o = { .units = with_units ? units : NULL };
	struct optimfs *fs;

	m.defect = defect;
	temporary(units);
	handmade_init(h);
	for (uint32_t r = 0; r < nfiles; r++)
		write_rank(h, &m, r);
	write_units(&m, units, defect >= IGNORED ? BY_GROUPS : BY_ORDER);
	memset(err, 0, sizeof(*err));
	fs = optimfs_open(h->dir, &o, err);
	unlink(units);
	return fs;
}

static void opens(const struct optimfs *fs, const char *what,
    const struct optimfs_error *err)
{
	if (!ok(fs != NULL, "%s", what))
		diag("%s", err->text);
}

/* Reading 4 bytes at off of path fails with this code and text. */
static void fails(struct optimfs *fs, const char *path, uint64_t off, int code,
    const char *part)
{
	struct optimfs_error err;
	uint8_t byte[4];

	ok(listing_has(fs, path), "%s is in the tree", path);
	is_int(listing_read_at(fs, path, byte, sizeof(byte), off, &err), -1,
	    "reading %s fails", path);
	is_error(err, code, part, "reading %s fails with '%s'", path, part);
}

static void reads(struct optimfs *fs, const char *path, uint32_t n)
{
	static struct slice s;

	s.n = 0;
	ok(read_floats(fs, path, &s), "reading %s succeeds", path);
	is_u64(s.n, n, "number of elements of %s", path);
}

static void mentions(struct optimfs *fs, const char *path, const char *part)
{
	static struct slice s;

	memset(&s, 0, sizeof(s));
	ok(read_floats(fs, path, &s) && strstr((char *)s.v, part) != NULL,
	    "%s contains '%s'", path, part);
}

static void wrong_state(void)
{
	struct optimfs_error err;
	struct optimfs *fs;
	struct handmade h;

	fs = open_small(&h, STATE_LACKS, true, 4, &err);
	opens(fs, "a checkpoint where rank 1 lacks a state opens", &err);
	fails(fs, "optim/state/a.weight/exp_avg_sq", 0, EUCLEAN,
	    "rank 1 does not have this state of its 10 elements");
	reads(fs, "optim/state/a.weight/exp_avg", 24);
	optimfs_close(fs);
	handmade_fini(&h);
	fs = open_small(&h, STATE_SHORT, true, 4, &err);
	opens(fs, "a checkpoint where rank 1 has a short state opens", &err);
	fails(fs, "optim/state/a.weight/exp_avg_sq", 0, EUCLEAN,
	    "rank 1 has 9 elements in 1 dimensions");
	optimfs_close(fs);
	handmade_fini(&h);
	fs = open_small(&h, STEPS_DIFFER, true, 4, &err);
	opens(fs, "a checkpoint where ranks have different steps opens", &err);
	fails(fs, "optim/state/a.weight/step", 0, EPROTO, "8 (rank 1)");
	optimfs_close(fs);
	handmade_fini(&h);
	fs = open_small(&h, DTYPE_DIFFERS, true, 4, &err);
	opens(fs, "a checkpoint where rank 1 has another dtype opens", &err);
	fails(fs, "optim/state/a.weight/exp_avg_sq", 0, EUCLEAN,
	    "rank 1 says dtype int32, others say float32");
	reads(fs, "optim/state/a.weight/exp_avg", 24);
	optimfs_close(fs);
	handmade_fini(&h);
	fs = open_small(&h, ORPHAN, true, 4, &err);
	opens(fs, "a checkpoint with state of an unknown ID opens", &err);
	fails(fs, "optim/state/99/exp_avg", 0, EUCLEAN, "OFS644");
	fails(fs, "optim/state/99/step", 0, EUCLEAN, "parameter ID 99");
	reads(fs, ".optimfs/rank/1/optim/state/99/exp_avg", 4);
	reads(fs, "optim/state/a.weight/exp_avg", 24);
	optimfs_close(fs);
	handmade_fini(&h);
	fs = open_small(&h, ORPHAN, false, 4, &err);
	opens(fs, "a checkpoint with an unknown ID opens without units", &err);
	fails(fs, "optim/state/99/exp_avg", 0, EUCLEAN, "OFS644");
	fails(fs, "optim/state/99/step", 0, EUCLEAN, "OFS644");
	fails(fs, "optim/state/0/exp_avg", 0, EOPNOTSUPP, "OFS166");
	optimfs_close(fs);
	handmade_fini(&h);
	fs = open_small(&h, LISTS_DIFFER, true, 4, &err);
	ok(fs == NULL, "ranks with different lists of parameters are refused");
	is_error(err, EUCLEAN, "rank 0 and rank 1 list",
	    "different lists of parameters fail with both ranks");
	handmade_fini(&h);
}

static void attribute(struct optimfs *fs, const char *path, const char *name,
    const char *want)
{
	struct optimfs_attr attr;
	char *value = NULL;
	size_t len;

	if (optimfs_resolve(fs, path, &attr, NULL) == -1 ||
	    optimfs_getxattr(fs, attr.node, name, &value, &len, NULL) == -1)
		value = NULL;
	is_str(value == NULL ? "(none)" : value, want, "%s of %s", name, path);
	free(value);
}

static void of_other_kinds(void)
{
	struct optimfs_error err;
	struct optimfs *fs;
	struct handmade h;

	fs = open_small(&h, NESTED, true, 4, &err);
	opens(fs, "a checkpoint with nested state opens", &err);
	reads(fs, "optim/state/a.weight/pre/slice", 24);
	reads(fs, "optim/state/b.weight/pre/slice", 15);
	reads(fs, "optim/state/a.weight/pre/L", 4);
	mentions(fs, "optim/state/b.weight/pre/n", "5");
	optimfs_close(fs);
	handmade_fini(&h);
	fs = open_small(&h, IGNORED, true, 4, &err);
	opens(fs, "a checkpoint with a parameter in no unit opens", &err);
	reads(fs, "optim/state/extra.w/exp_avg", 4);
	attribute(fs, "optim/state/b.weight/exp_avg", "user.optimfs.index",
	    "1");
	attribute(fs, "optim/state/b.weight", "user.optimfs.unit", "");
	attribute(fs, "optim/state/b.weight", "user.optimfs.requires_grad",
	    "true");
	attribute(fs, "optim/state/extra.w/step", "user.optimfs.unit",
	    "(none)");
	attribute(fs, "optim/param_groups/0/params", "user.optimfs.index",
	    "(none)");
	mentions(fs, "optim/param_groups/0/params", "extra.w");
	reads(fs, "optim/state/a.weight/exp_avg", 24);
	optimfs_close(fs);
	handmade_fini(&h);
	fs = open_small(&h, UNKNOWN, true, 4, &err);
	ok(fs == NULL, "a parameter that no unit and no list knows is refused");
	is_error(err, EINVAL,
	    "param_groups: ID 2 is extra.w, which is in no unit",
	    "an unknown parameter fails with its ID and name");
	handmade_fini(&h);
}

/* An optimizer of a flat parameter, with use_orig_params=False, and of one that
 * FSDP ignored: the units file, or ids= with these lines, has the names. */
static struct optimfs *open_flat(struct handmade *h, const char *lines,
    struct optimfs_error *err)
{
	struct model m = small;
	struct ofs_buf b = { 0 };
	char units[96], ids[96];
	struct optimfs_options o = { .units = units };
	struct optimfs *fs;

	m.align = 0;
	m.defect = IGNORED;
	temporary(units);
	temporary(ids);
	handmade_init(h);
	for (uint32_t r = 0; r < m.world; r++)
		write_rank(h, &m, r);
	write_units(&m, units, lines == NULL ? BY_GROUPS : BY_FILE);
	if (lines != NULL) {
		ofs_buf_puts(&b, lines);
		write_file(ids, &b);
		o.ids = ids;
	}
	memset(err, 0, sizeof(*err));
	fs = optimfs_open(h->dir, &o, err);
	unlink(units);
	unlink(ids);
	return fs;
}

static void flat_and_ignored(void)
{
	static const char *const lines[] = { NULL,
		"a.weight\nb.weight\n_fsdp_wrapped_module.extra.w\n" };
	struct optimfs_error err;
	struct optimfs *fs;
	struct handmade h;

	for (int i = 0; i < 2; i++) {
		fs = open_flat(&h, lines[i], &err);
		opens(fs, "a flat parameter and one in no unit open", &err);
		reads(fs, "optim/state/a.weight/exp_avg", 24);
		reads(fs, "optim/state/b.weight/exp_avg", 15);
		reads(fs, "optim/state/extra.w/exp_avg", 4);
		mentions(fs, "optim/param_groups/0/params",
		    "a.weight\nb.weight\nextra.w\n");
		optimfs_close(fs);
		handmade_fini(&h);
	}
	fs = open_flat(&h, "a.weight\nextra.w\nb.weight\n", &err);
	ok(fs == NULL, "names of a unit that are not adjacent are refused");
	is_error(err, EINVAL, "OFS635",
	    "names of a unit that are not adjacent: error text");
	handmade_fini(&h);
	fs = open_flat(&h, "a.weight\nb.weight\n\nextra.w\n", &err);
	ok(fs == NULL, "ids= with another group is refused");
	is_error(err, EINVAL, "OFS635", "ids= with another group: error text");
	handmade_fini(&h);
	fs = open_flat(&h, "", &err);
	ok(fs == NULL, "ids= without names is refused");
	handmade_fini(&h);
}

static void not_all_there(void)
{
	struct optimfs_error err;
	struct optimfs *fs;
	struct handmade h;

	fs = open_small(&h, SOUND, false, 4, &err);
	opens(fs, "a checkpoint without a units file opens", &err);
	fails(fs, "optim/state/0/exp_avg", 0, EOPNOTSUPP, "OFS166");
	reads(fs, ".optimfs/rank/1/optim/state/0/exp_avg", 10);
	optimfs_close(fs);
	handmade_fini(&h);
	fs = open_small(&h, SOUND, true, 3, &err);
	opens(fs, "a checkpoint without the last rank's file opens", &err);
	mentions(fs, ".optimfs/missing", "OFS180 optim_rank0.pt: 3 of");
	reads(fs, "optim/state/a.weight/exp_avg", 24);
	fails(fs, "optim/state/b.weight/exp_avg", 4 * 6, EIO, "OFS");
	optimfs_close(fs);
	handmade_fini(&h);
}

/* A file of one rank. Parameters 0 and 1 are in a group with weight decay, 2
 * and 3 in one without. 1 and 3 have no state. */
static void write_stateless(struct handmade *h)
{
	static const float data[9];
	struct mk_tensor a = {
		.numel = 9, .ndim = 1, .shape = { 6 }, .stride = { 1 }
	};
	struct mk_tensor b = { .numel = 9,
		.offset = 6,
		.ndim = 1,
		.shape = { 3 },
		.stride = { 1 } };
	struct mkzip z = { .b = { 0 } };
	struct ofs_buf p = { 0 };

	mk_begin(&p);
	mk_ops(&p, "}(");
	mk_str(&p, "state");
	mk_ops(&p, "}(");
	for (int id = 0; id <= 2; id += 2) {
		mk_int(&p, id);
		mk_ops(&p, "}(");
		mk_str(&p, "exp_avg");
		mk_tensor(&p, id == 0 ? &a : &b);
		mk_ops(&p, "u");
	}
	mk_ops(&p, "u");
	mk_str(&p, "param_groups");
	mk_ops(&p, "](");
	for (int id = 0; id <= 2; id += 2) {
		mk_ops(&p, "}(");
		mk_str(&p, "params");
		mk_ops(&p, "](");
		mk_int(&p, id);
		mk_int(&p, id + 1);
		mk_ops(&p, "eu");
	}
	mk_ops(&p, "eu");
	mk_end(&p);
	mkzip_add(&z, "archive/data.pkl", p.data, p.len);
	mkzip_add(&z, "archive/data/0", data, sizeof(data));
	mkzip_add(&z, "archive/version", "3\n", 2);
	mkzip_end(&z);
	handmade_file(h, "optim_rank0.pt", z.b.data, z.b.len);
	mkzip_fini(&z);
	ofs_buf_fini(&p);
}

/* Only the dimensions tell which ID is c and which is d: weight decay is for
 * matrices. */
static void named_by_dimensions(void)
{
	static const char units[] =
	    "{\"units\":[{\"strategy\":\"FULL_SHARD\",\"fqns\":[\"a\",\"b\","
	    "\"c\",\"d\"],\"shapes\":[[2,3],[3],[2,2],[4]],\"world_size\":1,"
	    "\"sharded_size\":[17],\"use_orig_params\":true,"
	    "\"numels_with_padding\":[6,3,4,4]}]}";
	struct optimfs_options o = { 0 };
	struct ofs_buf b = { 0 };
	struct optimfs_error err;
	struct optimfs *fs;
	struct handmade h;
	char path[96];

	handmade_init(&h);
	write_stateless(&h);
	temporary(path);
	ofs_buf_puts(&b, units);
	write_file(path, &b);
	o.units = path;
	fs = optimfs_open(h.dir, &o, &err);
	if (!ok(fs != NULL, "a checkpoint of parameters without state opens"))
		bail_out("%s", err.text);
	mentions(fs, ".optimfs/warnings", "OFS168");
	mentions(fs, "optim/param_groups/0/params", "c");
	mentions(fs, "optim/param_groups/1/params", "d");
	optimfs_close(fs);
	unlink(path);
	handmade_fini(&h);
}

/* Groups that share their list, which would need any memory for their IDs. */
static void shared_ids(void)
{
	struct optimfs_error err;
	struct mktorch m;

	mktorch_init(&m);
	mk_ops(&m.pickle, "](");
	for (int i = 0; i < 2000; i++)
		mk_int(&m.pickle, i);
	mk_ops(&m.pickle,
	    "eq\1"
	    "0}(");
	mk_str(&m.pickle, "params");
	mk_ops(&m.pickle,
	    "h\1uq\2"
	    "0}(");
	mk_str(&m.pickle, "param_groups");
	mk_ops(&m.pickle, "](");
	for (int i = 0; i < 20000; i++)
		mk_ops(&m.pickle, "h\2");
	mk_ops(&m.pickle, "eu");
	mk_end(&m.pickle);
	is_int(mktorch_read(&m, NULL, &err), -1,
	    "groups that list more IDs than the file has numbers are refused");
	is_error(err, EUCLEAN, "OFS165", "the error for such groups");
	ok(strstr(err.text, "more IDs than") != NULL,
	    "it comes before the IDs are collected: %s", err.text);
	mktorch_fini(&m);
}

int main(void)
{
	shared_ids();
	static const uint32_t worlds[] = { 2, 3, 4, 5, 7, 8, 16, 31, 64 };

	for (size_t i = 0; i < sizeof(worlds) / sizeof(*worlds); i++) {
		bool good = true;

		for (int k = 0; k < 12 && good; k++)
			good = identity(worlds[i], 1, false);
		ok(good,
		    "joining the files of %u ranks gives back random models",
		    worlds[i]);
	}
	for (int k = 0; k < 8; k++)
		ok(identity(2 + below(3), 2 + below(2), false),
		    "joining the files of HYBRID_SHARD gives back a random "
		    "model");
	for (int k = 0; k < 12; k++)
		ok(identity(2 + below(4), 1, true),
		    "joining the files of NO_SHARD gives back a random model");
	wrong_state();
	of_other_kinds();
	flat_and_ignored();
	not_all_there();
	named_by_dimensions();
	return done_testing();
}
