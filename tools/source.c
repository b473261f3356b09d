/* source.c - checkpoints named by their mount point */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tools/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "fuse/mountinfo.h"
#include "tools/control.h"

#define INFO_MAX (1u << 20)
#define VIEWS    ".optimfs/view/"

/* Finds the mount that contains real; returns the length of the mount point, 0:
 * none. */
static size_t mount_of(const char *real, struct ofs_mountinfo *m)
{
	char *prefix = strdup(real);
	size_t n = prefix == NULL ? 0 : strlen(prefix);

	for (; n > 1; n = (size_t)(strrchr(prefix, '/') - prefix)) {
		prefix[n] = '\0';
		if (ofs_mountinfo_find(prefix, m)) {
			if (strcmp(m->type, "fuse.optimfs") != 0)
				n = 0;
			break;
		}
	}
	free(prefix);
	return n > 1 ? n : 0;
}

/* {..., "options": {"type": null, "ids": "FILE", ...}, ...} */
static void take_options(struct ofs_tool_source *s, struct ofs_json *j)
{
	enum ofs_json_token token;
	char name[64], value[4096];

	while ((token = ofs_json_next(j, NULL)) == OFS_JSON_KEY) {
		snprintf(name, sizeof(name), "%.*s", (int)j->str.len, j->str.p);
		token = ofs_json_next(j, NULL);
		if (token == OFS_JSON_STRING) {
			snprintf(value, sizeof(value), "%.*s", (int)j->str.len,
			    j->str.p);
			(void)ofs_options_set(&s->options, name, value, NULL);
		} else if (ofs_json_skip(j, token, NULL) == -1) {
			return;
		}
	}
}

/* Does the text name the format of the checkpoint? */
static bool parse_info(struct ofs_tool_source *s, const char *text, size_t n)
{
	struct ofs_json j;
	enum ofs_json_token token;
	bool format = false;

	ofs_json_init(&j, text, (uint32_t)n);
	if (ofs_json_next(&j, NULL) == OFS_JSON_OBJECT)
		while (ofs_json_next(&j, NULL) == OFS_JSON_KEY) {
			bool options = ofs_str_is(j.str, "options");

			format |= ofs_str_is(j.str, "format");
			token = ofs_json_next(&j, NULL);
			if (options && token == OFS_JSON_OBJECT)
				take_options(s, &j);
			else if (ofs_json_skip(&j, token, NULL) == -1)
				break;
		}
	ofs_json_fini(&j);
	return format;
}

/* A mount without this information is used as a plain directory. */
static bool read_info(struct ofs_tool_source *s, const char *point)
{
	char *path = NULL, *text = malloc(INFO_MAX);
	bool known = false;
	FILE *f = NULL;

	if (text != NULL &&
	    asprintf(&path, "%s/.optimfs/info.json", point) != -1)
		f = fopen(path, "re");
	if (f != NULL) {
		known = parse_info(s, text, fread(text, 1, INFO_MAX, f));
		fclose(f);
	}
	free(path);
	free(text);
	return known;
}

int ofs_source_find(const char *given, struct ofs_tool_source *s)
{
	struct ofs_mountinfo m = { 0 };
	char *real = ofs_mount_point_path(given, NULL);
	size_t n = real == NULL ? 0 : mount_of(real, &m);
	struct ofs_control c;
	const char *inner;

	*s = (struct ofs_tool_source){ .options.table = ofs_open_options };
	s->options.target = &s->open;
	if (n == 0)
		goto none;
	inner = real + n + (real[n] == '/');
	if (strncmp(inner, VIEWS, strlen(VIEWS)) == 0)
		goto none;
	if (!read_info(s, m.point)) {
		ofs_source_fini(s);
		goto none;
	}
	if (m.rw && ofs_control_read(m.point, &c, NULL) == 0)
		strcpy(s->staged, c.dirty);
	s->path = strdup(m.source);
	s->inner = strdup(inner);
	ofs_mountinfo_fini(&m);
	free(real);
	return s->path == NULL || s->inner == NULL ? -1 : 1;
none:
	ofs_mountinfo_fini(&m);
	free(real);
	return 0;
}

void ofs_source_fini(struct ofs_tool_source *s)
{
	free(s->path);
	free(s->inner);
	ofs_options_fini(&s->options);
	*s = (struct ofs_tool_source){ 0 };
}

void ofs_source_apply(const struct ofs_tool_source *s,
    struct optimfs_options *open)
{
	const char *const from[] = { s->open.type, s->open.optim_key,
		s->open.model_key, s->open.ids, s->open.subtree, s->open.fill,
		s->open.join, s->open.base };
	const char **const to[] = { &open->type, &open->optim_key,
		&open->model_key, &open->ids, &open->subtree, &open->fill,
		&open->join, &open->base };

	for (size_t i = 0; i < sizeof(to) / sizeof(to[0]); i++)
		if (*to[i] == NULL)
			*to[i] = from[i];
	if (s->open.run != OPTIMFS_RUN_NO)
		open->run = s->open.run;
}
