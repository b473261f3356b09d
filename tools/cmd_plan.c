/* cmd_plan.c - optimfs plan: describe a layout without making it */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/cmd_plan.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/human.h"
#include "base/memory.h"
#include "base/search.h"
#include "fs/walk.h"
#include "tools/command.h"

/* The limit of ranks in a layout. */
#define RANKS_MAX (1u << 20)

/* The files of one view. */
struct view {
	uint64_t *rank; /* bytes of each rank */
	size_t nranks;
	uint64_t files, bytes, largest;
	char *largest_name;
	uint64_t shared; /* bytes of files of no rank: indexes */
};

/* "safetensors" is one set of files for any number of ranks. */
static bool has_ranks(const char *name)
{
	return name[strcspn(name, "@,")] == '@';
}

/* "dcp@2x8,zstd": 16; default 1. */
static size_t ranks_of(const char *name)
{
	const char *at = strchr(name, '@');
	unsigned long n = 1, k;
	char *end;

	if (at == NULL)
		return 1;
	do {
		k = strtoul(at + 1, &end, 10);
		if (end == at + 1 || k == 0 || k > RANKS_MAX / n)
			return 1;
		n *= k;
		at = end;
	} while (*at == 'x');
	return n;
}

/* The rank that writes a file is the first number of its name, after "rank" if
 * that is there ("bf16_zero_pp_rank_3_..."); without a number the file belongs
 * to no rank. */
static bool rank_in(const char *name, size_t *rank)
{
	const char *word = strstr(name, "rank");

	if (word != NULL)
		name = word;
	while (*name != '\0' && !isdigit((unsigned char)*name))
		name++;
	if (*name == '\0')
		return false;
	*rank = strtoul(name, NULL, 10);
	return true;
}

static int add_file(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	struct view *v = ctx;
	size_t rank;

	if (S_ISDIR(e->attr.mode))
		return 0;
	v->files++;
	v->bytes += e->attr.size;
	if (v->largest_name == NULL || e->attr.size > v->largest) {
		free(v->largest_name);
		v->largest = e->attr.size;
		v->largest_name = strdup(e->path);
		if (v->largest_name == NULL)
			return ofs_no_memory(err);
	}
	if (rank_in(e->name, &rank) && rank < v->nranks)
		v->rank[rank] += e->attr.size;
	else
		v->shared += e->attr.size;
	return 0;
}

static void view_fini(struct view *v)
{
	free(v->rank);
	free(v->largest_name);
}

static int find_view(struct ofs_command *c, const char *name,
    struct optimfs_attr *attr, struct optimfs_error *err)
{
	char *path;
	int ret;

	if (asprintf(&path, ".optimfs/view/%s", name) == -1)
		return ofs_no_memory(err);
	ret = ofs_command_resolve(c, path, attr, err);
	free(path);
	return ret;
}

static int view_read(struct ofs_command *c, const char *name, struct view *v,
    struct optimfs_error *err)
{
	struct optimfs_attr attr;

	*v = (struct view){ .nranks = ranks_of(name) };
	v->rank = calloc(v->nranks, sizeof(*v->rank));
	if (v->rank == NULL)
		return ofs_no_memory(err);
	if (find_view(c, name, &attr, err) == -1 ||
	    ofs_walk(c->fs, attr.node, 0, add_file, v, err) == -1)
		return -1;
	qsort(v->rank, v->nranks, sizeof(*v->rank), ofs_compare_u64);
	return 0;
}

static size_t empty_ranks(const struct view *v)
{
	size_t n = 0;

	while (n < v->nranks && v->rank[n] == 0)
		n++;
	return n;
}

/* Sums the bytes of all tensors, which every layout has once. */
static int add_elements(void *ctx, const struct ofs_walk_entry *e,
    struct optimfs_error *err)
{
	uint64_t *sum = ctx;

	(void)err;
	if (!S_ISDIR(e->attr.mode) && e->attr.exact)
		*sum += e->attr.size;
	return 0;
}

