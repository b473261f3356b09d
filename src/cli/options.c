/* options.c - parsing "-o name=value,..." and "--name=value" */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/memory.h"
#include "base/nearest.h"

const char *const ofs_run_names[] = { "no", "auto", "yes", NULL };

const struct ofs_option ofs_open_options[] = {
	OFS_OPEN_OPTIONS(0),
	{ .name = NULL },
};

void ofs_options_fini(struct ofs_options *o)
{
	for (size_t i = 0; i < o->nowned; i++)
		free(o->owned[i]);
	free(o->owned);
	o->owned = NULL;
	o->nowned = 0;
}

/* "no" before the name of a flag turns it off. */
static const struct ofs_option *find(const struct ofs_options *o,
    const char *name, bool *on)
{
	const struct ofs_option *off = NULL;

	*on = true;
	for (const struct ofs_option *t = o->table; t->name != NULL; t++) {
		if (strcmp(t->name, name) == 0)
			return t;
		if (t->kind == OFS_OPTION_FLAG && strncmp(name, "no", 2) == 0 &&
		    strcmp(t->name, name + 2 + (name[2] == '_')) == 0)
			off = t;
	}
	*on = off == NULL;
	return off;
}

static bool ignored(const struct ofs_options *o, const char *name)
{
	for (const char *p = o->ignored; p != NULL && *p != '\0';
	     p += strlen(p) + 1) {
		size_t n = strlen(p);

		if (strncmp(name, p, n + (p[n - 1] != '-')) == 0)
			return true;
	}
	return o->sloppy;
}

bool ofs_options_known(const struct ofs_options *o, const char *name)
{
	bool on;

	return find(o, name, &on) != NULL || ignored(o, name);
}

bool ofs_options_wants_value(const struct ofs_options *o, const char *name)
{
	bool on;
	const struct ofs_option *t = find(o, name, &on);

	return t != NULL && t->kind != OFS_OPTION_FLAG;
}

void ofs_options_nearest(const struct ofs_options *o, struct ofs_nearest *near)
{
	for (const struct ofs_option *t = o->table; t->name != NULL; t++)
		ofs_nearest_try(near, t->name);
}

static int unknown(const struct ofs_options *o, const char *name,
    struct optimfs_error *err)
{
	struct ofs_nearest near;

	ofs_nearest_init(&near, name);
	ofs_options_nearest(o, &near);
	return optimfs_fail(err, EINVAL, "unknown option '%s'" OFS_NEAREST_FMT,
	    name, OFS_NEAREST(&near));
}

/* Parses the digits of a number; *rest is its unit. */
static int number(const char *value, uint64_t *n, const char **rest)
{
	char *end;

	if (!isdigit((unsigned char)value[0]))
		return -1;
	errno = 0;
	*n = strtoull(value, &end, 10);
	*rest = end;
	return errno == 0 ? 0 : -1;
}

static int parse_size(const char *value, uint64_t *size)
{
	static const char units[] = "kmgt";
	const char *rest, *unit;
	uint64_t n;

	if (number(value, &n, &rest) == -1)
		return -1;
	if (*rest != '\0' &&
	    (unit = strchr(units, tolower((unsigned char)*rest))) != NULL) {
		unsigned shift = 10 * ((unsigned)(unit - units) + 1);

		if (!ofs_mul_u64(n, UINT64_C(1) << shift, &n))
			return -1;
		rest++;
		if (*rest == 'i')
			rest++;
	}
	if (*rest == 'B')
		rest++;
	*size = n;
	return *rest == '\0' ? 0 : -1;
}

static int parse_time(const char *value, uint64_t *seconds)
{
	const char *rest;
	uint64_t n, unit;

	if (number(value, &n, &rest) == -1)
		return -1;
	if (rest[0] != '\0' && rest[1] != '\0')
		return -1;
	switch (rest[0]) {
	case '\0':
	case 's':
		unit = 1;
		break;
	case 'm':
		unit = 60;
		break;
	case 'h':
		unit = 3600;
		break;
	default:
		return -1;
	}
	return ofs_mul_u64(n, unit, seconds) ? 0 : -1;
}

