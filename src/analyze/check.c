/* check.c - check the state of optimizers for damage */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/check_impl.h"
#include "analyze/known.h"
#include "base/memory.h"
#include "fs/fs.h"

/* A check answers whether training can have produced this state. There is nothing
 * to compare with: the state is the only copy, and nobody kept the gradients. And
 * somebody who reads a finding may go back a day of training, so that "unusual" is
 * no reason for one. Every rule is a property that the algorithm of the optimizer
 * gives to its state for any gradients. With m and v the moments of Adam after t
 * steps,
 *
 *   m = (1 - b1) sum b1^k g_k,  v = (1 - b2) sum b2^k g_k^2,  k = 0 ... t - 1,
 *
 * the inequality of Cauchy and Schwarz for b1^k / b2^(k/2) and b2^(k/2) g_k is
 *
 *   m^2 <= (1 - b1)^2 / (1 - b2) * sum (b1^2 / b2)^k * v.
 *
 * A state that was shifted by a row, or is of two layers, breaks it somewhere. The
 * limit gets room for the rounding of t steps in the type of the state. If t is not
 * known it is the limit for all t, and without betas there is none. The price is
 * that a check may find nothing in a state that is wrong.
 *
 *   plan   (check_plan.c, families.c) from the index: which tensors exist, and which
 *          rules relate them. Tensors of one rule are one exam, so that they are
 *          read together, chunk by chunk, and only counts and sums are kept.
 *   read   (check_read.c, health.c) the exams, with threads. Results of chunks are
 *          joined in the order of elements: "the first" is the same with any number
 *          of threads, and rows may cross chunks.
 *   judge  (check_judge.c) the symptoms, of the exams and of what needs no elements:
 *          shapes, states that are missing, numbers of steps, options. Also here:
 *          differing copies of a shard.
 *   tell   sorted, so that the cause comes before its effects: elements that are NaN
 *          before groups that have no state.
 *
 * What was not looked at is no success: data that cannot be read is a finding
 * (OFS201), and what no rule knows is counted, and the first of it named (OFS216).
 *
 * The result is kept as the calls that told it (known.h), unless something was
 * unreadable, which may be a fault of the moment. */

/* The findings and their meaning, most important first. */
static const struct {
	const char *code;
	const char *means;
} meanings[] = {
	{ "OFS201",
	    "unreadable data cannot be checked: optimfs fsck --data says what "
	    "is damaged" },
	{ "OFS202",
	    "further training makes more of them: go back to an earlier "
	    "checkpoint, and find the step that made the first" },
	{ "OFS203",
	    "a mean of squares cannot be negative: the elements belong to "
	    "another state, or are damaged" },
	{ "OFS204",
	    "no gradients produce both moments: they come from different "
	    "elements, layers or runs, or the betas are not those of the run" },
	{ "OFS205",
	    "the first moment belongs to another element, or the second was "
	    "reset: the next update of this element is huge" },
	{ "OFS214",
	    "the state for rows and that for columns come from different "
	    "gradients: one belongs to another layer or run, or each rank had "
	    "its own" },
	{ "OFS215",
	    "the columns of a rotation must have length 1: the elements belong "
	    "to another state, or are damaged" },
	{ "OFS206",
	    "the copies of one shard come from different states: which one is "
	    "loaded depends on the number of ranks" },
	{ "OFS207",
	    "the optimizer's own weights differ from the model's: one of them "
	    "comes from another step, rank or run" },
	{ "OFS208",
	    "a state with another shape than its parameter cannot be loaded, "
	    "or belongs to another parameter" },
	{ "OFS209",
	    "parameters were not updated equally often: parts of the state "
	    "come from different checkpoints, or were reset" },
	{ "OFS210",
	    "loading fails, or the optimizer starts the missing state at "
	    "zero" },
	{ "OFS211",
	    "a frozen parameter is not updated: its state is a leftover, or "
	    "it was frozen by mistake" },
	{ "OFS212",
	    "no group of the optimizer trains it: the state is not loaded, "
	    "or loaded for another parameter" },
	{ "OFS213", "training cannot continue with this value" },
	{ "OFS216",
	    "this data may be damaged: if the message names an option, check "
	    "again with it" },
};
#define NMEANINGS (sizeof(meanings) / sizeof(meanings[0]))

static size_t rank_of(int number)
{
	for (size_t i = 0; i < NMEANINGS; i++)
		if (atoi(meanings[i].code + 3) == number)
			return i;
	return NMEANINGS;
}

