/* summary_text.c - the summary as text */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "analyze/summary.h"
#include "base/human.h"
#include "detect/registry.h"

#define MAX_GROUPS 4 /* number shown */
#define MAX_NAMES  8 /* in a line */
#define MAX_NOTES  3

static void put_format(const struct ofs_catalog *cat, struct ofs_buf *out)
{
	const struct ofs_format *f =
	    cat->format == NULL ? NULL : ofs_format_find(cat->format);

	if (f != NULL && f->title != NULL)
		ofs_buf_puts(out, f->title);
	else
		ofs_buf_puts(out,
		    cat->format == NULL ? "unknown" : cat->format);
	if (f != NULL && f->ranked && cat->world_size > 0)
		ofs_buf_puts(out, ", one file per rank");
}

static void label(struct ofs_buf *out, const char *name)
{
	ofs_buf_printf(out, "%-12s", name);
}

void ofs_summary_put_count(struct ofs_buf *out, uint64_t n, const char *one)
{
	ofs_buf_printf(out, "%" PRIu64 " %s%s", n, one, n == 1 ? "" : "s");
}

void ofs_summary_put_bytes(struct ofs_buf *out, uint64_t n)
{
	char text[OFS_HUMAN_SIZE];

	ofs_buf_puts(out, ofs_human_bytes(n, text));
}

static void put_elements(struct ofs_buf *out, uint64_t n)
{
	char text[OFS_HUMAN_SIZE];

	ofs_buf_printf(out, "%s element%s", ofs_human_count(n, text),
	    n == 1 ? "" : "s");
}

void ofs_summary_put_plain(struct ofs_buf *out, const char *s)
{
	ofs_buf_plain(out, s, strlen(s));
}

/* The directory that has all files: below the source, if the source is a
 * directory with one checkpoint in it. */
static void put_path(const struct ofs_summary *s, struct ofs_buf *out)
{
	const struct ofs_catalog *cat = s->snap->cat;
	const char *source = s->snap->fs->source;
	const char *path = cat->nobjects > 0 ? cat->objects[0].path : "";
	size_t n = strlen(path);

	for (uint32_t i = 0; i < cat->nobjects; i++) {
		const char *other = cat->objects[i].path;
		size_t same = 0;

		for (size_t j = 0; j < n && other[j] == path[j]; j++)
			if (path[j] == '/')
				same = j + 1;
		n = same;
	}
	ofs_summary_put_plain(out, source);
	if (n > 0 && strcmp(source, "/") != 0)
		ofs_buf_putc(out, '/');
	if (n > 0)
		ofs_buf_plain(out, path, n - 1);
	ofs_buf_putc(out, '\n');
}

static void put_source(const struct ofs_summary *s, struct ofs_buf *out)
{
	const struct ofs_catalog *cat = s->snap->cat;

	put_path(s, out);
	if (cat->computed != NULL) {
		label(out, "computed");
		ofs_summary_put_plain(out, cat->computed);
		ofs_buf_putc(out, '\n');
	}
	label(out, "format");
	put_format(cat, out);
	if (cat->writer != NULL) {
		ofs_buf_puts(out, ", written by ");
		ofs_summary_put_plain(out, cat->writer);
	}
	if (cat->trainer != NULL) {
		ofs_buf_putc(out, '\n');
		label(out, "trainer");
		ofs_buf_puts(out, cat->trainer);
	}
	ofs_buf_putc(out, '\n');
	if (cat->world_size > 0 || s->ranks > 0) {
		label(out, "job");
		ofs_summary_put_count(out,
		    cat->world_size > 0 ? (uint64_t)cat->world_size : s->ranks,
		    "rank");
		ofs_buf_putc(out, '\n');
	}
	if (s->step[0] != '\0') {
		label(out, "step");
		ofs_summary_put_plain(out, s->step);
		ofs_buf_putc(out, '\n');
	}
}

