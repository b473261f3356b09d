/* units.c - units files, compared with what FSDP records, and contradictions in
 * them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/fsdp/units.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tap.h"

static struct optimfs_error err;

static int parse(struct ofs_units *u, const char *text)
{
	/* An allocation of the exact size lets the sanitizers see reads past
	 * it. */
	size_t n = strlen(text);
	char *copy = memcpy(malloc(n + 1), text, n);
	int ret;

	memset(&err, 0, sizeof(err));
	ret = ofs_units_parse(u, "units.json", copy, (uint32_t)n, &err);
	free(copy);
	return ret;
}

/* The text must be refused with this error. */
static void refused(const char *text, int code, const char *part)
{
	struct ofs_units u;

	ok(parse(&u, text) == -1, "a units file is refused: %s", part);
	is_error(err, code, part, "error text: %s", part);
}

#define PARAMS "\"fqns\":[\"a.weight\",\"a.bias\"],\"shapes\":[[3,5],[5]]"

static void recorded(void)
{
	struct ofs_units u;

	ok(parse(&u,
	       "[{\"prefix\":\"_fsdp_wrapped_module.layers.0\"," PARAMS
	       ",\"numels\":[15,5],\"numels_with_padding\":[15,1,5,3],"
	       "\"is_padding_mask\":[false,true,false,true],"
	       "\"unpadded_unsharded_size\":[24],\"sharded_size\":[6],"
	       "\"shard_numel_padded\":0,\"world_size\":4,\"rank\":2,"
	       "\"shared\":[[\"weight\",\"out\",\"weight\",\"a\"]],"
	       "\"strategy\":\"HandleShardingStrategy.FULL_SHARD\","
	       "\"dtype\":\"torch.float32\",\"shard_param_infos\":"
	       "[[true,0,3,12,14],[true,4,2,0,1]],\"note\":{\"x\":[]}}]") == 0,
	    "a complete record is parsed");
	is_str(u.unit[0].prefix.p, "layers.0",
	    "the prefix has no wrapper names");
	is_str(u.unit[0].param[1].fqn.p, "layers.0.a.bias",
	    "a parameter's name has the prefix");
	is_u64(u.unit[0].flat.start[1], 16,
	    "a parameter starts after the padding before it");
	is_u64(u.unit[0].flat.shard, 6, "the shard has the recorded size");
	is_int(u.unit[0].param[1].grad, -1,
	    "requires_grad is unknown when it is not recorded");
	is_str(u.tie[0].name.p, "layers.0.out.weight",
	    "a tied parameter has its full name");
	is_str(u.tie[0].target.p, "layers.0.a.weight",
	    "a tied parameter has its target");
	ofs_units_fini(&u);
}

static void derived(void)
{
	struct ofs_units u;

	ok(parse(&u,
	       "{\"units\":[{" PARAMS ",\"world_size\":3,"
	       "\"use_orig_params\":false}],\"parameters\":"
	       "[\"module.b\",\"_orig_mod.a.weight\"],"
	       "\"param_groups\":[[\"x\"],[\"y\",\"z\"]]}") == 0,
	    "names, shapes and a world size suffice");
	is_str(u.unit[0].prefix.p, "", "the default prefix is empty");
	is_u64(u.unit[0].flat.start[1], 15,
	    "parameters without recorded padding are contiguous");
	is_u64(u.unit[0].flat.shard, 7, "the size of a shard is rounded up");
	is_u64(u.norder, 2, "the list of parameters gives an order");
	is_str(u.order[1].p, "a.weight",
	    "names of the order have no wrapper names");
	is_u64(u.nids, 3, "param_groups give an ID to each name");
	is_str(u.ids[2].p, "z", "the last ID has the last name");
	ofs_units_fini(&u);
	ok(parse(&u,
	       "[{" PARAMS ",\"world_size\":2,\"strategy\":\"NO_SHARD\","
	       "\"numels_with_padding\":[15,1,5,1],\"sharded_size\":22}]") == 0,
	    "a unit with NO_SHARD is parsed");
	ok(u.unit[0].whole && u.unit[0].flat.world == 1,
	    "a unit with NO_SHARD has one shard");
	is_u64(u.unit[0].flat.shard, 22,
	    "the shard of NO_SHARD has all elements and padding");
	ofs_units_fini(&u);
}

