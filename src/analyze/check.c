/* check.c - is the state of the optimizers one that training leaves? */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimfs/analyze.h"

#include "analyze/copies.h"
#include "analyze/families.h"
#include "analyze/health.h"
#include "analyze/optimizers.h"
#include "analyze/pool.h"
#include "base/memory.h"
#include "stats/number.h"

#define CHUNK (1u << 18) /* elements */

/* What each number means, those that matter most first. */
static const struct {
	const char *code;
	const char *means;
} meanings[] = {
	{ "OFS201",
	    "what cannot be read cannot be checked: optimfs fsck --data "
	    "says what is damaged" },
	{ "OFS202",
	    "training from here makes more of them: go back to a checkpoint "
	    "before, and find the step that made it" },
	{ "OFS203",
	    "a mean of squares cannot be negative: the elements are not "
	    "those of this state, or they are damaged" },
	{ "OFS204",
	    "no gradients lead to both moments: they are of different "
	    "elements, layers or runs, or the betas are not those that the "
	    "run had" },
	{ "OFS205",
	    "a first moment without a second is of another element, or the "
	    "second was reset: the next update there is huge" },
	{ "OFS214",
	    "what is kept of the same gradients for rows and for columns does "
	    "not agree: one is of another layer or run, or each rank had its "
	    "own" },
	{ "OFS215",
	    "the columns of a rotation have length 1: the elements are not "
	    "those of this state, or they are damaged" },
	{ "OFS206",
	    "the copies of one shard are of different states: which one is "
	    "loaded depends on the number of ranks" },
	{ "OFS207",
	    "the optimizer's own weights are not those of the model: one of "
	    "them is of another step, rank or run" },
	{ "OFS208",
	    "a state that has not the shape of its parameter cannot be "
	    "loaded, or is of another one" },
	{ "OFS209",
	    "parameters were not updated equally often: parts of the state "
	    "are of different checkpoints, or were reset" },
	{ "OFS210",
	    "the optimizer starts this parameter with what it has not: "
	    "loading fails, or the moment begins at zero" },
	{ "OFS211",
	    "a frozen parameter is not updated: its state is a leftover, or "
	    "it was frozen by mistake" },
	{ "OFS212",
	    "no group of the optimizer trains it: the state is not loaded, "
	    "or loaded for another parameter" },
	{ "OFS213", "no run goes on with this value" },
	{ "OFS216",
	    "nothing is known of what was not read: with what the message "
	    "asks for, an option or another program, it can be checked" },
};
#define NMEANINGS (sizeof(meanings) / sizeof(meanings[0]))

struct symptom {
	char *path, *text;
	int number;
	double weight; /* of one number: the greater first */
};

enum look { NOT_LOOKED, READ, UNREAD };

struct check {
	struct optimfs *fs;
	struct ofs_optimizers state;
	struct ofs_exam *exam;
	size_t nexams, exam_cap;
	struct symptom *symptom;
	size_t nsymptoms, cap;
	struct optimfs_checked checked;
	enum look *look; /* of each file */
	/* The first that this version cannot read, and why; NULL: none. */
	const char *unread;
	char *why_unread;
	bool bad; /* no memory */
};

static void found(struct check *c, int number, double weight, const char *path,
    const char *fmt, ...) __attribute__((format(printf, 5, 6)));
static void found(struct check *c, int number, double weight, const char *path,
    const char *fmt, ...)
{
	struct symptom *s;
	va_list ap;
	char *text;

	if (ofs_grow(c->symptom, c->nsymptoms, c->cap, NULL) == -1) {
		c->bad = true;
		return;
	}
	s = &c->symptom[c->nsymptoms];
	*s = (struct symptom){ .number = number, .weight = weight };
	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) == -1)
		text = NULL;
	va_end(ap);
	s->path = strdup(path);
	if (text == NULL || s->path == NULL ||
	    asprintf(&s->text, "OFS%d %s", number, text) == -1) {
		free(s->path);
		c->bad = true;
	} else {
		c->nsymptoms++;
	}
	free(text);
}