/* The type of most elements of the model. */
static void put_model_dtype(const struct ofs_summary *s, struct ofs_buf *out)
{
	int most = 0;

	for (int t = 1; t < OFS_NDTYPES; t++)
		if (s->model_elements[t] > s->model_elements[most])
			most = t;
	ofs_buf_printf(out, " (%s%s)",
	    s->model_elements[most] < s->model.elements ? "mostly " : "",
	    ofs_dtype_name((enum ofs_dtype)most));
}

static void put_sizes(const struct ofs_summary *s, struct ofs_buf *out)
{
	label(out, "files");
	ofs_buf_printf(out, "%" PRIu64 ", ", s->files);
	ofs_summary_put_bytes(out, s->file_bytes);
	ofs_buf_puts(out, "; the tensors are ");
	ofs_summary_put_bytes(out, s->all.bytes);
	ofs_buf_putc(out, '\n');
	label(out, "parameters");
	if (s->model.tensors == 0) {
		ofs_buf_puts(out, "none stored\n");
		return;
	}
	ofs_summary_put_count(out, s->model.tensors, "tensor");
	ofs_buf_puts(out, ", ");
	put_elements(out, s->model.elements);
	if (s->model.elements > 0)
		put_model_dtype(s, out);
	ofs_buf_puts(out, ", ");
	ofs_summary_put_bytes(out, s->model.bytes);
	ofs_buf_putc(out, '\n');
}

/* Options that people look for; of others there are dozens. */
static void put_group(const struct ofs_summary *s, uint32_t dir,
    struct ofs_buf *out)
{
	static const char *const options[] = { "lr", "betas", "momentum", "eps",
		"weight_decay" };
	const struct ofs_tree *tree = &s->snap->tree;
	const char *between = "  ";
	char text[80];

	ofs_buf_printf(out, "  group %s", tree->node[dir].name);
	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++) {
		uint32_t node = ofs_tree_lookup(tree, dir, options[i]);

		if (node == OFS_NONE)
			continue;
		ofs_buf_printf(out, "%s%s ", between, options[i]);
		if (ofs_summary_value(s->snap, node, text, sizeof(text)))
			ofs_summary_put_plain(out, text);
		else /* damaged; optimfs cat says how */
			ofs_buf_puts(out, "cannot be shown");
		between = ", ";
	}
	ofs_buf_putc(out, '\n');
}

static void put_groups(const struct ofs_summary *s,
    const struct ofs_summary_optim *o, struct ofs_buf *out)
{
	const struct ofs_tree_node *dir;

	if (o->groups == OFS_NONE)
		return;
	dir = &s->snap->tree.node[o->groups];
	for (uint32_t i = 0; i < dir->nchild && i < MAX_GROUPS; i++)
		put_group(s, dir->child + i, out);
	if (dir->nchild > MAX_GROUPS)
		ofs_buf_printf(out, "  and %" PRIu32 " more groups\n",
		    dir->nchild - MAX_GROUPS);
}

