/* check.c - check the state of optimizers for damage */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "analyze/check_impl.h"
#include "base/memory.h"
#include "fs/fs.h"

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

int optimfs_check(struct optimfs *fs, const struct optimfs_scan *how,
    const struct optimfs_checkup *out, uint64_t *n, struct optimfs_error *err)
{
	struct ofs_check c = { .fs = fs };
	int ret = ofs_fs_single(fs, err) == -1 ? -1 : check(&c, how, err);

	if (ret == 0)
		tell(&c, out);
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