/* What is read. */

/* How much rounding changes a number of the type at most, relative to it. */
static double half_step(enum ofs_dtype t)
{
	switch (t) {
	case OFS_FLOAT64:
		return 0x1p-53;
	case OFS_FLOAT32:
		return 0x1p-24;
	case OFS_FLOAT16:
		return 0x1p-11;
	case OFS_BFLOAT16:
		return 0x1p-8;
	default:
		return 0.25;
	}
}

/* The smallest number that keeps its digits. */
static double normal_min(enum ofs_dtype t)
{
	switch (t) {
	case OFS_FLOAT64:
		return 0x1p-1022;
	case OFS_FLOAT32:
	case OFS_BFLOAT16:
		return 0x1p-126;
	case OFS_FLOAT16:
		return 0x1p-14;
	default:
		return 0x1p-6;
	}
}

/* One number an element of the parameter. */
static const char *const whole_shape[] = { "exp_avg", "exp_avg_sq",
	"max_exp_avg_sq", "momentum_buffer", "square_avg", "grad_avg",
	"acc_delta", "sum", "exp_inf", "exp_avg_var", "exp_avg_diff", "fp32",
	"fp32_param", "master_param", NULL };
static const char *const masters[] = { "fp32", "fp32_param", "master_param",
	NULL };
static struct ofs_exam *new_exam(struct check *c, enum ofs_exam_kind kind,
    size_t param)
{
	struct ofs_exam *e;

	if (ofs_grow(c->exam, c->nexams, c->exam_cap, NULL) == -1) {
		c->bad = true;
		return NULL;
	}
	e = &c->exam[c->nexams++];
	*e = (struct ofs_exam){ .kind = kind, .param = param, .stride = 1 };
	e->correct[0] = e->correct[1] = 1;
	return e;
}

static void add_file(struct check *c, struct ofs_exam *e,
    const struct ofs_file_info *f)
{
	e->codes[e->nfiles] = ofs_code_values(f->dtype);
	c->bad |= ofs_code_bits(f->dtype) > 0 && e->codes[e->nfiles] == NULL;
	e->file[e->nfiles++] = f;
}

/* How much rounding in t steps may add to a mean, relative to it. */
static double slack_of(double beta, double t, double half_steps)
{
	double steps = isnan(t) || t > 1 / (1 - beta) ? 1 / (1 - beta) : t;

	return 1 + 1e-3 + 4 * steps * half_steps;
}

/* 1 + q + q^2 ..., t terms; t of NaN: not known, so the most; 0: that is
 * infinite. */
static double series(double q, double t)
{
	if (isnan(t))
		return q >= 1 ? 0 : 1 / (1 - q);
	return q == 1 ? t : (1 - pow(q, t)) / (1 - q);
}

static bool are_betas(double b1, double b2, double t)
{
	return b1 >= 0 && b1 < 1 && b2 > 0 && b2 < 1 && t != 0;
}

/* R, with what rounding of t steps may add to it; 0: not known. */
static double bound_of(const double beta[2], double t, enum ofs_dtype m,
    enum ofs_dtype v)
{
	double b1 = beta[0], b2 = beta[1], slack;

	if (!are_betas(b1, b2, t))
		return 0;
	slack = slack_of(b2, t, half_step(m) + half_step(v));
	return (1 - b1) * (1 - b1) / (1 - b2) * series(b1 * b1 / b2, t) *
	    slack * slack;
}

/* The same of Adamax: |m| <= (1 - b1) sum (b1 / b2)^k v, squared. */
static double bound_of_norm(const double beta[2], double t, enum ofs_dtype m,
    enum ofs_dtype v)
{
	double b1 = beta[0], b2 = beta[1], r;

	if (!are_betas(b1, b2, t))
		return 0;
	r = (1 - b1) * series(b1 / b2, t) *
	    slack_of(b2, t, half_step(m) + half_step(v));
	return r * r;
}

