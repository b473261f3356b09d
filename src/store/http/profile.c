/* profile.c - who asks, as the AWS command line knows it */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/profile.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A setting of a file, a variable, or both; NULL: not that. One of a group, which
 * is below another setting, indented, has the name "GROUP.NAME". */
struct member {
	const char *name, *variable;
	char *to;
	size_t size;
};

#define KEYS    3 /* the first ones are of one source */
#define MEMBERS 13

static void list_members(struct ofs_profile *p, struct member m[MEMBERS])
{
	const struct member all[MEMBERS] = {
		{ "aws_access_key_id", "AWS_ACCESS_KEY_ID", p->key,
		    sizeof(p->key) },
		{ "aws_secret_access_key", "AWS_SECRET_ACCESS_KEY", p->secret,
		    sizeof(p->secret) },
		{ "aws_session_token", "AWS_SESSION_TOKEN", p->session,
		    sizeof(p->session) },
		{ "region", NULL, p->region, sizeof(p->region) },
		{ "endpoint_url", NULL, p->any, sizeof(p->any) },
		{ "role_arn", "AWS_ROLE_ARN", p->role, sizeof(p->role) },
		{ "web_identity_token_file", "AWS_WEB_IDENTITY_TOKEN_FILE",
		    p->token_file, sizeof(p->token_file) },
		{ "role_session_name", "AWS_ROLE_SESSION_NAME", p->role_session,
		    sizeof(p->role_session) },
		{ "ca_bundle", "AWS_CA_BUNDLE", p->ca, sizeof(p->ca) },
		{ "s3.addressing_style", NULL, p->style, sizeof(p->style) },
		{ "services", NULL, p->services, sizeof(p->services) },
		{ "ignore_configured_endpoint_urls",
		    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", p->ignore,
		    sizeof(p->ignore) },
		/* as GDAL and others have it: the AWS command line has an
		 * option */
		{ NULL, "AWS_REQUEST_PAYER", p->payer, sizeof(p->payer) },
	};

	memcpy(m, all, sizeof(all));
}

/* Of the section of services. */
static void list_services(struct ofs_profile *p, struct member m[MEMBERS])
{
	const struct member all[] = {
		{ "s3.endpoint_url", NULL, p->s3, sizeof(p->s3) },
		{ "sts.endpoint_url", NULL, p->other_sts,
		    sizeof(p->other_sts) },
	};

	memset(m, 0, MEMBERS * sizeof(*m));
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

/* Is the line the begin of the section of this kind and name? kind: with a space
 * at its end, and "profile " may be left out. */
static bool is_section(char *line, const char *kind, const char *name)
{
	char *end = strchr(line, ']');
	bool has;
	size_t n;

	if (end == NULL)
		return false;
	*end = '\0';
	line = trim(line + 1);
	has = strncmp(line, kind, strlen(kind)) == 0;
	if (!has && strcmp(kind, "profile ") != 0)
		return false;
	line = trim(line + (has ? strlen(kind) : 0));
	n = strlen(line);
	if (n >= 2 && line[0] == '"' && line[n - 1] == '"') {
		line[n - 1] = '\0';
		line++;
	}
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

/* A section that is read. */
struct section {
	const char *kind, *name;
	struct member m[MEMBERS];
	bool set[MEMBERS]; /* what is set already stays */
	bool inside;
	char group[40]; /* that the last line is in, or begins */
};

static void take_line(struct ofs_profile *p, struct section *s, char *line)
{
	bool below = isspace((unsigned char)line[0]);
	char *equals = strchr(line, '='), *value, name[100];

	if (equals == NULL || line[0] == '#' || line[0] == ';')
		return;
	*equals = '\0';
	value = trim(equals + 1);
	line = trim(line);
	if (!below)
		snprintf(s->group, sizeof(s->group), "%s",
		    value[0] == '\0' ? line : "");
	snprintf(name, sizeof(name), "%s%s%s", below ? s->group : "",
	    below ? "." : "", line);
	for (size_t i = 0; i < MEMBERS; i++)
		if (s->m[i].name != NULL && !s->set[i] &&
		    strcmp(name, s->m[i].name) == 0)
			set_to(p, s->m[i].to, s->m[i].size, s->m[i].name,
			    value);
	note_other(p, name);
}

static bool read_section(struct ofs_profile *p, struct section *s, FILE *f)
{
	char line[2 * sizeof(p->session)];
	bool found = false;

	while (fgets(line, sizeof(line), f) != NULL) {
		if (line[0] == '[') {
			s->inside = is_section(line, s->kind, s->name);
			s->group[0] = '\0';
			found |= s->inside;
		} else if (s->inside) {
			take_line(p, s, line);
		}
	}
	return found;
}

static void read_profile(struct ofs_profile *p, FILE *f)
{
	struct section s = { .kind = "profile ", .name = p->name };

	list_members(p, s.m);
	for (size_t i = 0; i < MEMBERS; i++)
		s.set[i] = i < KEYS ? p->key[0] != '\0' : s.m[i].to[0] != '\0';
	p->found |= read_section(p, &s, f);
	if (p->services[0] == '\0')
		return;
	rewind(f);
	s = (struct section){ .kind = "services ", .name = p->services };
	list_services(p, s.m);
	p->has_services |= read_section(p, &s, f);
}

static void read_file(struct ofs_profile *p, const char *variable,
    const char *name)
{
	const char *path = getenv(variable), *home = getenv("HOME");
	char own[4096];
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
	read_profile(p, f);
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

/* A variable of the service, or of all; then what the files say, in this order.
 * true: they count. */
static bool choose_address(struct ofs_profile *p, char *to, size_t size,
    const char *variable, const char *service)
{
	if (strcasecmp(p->ignore, "true") == 0)
		return false;
	set_first(p, to, size, variable, "AWS_ENDPOINT_URL");
	if (to[0] != '\0')
		return false;
	snprintf(to, size, "%s", service[0] != '\0' ? service : p->any);
	return true;
}

void ofs_profile_read(struct ofs_profile *p)
{
	struct member m[MEMBERS];

	*p = (struct ofs_profile){ .name = "default" };
	set_first(p, p->name, sizeof(p->name), "AWS_PROFILE",
	    "AWS_DEFAULT_PROFILE");
	list_members(p, m);
	for (size_t i = 0; i < MEMBERS; i++)
		if (m[i].variable != NULL)
			set_to(p, m[i].to, m[i].size, m[i].variable,
			    getenv(m[i].variable));
	set_first(p, p->region, sizeof(p->region), "AWS_REGION",
	    "AWS_DEFAULT_REGION");
	p->from_variables = p->key[0] != '\0';
	read_file(p, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
	read_file(p, "AWS_CONFIG_FILE", "config");
	if (choose_address(p, p->endpoint, sizeof(p->endpoint),
		"AWS_ENDPOINT_URL_S3", p->s3))
		p->no_services = p->services[0] != '\0' && !p->has_services;
	(void)choose_address(p, p->sts, sizeof(p->sts), "AWS_ENDPOINT_URL_STS",
	    p->other_sts);
}

void ofs_aws_address(char *to, size_t size, const char *service,
    const char *region)
{
	snprintf(to, size, "https://%s.%s.amazonaws.com%s", service, region,
	    strncmp(region, "cn-", 3) == 0 ? ".cn" : "");
}