static void put_optim(const struct ofs_summary *s,
    const struct ofs_summary_optim *o, struct ofs_buf *out)
{
	label(out, "optimizer");
	if (o->name != NULL) {
		ofs_summary_put_plain(out, o->name);
		ofs_buf_puts(out, ": ");
	}
	ofs_buf_puts(out, o->kind != NULL ? o->kind : "of unknown kind");
	if (o->step[0] != '\0') {
		ofs_buf_puts(out, " at step ");
		ofs_summary_put_plain(out, o->step);
	}
	if (o->nstates > 0) {
		ofs_buf_puts(out, "; ");
		ofs_summary_put_count(out, o->parameters, "parameter");
		ofs_buf_puts(out, o->parameters == 1 ? " has " : " have ");
	} else {
		ofs_buf_puts(out, "; no state by parameter");
	}
	for (unsigned i = 0; i < o->nstates && i < MAX_NAMES; i++) {
		const struct ofs_summary_state *state = &o->states[i];

		ofs_buf_puts(out, i == 0 ? "" : ", ");
		ofs_summary_put_plain(out, state->name);
		if (state->dtype != OFS_DTYPE_NONE && state->n.elements > 0 &&
		    state->n.elements != state->n.tensors)
			ofs_buf_printf(out, " (%s)",
			    ofs_dtype_name(state->dtype));
	}
	ofs_buf_putc(out, '\n');
	put_groups(s, o, out);
	for (unsigned i = 0; i < o->nstates; i++)
		if (o->states[i].why.code != 0) {
			ofs_buf_puts(out, "  ");
			ofs_summary_put_plain(out, o->states[i].name);
			ofs_buf_puts(out, " cannot be read: ");
			ofs_summary_put_plain(out, o->states[i].why.text);
			ofs_buf_putc(out, '\n');
		}
}

/* A part is never 0.0 %, and never all. */
static void put_share(struct ofs_buf *out, uint64_t part, uint64_t all)
{
	double share = all == 0 ? 0 : 100 * (double)part / (double)all;

	if (part > 0 && share < 0.05)
		ofs_buf_puts(out, "< 0.1 %");
	else if (part < all && share > 99.95)
		ofs_buf_puts(out, "> 99.9 %");
	else
		ofs_buf_printf(out, "%.1f %%", share);
}

static void put_dtypes(const struct ofs_summary *s, struct ofs_buf *out)
{
	const char *between = "";

	if (s->all.tensors == 0)
		return;
	label(out, "dtypes");
	for (int t = 0; t < OFS_NDTYPES; t++) {
		const struct ofs_summary_count *n = &s->dtype[t];

		if (n->tensors == 0)
			continue;
		ofs_buf_printf(out, "%s%s ", between,
		    ofs_dtype_name((enum ofs_dtype)t));
		put_share(out, n->bytes, s->all.bytes);
		between = ", ";
	}
	ofs_buf_putc(out, '\n');
}

static void put_few_bits(const struct ofs_summary *s, struct ofs_buf *out)
{
	if (s->few_bits.tensors == 0)
		return;
	label(out, "few bits");
	ofs_summary_put_count(out, s->few_bits.tensors, "tensor");
	ofs_buf_printf(out,
	    " of codes and scales, %" PRIu64
	    " elements; as float32 in .optimfs/f32, ",
	    s->few_bits.elements);
	ofs_summary_put_bytes(out, s->few_bits.bytes);
	ofs_buf_putc(out, '\n');
}

static void put_sharding(const struct ofs_summary *s, struct ofs_buf *out)
{
	const char *between = " (";

	if (s->all.tensors == 0)
		return;
	label(out, "sharding");
	if (s->sharded == 0 && s->replicated == 0) {
		ofs_buf_puts(out, "none\n");
		return;
	}
	ofs_buf_printf(out, "%" PRIu64 " of %" PRIu64 " tensors in parts",
	    s->sharded, s->all.tensors);
	if (s->ranks > 0)
		ofs_buf_printf(out, " over %" PRIu32 " rank%s", s->ranks,
		    s->ranks == 1 ? "" : "s");
	for (unsigned d = 0; d < OFS_MAX_DIMS; d++) {
		if (s->cut[d] == 0)
			continue;
		ofs_buf_printf(out, "%s%" PRIu64 " along dim %u", between,
		    s->cut[d], d);
		between = ", ";
	}
	if (s->flat > 0) {
		ofs_buf_printf(out, "%s%" PRIu64 " as runs of elements",
		    between, s->flat);
		between = ", ";
	}
	ofs_buf_puts(out, *between == ',' ? ")" : "");
	if (s->replicated > 0)
		ofs_buf_printf(out, "; %" PRIu64 " stored more than once",
		    s->replicated);
	ofs_buf_putc(out, '\n');
}