static void plan_adam(struct check *c, size_t index)
{
	const struct ofs_optimizers *s = &c->state;
	const struct ofs_param *p = &s->param[index];
	const struct ofs_param_group *g =
	    p->group == SIZE_MAX ? NULL : &s->group[p->group];
	const struct ofs_file_info *m = ofs_param_state(s, p, "exp_avg");
	const struct ofs_file_info *v = ofs_param_state(s, p, "exp_avg_sq");
	struct ofs_exam *e = new_exam(c, OFS_EXAM_ADAM, index);
	double t = p->step;

	if (e == NULL)
		return;
	add_file(c, e, m);
	add_file(c, e, v);
	if (p->model != SIZE_MAX &&
	    s->files.file[p->model].elements == m->elements &&
	    ofs_dtype_is_float(s->files.file[p->model].dtype))
		add_file(c, e, &s->files.file[p->model]);
	e->row = strtoull(m->shape, NULL, 10);
	e->row = e->row == 0 ? 0 : m->elements / e->row;
	e->underflow = normal_min(v->dtype) * 1000;
	e->lr = NAN;
	if (g == NULL)
		return;
	e->bound = bound_of(g->beta, t, m->dtype, v->dtype);
	e->lr = g->lr;
	e->eps = isnan(g->eps) ? 0 : g->eps;
	if (t > 0 && g->beta[0] < 1 && g->beta[1] < 1) {
		e->correct[0] = 1 - pow(g->beta[0], t);
		e->correct[1] = 1 - pow(g->beta[1], t);
	}
}

static void plan_bound(struct check *c, size_t index,
    const struct ofs_bound_rule *rule)
{
	struct ofs_exam *e = new_exam(c, OFS_EXAM_BOUND, index);
	double t = c->state.param[index].step;
	enum ofs_dtype m = rule->m->dtype, v = rule->v->dtype;

	if (e == NULL)
		return;
	add_file(c, e, rule->m);
	add_file(c, e, rule->v);
	e->square = rule->square;
	e->underflow = normal_min(v) * 1000;
	e->bound = rule->square ? bound_of_norm(rule->beta, t, m, v)
				: bound_of(rule->beta, t, m, v);
}

/* Numbers that have to be finite, where buffers, masks for one, may be
 * infinite. */
static struct ofs_exam *plan_one(struct check *c, const struct ofs_file_info *f,
    size_t param, bool no_infinite)
{
	struct ofs_exam *e = new_exam(c, OFS_EXAM_ONE, param);

	if (e == NULL)
		return NULL;
	add_file(c, e, f);
	e->no_infinite = no_infinite;
	return e;
}

static void plan_state(struct check *c, const struct ofs_file_info *f,
    size_t index)
{
	struct ofs_exam *e = plan_one(c, f, index, true);
	struct ofs_state_rule rule;
	const char *columns;

	if (e == NULL)
		return;
	ofs_state_rule(&c->state, &c->state.param[index], f, &rule);
	e->no_negative = rule.no_negative;
	columns = rule.diagonal ? strrchr(f->shape, ',') : NULL;
	if (columns != NULL)
		e->stride = strtoull(columns + 1, NULL, 10) + 1;
}

static void plan_master(struct check *c, size_t index,
    const struct ofs_file_info *master)
{
	const struct ofs_param *p = &c->state.param[index];
	const struct ofs_file_info *w;
	struct ofs_exam *e;

	if (p->model == SIZE_MAX)
		return;
	w = &c->state.files.file[p->model];
	if (w->elements != master->elements || !ofs_dtype_is_float(w->dtype))
		return;
	e = new_exam(c, OFS_EXAM_MASTER, index);
	if (e == NULL)
		return;
	add_file(c, e, master);
	add_file(c, e, w);
	e->tolerance = 2 * (half_step(w->dtype) + half_step(master->dtype));
	e->underflow = normal_min(w->dtype);
}