static int parse_number(const struct ofs_option *t, const char *value,
    uint64_t *n, struct optimfs_error *err)
{
	const char *rest, *want;
	int ret;

	switch (t->kind) {
	case OFS_OPTION_SIZE:
		ret = parse_size(value, n);
		want = "a size like 64m or 2g";
		break;
	case OFS_OPTION_TIME:
		ret = parse_time(value, n);
		want = "a time like 30s or 5m";
		break;
	default:
		ret = number(value, n, &rest);
		if (ret == 0 && *rest != '\0')
			ret = -1;
		want = "a number";
		break;
	}
	if (ret == -1 || (t->kind != OFS_OPTION_SIZE && *n > UINT32_MAX))
		return optimfs_fail(err, EINVAL, "option '%s=%s': not %s",
		    t->name, value, want);
	if (*n < t->min)
		return optimfs_fail(err, EINVAL,
		    "option '%s=%s': must be %" PRIu64 " or more", t->name,
		    value, t->min);
	if (t->max != 0 && *n > t->max)
		return optimfs_fail(err, EINVAL,
		    "option '%s=%s': must be %" PRIu64 " or less", t->name,
		    value, t->max);
	return 0;
}

static int keep(struct ofs_options *o, const char *value, const char **copy,
    struct optimfs_error *err)
{
	char *s;

	if (ofs_grow(o->owned, o->nowned, o->owned_cap, err) == -1)
		return -1;
	s = strdup(value);
	if (s == NULL)
		return ofs_no_memory(err);
	o->owned[o->nowned++] = s;
	*copy = s;
	return 0;
}

static int choose(const struct ofs_option *t, const char *value, int *choice,
    struct optimfs_error *err)
{
	char all[128] = "";

	for (int i = 0; t->choices[i] != NULL; i++) {
		if (strcmp(t->choices[i], value) == 0) {
			*choice = i;
			return 0;
		}
		if (i > 0)
			strncat(all, ", ", sizeof(all) - strlen(all) - 1);
		strncat(all, t->choices[i], sizeof(all) - strlen(all) - 1);
	}
	return optimfs_fail(err, EINVAL, "option '%s=%s': must be one of %s",
	    t->name, value, all);
}

static int assign(struct ofs_options *o, const struct ofs_option *t,
    const char *value, struct optimfs_error *err)
{
	void *member = (char *)o->target + t->offset;
	uint64_t n;

	if (t->kind == OFS_OPTION_STRING)
		return keep(o, value, member, err);
	if (t->kind == OFS_OPTION_CHOICE)
		return choose(t, value, member, err);
	if (parse_number(t, value, &n, err) == -1)
		return -1;
	if (t->kind == OFS_OPTION_SIZE)
		*(uint64_t *)member = n;
	else
		*(unsigned *)member = (unsigned)n;
	return 0;
}

int ofs_options_set(struct ofs_options *o, const char *name, const char *value,
    struct optimfs_error *err)
{
	bool on;
	const struct ofs_option *t = find(o, name, &on);

	if (t == NULL && ignored(o, name))
		return 0;
	if (t == NULL)
		return unknown(o, name, err);
	if (t->kind == OFS_OPTION_FLAG) {
		if (value != NULL)
			return optimfs_fail(err, EINVAL,
			    "option '%s' takes no value", name);
		*(bool *)((char *)o->target + t->offset) = on;
		return 0;
	}
	if (value == NULL && t->kind != OFS_OPTION_CHOICE)
		return optimfs_fail(err, EINVAL, "option '%s' needs a value",
		    name);
	return assign(o, t, value == NULL ? "" : value, err);
}

/* Splits off one word of the list, unescaped in place; returns the start of the
 * next, or NULL. */
static char *split(char *word)
{
	char *to = word;

	for (char *p = word;; p++) {
		if (*p == ',' || *p == '\0') {
			char *next = *p == ',' ? p + 1 : NULL;

			*to = '\0';
			return next;
		}
		if (*p == '\\' && (p[1] == ',' || p[1] == '\\'))
			p++;
		*to++ = *p;
	}
}

int ofs_options_parse(struct ofs_options *o, const char *list,
    struct optimfs_error *err)
{
	char *copy = strdup(list);
	int ret = 0;

	if (copy == NULL)
		return ofs_no_memory(err);
	for (char *word = copy, *next; ret == 0 && word != NULL; word = next) {
		char *value;

		next = split(word);
		if (*word == '\0')
			continue;
		value = strchr(word, '=');
		if (value != NULL)
			*value++ = '\0';
		ret = ofs_options_set(o, word, value, err);
	}
	free(copy);
	return ret;
}
