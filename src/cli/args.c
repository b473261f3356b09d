/* args.c - parsing a command line */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/args.h"

#include <string.h>

#include "base/nearest.h"
#include "cli/options.h"
#include "cli/tools.h"

void ofs_args_init(struct ofs_args *a, const struct ofs_verb *verb, int argc,
    char **argv, const struct ofs_flag *flags, struct ofs_options *options)
{
	*a = (struct ofs_args){
		.verb = verb,
		.flags = flags,
		.options = options,
		.argc = argc,
		.argv = argv,
		.at = 1,
	};
}

static int stop(int *status, int with)
{
	*status = with;
	return OFS_ARGS_STOP;
}

static int take_options(struct ofs_args *a, const char *list, int *status)
{
	struct optimfs_error err;

	if (ofs_options_parse(a->options, list, &err) == -1)
		return stop(status, ofs_tool_usage(a->verb, "%s", err.text));
	return 0;
}

/* Reports a name that is neither a flag nor an option of the verb. */
static int unknown(const struct ofs_args *a, const char *word, const char *name)
{
	struct ofs_nearest near;

	ofs_nearest_init(&near, name);
	ofs_nearest_try(&near, "help");
	ofs_nearest_try(&near, "quiet");
	ofs_nearest_try(&near, "progress");
	for (const struct ofs_flag *f = a->flags; f != NULL && f->id != 0; f++)
		if (f->name != NULL)
			ofs_nearest_try(&near, f->name);
	if (a->options != NULL)
		ofs_options_nearest(a->options, &near);
	return ofs_tool_usage(a->verb, "unknown option '--%s'%s%s%s", word,
	    near.best[0] == '\0' ? "" : "; did you mean '--", near.best,
	    near.best[0] == '\0' ? "" : "'?");
}

/* Handles an option given as --name or --name=value; '-' may replace '_'. */
static int long_option(struct ofs_args *a, const char *word, int *status)
{
	char name[64];
	const char *eq = strchr(word, '=');
	size_t n = eq != NULL ? (size_t)(eq - word) : strlen(word);
	struct optimfs_error err;

	if (n >= sizeof(name))
		return stop(status, unknown(a, word, word));
	for (size_t i = 0; i < n; i++)
		name[i] = word[i] == '-' ? '_' : word[i];
	name[n] = '\0';
	if (a->options == NULL || !ofs_options_known(a->options, name))
		return stop(status, unknown(a, word, name));
	if (eq == NULL && ofs_options_wants_value(a->options, name) &&
	    a->at < a->argc)
		eq = a->argv[a->at++] - 1;
	if (ofs_options_set(a->options, name, eq != NULL ? eq + 1 : NULL,
		&err) == -1)
		return stop(status, ofs_tool_usage(a->verb, "%s", err.text));
	return 0;
}

/* The value of a flag: the rest of its word, or the next word. */
static int need_value(struct ofs_args *a, const char *rest, const char *word,
    const char **value, int *status)
{
	*value = rest;
	if (rest == NULL && a->at < a->argc)
		*value = a->argv[a->at++];
	if (*value == NULL)
		return stop(status,
		    ofs_tool_usage(a->verb, "option '%s' needs a value", word));
	return 0;
}

static int long_flag(struct ofs_args *a, const char *word, const char **value,
    int *status)
{
	size_t n = strcspn(word + 2, "=");
	const char *rest = word[2 + n] == '=' ? word + 2 + n + 1 : NULL;

	if (strcmp(word, "--help") == 0)
		return stop(status, ofs_tool_help(a->verb));
	if (strcmp(word, "--quiet") == 0) {
		a->quiet = true;
		return 0;
	}
	if (strcmp(word, "--progress") == 0) {
		a->progress = true;
		return 0;
	}
	for (const struct ofs_flag *f = a->flags; f != NULL && f->id != 0;
	     f++) {
		if (f->name == NULL || strlen(f->name) != n ||
		    strncmp(f->name, word + 2, n) != 0)
			continue;
		if (!f->value && rest != NULL)
			return stop(status,
			    ofs_tool_usage(a->verb,
				"option '--%s' takes no value", f->name));
		if (f->value && need_value(a, rest, word, value, status) != 0)
			return OFS_ARGS_STOP;
		return f->id;
	}
	return long_option(a, word + 2, status);
}

/* The next letter of a->more. */
static int letter(struct ofs_args *a, const char **value, int *status)
{
	char word[3] = { '-', *a->more, '\0' };
	const char *rest = a->more[1] != '\0' ? a->more + 1 : NULL;

	a->more = rest;
	for (const struct ofs_flag *f = a->flags; f != NULL && f->id != 0;
	     f++) {
		if (f->id != word[1])
			continue;
		if (!f->value)
			return f->id;
		a->more = NULL;
		if (need_value(a, rest, word, value, status) != 0)
			return OFS_ARGS_STOP;
		return f->id;
	}
	if (word[1] == 'h')
		return stop(status, ofs_tool_help(a->verb));
	if (word[1] == 'q') {
		a->quiet = true;
		return 0;
	}
	if (word[1] == 'o' && a->options != NULL) {
		a->more = NULL;
		if (need_value(a, rest, word, value, status) != 0)
			return OFS_ARGS_STOP;
		return take_options(a, *value, status);
	}
	return stop(status,
	    ofs_tool_usage(a->verb, "unknown option '%s'", word));
}

int ofs_args_next(struct ofs_args *a, const char **value, int *status)
{
	int id = 0;

	*value = NULL;
	while (id == 0) {
		char *word;

		if (a->more != NULL) {
			id = letter(a, value, status);
			continue;
		}
		if (a->at >= a->argc)
			return OFS_ARGS_END;
		word = a->argv[a->at++];
		if (a->operands || word[0] != '-' || word[1] == '\0') {
			*value = word;
			return OFS_ARGS_OPERAND;
		}
		if (strcmp(word, "--") == 0)
			a->operands = true;
		else if (word[1] == '-')
			id = long_flag(a, word, value, status);
		else
			a->more = word + 1;
	}
	return id;
}
