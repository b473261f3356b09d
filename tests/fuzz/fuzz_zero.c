/* fuzz_zero.c - arbitrary pickles as the layout in DeepSpeed files */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>

#include "format/zero/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* The slices of the ranks must tile each parameter. Of very many ranks only the
 * first are checked. */
static void check_param(const struct ofs_zero_layout *l, uint32_t param)
{
	uint32_t ranks = l->world < 64 ? l->world : 64;
	uint64_t at = 0, n = l->shapes->numel[param], lean;

	for (uint32_t r = 0; r < ranks; r++) {
		struct ofs_flat_slice s = ofs_zero_slice(l, param, r);
		uint64_t part =
		    ofs_zero_part(l, l->shapes->param[param].group, r, &lean);

		must(lean <= part);
		if (s.count == 0)
			continue;
		must(s.first == at && s.at <= lean && s.count <= lean - s.at);
		at += s.count;
	}
	must(at <= n && (ranks < l->world || at == n));
}

static void check_names(const struct ofs_zero_shapes *s)
{
	for (uint32_t i = 0; i < s->n; i++)
		must(ofs_zero_find(s, s->param[i].name) == i);
}

static void check_optim(const struct ofs_zero_shapes *s,
    const struct ofs_zero_optim *o)
{
	struct ofs_zero_layout l;
	struct optimfs_error err = { 0 };

	if (ofs_zero_layout_init(&l, s, o->stage, o->world, &err) == -1) {
		must(err.code != 0);
		return;
	}
	for (uint32_t i = 0; i < s->n && i < 4096; i++)
		check_param(&l, i);
	for (uint32_t g = 0; g < s->ngroups && g < 64; g++) {
		err = (struct optimfs_error){ 0 };
		ofs_zero_state(o, g);
		if (ofs_zero_check(o, &l, g, g % o->world, &err) == -1)
			must(err.code != 0 && err.text[0] == 'O');
	}
	ofs_zero_layout_fini(&l);
}

/* The same dict serves as model file and as optimizer file. */
static void check(const struct ofs_pickle *doc)
{
	struct optimfs_error err = { 0 };
	struct ofs_zero_shapes s;
	struct ofs_zero_optim o;

	if (ofs_zero_shapes_read(&s, doc,
		ofs_pk_get(doc, ofs_pickle_root(doc), "param_shapes"),
		&err) == -1) {
		must(err.code != 0 && s.param == NULL);
		return;
	}
	check_names(&s);
	err = (struct optimfs_error){ 0 };
	if (ofs_zero_optim_read(&o, doc, &err) == -1) {
		must(err.code != 0);
	} else {
		must(o.world > 0);
		check_optim(&s, &o);
	}
	ofs_zero_shapes_fini(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct ofs_pickle_limits limits = { .memory = 64 << 20 };
	struct ofs_pickle *doc;

	doc = ofs_pickle_parse(bytes, n, false, &limits, NULL, NULL);
	if (doc == NULL)
		return 0;
	check(doc);
	ofs_pickle_free(doc);
	return 0;
}
