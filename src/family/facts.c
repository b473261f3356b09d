/* facts.c - numbers of heads, groups and words, from config.json or args */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "family/facts.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/error.h"
#include "base/json.h"
#include "base/str.h"
#include "pickle/pickle.h"
#include "read/locate.h"

#define CONFIG_MAX (1u << 20)

enum fact { HEADS, GROUPS, VOCAB, NFACTS };

/* What the sources say, and which of them said it first. */
struct facts {
	uint64_t v[NFACTS];
	const char *by[NFACTS];
	char model[32];
	bool plain; /* each head has a group of its own */
	const struct ofs_model_files *beside;
	struct optimfs_error *err;
};

/* The names of each in files of Hugging Face and of Megatron. */
static const struct {
	const char *key;
	enum fact fact;
} keys[] = {
	{ "num_attention_heads", HEADS },
	{ "n_head", HEADS },
	{ "num_key_value_heads", GROUPS },
	{ "num_query_groups", GROUPS },
	{ "vocab_size", VOCAB },
};
#define NKEYS (sizeof(keys) / sizeof(keys[0]))

static const char *const fact_names[NFACTS] = { "attention heads",
	"groups of key and value heads", "words of the vocabulary" };

/* The vocabulary of one may be padded, so the first source decides. */
static int learn(struct facts *f, enum fact fact, int64_t v, const char *by)
{
	if (v <= 0)
		return 0;
	if (f->v[fact] != 0 && f->v[fact] != (uint64_t)v && fact != VOCAB)
		return optimfs_fail(f->err, EINVAL,
		    "OFS893 %s says %" PRIu64 " %s, %s says %" PRId64,
		    f->by[fact], f->v[fact], fact_names[fact], by, v);
	if (f->v[fact] == 0) {
		f->v[fact] = (uint64_t)v;
		f->by[fact] = by;
	}
	return 0;
}

static bool find_key(struct ofs_str name, enum fact *fact)
{
	for (size_t i = 0; i < NKEYS; i++)
		if (ofs_str_is(name, keys[i].key)) {
			*fact = keys[i].fact;
			return true;
		}
	return false;
}

/* The value of one key of the object. */
static int learn_json(struct facts *f, struct ofs_json *j, const char *by)
{
	enum fact fact = NFACTS;
	bool known = find_key(j->str, &fact);
	bool model = ofs_str_is(j->str, "model_type");
	enum ofs_json_token token = ofs_json_next(j, f->err);

	if (known && token == OFS_JSON_NUMBER && j->is_int)
		return learn(f, fact, j->integer, by);
	if (model && token == OFS_JSON_STRING && f->model[0] == '\0' &&
	    j->str.len < sizeof(f->model) &&
	    memchr(j->str.p, '\0', j->str.len) == NULL)
		memcpy(f->model, j->str.p, j->str.len);
	return ofs_json_skip(j, token, f->err);
}

static int parse_json(struct facts *f, const uint8_t *bytes, uint64_t n,
    const char *by)
{
	enum ofs_json_token token;
	struct ofs_json j;
	int ret = 0;

	ofs_json_init(&j, bytes, (uint32_t)n);
	j.floats = true;
	token = ofs_json_next(&j, f->err);
	if (token != OFS_JSON_OBJECT)
		ret = token == OFS_JSON_ERROR
		    ? -1
		    : ofs_json_fail(&j, f->err, "not an object");
	while (ret == 0 && (token = ofs_json_next(&j, f->err)) == OFS_JSON_KEY)
		ret = learn_json(f, &j, by);
	if (ret == 0 && token == OFS_JSON_ERROR)
		ret = -1;
	ofs_json_fini(&j);
	return ret == -1 ? optimfs_fail_in(f->err, "%s", by) : 0;
}

/* A file that describes the model, if there is one. */
static int read_file(struct facts *f, const char *name)
{
	struct ofs_buf bytes = { 0 };
	int ret =
	    ofs_model_files_read(f->beside, name, CONFIG_MAX, &bytes, f->err);

	if (ret == 1)
		ret = parse_json(f, bytes.data, bytes.len, name);
	ofs_buf_fini(&bytes);
	return ret == -1 ? -1 : 0;
}

/* Megatron's args: a namespace. It has num_query_groups also where the model has
 * none. */
static int learn_args(struct facts *f, const struct ofs_pickle *doc,
    uint32_t node)
{
	uint32_t grouped = ofs_pk_attr(doc, node, "group_query_attention");
	int64_t v;

	if (ofs_pk_kind(doc, grouped) == OFS_PK_BOOL &&
	    !ofs_pk_bool(doc, grouped))
		f->plain = true;
	for (size_t i = 0; i < NKEYS; i++)
		if (ofs_pk_int(doc, ofs_pk_attr(doc, node, keys[i].key), &v) &&
		    !(f->plain && keys[i].fact == GROUPS) &&
		    learn(f, keys[i].fact, v, "args") == -1)
			return -1;
	return 0;
}

static int read_args(struct facts *f, const struct ofs_entry *e)
{
	struct ofs_reader *r = f->beside->reader;
	const struct ofs_catalog *cat = r->cat;
	struct ofs_pickle *doc;
	int ret;

	if (e->kind == OFS_ENTRY_VALUE)
		return learn_args(f, cat->values[e->ref].doc,
		    cat->values[e->ref].node);
	if (e->kind != OFS_ENTRY_ITEM)
		return 0;
	doc = ofs_locate_item(r, &cat->items[e->ref], f->err);
	if (doc == NULL)
		return -1;
	ret = learn_args(f, doc, ofs_pickle_root(doc));
	ofs_pickle_free(doc);
	return ret;
}

/* The value extra/args. */
static int find_args(struct facts *f)
{
	const struct ofs_catalog *cat = f->beside->reader->cat;

	for (uint32_t i = 0; i < cat->nentries; i++) {
		const struct ofs_entry *e = &cat->entries[i];
		const uint32_t *c;
		uint32_t n;

		if (e->tree == OFS_NONE)
			continue;
		c = ofs_catalog_components(cat, e->tree, &n);
		if (n == 2 && ofs_catalog_string_is(cat, c[0], "extra") &&
		    ofs_catalog_string_is(cat, c[1], "args"))
			return read_args(f, e);
	}
	return 0;
}

int ofs_facts_find(struct ofs_facts *out, const struct ofs_model_files *beside,
    struct optimfs_error *err)
{
	struct facts f = { .beside = beside, .err = OFS_SOME_ERROR(err) };

	if (read_file(&f, "config.json") == -1 ||
	    read_file(&f, "transformer_config.json") == -1 ||
	    find_args(&f) == -1)
		return -1;
	if (out->heads == 0)
		out->heads = f.v[HEADS];
	if (out->groups == 0)
		out->groups = f.v[GROUPS] != 0 ? f.v[GROUPS] : out->heads;
	if (out->vocab == 0)
		out->vocab = f.v[VOCAB];
	memcpy(out->model, f.model, sizeof(out->model));
	return 0;
}