static int by_weight(const void *a, const void *b)
{
	const struct ofs_symptom *x = a, *y = b;

	if (x->number != y->number)
		return rank_of(x->number) < rank_of(y->number) ? -1 : 1;
	if (x->weight != y->weight)
		return x->weight > y->weight ? -1 : 1;
	return strcmp(x->path, y->path);
}

static void symptom_fini(struct ofs_symptom *s)
{
	free(s->path);
	free(s->text);
	free(s->why);
}

/* fp32 weights are read as a state and as the weights: what is found in both is
 * one finding. */
static void sort_symptoms(struct ofs_check *c)
{
	size_t n = 0;

	if (c->nsymptoms > 1)
		qsort(c->symptom, c->nsymptoms, sizeof(*c->symptom), by_weight);
	for (size_t i = 0; i < c->nsymptoms; i++) {
		struct ofs_symptom *s = &c->symptom[i];

		if (n > 0 && by_weight(s, &c->symptom[n - 1]) == 0 &&
		    strcmp(s->text, c->symptom[n - 1].text) == 0) {
			symptom_fini(s);
		} else {
			c->symptom[n++] = *s;
		}
	}
	c->nsymptoms = n;
}

static void tell_parameter(const struct ofs_check *c, const struct ofs_exam *e,
    const struct optimfs_checkup *out)
{
	const struct ofs_param *p = &c->state.param[e->param];
	double n = (double)e->file[0]->elements;
	struct optimfs_parameter o = { .path = p->path,
		.elements = e->file[0]->elements,
		.step = p->step >= 0 ? (uint64_t)p->step : 0,
		.update = e->lr * sqrt(e->update / n),
		.weight = e->nfiles == 3 ? sqrt(e->weight / n) : NAN,
		.rows = e->row == 0 ? 0 : e->file[0]->elements / e->row,
		.dead_rows = e->dead_rows };

	out->parameter(out->ctx, &o);
}

static void tell(struct ofs_check *c, const struct optimfs_checkup *out)
{
	for (size_t i = 0; i < c->nexams && out->parameter != NULL; i++)
		if (c->exam[i].kind == OFS_EXAM_ADAM && c->exam[i].why == NULL)
			tell_parameter(c, &c->exam[i], out);
	sort_symptoms(c);
	for (size_t i = 0; i < c->nsymptoms && out->symptom != NULL; i++) {
		const struct ofs_symptom *s = &c->symptom[i];
		struct optimfs_symptom o = { s->number, s->path, s->text,
			meanings[rank_of(s->number)].means, s->why };

		out->symptom(out->ctx, &o);
	}
	if (out->checked != NULL)
		out->checked(out->ctx, &c->checked);
}

static int check(struct ofs_check *c, const struct optimfs_scan *how,
    struct optimfs_error *err)
{
	if (ofs_optimizers_read(c->fs, &c->state, err) == -1)
		return -1;
	ofs_check_plan(c);
	c->look = calloc(c->state.files.n + 1, sizeof(*c->look));
	if (c->bad || c->look == NULL)
		return ofs_no_memory(err);
	if (ofs_check_read(c, how, err) == -1)
		return -1;
	for (size_t i = 0; i < c->nexams; i++)
		c->bad |=
		    c->exam[i].why != NULL && c->exam[i].why->code == ENOMEM;
	if (c->bad)
		return ofs_no_memory(err);
	if (ofs_check_judge(c, err) == -1)
		return -1;
	c->checked.parameters = c->state.nparams;
	return c->bad ? ofs_no_memory(err) : 0;
}

/* The result as bytes, to keep it: the callbacks one after the other. */

enum { PARAMETER = 1, SYMPTOM, CHECKED };

static void put_real(struct ofs_buf *b, double v)
{
	uint64_t bits;

	memcpy(&bits, &v, sizeof(bits));
	ofs_buf_put_le(b, bits, 8);
}