/* Parameters whose state is stored without names. */
static void put_found(const struct ofs_summary *s, struct ofs_buf *out)
{
	const struct ofs_found *f = &s->snap->cat->found;

	if (f->proved == 0 && f->ordered == 0 && f->open == 0)
		return;
	label(out, "buckets");
	ofs_summary_put_count(out, f->proved, "parameter");
	ofs_buf_printf(out, " found by %s, %" PRIu32 " by order",
	    f->proved == 1 ? "its weights" : "their weights", f->ordered);
	if (f->open > 0) {
		ofs_buf_puts(out, "; ");
		ofs_summary_put_count(out, f->open, "part");
		ofs_buf_puts(out, " without a name");
	}
	ofs_buf_putc(out, '\n');
}

static void put_extra(const struct ofs_summary *s, struct ofs_buf *out)
{
	const struct ofs_tree *tree = &s->snap->tree;
	uint32_t dir = ofs_tree_lookup(tree, 0, "extra");
	const struct ofs_tree_node *extra = &tree->node[dir];

	if (dir == OFS_NONE)
		return;
	label(out, "extra");
	for (uint32_t i = 0; i < extra->nchild && i < MAX_NAMES; i++) {
		ofs_buf_puts(out, i == 0 ? "" : ", ");
		ofs_summary_put_plain(out, tree->node[extra->child + i].name);
	}
	if (extra->nchild > MAX_NAMES)
		ofs_buf_printf(out, " and %" PRIu32 " more",
		    extra->nchild - MAX_NAMES);
	ofs_buf_putc(out, '\n');
}

static bool is_missing(const struct ofs_note *n)
{
	return n->kind == OFS_NOTE_MISSING && !ofs_summary_is_remark(n);
}

static bool is_warning(const struct ofs_note *n)
{
	return n->kind == OFS_NOTE_WARNING;
}

static bool is_damage(const struct ofs_note *n)
{
	return n->kind == OFS_NOTE_ERROR && n->code != EOPNOTSUPP;
}

static bool is_unread(const struct ofs_note *n)
{
	return n->kind == OFS_NOTE_ERROR && n->code == EOPNOTSUPP;
}

/* The first few of a kind, and the file of .optimfs that has all. */
static void put_notes(const struct ofs_summary *s,
    bool (*is)(const struct ofs_note *n), const char *file, struct ofs_buf *out)
{
	const struct ofs_catalog *cat = s->snap->cat;
	uint64_t n = 0;

	for (uint32_t i = 0; i < cat->nnotes; i++) {
		if (!is(&cat->notes[i]) || n++ >= MAX_NOTES)
			continue;
		ofs_buf_puts(out, "  ");
		ofs_summary_put_plain(out, cat->notes[i].text);
		ofs_buf_putc(out, '\n');
	}
	if (n > MAX_NOTES)
		ofs_buf_printf(out, "  and %" PRIu64 " more: .optimfs/%s\n",
		    n - MAX_NOTES, file);
}

/* Tensors and values of a kind, where there are any. */
static void put_some(const struct ofs_summary *s, const char *name, uint64_t n,
    const char *what, bool (*is)(const struct ofs_note *n), struct ofs_buf *out)
{
	if (n == 0)
		return;
	label(out, name);
	ofs_buf_printf(out, "%" PRIu64 " %s%s\n", n,
	    n == 1 ? "tensor or value" : "tensors and values", what);
	if (is != NULL)
		put_notes(s, is, "warnings", out);
}

static void put_files(uint64_t n, const char *before, const char *after,
    const char **between, struct ofs_buf *out)
{
	if (n == 0)
		return;
	ofs_buf_printf(out, "%s%s", *between, before);
	ofs_summary_put_count(out, n, "file");
	ofs_buf_puts(out, after);
	*between = " and ";
}