static void contradictions(void)
{
	refused("[{" PARAMS ",\"world_size\":2,\"numels\":[15,4]}]", EUCLEAN,
	    "OFS160 a.bias: its shape has 5 elements, numels says 4");
	refused("[{" PARAMS ",\"world_size\":2,"
		"\"unpadded_unsharded_size\":[19]}]",
	    EUCLEAN, "OFS160 unit \"\": its shapes need 20 elements");
	refused("[{" PARAMS ",\"world_size\":2,\"use_orig_params\":false,"
		"\"sharded_size\":[11]}]",
	    EUCLEAN, "are 10 each");
	refused("[{" PARAMS ",\"world_size\":2,\"dtype\":\"torch.float32\","
		"\"numels_with_padding\":[15,2,5],\"is_padding_mask\":"
		"[false,true,false]}]",
	    EUCLEAN, "recorded 15,2,5, computed 15,pad 1,5,pad 1");
	refused("[{" PARAMS ",\"world_size\":2,\"rank\":1,"
		"\"use_orig_params\":false,\"shard_param_infos\":"
		"[[true,0,5,11,15],[true,5,5,0,4]]}]",
	    EUCLEAN, "shard_param_infos say otherwise");
	refused("[{" PARAMS ",\"world_size\":2},{" PARAMS ",\"world_size\":2}]",
	    EINVAL, "numels_with_padding or use_orig_params is needed");
	refused("[{\"prefix\":\"a\",\"fqns\":[\"w\"],\"shapes\":[[4]],"
		"\"world_size\":1},{\"prefix\":\"\",\"fqns\":[\"a.w\"],"
		"\"shapes\":[[4]],\"world_size\":1}]",
	    EUCLEAN, "OFS163 a.w is in two units, \"a\" and \"\"");
	refused("[{" PARAMS ",\"world_size\":2,\"use_orig_params\":false,"
		"\"contiguities\":[true,false]}]",
	    EOPNOTSUPP, "not flattened in C order");
}

static void trained(void)
{
	struct ofs_units u;

	ok(parse(&u,
	       "[{" PARAMS ",\"world_size\":1,\"use_orig_params\":false,"
	       "\"requires_grad\":[true,false]}]") == 0,
	    "requires_grad is parsed");
	is_int(u.unit[0].param[0].grad, 1,
	    "requires_grad is true for the first parameter");
	is_int(u.unit[0].param[1].grad, 0,
	    "requires_grad is false for the second parameter");
	ofs_units_fini(&u);
	refused("[{" PARAMS ",\"world_size\":1,\"use_orig_params\":false,"
		"\"requires_grad\":[true]}]",
	    EINVAL, "requires_grad of as many parameters");
	refused("[{" PARAMS ",\"world_size\":1,\"use_orig_params\":false,"
		"\"requires_grad\":[true,2]}]",
	    EINVAL, "true or false in requires_grad");
}

static void malformed(void)
{
	refused("[]", EINVAL, "at least one unit");
	refused("{\"units\":{}}", EINVAL, "a list");
	refused("[{" PARAMS "}]", EINVAL, "and world_size");
	refused("[{\"fqns\":[\"a\"],\"world_size\":1}]", EINVAL,
	    "as many shapes");
	refused("[{" PARAMS ",\"world_size\":0}]", EINVAL, "world_size 0");
	refused("[{" PARAMS ",\"world_size\":2,\"rank\":2}]", EINVAL, "rank 2");
	refused("[{" PARAMS ",\"world_size\":-1}]", EINVAL, "whole number");
	refused("[{" PARAMS ",\"numels\":[[[1]]]}]", EINVAL, "lists of lists");
	refused("[{\"fqns\":[\"a\\u0000\"]}]", EINVAL, "without NUL");
	refused("[{\"fqns\":[1]}]", EINVAL, "a list of names");
	refused("[{" PARAMS ",\"shared\":[[\"a\"]],\"world_size\":1}]", EINVAL,
	    "four names");
	refused("[{\"fqns\":[\"a\"],\"shapes\":[[4294967296,4294967296,2]],"
		"\"world_size\":1}]",
	    EINVAL, "too many");
	refused("[{", EUCLEAN, "OFS653");
}

static void cut_anywhere(void)
{
	static const char whole[] =
	    "{\"units\":[{" PARAMS ",\"world_size\":2,\"numels_with_padding\":"
	    "[15,5]}],\"parameters\":[\"a\"]}";
	struct ofs_units u;
	char text[sizeof(whole)];
	int accepted = 0;

	for (size_t n = 0; n + 1 < sizeof(whole); n++) {
		memcpy(text, whole, n);
		text[n] = '\0';
		accepted += parse(&u, text) == 0;
	}
	is_int(accepted, 0, "each truncation of a units file is refused");
	ok(parse(&u, whole) == 0, "the complete units file is parsed");
	ofs_units_fini(&u);
}

int main(void)
{
	cut_anywhere();
	recorded();
	derived();
	contradictions();
	malformed();
	trained();
	return done_testing();
}
