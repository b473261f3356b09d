/* cmd_explain.c - optimfs explain: the meaning of error codes */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdbool.h>
#include <stdlib.h>
#include <strings.h>

#include "base/buf.h"
#include "cli/args.h"
#include "cli/codes.h"
#include "cli/tools.h"
#include "tools/command.h"
#include "tools/verbs.h"

#define TEXT 8 /* columns of "OFSnnn  " */

/* Parses "OFS603", "ofs603" or "603"; -1: not a code. */
static int number_of(const char *word)
{
	char *end;
	long n;

	if (strncasecmp(word, "OFS", 3) == 0)
		word += 3;
	n = strtol(word, &end, 10);
	return end != word && *end == '\0' && n >= 0 && n <= 999 ? (int)n : -1;
}

static void print_json(const struct ofs_code *e)
{
	struct ofs_json_writer w;
	struct ofs_buf b = { 0 };

	ofs_json_begin(&w, &b, "optimfs.explain");
	ofs_json_put_code(&w, e->number);
	ofs_json_put_string(&w, "errno", e->errnos);
	ofs_json_put_string(&w, "meaning", e->meaning);
	ofs_json_put_string(&w, "advice", e->advice);
	ofs_json_print(&w);
}

static void print(const struct ofs_code *e)
{
	struct ofs_buf b = { 0 };

	ofs_buf_printf(&b, "OFS%03d %s\n  means: %s\n  to do: %s\n", e->number,
	    e->errnos, e->meaning, e->advice);
	ofs_tool_print_buf(&b, TEXT);
}

static void list(void)
{
	struct ofs_buf b = { 0 };

	for (size_t i = 0; i < ofs_ncodes; i++)
		ofs_buf_printf(&b, "OFS%03d  %s\n", ofs_codes[i].number,
		    ofs_codes[i].meaning);
	ofs_tool_print_buf(&b, TEXT);
}

static void list_json(void)
{
	for (size_t i = 0; i < ofs_ncodes; i++)
		print_json(&ofs_codes[i]);
}

static int explain(const struct ofs_verb *self, const char *word, bool json)
{
	int number = number_of(word);
	const struct ofs_code *e;

	if (number == -1)
		return ofs_tool_usage(self,
		    "'%s' is not an error code like OFS603", word);
	e = ofs_code_find(number);
	if (e == NULL) {
		ofs_tool_say("there is no code OFS%03d; optimfs explain lists "
			     "all",
		    number);
		return OFS_EXIT_IO;
	}
	if (json)
		print_json(e);
	else
		print(e);
	return OFS_EXIT_OK;
}

static int run_explain(const struct ofs_verb *self, int argc, char **argv)
{
	enum { JSON = 256 };
	static const struct ofs_flag flags[] = {
		{ JSON, "json", false },
		{ 0, NULL, false },
	};
	const char *value, *word = NULL;
	struct ofs_args a;
	bool json = false;
	int id, status = OFS_EXIT_OK;

	ofs_args_init(&a, self, argc, argv, flags, NULL);
	while ((id = ofs_args_next(&a, &value, &status)) != OFS_ARGS_END) {
		if (id == OFS_ARGS_STOP)
			return status;
		json |= id == JSON;
		if (id != OFS_ARGS_OPERAND)
			continue;
		if (word != NULL)
			return ofs_tool_usage(self, "more than one code");
		word = value;
	}
	if (word == NULL && json)
		list_json();
	else if (word == NULL)
		list();
	else
		status = explain(self, word, json);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_explain = {
	.name = "explain",
	.synopsis = "[--json] [OFSnnn]",
	.summary = "explain an error code, or list all codes",
	.options = "  --json  print it as JSON\n",
	.run = run_explain,
};