/* Is f looked at by an exam of several files? */
static bool has_exam(const struct check *c, size_t index,
    const struct ofs_file_info *f)
{
	for (size_t i = c->nexams; i-- > 0 && c->exam[i].param == index;)
		if (c->exam[i].kind != OFS_EXAM_MASTER &&
		    (c->exam[i].file[0] == f || c->exam[i].file[1] == f))
			return true;
	return false;
}

static void plan_param(struct check *c, size_t index)
{
	const struct ofs_optimizers *s = &c->state;
	const struct ofs_param *p = &s->param[index];
	struct ofs_bound_rule rule;

	if (ofs_is_adam(s, p))
		plan_adam(c, index);
	else if (ofs_bound_of(s, p, &rule))
		plan_bound(c, index, &rule);
	for (size_t i = p->first; i < p->first + p->n; i++) {
		const struct ofs_file_info *f = &s->files.file[i];

		if (!ofs_is_tensor(f) || !ofs_dtype_is_float(f->dtype))
			continue;
		if (ofs_is_one_of(ofs_param_state_name(p, f), masters))
			plan_master(c, index, f);
		if (!has_exam(c, index, f))
			plan_state(c, f, index);
	}
}

/* Weights that no moments are looked at with. */
static void plan_model(struct check *c, bool *done)
{
	const struct ofs_optimizers *s = &c->state;

	for (size_t i = 0; i < c->nexams; i++)
		if (c->exam[i].kind == OFS_EXAM_ADAM && c->exam[i].nfiles == 3)
			done[c->exam[i].file[2] - s->files.file] = true;
	for (size_t i = 0; i < s->nparams; i++) {
		size_t w = s->param[i].model;

		if (w == SIZE_MAX || done[w] ||
		    !ofs_dtype_is_float(s->files.file[w].dtype))
			continue;
		done[w] = true;
		plan_one(c, &s->files.file[w], SIZE_MAX, true);
	}
	for (size_t i = 0; i < s->files.n; i++) {
		const struct ofs_file_info *f = &s->files.file[i];

		if (strncmp(f->path, "model/", 6) == 0 && !done[i] &&
		    ofs_dtype_is_float(f->dtype))
			plan_one(c, f, SIZE_MAX, false);
	}
}

static void plan(struct check *c)
{
	bool *done = calloc(c->state.files.n + 1, sizeof(*done));

	if (done == NULL) {
		c->bad = true;
		return;
	}
	for (size_t i = 0; i < c->state.nparams; i++)
		plan_param(c, i);
	plan_model(c, done);
	free(done);
}

/* Reading. */

static void *start(void *ctx, struct optimfs_error *err)
{
	void *mine = malloc(sizeof(struct ofs_finding));

	(void)ctx;
	if (mine == NULL)
		ofs_no_memory(err);
	return mine;
}

static int work(void *ctx, void *mine, const struct ofs_pool_chunk *k,
    struct optimfs_error *err)
{
	struct check *c = ctx;

	(void)err;
	ofs_examine(&c->exam[k->item], k->buf, k->first, k->n, mine);
	return 0;
}

static int join(void *ctx, void *mine, const struct ofs_pool_chunk *k,
    struct optimfs_error *err)
{
	struct check *c = ctx;

	(void)err;
	ofs_exam_join(&c->exam[k->item], mine, k->buf, k->first, k->n);
	return 0;
}

/* The text of an error, without the path that is told anyway. */
static char *why_of(const struct optimfs_error *err, const char *path)
{
	char *text;

	if (err->number == 0)
		return strdup(optimfs_error_about(err, path));
	return asprintf(&text, "OFS%03d %s", err->number,
		   optimfs_error_about(err, path)) == -1
	    ? NULL
	    : text;
}

static void failed(void *ctx, size_t item, const struct optimfs_error *err)
{
	struct check *c = ctx;
	struct ofs_exam *e = &c->exam[item];

	e->error = err->code;
	e->why = why_of(err, e->file[0]->path);
}

static const struct ofs_pool_ops ops = { start, free, work, join, failed };