static void put_health(const struct ofs_summary *s, struct ofs_buf *out)
{
	const char *between = "";

	label(out, "missing");
	put_files(s->missing_files, "", "", &between, out);
	put_files(s->short_files, "the end of ", "", &between, out);
	put_files(s->refused_files, "", " that may not be opened", &between,
	    out);
	put_files(s->damaged_files, "", " that cannot be read", &between, out);
	if (*between == '\0' && s->gone == 0 && s->is_lossy)
		ofs_summary_put_count(out, s->missing - s->remarks, "item");
	else if (*between == '\0' && s->gone == 0)
		ofs_buf_puts(out, "nothing");
	if (s->gone > 0)
		ofs_buf_printf(out,
		    "%sa part or all of %" PRIu64
		    " %s (fsck --json names them)",
		    *between == '\0' ? "" : "; ", s->gone,
		    s->gone == 1 ? "tensor or value" : "tensors and values");
	ofs_buf_putc(out, '\n');
	put_notes(s, is_missing, "missing", out);
	put_some(s, "damaged", s->damaged, "; fsck lists them", is_damage, out);
	put_some(s, "unreadable", s->unread,
	    " by this version, or without an option", is_unread, out);
	if (s->damaged == 0 && !s->is_lossy) {
		label(out, "damaged");
		ofs_buf_puts(out, "nothing known; fsck --data reads all\n");
	}
	if (s->remarks > 0) {
		label(out, "remarks");
		ofs_buf_printf(out, "%" PRIu64 "\n", s->remarks);
		put_notes(s, ofs_summary_is_remark, "missing", out);
	}
	if (s->warnings == 0)
		return;
	label(out, "warnings");
	ofs_buf_printf(out, "%" PRIu64 "\n", s->warnings);
	put_notes(s, is_warning, "warnings", out);
}

static bool same_reason(const struct ofs_inventory_item *a,
    const struct ofs_inventory_item *b)
{
	return a->kind == b->kind && strcmp(a->why, b->why) == 0;
}

/* A line for item i and all others that are left out for the same reason; of
 * names in plenty, the first ones. */
static void put_reason(const struct ofs_inventory *left, size_t i,
    struct ofs_buf *out)
{
	size_t n = 0;

	ofs_buf_puts(out, "  ");
	for (size_t k = i; k < left->n; k++) {
		if (!same_reason(&left->item[i], &left->item[k]) ||
		    n++ >= MAX_NAMES)
			continue;
		ofs_buf_puts(out, n == 1 ? "" : ", ");
		ofs_summary_put_plain(out, left->item[k].path);
	}
	if (n > MAX_NAMES)
		ofs_buf_printf(out, " and %zu more", n - MAX_NAMES);
	ofs_buf_printf(out, ": %s: ", ofs_left_kind_name(left->item[i].kind));
	ofs_summary_put_plain(out, left->item[i].why);
	ofs_buf_putc(out, '\n');
}

/* What lies beside the checkpoint's files, by the reasons why. */
static void put_left(const struct ofs_inventory *left, struct ofs_buf *out)
{
	if (left->n == 0)
		return;
	label(out, "left out");
	ofs_buf_printf(out, "%zu name%s in the directory\n", left->n,
	    left->n == 1 ? "" : "s");
	for (size_t i = 0; i < left->n; i++) {
		size_t k = 0;

		while (k < i && !same_reason(&left->item[k], &left->item[i]))
			k++;
		if (k == i)
			put_reason(left, i, out);
	}
}

static void put_view(const struct ofs_summary_view *v, const char *between,
    struct ofs_buf *out)
{
	ofs_buf_printf(out, "%s%s%s", between, v->name, v->ranked ? "@N" : "");
}

/* Is it a view that nobody misses? Flat parameters of FSDP1 need an option that
 * a checkpoint without them has no use for. */
