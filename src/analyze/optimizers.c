/* optimizers.c - the optimizers of a tree, and the files of their state */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "analyze/optimizers.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "base/search.h"
#include "naming/file_name.h"

/* A parameter listed in a group, as the path that its state would have. */
struct ofs_member {
	char *path;
	size_t group;
};

/* The length of the optimizer's path at the start of path: "optim", or
 * "optim/NAME" with several; dir must follow: "state" or "param_groups". 0: not
 * a file of an optimizer. */
static size_t optimizer_of(const char *path, const char *dir, bool several)
{
	size_t n = strlen(dir);
	const char *p = path + strlen("optim");

	if (strncmp(path, "optim/", 6) != 0)
		return 0;
	if (several)
		p = strchr(p + 1, '/');
	if (p == NULL || strncmp(p + 1, dir, n) != 0 || p[n + 1] != '/')
		return 0;
	return (size_t)(p - path);
}

/* Does the path exist? A single optimizer has optim/state or optim/param_groups,
 * each of several has optim/NAME/state, where NAME is neither. */
static bool is_there(struct optimfs *fs, struct ofs_optimizers *s,
    const char *path)
{
	struct optimfs_error err = { 0 };
	struct optimfs_attr attr;
	bool yes = optimfs_resolve(fs, path, &attr, &err) == 0;

	s->no_memory |= !yes && err.code == ENOMEM;
	return yes;
}

static bool has_several(struct optimfs *fs, struct ofs_optimizers *s)
{
	return !is_there(fs, s, "optim/param_groups") &&
	    !is_there(fs, s, "optim/state");
}

/* An unreadable text counts as absent. */
static char *text_of(struct optimfs *fs, struct ofs_optimizers *s,
    const struct ofs_file_info *f, size_t *len)
{
	struct optimfs_error err = { 0 };
	char *text = ofs_text_of(fs, f->node, len, &err);

	s->no_memory |= text == NULL && err.code == ENOMEM;
	return text;
}

static double number_of(struct optimfs *fs, struct ofs_optimizers *s,
    const struct ofs_file_info *f)
{
	char *text = text_of(fs, s, f, NULL), *end;
	double v = NAN;

	if (text != NULL) {
		v = strtod(text, &end);
		if (end == text || *end != '\0')
			v = NAN;
	}
	free(text);
	return v;
}

/* "[0.9, 0.999]" */
static void betas_of(struct optimfs *fs, struct ofs_optimizers *s,
    const struct ofs_file_info *f, double beta[2])
{
	char *text = text_of(fs, s, f, NULL);

	if (text == NULL || sscanf(text, "[%lf, %lf]", &beta[0], &beta[1]) != 2)
		beta[0] = beta[1] = NAN;
	free(text);
}

static int add_member(struct ofs_optimizers *s, const char *group,
    size_t optimizer, const char *name, size_t n, struct optimfs_error *err)
{
	char encoded[OFS_NAME_MAX + 1];
	struct ofs_member *m;

	if (ofs_grow(s->member, s->nmembers, s->member_cap, err) == -1)
		return -1;
	ofs_name_encode(name, n, encoded);
	m = &s->member[s->nmembers];
	m->group = s->ngroups - 1;
	if (asprintf(&m->path, "%.*s/state/%s", (int)optimizer, group,
		encoded) == -1)
		return ofs_no_memory(err);
	s->nmembers++;
	return 0;
}

static int add_lines(struct ofs_optimizers *s, const char *group,
    size_t optimizer, const char *text, size_t len, struct optimfs_error *err)
{
	const char *p = text, *end = text + len, *line;
	int ret = 0;

	for (; p < end && ret == 0; p = line + 1) {
		line = memchr(p, '\n', (size_t)(end - p));
		if (line == NULL)
			line = end;
		ret =
		    add_member(s, group, optimizer, p, (size_t)(line - p), err);
	}
	return ret;
}

/* Names with newlines are in a JSON list. Adds nothing if it is none. */
static int add_list(struct ofs_optimizers *s, const char *group,
    size_t optimizer, const char *text, size_t len, struct optimfs_error *err)
{
	struct optimfs_error none;
	struct ofs_json j;
	int ret = 0;

	ofs_json_init(&j, text, (uint32_t)len);
	if (ofs_json_next(&j, &none) == OFS_JSON_ARRAY)
		while (ret == 0 && ofs_json_next(&j, &none) == OFS_JSON_STRING)
			ret = add_member(s, group, optimizer, j.str.p,
			    j.str.len, err);
	ofs_json_fini(&j);
	return ret;
}