static double take_real(struct ofs_cursor *c)
{
	uint64_t bits = ofs_cursor_le64(c);
	double v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

static void put_text(struct ofs_buf *b, const char *s)
{
	ofs_buf_put(b, s, strlen(s) + 1);
}

static const char *take_text(struct ofs_cursor *c)
{
	const void *end = c->bad || c->p == c->end
	    ? NULL
	    : memchr(c->p, '\0', ofs_cursor_left(c));

	return (const char *)ofs_cursor_take(c,
	    end == NULL ? UINT64_MAX
			: (uint64_t)((const uint8_t *)end - c->p) + 1);
}

static void pack_parameter(void *ctx, const struct optimfs_parameter *p)
{
	ofs_buf_put_le(ctx, PARAMETER, 1);
	put_text(ctx, p->path);
	ofs_buf_put_le(ctx, p->elements, 8);
	ofs_buf_put_le(ctx, p->step, 8);
	ofs_buf_put_le(ctx, p->rows, 8);
	ofs_buf_put_le(ctx, p->dead_rows, 8);
	put_real(ctx, p->update);
	put_real(ctx, p->weight);
}

static void pack_symptom(void *ctx, const struct optimfs_symptom *s)
{
	struct ofs_buf *b = ctx;

	b->bad |= s->why != NULL; /* it may be readable the next time */
	ofs_buf_put_le(b, SYMPTOM, 1);
	ofs_buf_put_le(b, (uint64_t)s->number, 4);
	put_text(b, s->path);
	put_text(b, s->text);
}

static void pack_checked(void *ctx, const struct optimfs_checked *n)
{
	ofs_buf_put_le(ctx, CHECKED, 1);
	ofs_buf_put_le(ctx, n->parameters, 8);
	ofs_buf_put_le(ctx, n->tensors, 8);
	ofs_buf_put_le(ctx, n->unread, 8);
}

static void unpack_parameter(struct ofs_cursor *c,
    const struct optimfs_checkup *out)
{
	struct optimfs_parameter p = { .path = take_text(c) };

	p.elements = ofs_cursor_le64(c);
	p.step = ofs_cursor_le64(c);
	p.rows = ofs_cursor_le64(c);
	p.dead_rows = ofs_cursor_le64(c);
	p.update = take_real(c);
	p.weight = take_real(c);
	if (!c->bad && out->parameter != NULL)
		out->parameter(out->ctx, &p);
}

static void unpack_symptom(struct ofs_cursor *c,
    const struct optimfs_checkup *out, uint64_t *found)
{
	size_t rank = rank_of((int)ofs_cursor_le32(c));
	struct optimfs_symptom s = { .path = take_text(c) };

	s.text = take_text(c); /* in this order */
	c->bad |= rank == NMEANINGS;
	if (c->bad)
		return;
	s.number = atoi(meanings[rank].code + 3);
	s.means = meanings[rank].means;
	(*found)++;
	if (out->symptom != NULL)
		out->symptom(out->ctx, &s);
}

static void unpack_checked(struct ofs_cursor *c,
    const struct optimfs_checkup *out)
{
	struct optimfs_checked n;

	n.parameters = ofs_cursor_le64(c);
	n.tensors = ofs_cursor_le64(c);
	n.unread = ofs_cursor_le64(c);
	if (!c->bad && out->checked != NULL)
		out->checked(out->ctx, &n);
}

/* false: these are not the bytes of a result. */
static bool unpack(struct ofs_cursor c, const struct optimfs_checkup *out,
    uint64_t *found)
{
	*found = 0;
	while (!c.bad && ofs_cursor_left(&c) > 0)
		switch (ofs_cursor_u8(&c)) {
		case PARAMETER:
			unpack_parameter(&c, out);
			break;
		case SYMPTOM:
			unpack_symptom(&c, out, found);
			break;
		case CHECKED:
			unpack_checked(&c, out);
			break;
		default:
			c.bad = true;
		}
	return !c.bad;
}

static void keep(struct ofs_check *c, uint64_t key)
{
	struct ofs_buf b = { 0 };
	const struct optimfs_checkup pack = { .symptom = pack_symptom,
		.parameter = pack_parameter,
		.ctx = &b,
		.checked = pack_checked };

	if (key == 0)
		return;
	tell(c, &pack);
	ofs_known_put(c->fs, key, &b);
	ofs_buf_fini(&b);
}

int optimfs_check(struct optimfs *fs, const struct optimfs_scan *how,
    const struct optimfs_checkup *out, uint64_t *n, struct optimfs_error *err)
{
	const struct optimfs_checkup nobody = { .symptom = NULL };
	struct ofs_check c = { .fs = fs };
	struct ofs_cursor known;
	uint64_t key;
	int ret;

	*n = 0;
	if (ofs_fs_single(fs, err) == -1)
		return -1;
	ret = ofs_known_find_all(fs, "check", &key, &known, err);
	if (ret == 1 && unpack(known, &nobody, n)) {
		(void)unpack(known, out, n);
		return 0;
	}
	if (ret != -1)
		ret = check(&c, how, err);
	if (ret == 0) {
		tell(&c, out);
		keep(&c, key);
	}
	*n = c.nsymptoms;
	for (size_t i = 0; i < c.nexams; i++)
		free(c.exam[i].why);
	for (size_t i = 0; i < c.nsymptoms; i++)
		symptom_fini(&c.symptom[i]);
	free(c.exam);
	free(c.symptom);
	free(c.look);
	free(c.why_unread);
	ofs_optimizers_fini(&c.state);
	return ret;
}