static bool is_foreign(const struct ofs_summary *s,
    const struct ofs_summary_view *v)
{
	return v->why.how == OPTIMFS_LOST_UNITS && s->unread == 0 &&
	    s->snap->cat->nflat == 0;
}

/* A line for each reason, with all that it is the reason of. */
static void put_refused(const struct ofs_summary *s, struct ofs_buf *out)
{
	bool told[OFS_SUMMARY_VIEWS] = { false };

	for (unsigned i = 0; i < s->nviews; i++) {
		const char *between = ", ", *why;

		if (s->view[i].why.code == 0 || told[i] ||
		    is_foreign(s, &s->view[i]))
			continue;
		why = s->view[i].why.text;
		put_view(&s->view[i], "  not ", out);
		for (unsigned k = i + 1; k < s->nviews; k++) {
			if (s->view[k].why.code == 0 ||
			    strcmp(why, s->view[k].why.text) != 0)
				continue;
			told[k] = true;
			put_view(&s->view[k], between, out);
		}
		ofs_buf_puts(out, ": ");
		ofs_summary_put_plain(out, why);
		ofs_buf_putc(out, '\n');
	}
}

/* A line for each view that copies values as they are pickled. */
static void put_copied(const struct ofs_summary *s, struct ofs_buf *out)
{
	for (unsigned i = 0; i < s->nviews; i++) {
		const struct ofs_summary_view *v = &s->view[i];

		if (v->ncopied == 0 || v->why.code != 0)
			continue;
		put_view(v, "  ", out);
		ofs_buf_puts(out, " copies as pickled: ");
		ofs_summary_put_plain(out, v->copied);
		if (v->ncopied > 1)
			ofs_buf_printf(out, " and %" PRIu32 " more",
			    v->ncopied - 1);
		ofs_buf_putc(out, '\n');
	}
}

static void put_views(const struct ofs_summary *s, struct ofs_buf *out)
{
	const char *between = "";

	label(out, "reshard to");
	for (unsigned i = 0; i < s->nviews; i++) {
		if (s->view[i].why.code != 0)
			continue;
		put_view(&s->view[i], between, out);
		between = ", ";
	}
	ofs_buf_puts(out, *between == '\0' ? "nothing\n" : "\n");
	put_copied(s, out);
	put_refused(s, out);
}

/* What is below a directory. */
static void put_below(const struct ofs_summary *s, struct ofs_buf *out)
{
	char path[4096];

	ofs_at_path(s->snap, (struct ofs_at){ OFS_SPACE_TREE, s->below }, path,
	    sizeof(path));
	ofs_summary_put_plain(out, path);
	ofs_buf_putc(out, '\n');
	label(out, "holds");
	ofs_summary_put_count(out, s->all.tensors, "tensor");
	ofs_buf_puts(out, ", ");
	put_elements(out, s->all.elements);
	ofs_buf_puts(out, ", ");
	ofs_summary_put_bytes(out, s->all.bytes);
	ofs_buf_puts(out, "; ");
	ofs_summary_put_count(out, s->all.values, "value");
	ofs_buf_putc(out, '\n');
	put_dtypes(s, out);
	put_few_bits(s, out);
	put_sharding(s, out);
	put_some(s, "missing", s->gone, ", in part or whole", NULL, out);
	put_some(s, "damaged", s->damaged, "", NULL, out);
	put_some(s, "unreadable", s->unread, "", NULL, out);
}

void ofs_summary_text(const struct ofs_summary *s, struct ofs_buf *out)
{
	if (s->below != 0) {
		put_below(s, out);
		return;
	}
	put_source(s, out);
	put_sizes(s, out);
	for (unsigned i = 0; i < s->noptims; i++)
		put_optim(s, &s->optim[i], out);
	put_dtypes(s, out);
	put_few_bits(s, out);
	put_sharding(s, out);
	put_found(s, out);
	put_extra(s, out);
	put_health(s, out);
	put_left(&s->left, out);
	put_views(s, out);
}