static int add_members(struct optimfs *fs, struct ofs_optimizers *s,
    const struct ofs_file_info *f, size_t optimizer, struct optimfs_error *err)
{
	size_t len = 0, had = s->nmembers;
	char *text = text_of(fs, s, f, &len);
	int ret = 0;

	if (text != NULL && *text == '[' && memchr(text, '\n', len) == NULL)
		ret = add_list(s, f->path, optimizer, text, len, err);
	if (text != NULL && ret == 0 && s->nmembers == had)
		ret = add_lines(s, f->path, optimizer, text, len, err);
	s->lists |= text != NULL;
	free(text);
	return ret;
}

static int add_group(struct ofs_optimizers *s, const char *path, size_t n,
    struct optimfs_error *err)
{
	struct ofs_param_group *g;

	if (s->ngroups > 0) {
		const char *last = s->group[s->ngroups - 1].path;

		if (strncmp(last, path, n) == 0 && last[n] == '\0')
			return 0;
	}
	if (ofs_grow(s->group, s->ngroups, s->group_cap, err) == -1)
		return -1;
	g = &s->group[s->ngroups];
	*g = (struct ofs_param_group){ .path = strndup(path, n),
		.lr = NAN,
		.eps = NAN,
		.beta = { NAN, NAN },
		.alpha = NAN,
		.step = NAN };
	if (g->path == NULL)
		return ofs_no_memory(err);
	s->ngroups++;
	return 0;
}

/* optim/param_groups/0/lr, in the order of the tree. */
static int take_option(struct optimfs *fs, struct ofs_optimizers *s,
    const struct ofs_file_info *f, size_t optimizer, struct optimfs_error *err)
{
	const char *group = f->path + optimizer + strlen("/param_groups/");
	const char *name = strchr(group, '/');
	struct ofs_param_group *g;

	if (name == NULL)
		return 0;
	if (add_group(s, f->path, (size_t)(name - f->path), err) == -1)
		return -1;
	g = &s->group[s->ngroups - 1];
	name++;
	if (strcmp(name, "params") == 0)
		return add_members(fs, s, f, optimizer, err);
	if (strcmp(name, "lr") == 0)
		g->lr = number_of(fs, s, f);
	else if (strcmp(name, "eps") == 0)
		g->eps = number_of(fs, s, f);
	else if (strcmp(name, "step") == 0)
		g->step = number_of(fs, s, f);
	else if (strcmp(name, "alpha") == 0)
		g->alpha = number_of(fs, s, f);
	else if (strcmp(name, "rank") == 0)
		g->low_rank = true;
	else if (strcmp(name, "betas") == 0)
		betas_of(fs, s, f, g->beta);
	return 0;
}

/* optim/state/P/exp_avg; the states of P are adjacent. */
static int take_state(struct optimfs *fs, struct ofs_optimizers *s, size_t file,
    size_t optimizer, struct optimfs_error *err)
{
	const struct ofs_file_info *f = &s->files.file[file];
	const char *name = f->path + optimizer + strlen("/state/");
	const char *end = strchr(name, '/');
	size_t n = end == NULL ? 0 : (size_t)(end - f->path);
	struct ofs_param *p;

	if (end == NULL)
		return 0;
	p = s->nparams == 0 ? NULL : &s->param[s->nparams - 1];
	if (p == NULL || strncmp(p->path, f->path, n) != 0 ||
	    p->path[n] != '\0') {
		if (ofs_grow(s->param, s->nparams, s->param_cap, err) == -1)
			return -1;
		p = &s->param[s->nparams];
		*p = (struct ofs_param){ .path = strndup(f->path, n),
			.optimizer = optimizer,
			.first = file,
			.group = SIZE_MAX,
			.model = SIZE_MAX,
			.step = NAN,
			.grad = -1 };
		if (p->path == NULL)
			return ofs_no_memory(err);
		s->nparams++;
	}
	p->n++;
	if (strcmp(end + 1, "step") == 0)
		p->step = number_of(fs, s, f);
	return 0;
}

static int by_path(const void *a, const void *b)
{
	const struct ofs_member *x = a, *y = b;

	return strcmp(x->path, y->path);
}

