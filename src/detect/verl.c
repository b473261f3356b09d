/* verl.c - checkpoints of verl with Megatron-Core, by their table of contents */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/keys.h"
#include "base/memory.h"
#include "base/step.h"
#include "base/str.h"
#include "detect/candidates.h"
#include "detect/detect.h"
#include "detect/registry.h"
#include "format/probe.h"

/* A role of a job (actor, critic) is a directory with up to three complete
 * torch_dist checkpoints: of the model, of the optimizer, and of the rest.
 * ckpt_contents.json, which is written last, names them; keys do not repeat, so
 * that they are one checkpoint without prefixes (docs/formats/trainers.md). With
 * FSDP it has one file per rank of each. */

#define CONTENTS     "ckpt_contents.json"
#define CONTENTS_MAX (1 << 20)
#define MAX_FILES    64 /* beside the model of Hugging Face */

struct contents {
	const struct ofs_dir *dir;
	struct ofs_parts *parts;
	struct ofs_keys seen; /* paths */
	struct optimfs_error *err;
};

static int add_raw(struct contents *c, const char *rel, const char *above,
    const char *name)
{
	struct ofs_part_spec spec = { .rel = rel,
		.format = ofs_format_find("raw"),
		.prefix = { above != NULL ? above : name,
		    above != NULL ? name : NULL },
		.rank = -1,
		.optional = true };

	return ofs_parts_add(c->parts, &spec, c->err);
}

/* The settings and the tokenizer beside the weights. */
static bool is_setting(const char *name)
{
	static const char *const ends[] = { "*.json", "*.txt", "*.jinja",
		"*.model" };

	for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
		if (fnmatch(ends[i], name, 0) == 0)
			return strstr(name, ".index.json") == NULL;
	return false;
}

static int add_settings(struct contents *c, const char *path)
{
	struct ofs_names names;
	int ret = ofs_probe_names(c->dir, path, &names, c->err);
	size_t n = 0;

	if (ret != 1)
		return ret;
	ret = 0;
	for (size_t i = 0; i < names.n && n < MAX_FILES && ret == 0; i++) {
		char *rel;

		if (!is_setting(names.name[i]))
			continue;
		rel = ofs_path_join(path, names.name[i]);
		ret = rel == NULL
		    ? ofs_no_memory(c->err)
		    : add_raw(c, rel, "huggingface", names.name[i]);
		free(rel);
		n++;
	}
	ofs_names_free(&names);
	return ret;
}

/* A directory with a checkpoint. */
static int add_checkpoint(struct contents *c, const char *path)
{
	struct ofs_part_spec spec = { .rel = path, .rank = -1 };
	int ret = ofs_detect_sub(c->dir, path, &spec.format, c->err);

	return ret == 1 ? ofs_parts_add(c->parts, &spec, c->err) : ret;
}

static int add_piece(struct contents *c, struct ofs_str path,
    struct ofs_str format)
{
	uint32_t n = c->seen.n, number;
	const char *rel;

	if (path.len == 0 || !ofs_path_stays(path.p, path.len))
		return 0;
	number = ofs_keys_copy(&c->seen, path.p, path.len, c->err);
	if (number == OFS_NONE)
		return -1;
	if (number < n)
		return 0;
	rel = c->seen.v[number].p;
	if (ofs_str_is(format, "json"))
		return ofs_probe_is_file(c->dir, rel)
		    ? add_raw(c, rel, NULL, ofs_path_last(rel))
		    : 0;
	if (!ofs_probe_is_dir(c->dir, rel))
		return ofs_parts_note(c->parts, c->err,
		    "OFS689 %.200s, which " CONTENTS " names, does not exist",
		    rel);
	return add_checkpoint(c, rel);
}

/* {"path": ..., "format": ..., ...} */
static int read_piece(struct contents *c, struct ofs_json *j,
    struct optimfs_error *why)
{
	char *value[2] = { NULL, NULL };
	static const char *const name[2] = { "path", "format" };
	int ret = 0;

	while (ret == 0 && ofs_json_next(j, why) == OFS_JSON_KEY) {
		enum ofs_json_token token;
		int which = ofs_str_is(j->str, name[0]) ? 0
		    : ofs_str_is(j->str, name[1])       ? 1
							: -1;

		token = ofs_json_next(j, why);
		if (which == -1 || token != OFS_JSON_STRING) {
			ret = ofs_json_skip(j, token, why);
			continue;
		}
		free(value[which]);
		value[which] = strndup(j->str.p, j->str.len);
		if (value[which] == NULL)
			ret = ofs_no_memory(c->err);
	}
	if (ret == 0 && why->code == 0 && value[0] != NULL && value[1] != NULL)
		ret = add_piece(c, ofs_str_of(value[0]), ofs_str_of(value[1]));
	free(value[0]);
	free(value[1]);
	return ret;
}