static void json(const char *name, const struct view *v, uint64_t elements)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	ofs_json_begin(&w, &b, "optimfs.plan");
	ofs_json_put_string(&w, "view", name);
	ofs_json_put_u64(&w, "ranks", v->nranks);
	ofs_json_put_u64(&w, "min", v->rank[0]);
	ofs_json_put_u64(&w, "median", v->rank[v->nranks / 2]);
	ofs_json_put_u64(&w, "max", v->rank[v->nranks - 1]);
	ofs_json_put_u64(&w, "empty", empty_ranks(v));
	ofs_json_put_u64(&w, "files", v->files);
	ofs_json_put_u64(&w, "bytes", v->bytes);
	ofs_json_put_i64(&w, "beyond_elements", (int64_t)(v->bytes - elements));
	ofs_json_put_u64(&w, "largest", v->largest);
	ofs_json_put_string(&w, "largest_file",
	    v->largest_name == NULL ? "" : v->largest_name);
	ofs_json_print(&w);
}

/* How many bytes are not elements; a compressed view has fewer than those. */
static void print_beyond(int64_t n)
{
	char text[OFS_HUMAN_SIZE];

	if (n >= 0)
		printf("; %s of it headers, indexes and values",
		    ofs_human_bytes((uint64_t)n, text));
	else
		printf("; %s less than the elements",
		    ofs_human_bytes((uint64_t)-n, text));
}

/* Some formats name files after parameters. */
static void print_largest(const struct view *v)
{
	const char *name = v->largest_name == NULL ? "-" : v->largest_name;
	char size[OFS_HUMAN_SIZE];
	struct ofs_buf b = { 0 };

	ofs_buf_puts(&b, "largest  ");
	ofs_buf_plain(&b, name, strlen(name));
	ofs_buf_printf(&b, ", %s\n", ofs_human_bytes(v->largest, size));
	ofs_tool_print_buf(&b, 9);
}

static void text(const char *name, const struct view *v, uint64_t elements)
{
	char a[OFS_HUMAN_SIZE], b[OFS_HUMAN_SIZE], m[OFS_HUMAN_SIZE];

	printf("view     %s\n", name);
	if (has_ranks(name))
		printf("ranks    %zu, %zu without files\n"
		       "per rank %s to %s, median %s\n",
		    v->nranks, empty_ranks(v), ofs_human_bytes(v->rank[0], a),
		    ofs_human_bytes(v->rank[v->nranks - 1], b),
		    ofs_human_bytes(v->rank[v->nranks / 2], m));
	printf("files    %" PRIu64 ", %s", v->files,
	    ofs_human_bytes(v->bytes, a));
	/* a view of a part, or in another dtype, has other elements */
	if (strstr(name, ",only=") == NULL && strstr(name, ",dtype=") == NULL)
		print_beyond((int64_t)(v->bytes - elements));
	putchar('\n');
	print_largest(v);
}

static void heading(void)
{
	printf("%6s %8s %8s %8s %7s %6s %7s  %s\n", "ranks", "min", "median",
	    "max", "balance", "empty", "files", "view");
}

static void row(const char *name, const struct view *v)
{
	uint64_t most = v->rank[v->nranks - 1], sum = 0;
	char a[OFS_HUMAN_SIZE], b[OFS_HUMAN_SIZE], m[OFS_HUMAN_SIZE];

	for (size_t i = 0; i < v->nranks; i++)
		sum += v->rank[i];
	printf("%6zu %8s %8s %8s %7.3f %6zu %7" PRIu64 "  %s\n", v->nranks,
	    ofs_human_bytes(v->rank[0], a),
	    ofs_human_bytes(v->rank[v->nranks / 2], m),
	    ofs_human_bytes(most, b),
	    most == 0 ? 1.0 : (double)sum / ((double)most * (double)v->nranks),
	    empty_ranks(v), v->files, name);
}

static int one(struct ofs_command *c, const char *name, bool first,
    uint64_t elements, struct optimfs_error *err)
{
	struct view v;
	int ret = view_read(c, name, &v, err);

	if (ret == 0 && (c->flags & OFS_JSON) != 0)
		json(name, &v, elements);
	else if (ret == 0 && c->sweep == NULL)
		text(name, &v, elements);
	else if (ret == 0) {
		if (first)
			heading();
		row(name, &v);
	}
	view_fini(&v);
	return ret;
}

/* "8..512" doubles, "8..512+8" adds. */
struct sweep {
	unsigned long first, last, step;
};

/* A number of ranks, without a sign. */
static bool take_ranks(const char **s, unsigned long *n)
{
	char *end;

	if (!isdigit((unsigned char)**s))
		return false;
	*n = strtoul(*s, &end, 10);
	*s = end;
	return *n > 0 && *n <= RANKS_MAX;
}