static int read_all(struct check *c, const struct optimfs_scan *how,
    struct optimfs_error *err)
{
	struct ofs_pool_item *items = calloc(c->nexams + 1, sizeof(*items));
	int ret;

	if (items == NULL)
		return ofs_no_memory(err);
	for (size_t i = 0; i < c->nexams; i++) {
		const struct ofs_exam *e = &c->exam[i];

		items[i].elements = e->file[0]->elements;
		items[i].chunk = CHUNK;
		items[i].nfiles = e->nfiles;
		for (unsigned k = 0; k < e->nfiles; k++) {
			items[i].file[k].fs = c->fs;
			items[i].file[k].node = e->file[k]->node;
			items[i].file[k].size =
			    ofs_dtype_size(e->file[k]->dtype);
		}
	}
	ret = ofs_pool_run(items, c->nexams, how, &ops, c, err);
	free(items);
	return ret;
}

/* Judging. */

/* What became of a file. */
static void looked(struct check *c, const struct ofs_file_info *f,
    enum look look, const char *why)
{
	enum look *was = &c->look[f - c->state.files.file];

	if (look == UNREAD && *was != UNREAD && c->checked.unread++ == 0) {
		c->unread = f->path;
		c->why_unread = strdup(why == NULL ? "" : why);
		c->bad |= c->why_unread == NULL;
	}
	c->checked.tensors += look == READ && *was == NOT_LOOKED;
	if (*was != UNREAD)
		*was = look;
}

static void judge_unread(struct check *c)
{
	uint64_t n = c->checked.unread;

	if (c->bad || n == 0)
		return;
	if (n == 1)
		found(c, 216, 1, c->unread, "was not checked: %s",
		    c->why_unread);
	else
		found(c, 216, 1, c->unread,
		    "this and %" PRIu64 " more were not checked: %s", n - 1,
		    c->why_unread);
}

static double part(const struct ofs_count *n, const struct ofs_exam *e)
{
	return (double)n->n / (double)e->file[0]->elements;
}

/* ", in FILE at byte N (rank R)": where an element is. */
static char *place_of(struct check *c, const struct ofs_file_info *f,
    uint64_t element)
{
	struct optimfs_location at;
	char rank[24] = "", *text = NULL;

	if (optimfs_locate(c->fs, f->path, -1, element, &at, NULL) == -1)
		return strdup("");
	if (at.rank >= 0)
		snprintf(rank, sizeof(rank), " (rank %d)", at.rank);
	if (asprintf(&text, ", in %s at %sbyte %" PRIu64 "%s", at.file,
		at.encoded ? "decoded " : "", at.offset, rank) == -1)
		text = NULL;
	free(at.file);
	return text;
}

static void judge_count(struct check *c, const struct ofs_exam *e, unsigned i,
    int number, const struct ofs_count *n, const char *what)
{
	const struct ofs_file_info *f = e->file[i];
	char *place;

	if (n->n == 0)
		return;
	place = place_of(c, f, n->first);
	found(c, number, part(n, e), f->path,
	    "%" PRIu64 " of %" PRIu64 " elements %s; the first is %" PRIu64
	    "%s",
	    n->n, f->elements, what, n->first, place == NULL ? "" : place);
	free(place);
}

static void judge(struct check *c, const struct ofs_exam *e)
{
	for (unsigned i = 0; i < e->nfiles; i++)
		if (e->error == 0 || e->error == EOPNOTSUPP)
			looked(c, e->file[i], e->error == 0 ? READ : UNREAD,
			    e->why);
	if (e->error == EOPNOTSUPP)
		return;
	if (e->error != 0) {
		found(c, 201, 1, e->file[0]->path, "cannot be read: %s",
		    e->why == NULL ? "" : e->why);
		return;
	}
	for (unsigned i = 0; i < e->nfiles; i++)
		judge_count(c, e, i, 202, &e->odd[i], "are no finite numbers");
	judge_count(c, e, e->nfiles > 1 ? 1 : 0, 203, &e->negative,
	    "are negative");
	judge_count(c, e, 0, 204, &e->broken,
	    e->kind == OFS_EXAM_ADAM
		? "are greater than the second moment allows"
		: "are greater than the other state allows");
	judge_count(c, e, 0, 205, &e->orphan,
	    "have a second moment of zero and are not zero");
	judge_count(c, e, 0, 207, &e->differ, "differ from the model's");
}

