/* fuzz_rules.c - arbitrary bytes as the file of names=, and names that it is for */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "family/rules.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* A name that a pattern gives is one that it fits, with the same numbers. */
static void check_pattern(struct ofs_str pattern)
{
	static const uint32_t given[OFS_FAMILY_STARS] = { 0, 7, 999999999 };
	uint32_t star[OFS_FAMILY_STARS];
	char name[OFS_FAMILY_NAME];
	unsigned stars;

	if (!ofs_family_expand(pattern, given, name))
		return;
	must(strlen(name) < OFS_FAMILY_NAME);
	must(ofs_family_match(pattern, ofs_str_of(name), star, &stars));
	must(stars <= OFS_FAMILY_STARS &&
	    memcmp(star, given, stars * sizeof(*star)) == 0);
}

static void check_rule(const struct ofs_family_rule *r, struct ofs_str name)
{
	uint32_t star[OFS_FAMILY_STARS];
	unsigned stars;

	must(r->nright <= OFS_FAMILY_PARTS && r->left.len > 0);
	if (!r->anything)
		check_pattern(r->left);
	(void)ofs_family_match(r->left, name, star, &stars);
	for (unsigned i = 0; i < r->nright; i++) {
		check_pattern(r->right[i]);
		(void)ofs_family_match(r->right[i], name, star, &stars);
	}
}

static void check(const struct ofs_families *f, struct ofs_str name)
{
	for (uint32_t i = f->nbuiltin; i < f->nfamilies; i++) {
		const struct ofs_family *family = &f->family[i];

		must(family->first <= f->nrules &&
		    family->n <= f->nrules - family->first);
		for (uint32_t k = 0; k < family->n; k++)
			check_rule(&f->rule[family->first + k], name);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct optimfs_error err = { 0 };
	struct ofs_families f;
	struct ofs_str text;
	char *copy;

	if (n > (1u << 20))
		return 0;
	copy = malloc(n + 1); /* exact, so that sanitizers see overruns */
	must(copy != NULL);
	memcpy(copy, bytes, n);
	text = (struct ofs_str){ copy, (uint32_t)n };
	must(ofs_families_init(&f, NULL, &err) == 0);
	if (ofs_families_parse(&f, "fuzz", text, &err) == -1)
		must(err.code != 0 && strstr(err.text, "OFS891") != NULL);
	else
		check(&f, text);
	ofs_families_fini(&f);
	free(copy);
	return 0;
}
