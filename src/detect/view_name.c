/* view_name.c - names of views: FORMAT[@LAYOUT][,option]... */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "detect/view_name.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/nearest.h"
#include "detect/registry.h"
#include "layout/option.h"

/* The maximal number of ranks. Each is a file. */
#define RANKS_MAX 65536u

const char *ofs_layout_common(unsigned n)
{
	const struct ofs_format *format;
	const struct ofs_view_kind *v;

	for (unsigned i = 0; (v = ofs_view_kind_at(i, &format)) != NULL; i++)
		for (const char *const *l = v->listed; l != NULL && *l != NULL;
		     l++)
			if (n-- == 0)
				return *l;
	return NULL;
}

/* N, or RxS. */
static bool parse_ranks(const char *s, size_t n, struct ofs_layout *l)
{
	uint32_t v;
	size_t k = ofs_option_number(s, RANKS_MAX, &v), m;

	if (k == 0)
		return false;
	l->replicas = 1;
	l->shards = v;
	if (k == n)
		return true;
	m = s[k] == 'x' ? ofs_option_number(s + k + 1, RANKS_MAX, &l->shards)
			: 0;
	l->replicas = v;
	return m != 0 && k + 1 + m == n &&
	    (uint64_t)l->replicas * l->shards <= RANKS_MAX;
}

/* Words that people write for an option. */
static const struct {
	const char *word, *option;
} other_options[] = {
	{ "bf16", "dtype=bf16" },
	{ "bfloat16", "dtype=bf16" },
	{ "f16", "dtype=f16" },
	{ "fp16", "dtype=f16" },
	{ "float16", "dtype=f16" },
	{ "half", "dtype=f16" },
	{ "f32", "dtype=f32" },
	{ "fp32", "dtype=f32" },
	{ "float32", "dtype=f32" },
	{ "model", "only=model" },
	{ "weights", "only=model" },
	{ "optim", "only=optim" },
	{ "optimizer", "only=optim" },
	{ "huggingface", "hf" },
};

/* The option that is meant by s, in other words or in capitals; NULL: none. */
static const char *other_option(const char *s, size_t n,
    const struct ofs_format *format, char lower[41])
{
	struct ofs_layout l = { 0 };

	if (n > 40)
		return NULL;
	for (size_t i = 0; i < n; i++)
		lower[i] = (char)tolower((unsigned char)s[i]);
	lower[n] = '\0';
	for (size_t i = 0; i < sizeof(other_options) / sizeof(other_options[0]);
	     i++)
		if (strcmp(lower, other_options[i].word) == 0)
			return other_options[i].option;
	return format->option(lower, n, &l) ? lower : NULL;
}

/* Fails for an unknown option, or for an unknown value of a known one. */
static int bad_option(const char *name, const char *s, size_t n,
    const struct ofs_format *format, struct optimfs_error *err)
{
	static const struct {
		const char *option, *values;
	} known[] = {
		{ "dtype=", "bf16, f16 or f32" },
		{ "only=", "model or optim" },
		{ "drop=", "opaque" },
		{ "keys=", "fqn, or, where the format has them, id or source" },
		{ "zstd=", "a level, 1 to 19" },
		{ "names=",
		    "the name of a family, or megatron:FAMILY, with up to 47 "
		    "letters" },
		{ "heads=", "a number" },
		{ "groups=", "a number" },
		{ "vocab=", "a number" },
	};
	struct ofs_layout other;
	bool good = ofs_option_narrow(s, n, &other); /* of other formats */
	char lower[41];
	const char *meant = other_option(s, n, format, lower);

	if (meant != NULL)
		return optimfs_fail(err, EINVAL,
		    "OFS771 '%.80s': this format has no option '%.*s'; did you "
		    "mean '%s'?",
		    name, (int)n, s, meant);
	for (size_t i = 0; !good && i < sizeof(known) / sizeof(known[0]); i++)
		if (strncmp(s, known[i].option, strlen(known[i].option)) == 0)
			return optimfs_fail(err, EINVAL,
			    "OFS771 '%.80s': '%.*s': %s takes %s", name,
			    (int)(n > 40 ? 40 : n), s, known[i].option,
			    known[i].values);
	return optimfs_fail(err, EINVAL,
	    "OFS771 '%.80s': this format has no option '%.*s': optimfs(5) "
	    "lists the options of each format",
	    name, (int)(n > 40 ? 40 : n), s);
}

/* The format with a view of this name, and what the view is. */
static const struct ofs_view_kind *find_view(const char *name, size_t n,
    const struct ofs_format **format)
{
	const struct ofs_view_kind *v;

	for (unsigned i = 0; (v = ofs_view_kind_at(i, format)) != NULL; i++)
		if (ofs_option_is(name, n, v->name))
			return v;
	return NULL;
}

/* Other names that people use for views. */
static const struct {
	const char *word, *view;
} other_names[] = {
	{ "fsdp2", "dcp" },
	{ "dtensor", "dcp" },
	{ "pytorch", "torch" },
	{ "pt", "torch" },
	{ "hf", "safetensors,hf" },
	{ "huggingface", "safetensors,hf" },
	{ "deepspeed", "zero3" },
	{ "zero", "zero3" },
};

