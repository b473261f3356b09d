/* check_plan.c - plan which tensors are read, and for which rules */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/check_impl.h"
#include "base/memory.h"
#include "stats/number.h"

/* The maximal relative rounding error of the dtype. */
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

static struct ofs_exam *new_exam(struct ofs_check *c, enum ofs_exam_kind kind,
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

static void add_file(struct ofs_check *c, struct ofs_exam *e,
    const struct ofs_file_info *f)
{
	e->codes[e->nfiles] = ofs_code_values(f->dtype);
	c->bad |= ofs_code_bits(f->dtype) > 0 && e->codes[e->nfiles] == NULL;
	e->file[e->nfiles++] = f;
}

/* The maximal relative error that rounding adds to a mean in t steps. */
static double slack_of(double beta, double t, double half_steps)
{
	double steps = isnan(t) || t > 1 / (1 - beta) ? 1 / (1 - beta) : t;

	return 1 + 1e-3 + 4 * steps * half_steps;
}

/* 1 + q + q^2 ..., t terms. t NaN: unknown, use the limit. 0: infinite. */
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

/* R with the error of rounding in t steps; 0: unknown. */
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

/* As above for Adamax: |m| <= (1 - b1) sum (b1 / b2)^k v, squared. */
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

static void plan_adam(struct ofs_check *c, size_t index)
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
	e->underflow = ofs_normal_min(v->dtype) * 1000;
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

static void plan_bound(struct ofs_check *c, size_t index,
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
	e->underflow = ofs_normal_min(v) * 1000;
	e->bound = rule->square ? bound_of_norm(rule->beta, t, m, v)
				: bound_of(rule->beta, t, m, v);
}

/* Numbers that have to be finite, where buffers, masks for one, may be
 * infinite. */
static struct ofs_exam *plan_one(struct ofs_check *c,
    const struct ofs_file_info *f, size_t param, bool no_infinite)
{
	struct ofs_exam *e = new_exam(c, OFS_EXAM_ONE, param);

	if (e == NULL)
		return NULL;
	add_file(c, e, f);
	e->no_infinite = no_infinite;
	return e;
}

static void plan_state(struct ofs_check *c, const struct ofs_file_info *f,
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

static void plan_master(struct ofs_check *c, size_t index,
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
	e->underflow = ofs_normal_min(w->dtype);
}

/* Is f part of an exam of several files? */
static bool has_exam(const struct ofs_check *c, size_t index,
    const struct ofs_file_info *f)
{
	for (size_t i = c->nexams; i-- > 0 && c->exam[i].param == index;)
		if (c->exam[i].kind != OFS_EXAM_MASTER &&
		    (c->exam[i].file[0] == f || c->exam[i].file[1] == f))
			return true;
	return false;
}

static void plan_param(struct ofs_check *c, size_t index)
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
		if (ofs_is_master(ofs_param_state_name(p, f)))
			plan_master(c, index, f);
		if (!has_exam(c, index, f))
			plan_state(c, f, index);
	}
}

/* Plans the weights that are not examined with moments. */
static void plan_model(struct ofs_check *c, bool *done)
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

void ofs_check_plan(struct ofs_check *c)
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