static int parse_sweep(const char *s, struct sweep *w)
{
	w->step = 0;
	if (!take_ranks(&s, &w->first) || strncmp(s, "..", 2) != 0)
		return -1;
	s += 2;
	if (!take_ranks(&s, &w->last) || w->last < w->first)
		return -1;
	if (*s == '+') {
		s++;
		if (!take_ranks(&s, &w->step))
			return -1;
	}
	return *s == '\0' ? 0 : -1;
}

/* The name of the view with n ranks: "fsdp,flat" becomes "fsdp@8,flat". */
static char *with_ranks(const char *name, unsigned long n)
{
	size_t format = strcspn(name, "@,"), at = strcspn(name, ",");
	char *full;

	return asprintf(&full, "%.*s@%lu%s", (int)format, name, n, name + at) ==
		-1
	    ? NULL
	    : full;
}

static int all(struct ofs_command *c, const struct sweep *w, uint64_t elements,
    struct optimfs_error *err)
{
	int ret = 0;

	for (unsigned long n = w->first; n <= w->last && ret == 0;
	     n = w->step == 0 ? 2 * n : n + w->step) {
		char *name = with_ranks(c->operand[0], n);

		ret = name == NULL ? ofs_no_memory(err)
				   : one(c, name, n == w->first, elements, err);
		free(name);
	}
	return ret;
}

int ofs_plan_print(struct ofs_command *c, const char *view,
    struct optimfs_error *err)
{
	uint64_t elements = 0;

	return ofs_walk(c->fs, OPTIMFS_ROOT, 0, add_elements, &elements, err) ==
		-1
	    ? -1
	    : one(c, view, true, elements, err);
}

static int run_plan(const struct ofs_verb *verb, int argc, char **argv)
{
	struct sweep sweep = { 0 };
	struct optimfs_attr attr;
	struct optimfs_error err, none;
	struct ofs_command c;
	uint64_t elements = 0;
	int status, ret;

	if (ofs_command_init(&c, verb, argc, argv, OFS_JSON | OFS_SWEEP, 1, 1,
		&status) == -1)
		return status;
	if (c.operand[0][strspn(c.operand[0], "./")] == '\0') {
		status = ofs_tool_usage(verb,
		    "'%s' is not a view: dcp@16, fsdp@8, safetensors, ...",
		    c.operand[0]);
		goto out;
	}
	if (c.sweep != NULL && parse_sweep(c.sweep, &sweep) == -1) {
		status = ofs_tool_usage(verb,
		    "--sweep %s: expected FIRST..LAST, as in 8..512, or "
		    "FIRST..LAST+STEP",
		    c.sweep);
		goto out;
	}
	if (c.sweep != NULL && strchr(c.operand[0], '@') != NULL) {
		status = ofs_tool_usage(verb,
		    "'%s' has a number of ranks: leave it out with --sweep, as "
		    "in %.*s",
		    c.operand[0], (int)strcspn(c.operand[0], "@"),
		    c.operand[0]);
		goto out;
	}
	ret = ofs_walk(c.fs, OPTIMFS_ROOT, 0, add_elements, &elements, &err);
	if (ret == 0 && c.sweep != NULL && !has_ranks(c.operand[0]) &&
	    find_view(&c, c.operand[0], &attr, &none) == 0) {
		status = ofs_tool_usage(verb,
		    "--sweep: '%s' has no ranks: plan it without --sweep",
		    c.operand[0]);
		goto out;
	}
	if (ret == 0)
		ret = c.sweep == NULL
		    ? one(&c, c.operand[0], true, elements, &err)
		    : all(&c, &sweep, elements, &err);
	status = ret == -1 ? ofs_command_fail_layout(&c, &err) : OFS_EXIT_OK;
out:
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_plan = {
	.name = "plan",
	.from = true,
	.synopsis = "[--sweep FIRST..LAST[+STEP]] [--json] [-o OPTION]\n"
		    "           CHECKPOINT VIEW",
	.summary = "predict the file sizes of each rank in another layout",
	.options =
	    "  --sweep FIRST..LAST[+STEP]  one line per number of ranks: FIRST, twice that,\n"
	    "                              and so on up to LAST; with +STEP, in equal steps\n"
	    "  --json                      one JSON object per layout\n",
	.run = run_plan,
};