/* Rounding adds up to less, of what keeps its digits. */
#define SAME 0.01

static bool is_exact(const struct ofs_exam *e)
{
	enum ofs_dtype t = e->file[0]->dtype;

	return e->kind == OFS_EXAM_ONE && e->error == 0 && e->odd[0].n == 0 &&
	    (t == OFS_FLOAT32 || t == OFS_FLOAT64) && e->file[0]->elements > 0;
}

static void judge_twins(struct check *c, const struct ofs_exam *e,
    const struct ofs_exam *other, bool diagonal)
{
	double a = e->sum, b = other->sum;

	if (!diagonal) {
		a /= (double)e->file[0]->elements;
		b /= (double)other->file[0]->elements;
	}
	if (fabs(a - b) > SAME * fmax(fabs(a), fabs(b)) + 0x1p-120)
		found(c, 214, fabs(a - b) / fmax(fabs(a), fabs(b)),
		    other->file[0]->path,
		    "the %s is %.6g, and that of %s is %.6g",
		    diagonal ? "trace" : "mean", b, e->file[0]->path, a);
}

/* What several states of a parameter have to agree in. */
static void judge_state(struct check *c, size_t i)
{
	const struct ofs_exam *e = &c->exam[i];
	const struct ofs_optimizers *s = &c->state;
	struct ofs_state_rule rule, other;
	double rows;

	if (e->param == SIZE_MAX || !is_exact(e))
		return;
	ofs_state_rule(s, &s->param[e->param], e->file[0], &rule);
	rows = sqrt((double)e->file[0]->elements);
	if (rule.orthonormal && !(fabs(e->squares - rows) <= SAME * rows))
		found(c, 215, fabs(e->squares - rows), e->file[0]->path,
		    "the squares of %.0f columns add up to %.6g", rows,
		    e->squares);
	for (size_t k = i + 1;
	     rule.twins > 0 && k < c->nexams && c->exam[k].param == e->param;
	     k++) {
		ofs_state_rule(s, &s->param[e->param], c->exam[k].file[0],
		    &other);
		if (other.twins == rule.twins && is_exact(&c->exam[k])) {
			judge_twins(c, e, &c->exam[k], rule.diagonal);
			return;
		}
	}
}

static void judge_shapes(struct check *c, const struct ofs_param *p)
{
	const struct ofs_optimizers *s = &c->state;
	const char *shape;

	if (p->model == SIZE_MAX)
		return;
	shape = s->files.file[p->model].shape;
	for (size_t i = p->first; i < p->first + p->n; i++) {
		const struct ofs_file_info *f = &s->files.file[i];

		if (ofs_is_tensor(f) &&
		    ofs_is_one_of(ofs_param_state_name(p, f), whole_shape) &&
		    strcmp(f->shape, shape) != 0)
			found(c, 208, 1, f->path,
			    "shape %s, and the parameter has %s", f->shape,
			    shape);
	}
}

static bool has(const struct ofs_optimizers *s, const struct ofs_param *p,
    const char *name)
{
	return ofs_param_state(s, p, name) != NULL;
}

/* One of Adam's two moments, where others of the group have both. */
static void judge_missing(struct check *c, const struct ofs_param *p)
{
	static const char *const pair[2] = { "exp_avg", "exp_avg_sq" };
	const struct ofs_optimizers *s = &c->state;
	int lacks = has(s, p, pair[0]) ? 1 : 0;

	if (has(s, p, pair[0]) == has(s, p, pair[1]))
		return;
	for (size_t i = 0; i < s->nparams; i++) {
		const struct ofs_param *q = &s->param[i];

		if (q->group != p->group || q->optimizer != p->optimizer ||
		    strncmp(q->path, p->path, q->optimizer) != 0 ||
		    !ofs_is_adam(s, q))
			continue;
		found(c, 210, 1, p->path, "has no %s, as others of its group",
		    pair[lacks]);
		return;
	}
}

