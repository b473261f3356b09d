/* profile.c - who asks, as the AWS command line knows it */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/profile.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct member {
	const char *name, *variable;
	char *to;
	size_t size;
};

#define MEMBERS 8

static void list_members(struct ofs_profile *p, struct member m[MEMBERS])
{
	const struct member all[MEMBERS] = {
		{ "aws_access_key_id", "AWS_ACCESS_KEY_ID", p->key,
		    sizeof(p->key) },
		{ "aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", p->secret,
		    sizeof(p->secret) },
		{ "aws_session_token", "AWS_SESSION_TOKEN", p->session,
		    sizeof(p->session) },
		{ "region", "AWS_REGION", p->region, sizeof(p->region) },
		{ "endpoint_url", "AWS_ENDPOINT_URL", p->endpoint,
		    sizeof(p->endpoint) },
		{ "role_arn", "AWS_ROLE_ARN", p->role, sizeof(p->role) },
		{ "web_identity_token_file", "AWS_WEB_IDENTITY_TOKEN_FILE",
		    p->token_file, sizeof(p->token_file) },
		{ "role_session_name", "AWS_ROLE_SESSION_NAME", p->role_session,
		    sizeof(p->role_session) },
	};

	memcpy(m, all, sizeof(all));
}

static char *trim(char *s)
{
	size_t n;

	s += strspn(s, " \t");
	for (n = strlen(s); n > 0 && isspace((unsigned char)s[n - 1]); n--)
		s[n - 1] = '\0';
	return s;
}

/* Is the line the begin of the section of the profile? */
static bool is_section(char *line, const char *name)
{
	char *end = strchr(line, ']');

	if (end == NULL)
		return false;
	*end = '\0';
	line = trim(line + 1);
	if (strncmp(line, "profile ", 8) == 0)
		line = trim(line + 8);
	return strcmp(line, name) == 0;
}

static void note_other(struct ofs_profile *p, const char *name)
{
	static const char *const source[] = { "source_profile",
		"credential_source" };
	static const char *const other[] = { "sso_session", "sso_start_url",
		"credential_process", "login_session" };

	for (size_t i = 0; i < sizeof(source) / sizeof(*source); i++)
		if (strcmp(name, source[i]) == 0)
			p->source = source[i];
	for (size_t i = 0; i < sizeof(other) / sizeof(*other); i++)
		if (strcmp(name, other[i]) == 0)
			p->other = other[i];
}

static void set_to(struct ofs_profile *p, char *to, size_t size,
    const char *name, const char *value)
{
	if (value == NULL)
		return;
	if (strlen(value) < size)
		strcpy(to, value);
	else
		p->too_long = name;
}

/* What is set already stays. */
static void take_line(struct ofs_profile *p, struct member m[MEMBERS],
    const bool set[MEMBERS], char *line)
{
	char *equals = strchr(line, '='), *value;

	if (equals == NULL || isspace((unsigned char)line[0]) ||
	    line[0] == '#' || line[0] == ';')
		return;
	*equals = '\0';
	value = trim(equals + 1);
	line = trim(line);
	for (size_t i = 0; i < MEMBERS; i++)
		if (!set[i] && strcmp(line, m[i].name) == 0)
			set_to(p, m[i].to, m[i].size, m[i].name, value);
	note_other(p, line);
}

static void read_file(struct ofs_profile *p, const char *variable,
    const char *name)
{
	const char *path = getenv(variable), *home = getenv("HOME");
	bool set[MEMBERS], inside = false;
	struct member m[MEMBERS];
	char line[2 * sizeof(p->session)], own[4096];
	FILE *f;

	if (path == NULL && home == NULL)
		return;
	if (path == NULL) {
		snprintf(own, sizeof(own), "%s/.aws/%s", home, name);
		path = own;
	}
	f = fopen(path, "re");
	if (f == NULL)
		return;
	list_members(p, m);
	/* keys are of one source */
	for (size_t i = 0; i < MEMBERS; i++)
		set[i] = i < 3 ? p->key[0] != '\0' : m[i].to[0] != '\0';
	while (fgets(line, sizeof(line), f) != NULL) {
		if (line[0] == '[') {
			inside = is_section(line, p->name);
			p->found |= inside;
		} else if (inside) {
			take_line(p, m, set, line);
		}
	}
	fclose(f);
}

/* The variable a, or if that is not set, b. */
static void set_first(struct ofs_profile *p, char *to, size_t size,
    const char *a, const char *b)
{
	const char *value = getenv(a);

	if (value == NULL || value[0] == '\0')
		value = getenv(a = b);
	set_to(p, to, size, a, value);
}

void ofs_profile_read(struct ofs_profile *p)
{
	struct member m[MEMBERS];

	*p = (struct ofs_profile){ .name = "default" };
	set_first(p, p->name, sizeof(p->name), "AWS_PROFILE",
	    "AWS_DEFAULT_PROFILE");
	list_members(p, m);
	for (size_t i = 0; i < MEMBERS; i++)
		set_to(p, m[i].to, m[i].size, m[i].variable,
		    getenv(m[i].variable));
	set_first(p, p->region, sizeof(p->region), "AWS_REGION",
	    "AWS_DEFAULT_REGION");
	set_first(p, p->endpoint, sizeof(p->endpoint), "AWS_ENDPOINT_URL_S3",
	    "AWS_ENDPOINT_URL");
	set_first(p, p->sts, sizeof(p->sts), "AWS_ENDPOINT_URL_STS",
	    "AWS_ENDPOINT_URL");
	p->from_variables = p->key[0] != '\0';
	read_file(p, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
	read_file(p, "AWS_CONFIG_FILE", "config");
}