/* Fails for an unknown name: suggests a similar one, and lists all. */
static int unknown(const char *name, size_t n, struct optimfs_error *err)
{
	char word[41], list[200] = "";
	const struct ofs_format *format;
	const struct ofs_view_kind *v;
	struct ofs_nearest near;
	size_t len = 0;

	snprintf(word, sizeof(word), "%.*s", (int)(n > 40 ? 40 : n), name);
	ofs_nearest_init(&near, word);
	for (unsigned i = 0; (v = ofs_view_kind_at(i, &format)) != NULL; i++) {
		ofs_nearest_try(&near, v->name);
		if (len < sizeof(list))
			len += (size_t)snprintf(list + len, sizeof(list) - len,
			    "%s%s%s", len == 0 ? "" : ", ", v->name,
			    v->ranked ? "@N" : "");
	}
	for (size_t i = 0; i < sizeof(other_names) / sizeof(other_names[0]);
	     i++)
		if (strcasecmp(word, other_names[i].word) == 0)
			strcpy(near.best, other_names[i].view);
	if (near.best[0] != '\0' && strcasecmp(near.best, word) == 0)
		return optimfs_fail(err, ENOENT,
		    "OFS771 '%.80s': names of formats are in lower case: '%s%.60s'",
		    name, near.best, name + n);
	return optimfs_fail(err, ENOENT,
	    "OFS771 '%.80s': no format is called '%s'" OFS_NEAREST_FMT
	    " There are %s",
	    name, word, near.best[0] == '\0' ? "." : "; did you mean '",
	    near.best, near.best[0] == '\0' ? "" : "'?", list);
}

static int parse_format(const char *name, size_t n, struct ofs_layout *l,
    struct optimfs_error *err)
{
	const char *at = memchr(name, '@', n);
	size_t k = at == NULL ? n : (size_t)(at - name);
	const struct ofs_view_kind *view = find_view(name, k, &l->format);

	if (view == NULL)
		return unknown(name, k, err);
	l->ranked = view->ranked;
	l->variant = view->variant;
	if (at == NULL && l->ranked)
		return optimfs_fail(err, EINVAL,
		    "OFS771 '%.80s': for how many ranks? %.*s@16, or "
		    "%.*s@2x8 for two replicas of 8 shards",
		    name, (int)k, name, (int)k, name);
	if (at != NULL && !l->ranked)
		return optimfs_fail(err, EINVAL,
		    "OFS771 '%.80s': '%.*s' has no ranks: leave out '@'", name,
		    (int)k, name);
	if (at != NULL && !parse_ranks(at + 1, n - k - 1, l))
		return optimfs_fail(err, EINVAL,
		    "OFS771 '%.80s': '%.*s' is not a number of ranks: 1 to "
		    "65536, or 2x8 for two replicas of 8 shards",
		    name, (int)(n - k - 1 > 40 ? 40 : n - k - 1), at + 1);
	return 0;
}

/* Completes what names= implies. */
static int settle_names(const char *name, struct ofs_layout *l,
    struct optimfs_error *err)
{
	const struct ofs_family_choice *c = &l->names;

	if (c->name[0] == '\0')
		return c->heads == 0 && c->groups == 0 && c->vocab == 0
		    ? 0
		    : optimfs_fail(err, EINVAL,
			  "OFS771 '%.80s': heads=, groups= and vocab= are for "
			  "names=",
			  name);
	if (l->keys == OFS_KEYS_SOURCE)
		return optimfs_fail(err, EINVAL,
		    "OFS771 '%.80s': keys=source keeps the names that names= "
		    "replaces",
		    name);
	if (l->keys == OFS_KEYS_DEFAULT)
		l->keys = OFS_KEYS_FQN;
	if (l->hf && l->only == OFS_ONLY_ALL)
		l->only = OFS_ONLY_MODEL; /* as the directories of the Hub */
	l->names.lean = l->hf;
	l->names.bare = l->only == OFS_ONLY_MODEL;
	return 0;
}

int ofs_layout_parse(const char *name, struct ofs_layout *layout,
    struct optimfs_error *err)
{
	size_t n = strcspn(name, ",");
	struct ofs_layout l;

	memset(&l, 0, sizeof(l)); /* ofs_layout_same */
	l.shards = l.replicas = 1;

	if (parse_format(name, n, &l, err) == -1)
		return -1;
	for (const char *s = name + n; *s != '\0'; s += n) {
		s++;
		n = strcspn(s, ",");
		if (ofs_option_is(s, n, "drop=opaque"))
			l.drop = true; /* whatever the format */
		else if (!l.format->option(s, n, &l))
			return bad_option(name, s, n, l.format, err);
	}
	if (settle_names(name, &l, err) == -1)
		return -1;
	ofs_layout_assign(layout, &l);
	return 0;
}