static void judge_param(struct check *c, const struct ofs_param *p)
{
	judge_shapes(c, p);
	judge_missing(c, p);
	if (p->grad == 0)
		found(c, 211, 1, p->path, "has state, and is frozen");
	if (c->state.lists && p->group == SIZE_MAX)
		found(c, 212, 1, p->path,
		    "has state, and no group of param_groups lists it");
	if (p->step < 0 || isinf(p->step))
		found(c, 213, 1, p->path, "its step is %g", p->step);
}

/* Each parameter whose step is not that of most. */
static void judge_steps(struct check *c)
{
	const struct ofs_optimizers *s = &c->state;
	size_t best = 0, most = 0, n;

	for (size_t i = 0; i < s->nparams && most * 2 <= s->nparams; i++) {
		if (isnan(s->param[i].step))
			continue;
		n = 0;
		for (size_t k = 0; k < s->nparams; k++)
			n += s->param[k].step == s->param[i].step;
		if (n > most) {
			most = n;
			best = i;
		}
	}
	for (size_t i = 0; i < s->nparams; i++) {
		const struct ofs_param *p = &s->param[i], *q = &s->param[best];

		if (p->optimizer == q->optimizer &&
		    strncmp(p->path, q->path, p->optimizer) == 0 &&
		    fabs(p->step - q->step) > 1)
			found(c, 209, fabs(p->step - q->step), p->path,
			    "was updated %.15g times, and %s %.15g times",
			    p->step, q->path, q->step);
	}
}

static void judge_groups(struct check *c)
{
	for (size_t i = 0; i < c->state.ngroups; i++) {
		const struct ofs_param_group *g = &c->state.group[i];

		if (g->lr < 0 || isinf(g->lr))
			found(c, 213, 1, g->path, "lr is %g", g->lr);
		for (int k = 0; k < 2; k++)
			if (g->beta[k] < 0 || g->beta[k] >= 1)
				found(c, 213, 1, g->path, "betas[%d] is %g", k,
				    g->beta[k]);
		if (g->eps < 0)
			found(c, 213, 1, g->path, "eps is %g", g->eps);
	}
}

/* Values, and tensors of which not even the type is known, that cannot be
 * had. */
static void judge_others(struct check *c)
{
	for (size_t i = 0; i < c->state.files.n; i++) {
		const struct ofs_file_info *f = &c->state.files.file[i];
		struct optimfs_file *file;
		struct optimfs_error why;
		char *text;

		if (ofs_is_tensor(f) || strncmp(f->path, "extra/", 6) == 0)
			continue;
		if (optimfs_file_open(c->fs, f->node, &file, &why) == 0) {
			optimfs_file_close(file);
			continue;
		}
		text = why_of(&why, f->path);
		c->bad |= why.code == ENOMEM;
		if (why.code == EOPNOTSUPP)
			looked(c, f, UNREAD, text);
		else
			found(c, 201, 1, f->path, "cannot be read: %s",
			    text == NULL ? "" : text);
		free(text);
	}
}

static int judge_copies(struct check *c, struct optimfs_error *err)
{
	for (size_t i = 0; i < c->state.files.n; i++) {
		const struct ofs_file_info *f = &c->state.files.file[i];
		struct ofs_copies copies;

		if (!ofs_is_tensor(f))
			continue;
		if (ofs_copies_compare(c->fs, f->node, &copies, err) == -1)
			return -1;
		if (copies.differ)
			found(c, 206, 1, f->path,
			    "%s and %s have different copies of one shard; "
			    "byte %" PRIu64 " of it is the first",
			    copies.file[0], copies.file[1], copies.first);
	}
	return 0;
}