/* The value of "contents". */
static int read_pieces(struct contents *c, struct ofs_json *j,
    struct optimfs_error *why)
{
	enum ofs_json_token token = ofs_json_next(j, why);
	int ret = 0;

	if (token != OFS_JSON_OBJECT)
		return ofs_json_skip(j, token, why);
	while (ret == 0 && ofs_json_next(j, why) == OFS_JSON_KEY) {
		token = ofs_json_next(j, why);
		ret = token == OFS_JSON_OBJECT ? read_piece(c, j, why)
					       : ofs_json_skip(j, token, why);
	}
	return ret;
}

static int read_contents(struct contents *c, const uint8_t *p, uint64_t n)
{
	struct optimfs_error why = { 0 };
	struct ofs_json j;
	int ret = 0;

	ofs_json_init(&j, p, (uint32_t)n);
	if (ofs_json_next(&j, &why) == OFS_JSON_OBJECT)
		while (ret == 0 && ofs_json_next(&j, &why) == OFS_JSON_KEY)
			ret = ofs_str_is(j.str, "contents")
			    ? read_pieces(c, &j, &why)
			    : ofs_json_skip(&j, ofs_json_next(&j, &why), &why);
	ofs_json_fini(&j);
	if (why.code == 0)
		return ret;
	return ofs_must_stop(&why) ? optimfs_fail_with(c->err, &why)
				   : ofs_parts_note(c->parts, c->err,
					 "OFS689 " CONTENTS ": %s", why.text);
}

/* Is there the model of rank 0? */
static bool has_ranks(const struct ofs_names *names)
{
	int world[2];

	for (size_t i = 0; i < names->n; i++)
		if (ofs_probe_numbers(names->name[i],
			"model_world_size_#_rank_#.pt", world, 2) == 2 &&
		    world[1] == 0)
			return true;
	return false;
}

/* The settings beside the files of ranks, which are found as any others. The
 * optimizer is made of all parameters of the model. */
static int add_beside_ranks(struct contents *c, const struct ofs_names *names)
{
	c->parts->trainer = "verl";
	c->parts->ids_of_model = true;
	if (ofs_probe_has(names, "lora_train_meta.json") &&
	    add_raw(c, "lora_train_meta.json", NULL, "lora_train_meta.json") ==
		-1)
		return -1;
	return add_settings(c, "huggingface");
}

int ofs_detect_role_data(const struct ofs_dir *dir, const char *role,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	/* the data loader's state; the step and the settings of SkyRL */
	static const char *const beside[] = { "data", "trainer_state" };
	const char *name = ofs_path_last(role);
	int ret = 0;

	if (!ofs_detect_is_role(name))
		return 0;
	for (size_t i = 0; i < sizeof(beside) / sizeof(*beside) && ret == 0;
	     i++) {
		char *rel;

		if (asprintf(&rel, "%.*s%s.pt", (int)(name - role), role,
			beside[i]) == -1)
			return ofs_no_memory(err);
		ret = ofs_detect_lone(dir, rel, "torch", beside[i], parts, err);
		free(rel);
	}
	return ret;
}

int ofs_detect_verl(const struct ofs_dir *dir, const struct ofs_names *names,
    struct ofs_parts *parts, struct optimfs_error *err)
{
	struct contents c = { .dir = dir, .parts = parts, .err = err };
	uint8_t *bytes;
	uint64_t n;
	int ret;

	if (!ofs_probe_has(names, CONTENTS))
		return has_ranks(names) ? add_beside_ranks(&c, names) : 0;
	ret = ofs_probe_text(dir, CONTENTS, CONTENTS_MAX, &bytes, &n, err);
	if (ret != 1)
		return ret;
	ret = read_contents(&c, bytes, n);
	free(bytes);
	if (ret == 0 && parts->n > 0)
		ret = add_settings(&c, "model/huggingface");
	ofs_keys_fini(&c.seen);
	if (ret == -1 || parts->n == 0)
		return ret;
	parts->trainer = "verl";
	return 1;
}