static size_t group_of(const struct ofs_optimizers *s,
    const struct ofs_param *p)
{
	struct ofs_member key = { p->path, 0 };
	const struct ofs_member *m =
	    ofs_search(&key, s->member, s->nmembers, sizeof(key), by_path);

	return m == NULL ? SIZE_MAX : m->group;
}

static int by_node(const void *a, const void *b)
{
	const struct ofs_file_info *const *x = a, *const *y = b;

	return ((*x)->node > (*y)->node) - ((*x)->node < (*y)->node);
}

/* Sorts files by node: names of tied parameters lead to the same one. */
static const struct ofs_file_info **sort_nodes(const struct ofs_optimizers *s)
{
	const struct ofs_file_info **v = calloc(s->files.n + 1, sizeof(*v));

	for (size_t i = 0; v != NULL && i < s->files.n; i++)
		v[i] = &s->files.file[i];
	if (v != NULL)
		qsort(v, s->files.n, sizeof(*v), by_node);
	return v;
}

/* Finds the group and the weights of p, and whether it is trained. */
static void join_param(struct optimfs *fs, struct ofs_optimizers *s,
    struct ofs_param *p, const struct ofs_file_info **nodes)
{
	const char *name = p->path + p->optimizer + strlen("/state/");
	struct ofs_file_info key, *k = &key;
	const struct ofs_file_info **found;
	struct optimfs_error why = { 0 };
	struct optimfs_attr attr;
	char *path, *grad;

	p->group = group_of(s, p);
	if (isnan(p->step) && p->group != SIZE_MAX)
		p->step = s->group[p->group].step;
	if (asprintf(&path, "model/%s", name) == -1) {
		s->no_memory = true;
		return;
	}
	if (optimfs_resolve(fs, path, &attr, &why) == -1) {
		s->no_memory |= why.code == ENOMEM;
	} else {
		key.node = attr.node;
		found =
		    ofs_search(&k, nodes, s->files.n, sizeof(*nodes), by_node);
		if (found != NULL && ofs_is_tensor(*found))
			p->model = (size_t)(*found - s->files.file);
		grad = ofs_attribute(fs, attr.node, "requires_grad",
		    &s->no_memory);
		if (grad != NULL)
			p->grad = strcmp(grad, "true") == 0;
		free(grad);
	}
	free(path);
}

int ofs_optimizers_read(struct optimfs *fs, struct ofs_optimizers *s,
    struct optimfs_error *err)
{
	const struct ofs_file_info **nodes;
	bool several;

	*s = (struct ofs_optimizers){ 0 };
	several = has_several(fs, s);
	if (ofs_files_below(fs, "", &s->files, err) == -1)
		return -1;
	for (size_t i = 0; i < s->files.n; i++) {
		const struct ofs_file_info *f = &s->files.file[i];
		size_t n = optimizer_of(f->path, "param_groups", several);

		if (n > 0 && take_option(fs, s, f, n, err) == -1)
			return -1;
		n = n > 0 ? 0 : optimizer_of(f->path, "state", several);
		if (n > 0 && take_state(fs, s, i, n, err) == -1)
			return -1;
	}
	if (s->nmembers > 0)
		qsort(s->member, s->nmembers, sizeof(*s->member), by_path);
	nodes = sort_nodes(s);
	if (nodes == NULL)
		return ofs_no_memory(err);
	for (size_t i = 0; i < s->nparams; i++)
		join_param(fs, s, &s->param[i], nodes);
	free(nodes);
	return s->no_memory ? ofs_no_memory(err) : 0;
}

void ofs_optimizers_fini(struct ofs_optimizers *s)
{
	for (size_t i = 0; i < s->ngroups; i++)
		free(s->group[i].path);
	for (size_t i = 0; i < s->nparams; i++)
		free(s->param[i].path);
	for (size_t i = 0; i < s->nmembers; i++)
		free(s->member[i].path);
	free(s->group);
	free(s->param);
	free(s->member);
	ofs_file_list_fini(&s->files);
}

const struct ofs_file_info *ofs_param_state(const struct ofs_optimizers *s,
    const struct ofs_param *p, const char *name)
{
	for (size_t i = p->first; i < p->first + p->n; i++)
		if (strcmp(ofs_param_state_name(p, &s->files.file[i]), name) ==
		    0)
			return &s->files.file[i];
	return NULL;
}