static size_t rank_of(int number)
{
	for (size_t i = 0; i < NMEANINGS; i++)
		if (atoi(meanings[i].code + 3) == number)
			return i;
	return NMEANINGS;
}

static int by_weight(const void *a, const void *b)
{
	const struct symptom *x = a, *y = b;

	if (x->number != y->number)
		return rank_of(x->number) < rank_of(y->number) ? -1 : 1;
	if (x->weight != y->weight)
		return x->weight > y->weight ? -1 : 1;
	return strcmp(x->path, y->path);
}

static void tell_parameter(const struct check *c, const struct ofs_exam *e,
    const struct optimfs_checkup *out)
{
	const struct ofs_param *p = &c->state.param[e->param];
	double n = (double)e->file[0]->elements;
	struct optimfs_parameter o = { .path = p->path,
		.elements = e->file[0]->elements,
		.step = p->step >= 0 ? (uint64_t)p->step : 0,
		.update = e->lr * sqrt(e->update / n),
		.weight = e->nfiles == 3 ? sqrt(e->weight / n) : NAN,
		.rows = e->row == 0 ? 0 : o.elements / e->row,
		.dead_rows = e->dead_rows };

	out->parameter(out->ctx, &o);
}

static void tell(struct check *c, const struct optimfs_checkup *out)
{
	for (size_t i = 0; i < c->nexams && out->parameter != NULL; i++)
		if (c->exam[i].kind == OFS_EXAM_ADAM && c->exam[i].error == 0)
			tell_parameter(c, &c->exam[i], out);
	if (c->nsymptoms > 1)
		qsort(c->symptom, c->nsymptoms, sizeof(*c->symptom), by_weight);
	for (size_t i = 0; i < c->nsymptoms && out->symptom != NULL; i++) {
		const struct symptom *s = &c->symptom[i];
		struct optimfs_symptom o = { s->number, s->path, s->text,
			meanings[rank_of(s->number)].means };

		out->symptom(out->ctx, &o);
	}
	if (out->checked != NULL)
		out->checked(out->ctx, &c->checked);
}

static int check(struct check *c, const struct optimfs_scan *how,
    struct optimfs_error *err)
{
	if (ofs_optimizers_read(c->fs, &c->state, err) == -1)
		return -1;
	plan(c);
	c->look = calloc(c->state.files.n + 1, sizeof(*c->look));
	if (c->bad || c->look == NULL)
		return ofs_no_memory(err);
	if (read_all(c, how, err) == -1)
		return -1;
	for (size_t i = 0; i < c->nexams; i++)
		c->bad |= c->exam[i].error == ENOMEM;
	if (c->bad)
		return optimfs_fail(err, ENOMEM, "check");
	for (size_t i = 0; i < c->nexams; i++) {
		judge(c, &c->exam[i]);
		judge_state(c, i);
	}
	for (size_t i = 0; i < c->state.nparams; i++)
		judge_param(c, &c->state.param[i]);
	judge_steps(c);
	judge_groups(c);
	judge_others(c);
	judge_unread(c);
	if (judge_copies(c, err) == -1)
		return -1;
	c->checked.parameters = c->state.nparams;
	return c->bad ? ofs_no_memory(err) : 0;
}

int optimfs_check(struct optimfs *fs, const struct optimfs_scan *how,
    const struct optimfs_checkup *out, uint64_t *n, struct optimfs_error *err)
{
	struct check c = { .fs = fs };
	int ret = check(&c, how, err);

	if (ret == 0)
		tell(&c, out);
	*n = c.nsymptoms;
	for (size_t i = 0; i < c.nexams; i++)
		free(c.exam[i].why);
	for (size_t i = 0; i < c.nsymptoms; i++) {
		free(c.symptom[i].path);
		free(c.symptom[i].text);
	}
	free(c.exam);
	free(c.symptom);
	free(c.look);
	free(c.why_unread);
	ofs_optimizers_fini(&c.state);
	return ret;
}
