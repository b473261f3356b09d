/* fuzz_units.c - arbitrary bytes as a units file */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "format/fsdp/units.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* The slices of the ranks must tile each parameter. Of very many ranks only the
 * first are checked. */
static void check_param(const struct ofs_flat *f, uint32_t i)
{
	uint32_t ranks = f->world < 64 ? f->world : 64;
	uint64_t at = 0;

	for (uint32_t r = 0; r < ranks; r++) {
		struct ofs_flat_slice s = ofs_flat_slice(f, i, r);

		if (s.count == 0)
			continue;
		must(s.first == at && s.at <= f->shard &&
		    s.count <= f->shard - s.at);
		at += s.count;
	}
	must(at <= f->numel[i] && (ranks < f->world || at == f->numel[i]));
}

static void check_unit(const struct ofs_unit *u)
{
	const struct ofs_flat *f = &u->flat;
	uint64_t end = 0;

	must(f->world > 0 && u->prefix.p[u->prefix.len] == '\0');
	for (uint32_t i = 0; i < f->nparams; i++) {
		const struct ofs_unit_param *p = &u->param[i];

		must(strlen(p->fqn.p) == p->fqn.len);
		must(f->start[i] >= end);
		end = f->start[i] + f->numel[i];
		must(end <= f->size);
		check_param(f, i);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct optimfs_error err = { 0 };
	struct ofs_units u;
	char *text;

	if (n > UINT32_MAX)
		return 0;
	text = malloc(n + 1); /* exact, so that sanitizers see overruns */
	must(text != NULL);
	memcpy(text, bytes, n);
	if (ofs_units_parse(&u, "fuzz", text, (uint32_t)n, &err) == -1) {
		must(err.code != 0 && err.text[0] == 'O');
		must(u.unit == NULL);
	} else {
		must(u.n > 0);
		for (uint32_t i = 0; i < u.n; i++)
			check_unit(&u.unit[i]);
		ofs_units_fini(&u);
	}
	free(text);
	return 0;
}
