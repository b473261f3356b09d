/* check_judge.c - apply the rules to what was read */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/check_impl.h"
#include "analyze/copies.h"
#include "base/error.h"
#include "base/memory.h"
#include "base/str.h"
#include "base/types.h"
#include "fs/fs.h"
#include "naming/moments.h"

static void found(struct ofs_check *c, int number, double weight,
    const char *path, const char *fmt, ...)
    __attribute__((format(printf, 5, 6)));
static void found(struct ofs_check *c, int number, double weight,
    const char *path, const char *fmt, ...)
{
	struct ofs_symptom *s;
	va_list ap;
	char *text;

	if (ofs_grow(c->symptom, c->nsymptoms, c->cap, NULL) == -1) {
		c->bad = true;
		return;
	}
	s = &c->symptom[c->nsymptoms];
	*s = (struct ofs_symptom){ .number = number, .weight = weight };
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

/* why: without the path. */
static void found_unread(struct ofs_check *c, const char *path,
    const struct optimfs_error *why)
{
	size_t n = c->nsymptoms;

	found(c, 201, 1, path, "cannot be read: %s", why->text);
	if (c->nsymptoms == n)
		return;
	c->symptom[n].why = ofs_error_without(why, "");
	c->bad |= c->symptom[n].why == NULL;
}

static void looked(struct ofs_check *c, const struct ofs_file_info *f,
    enum ofs_look look, const struct optimfs_error *why)
{
	enum ofs_look *was = &c->look[f - c->state.files.file];

	if (look == OFS_UNREAD && *was != OFS_UNREAD &&
	    c->checked.unread++ == 0) {
		c->unread = f->path;
		c->why_unread = strdup(why->text);
		c->bad |= c->why_unread == NULL;
	}
	c->checked.tensors += look == OFS_READ && *was == OFS_NOT_LOOKED;
	if (*was != OFS_UNREAD)
		*was = look;
}

static void judge_unread(struct ofs_check *c)
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

/* ", in FILE at byte N (rank R)": the place of an element. */
static char *place_of(struct ofs_check *c, const struct ofs_file_info *f,
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

static void judge_count(struct ofs_check *c, const struct ofs_exam *e,
    unsigned i, int number, const struct ofs_count *n, const char *one,
    const char *many)
{
	const struct ofs_file_info *f = e->file[i];
	char *place;

	if (n->n == 0)
		return;
	place = place_of(c, f, n->first);
	found(c, number, part(n, e), f->path,
	    "%" PRIu64 " of %" PRIu64
	    " elements %s; the first is element %" PRIu64 "%s",
	    n->n, f->elements, n->n == 1 ? one : many, n->first,
	    place == NULL ? "" : place);
	free(place);
}

static void judge(struct ofs_check *c, const struct ofs_exam *e)
{
	if (e->why != NULL && e->why->code != EOPNOTSUPP) {
		found_unread(c, e->file[0]->path, e->why);
		return;
	}
	for (unsigned i = 0; i < e->nfiles; i++)
		looked(c, e->file[i], e->why == NULL ? OFS_READ : OFS_UNREAD,
		    e->why);
	if (e->why != NULL)
		return;
	for (unsigned i = 0; i < e->nfiles; i++)
		judge_count(c, e, i, 202, &e->odd[i], "is not finite",
		    "are not finite");
	judge_count(c, e, e->nfiles > 1 ? 1 : 0, 203, &e->negative,
	    "is negative", "are negative");
	judge_count(c, e, 0, 204, &e->broken,
	    e->kind == OFS_EXAM_ADAM
		? "is greater than the second moment allows"
		: "is greater than the other state allows",
	    e->kind == OFS_EXAM_ADAM
		? "are greater than the second moment allows"
		: "are greater than the other state allows");
	judge_count(c, e, 0, 205, &e->orphan,
	    "has a second moment of zero and is not zero",
	    "have a second moment of zero and are not zero");
	judge_count(c, e, 0, 207, &e->differ, "differs from the model's",
	    "differ from the model's");
}

/* More than the accumulated rounding of numbers that are not denormal. */
#define SAME 0.01

static bool is_exact(const struct ofs_exam *e)
{
	enum ofs_dtype t = e->file[0]->dtype;

	return e->kind == OFS_EXAM_ONE && e->why == NULL && e->odd[0].n == 0 &&
	    (t == OFS_FLOAT32 || t == OFS_FLOAT64) && e->file[0]->elements > 0;
}

static void judge_twins(struct ofs_check *c, const struct ofs_exam *e,
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

/* Rules that relate several states of a parameter. */
static void judge_state(struct ofs_check *c, size_t i)
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

/* States with one number per element of the parameter. */
static const char *const whole_shape[] = { "exp_avg", "exp_avg_sq",
	"max_exp_avg_sq", "momentum_buffer", "square_avg", "grad_avg",
	"acc_delta", "sum", "exp_inf", "exp_avg_var", "exp_avg_diff", "fp32",
	"fp32_param", "master_param", NULL };

static const char *shape_text(const char *shape)
{
	return *shape == '\0' ? "() (one number)" : shape;
}

/* "4,3". More dimensions than any parameter has are no shape of a moment. */
static struct ofs_shape shape_of(const char *text, uint64_t v[OFS_MAX_DIMS])
{
	struct ofs_shape s = { v, 0 };
	char *end;

	for (; *text != '\0' && s.n < OFS_MAX_DIMS; text = end + (*end == ','))
		v[s.n++] = strtoull(text, &end, 10);
	return s;
}

/* Does p have moments of a projection? */
static bool is_projected(const struct ofs_optimizers *s,
    const struct ofs_param *p)
{
	if (p->group != SIZE_MAX && s->group[p->group].low_rank)
		return true;
	for (size_t i = p->first; i < p->first + p->n; i++)
		if (ofs_is_projection(ofs_str_of(ofs_param_state_name(p,
			&s->files.file[i]))))
			return true;
	return false;
}

/* Has f one number per element of a parameter of this shape, or for a part of
 * it? */
static bool fits(const struct ofs_optimizers *s, const struct ofs_param *p,
    const struct ofs_file_info *f, const char *shape)
{
	uint64_t v[2][OFS_MAX_DIMS];

	if (strcmp(f->shape, shape) == 0)
		return true;
	return !ofs_is_master(ofs_param_state_name(p, f)) &&
	    ofs_moment_fits(shape_of(shape, v[0]), shape_of(f->shape, v[1]),
		is_projected(s, p));
}

/* Where the model's parameter is not known, as with integer IDs, states have
 * to have the shape of the largest. */
static void judge_shapes(struct ofs_check *c, const struct ofs_param *p)
{
	const struct ofs_optimizers *s = &c->state;
	const char *shape = NULL, *owner = "the parameter";
	uint64_t largest = 0;

	if (p->model != SIZE_MAX)
		shape = s->files.file[p->model].shape;
	for (size_t i = p->first; i < p->first + p->n && p->model == SIZE_MAX;
	     i++) {
		const struct ofs_file_info *f = &s->files.file[i];
		const char *name = ofs_param_state_name(p, f);

		if (f->shape == NULL || !ofs_is_one_of(name, whole_shape) ||
		    (shape != NULL && f->elements <= largest))
			continue;
		shape = f->shape;
		owner = name;
		largest = f->elements;
	}
	for (size_t i = p->first; i < p->first + p->n; i++) {
		const struct ofs_file_info *f = &s->files.file[i];
		const char *name = ofs_param_state_name(p, f);

		if (strcmp(name, "step") == 0 && f->elements > 1)
			found(c, 208, 1, f->path,
			    "shape %s, and a step is one number", f->shape);
		if (f->shape == NULL || !ofs_is_one_of(name, whole_shape))
			continue;
		if (!fits(s, p, f, shape))
			found(c, 208, 1, f->path, "shape %s, and %s has %s",
			    shape_text(f->shape), owner, shape_text(shape));
	}
}

static bool has(const struct ofs_optimizers *s, const struct ofs_param *p,
    const char *name)
{
	return ofs_param_state(s, p, name) != NULL;
}

/* Another parameter of p's group with both moments of Adam, or NULL. The search
 * begins behind p, because most neighbours are of one group. */
static const struct ofs_param *other_adam(const struct ofs_optimizers *s,
    const struct ofs_param *p)
{
	size_t at = (size_t)(p - s->param);

	for (size_t i = 1; i < s->nparams; i++) {
		const struct ofs_param *q = &s->param[(at + i) % s->nparams];

		if (q->group == p->group && q->optimizer == p->optimizer &&
		    strncmp(q->path, p->path, q->optimizer) == 0 &&
		    ofs_is_adam(s, q))
			return q;
	}
	return NULL;
}

static bool has_adam(const struct ofs_optimizers *s)
{
	for (size_t i = 0; i < s->nparams; i++)
		if (ofs_is_adam(s, &s->param[i]))
			return true;
	return false;
}

/* Reports a missing state of Adam that another parameter of the group has. */
static void judge_missing(struct ofs_check *c, const struct ofs_param *p)
{
	static const char *const names[] = { "exp_avg", "exp_avg_sq", "step" };
	const struct ofs_optimizers *s = &c->state;
	const struct ofs_param *q = NULL;

	if (!has(s, p, names[0]) && !has(s, p, names[1]))
		return;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		if (has(s, p, names[i]))
			continue;
		if (q == NULL && (q = other_adam(s, p)) == NULL)
			return;
		if (has(s, q, names[i]))
			found(c, 210, 1, p->path,
			    "has no %s, unlike others of its group", names[i]);
	}
}

/* adam: some parameter has the state of Adam. */
static void judge_param(struct ofs_check *c, const struct ofs_param *p,
    bool adam)
{
	judge_shapes(c, p);
	if (adam)
		judge_missing(c, p);
	if (p->grad == 0)
		found(c, 211, 1, p->path, "has state, and is frozen");
	if (c->state.lists && p->group == SIZE_MAX)
		found(c, 212, 1, p->path,
		    "has state, and no group of param_groups lists it");
	if (p->step < 0 || isinf(p->step))
		found(c, 213, 1, p->path, "its step is %g", p->step);
}

/* Reports parameters whose step differs from the majority. */
static void judge_steps(struct ofs_check *c)
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

static void judge_groups(struct ofs_check *c)
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

static bool is_state(const struct ofs_file_info *f)
{
	return strncmp(f->path, "optim/", 6) == 0 &&
	    strstr(f->path + 5, "/state/") != NULL;
}

/* Reports a number that is NaN, or infinite in the state of an optimizer: a
 * 0-dim tensor, of the model too, is a text. Options and buffers may be
 * infinite. */
static int judge_number(struct ofs_check *c, const struct ofs_file_info *f,
    struct optimfs_file *file, struct optimfs_error *err)
{
	char text[sizeof("-Infinity\n")] = "";
	ssize_t n = optimfs_file_read(file, text, sizeof(text) - 1, 0, err);

	if (n == -1)
		return -1;
	text[n] = '\0';
	if (strcmp(text, "NaN\n") == 0)
		found(c, 202, 1, f->path, "is NaN");
	else if (is_state(f) &&
	    (strcmp(text, "Infinity\n") == 0 ||
		strcmp(text, "-Infinity\n") == 0))
		found(c, 202, 1, f->path, "is infinite");
	return 0;
}

/* Reports unreadable values, tensors of unknown dtype, and numbers that are
 * none. */
static void judge_others(struct ofs_check *c)
{
	for (size_t i = 0; i < c->state.files.n; i++) {
		const struct ofs_file_info *f = &c->state.files.file[i];
		struct optimfs_file *file;
		struct optimfs_error why, *own;
		int ret;

		if (ofs_is_tensor(f) || strncmp(f->path, "extra/", 6) == 0)
			continue;
		ret = optimfs_file_open(c->fs, f->node, &file, &why);
		if (ret == 0) {
			ret = judge_number(c, f, file, &why);
			optimfs_file_close(file);
		}
		if (ret == 0)
			continue;
		own = ofs_error_without(&why, f->path);
		c->bad |= why.code == ENOMEM || own == NULL;
		if (own != NULL && why.code == EOPNOTSUPP)
			looked(c, f, OFS_UNREAD, own);
		else if (own != NULL)
			found_unread(c, f->path, own);
		free(own);
	}
}

/* Reports optimizer state that is not stored by parameter: no rule applies. */
static void judge_buckets(struct ofs_check *c)
{
	static const struct optimfs_error why = { .code = EOPNOTSUPP,
		.text = "its elements are not stored by parameter, so no rule "
			"applies" };

	for (size_t i = 0; i < c->state.files.n; i++) {
		const struct ofs_file_info *f = &c->state.files.file[i];

		if (ofs_is_tensor(f) && strncmp(f->path, "optim/", 6) == 0 &&
		    !is_state(f) && strstr(f->path, "/param_groups/") == NULL)
			looked(c, f, OFS_UNREAD, &why);
	}
}

static int judge_copies(struct ofs_check *c, struct optimfs_error *err)
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

/* A file that is lost, of which nothing says what it had: no tensor is unreadable
 * because of it. */
static void judge_lost(struct ofs_check *c)
{
	const struct ofs_catalog *cat = c->fs->now->cat;
	struct optimfs_error why;

	for (size_t i = 0; i < c->nsymptoms; i++)
		if (c->symptom[i].number == 201)
			return;
	for (uint32_t i = 0; i < cat->nnotes; i++)
		if (ofs_note_is_loss(&cat->notes[i])) {
			ofs_note_error(&cat->notes[i], &why);
			found_unread(c, "", &why);
		}
}

int ofs_check_judge(struct ofs_check *c, struct optimfs_error *err)
{
	bool adam = has_adam(&c->state);

	for (size_t i = 0; i < c->nexams; i++) {
		judge(c, &c->exam[i]);
		judge_state(c, i);
	}
	for (size_t i = 0; i < c->state.nparams; i++)
		judge_param(c, &c->state.param[i], adam);
	judge_steps(c);
	judge_groups(c);
	judge_others(c);
	judge_buckets(c);
	judge_unread(c);
	judge_lost(c);
	return judge_copies(c, err);
}
