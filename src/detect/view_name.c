/* view_name.c - names of views: FORMAT[@LAYOUT][,option]... */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "format/format.h"
#include "layout/render.h"

/* More ranks than any job has; each is a file. */
#define RANKS_MAX 65536u

static const struct {
	const char *name;
	const struct ofs_format *format;
	bool ranked, blobs;
} formats[] = {
	{ "dcp", &ofs_format_dcp, true, false },
	{ "dcp-st", &ofs_format_dcp, true, true },
	{ "fsdp", &ofs_format_fsdp, true, false },
	{ "safetensors", &ofs_format_safetensors, false, false },
	{ "torch", &ofs_format_torch, false, false },
	{ "universal", &ofs_format_universal, false, false },
	{ "zero1", &ofs_format_zero1, true, false },
	{ "zero2", &ofs_format_zero2, true, false },
	{ "zero3", &ofs_format_zero3, true, false },
};

const char *ofs_layout_common(unsigned i)
{
	static const char *const names[] = { "dcp@1", "dcp@16", "dcp@2",
		"dcp@32", "dcp@4", "dcp@64", "dcp@8", "safetensors",
		"safetensors,hf", "torch", "universal", "zero1@8", "zero2@8",
		"zero3@8" };

	return i < sizeof(names) / sizeof(*names) ? names[i] : NULL;
}

static bool is(const char *s, size_t n, const char *word)
{
	return strlen(word) == n && memcmp(s, word, n) == 0;
}

/* A number from 1 on, in its one spelling, so that a view has one name. */
static size_t parse_number(const char *s, uint32_t *v)
{
	size_t n = 0;

	*v = 0;
	if (s[0] < '1' || s[0] > '9')
		return 0;
	for (; s[n] >= '0' && s[n] <= '9' && *v <= RANKS_MAX; n++)
		*v = *v * 10 + (uint32_t)(s[n] - '0');
	return *v <= RANKS_MAX ? n : 0;
}

/* N, or RxS. */
static bool parse_ranks(const char *s, size_t n, struct ofs_layout *l)
{
	uint32_t v;
	size_t k = parse_number(s, &v), m;

	if (k == 0)
		return false;
	l->replicas = 1;
	l->shards = v;
	if (k == n)
		return true;
	m = s[k] == 'x' ? parse_number(s + k + 1, &l->shards) : 0;
	l->replicas = v;
	return m != 0 && k + 1 + m == n &&
	    (uint64_t)l->replicas * l->shards <= RANKS_MAX;
}

static bool parse_dtype(const char *s, size_t n, struct ofs_layout *l)
{
	if (is(s, n, "dtype=bf16"))
		l->dtype = OFS_BFLOAT16;
	else if (is(s, n, "dtype=f16"))
		l->dtype = OFS_FLOAT16;
	else if (is(s, n, "dtype=f32"))
		l->dtype = OFS_FLOAT32;
	else
		return false;
	return true;
}

/* zstd, zstd=LEVEL: what is above 19 takes too much memory on both sides. */
static bool parse_zstd(const char *s, size_t n, struct ofs_layout *l)
{
	uint32_t level = 3;
	size_t k = 0;

	if (n > 5)
		k = parse_number(s + 5, &level);
	l->zstd = level;
	return n == 4 || (s[4] == '=' && k > 0 && 5 + k == n && level <= 19);
}

/* Its loaders want all of a checkpoint, in the types it is in. */
static bool is_deepspeed(const struct ofs_format *f)
{
	return f == &ofs_format_universal || f == &ofs_format_zero1 ||
	    f == &ofs_format_zero2 || f == &ofs_format_zero3;
}

static bool parse_option(const char *s, size_t n, struct ofs_layout *l)
{
	bool st = l->format == &ofs_format_safetensors;

	if (is_deepspeed(l->format) && !is(s, n, "crc"))
		return false;
	if (is(s, n, "only=optim"))
		l->only = OFS_ONLY_OPTIM;
	else if (is(s, n, "only=model"))
		l->only = OFS_ONLY_MODEL;
	else if (is(s, n, "crc") && !st && !l->blobs)
		l->crc = true;
	else if (is(s, n, "hf") && st)
		l->hf = true;
	else if (is(s, n, "orig") && l->format == &ofs_format_fsdp)
		l->flat = OFS_FLAT_ORIG;
	else if (is(s, n, "flat") && l->format == &ofs_format_fsdp)
		l->flat = OFS_FLAT_PACK;
	else if (is(s, n, "fill=zero") && l->format == &ofs_format_fsdp)
		l->fill_zero = true;
	else if (is(s, n, "keys=fqn") && !st)
		l->keys = OFS_KEYS_FQN;
	else if (is(s, n, "keys=id") && l->format == &ofs_format_torch)
		l->keys = OFS_KEYS_ID;
	else if (is(s, n, "keys=source") && l->format == &ofs_format_dcp)
		l->keys = OFS_KEYS_SOURCE;
	else if (n >= 4 && memcmp(s, "zstd", 4) == 0 &&
	    l->format == &ofs_format_dcp && !l->blobs)
		return parse_zstd(s, n, l);
	else
		return parse_dtype(s, n, l);
	return true;
}

static int bad(const char *name, const char *what, const char *s, size_t n,
    struct optimfs_error *err)
{
	return optimfs_fail(err, EINVAL, "OFS771 view %.80s: %s '%.*s'", name,
	    what, (int)(n > 40 ? 40 : n), s);
}

static int parse_format(const char *name, size_t n, struct ofs_layout *l,
    struct optimfs_error *err)
{
	const char *at = memchr(name, '@', n);
	size_t k = at == NULL ? n : (size_t)(at - name);

	for (size_t i = 0; i < sizeof(formats) / sizeof(*formats); i++) {
		if (!is(name, k, formats[i].name) ||
		    formats[i].format->render == NULL)
			continue;
		l->format = formats[i].format;
		l->ranked = formats[i].ranked;
		l->blobs = formats[i].blobs;
	}
	if (l->format == NULL)
		return optimfs_fail(err, ENOENT,
		    "OFS771 view %.80s: no format that can be written is called "
		    "'%.*s'",
		    name, (int)(k > 40 ? 40 : k), name);
	if ((at != NULL) != l->ranked)
		return bad(name,
		    l->ranked ? "needs ranks, as @16, behind" : "has no ranks:",
		    name, n, err);
	if (at != NULL && !parse_ranks(at + 1, n - k - 1, l))
		return bad(name,
		    "is no number of ranks, 1 to 65536, or RxS:", at + 1,
		    n - k - 1, err);
	return 0;
}

int ofs_layout_parse(const char *name, struct ofs_layout *layout,
    struct optimfs_error *err)
{
	struct ofs_layout l = { .shards = 1, .replicas = 1 };
	size_t n = strcspn(name, ",");

	if (parse_format(name, n, &l, err) == -1)
		return -1;
	for (const char *s = name + n; *s != '\0'; s += n) {
		s++;
		n = strcspn(s, ",");
		if (!parse_option(s, n, &l))
			return bad(name, "has no option", s, n, err);
	}
	*layout = l;
	return 0;
}
