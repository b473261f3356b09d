/* units.c - files that say how FSDP1 grouped parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/units.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optimfs/error.h"

#include "tap.h"

static int parse(const char *text, struct ofs_units *u,
    struct optimfs_error *err)
{
	/* a copy that ends where the text does, for the sanitizers */
	size_t n = strlen(text);
	char *copy = memcpy(malloc(n + 1), text, n);
	int ret = ofs_units_parse(copy, n, "u.json", u, err);

	free(copy);
	return ret;
}

#define ROOT                                                     \
 "{\"prefix\": \"\", \"fqns\": [\"emb.weight\", \"norm.bias\"]," \
 " \"shapes\": [[3, 5], [5]], \"world_size\": 4"

static void reads(void)
{
	struct optimfs_error err = { 0 };
	struct ofs_units u;

	ok(parse("[" ROOT "}, {\"world_size\": 4, \"shapes\": [[]], "
		 "\"strategy\": \"HandleShardingStrategy.NO_SHARD\","
		 "\"later\": {\"x\": [1.5, null]},"
		 "\"fqns\": [\"_checkpoint_wrapped_module.w\"],"
		 "\"prefix\": \"_fsdp_wrapped_module.layers.0\"}]",
	       &u, &err) == 0,
	    "two units, keys in any order, others skipped");
	is_str(err.text, "", "without an error");
	is_int(u.n, 2, "two");
	is_str(u.unit[0].param[1].fqn.p, "norm.bias", "a root's parameter");
	is_u64(u.unit[0].numel[0], 15, "its elements");
	is_str(u.unit[1].param[0].fqn.p, "layers.0.w", "without wrappers");
	is_str(u.unit[1].prefix.p, "layers.0", "the prefix too");
	is_int(u.unit[1].param[0].ndim, 0, "no dimension");
	is_u64(u.unit[1].numel[0], 1, "is one element");
	ok(u.unit[1].no_shard && !u.unit[0].no_shard, "strategy");
	ofs_units_fini(&u);
	ok(parse("[{\"prefix\": \"_fsdp_wrapped_module\", \"fqns\": [\"a\"],"
		 "\"shapes\": [[2]], \"world_size\": 1}]",
	       &u, &err) == 0,
	    "a prefix that is nothing but a wrapper");
	is_str(u.unit[0].param[0].fqn.p, "a", "is the root");
	ofs_units_fini(&u);
}

/* What the file derives must be what the shapes give. */
static void agrees(void)
{
	static const struct {
		const char *more;
		bool packed, aligned;
	} cases[] = {
		{ "", true, true },
		{ ", \"numels_with_padding\": [15, 5]", true, false },
		{ ", \"numels_with_padding\": [15, 1, 5, 3]", false, true },
		{ ", \"numels_with_padding\": [15, 1, 5]", false, false },
		{ ", \"numels_with_padding\": [15, 1, 5, 3, 4]", false, false },
		{ ", \"numels_with_padding\": []", true, true },
		{ ", \"unpadded_unsharded_size\": [20]", true, false },
		{ ", \"unpadded_unsharded_size\": 24, \"sharded_size\": 6",
		    false, true },
		{ ", \"sharded_size\": [7]", false, false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct optimfs_error err = { 0 };
		struct ofs_units u;
		char text[512];

		snprintf(text, sizeof(text), "[%s%s}]", ROOT, cases[i].more);
		ok(parse(text, &u, &err) == 0, "read: %s", cases[i].more);
		is_int(ofs_unit_agrees(&u, 0, OFS_FLAT_PACKED, NULL),
		    cases[i].packed, "packed");
		is_int(ofs_unit_agrees(&u, 0, 4, &err), cases[i].aligned,
		    "aligned");
		if (!cases[i].aligned)
			is_error(err, EUCLEAN, "OFS160", "both are shown");
		ofs_units_fini(&u);
	}
}

static void refuses(void)
{
	static const struct {
		const char *text;
		int code;
		const char *says;
	} cases[] = {
		{ "", EUCLEAN, "OFS653" },
		{ "{}", EINVAL, "not an array" },
		{ "[]", EINVAL, "no unit" },
		{ "[1]", EINVAL, "not an object" },
		{ "[{}]", EINVAL, "lacks \"prefix\"" },
		{ "[" ROOT "}", EUCLEAN, "OFS653" },
		{ "[" ROOT "}] x", EUCLEAN, "OFS653" },
		{ "[" ROOT ", \"world_size\": 4}]", EINVAL, "before" },
		{ "[{\"prefix\": \"\", \"fqns\": [\"a\"], \"shapes\": [],"
		  " \"world_size\": 1}]",
		    EINVAL, "1 fqns and 0 shapes" },
		{ "[{\"prefix\": \"\", \"fqns\": [\"a\"], \"shapes\": [[-1]],"
		  " \"world_size\": 1}]",
		    EINVAL, "not a count" },
		{ "[{\"prefix\": \"\", \"fqns\": [\"a\"], \"shapes\": [[1.0]],"
		  " \"world_size\": 1}]",
		    EINVAL, "not a count" },
		{ "[{\"prefix\": \"\", \"fqns\": [\"a\"],"
		  " \"shapes\": [[4194305, 4194305, 211106198978564]],"
		  " \"world_size\": 1}]",
		    EINVAL, "too many elements" },
		{ "[{\"prefix\": 1, \"fqns\": []}]", EINVAL, "not a string" },
		{ "[{\"prefix\": \"\", \"fqns\": \"a\"}]", EINVAL,
		    "not an array" },
		{ "[{\"prefix\": \"\", \"world_size\": 0}]", EINVAL,
		    "1 at least" },
		{ "[" ROOT "}, " ROOT "}]", EUCLEAN,
		    "emb.weight is in unit 0 and in unit 1" },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct optimfs_error err = { 0 };
		struct ofs_units u;

		is_int(parse(cases[i].text, &u, &err), -1, "refused: %.60s",
		    cases[i].text);
		is_error(err, cases[i].code, cases[i].says, "says why");
		is_int(u.n, 0, "and leaves nothing");
	}
}

static void cut_anywhere(void)
{
	static const char whole[] =
	    "[" ROOT ", \"numels_with_padding\": [15, 5]}]";
	struct ofs_units u;
	char text[sizeof(whole)];
	int accepted = 0;

	for (size_t n = 0; n + 1 < sizeof(whole); n++) {
		memcpy(text, whole, n);
		text[n] = '\0';
		accepted += parse(text, &u, NULL) == 0;
	}
	is_int(accepted, 0, "no beginning of a file is a file");
}

int main(void)
{
	reads();
	agrees();
	refuses();
	cut_anywhere();
	return done_testing();
}
