/* credentials.c - the keys of AWS, wherever its command line finds them */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "store/http/credentials.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/json.h"
#include "base/memory.h"
#include "store/http/texts.h"
#include "store/http/url.h"

/* As botocore has it: seconds, and how often. */
#define CONTAINER_WAIT  2
#define CONTAINER_TRIES 3
#define INSTANCE_WAIT   1
#define INSTANCE_TRIES  1
#define STS_WAIT        20
#define STS_TRIES       3
/* Keys are replaced so long before they expire, or a quarter of their time. */
#define EARLY 900
/* After a failure. */
#define AGAIN 30

#define CONTAINER_SERVER "http://169.254.170.2"
#define INSTANCE_SERVER  "http://169.254.169.254"

/* What one place gave. They are few, and whoever uses one does not say when it
 * is done, so all are kept. */
struct keys {
	struct ofs_http_signer signer;
	char key[200], secret[200], session[4000];
	int64_t began, expires; /* seconds since 1970; 0: never */
	struct keys *before;
};

struct place {
	const char *name;
	/* Fills key, secret, session and expires. */
	int (*fetch)(struct keys *k, struct optimfs_error *err);
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct ofs_profile profile;
static const struct ofs_http *http;
static const struct place *place; /* NULL: keys do not change */
static bool is_chosen, wanted;
static pid_t the_process; /* that has the thread */
static unsigned rounds;
static struct optimfs_error why; /* the last round failed */
/* Why there are no keys; code 0: there are. */
static struct optimfs_error none;
static _Atomic(struct keys *) current;

/* Requests to a place. */

static void sleep_second(void)
{
	struct timespec t = { 1, 0 };

	while (nanosleep(&t, &t) == -1 && errno == EINTR)
		;
}

/* The answer is in q->body. Of an error only the status is shown. */
static int ask(struct ofs_http_request *q, const char *from, unsigned tries,
    struct optimfs_error *err)
{
	for (unsigned i = 0;; i++) {
		q->body = (struct ofs_buf){ .limit = 64 << 10 };
		http->ops->perform(http->m, q, 1);
		ofs_buf_fini(&q->headers);
		if (q->status == 200 && q->end == OFS_HTTP_WHOLE)
			return 0;
		ofs_buf_fini(&q->body);
		if (i + 1 == tries)
			break;
		sleep_second();
	}
	return q->status == 0
	    ? optimfs_fail(err, EACCES, "OFS923 %s gives no keys of AWS: %s",
		  from, q->why)
	    : optimfs_fail(err, EACCES,
		  "OFS923 %s gives no keys of AWS (HTTP %d)", from, q->status);
}

static int no_keys(const char *from, struct optimfs_error *err)
{
	return optimfs_fail(err, EACCES,
	    "OFS923 %s gives no keys of AWS, but something else", from);
}

/* A value that is too long makes all of them useless. */
static bool take_text(const struct ofs_str *name, const struct ofs_str *value,
    struct ofs_http_text *t, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		if (!ofs_str_is(*name, t[i].name))
			continue;
		if (value->len >= t[i].size)
			return false;
		memcpy(t[i].to, value->p, value->len);
		t[i].to[value->len] = '\0';
	}
	return true;
}

/* The members of an object that are strings. */
static bool take_json(const struct ofs_buf *body, struct ofs_http_text *text,
    size_t n)
{
	struct ofs_json j;
	enum ofs_json_token t;
	char name[64];
	bool fit = true;

	ofs_json_init(&j, body->data, (uint32_t)body->len);
	t = ofs_json_next(&j, NULL);
	while (fit && t != OFS_JSON_ERROR &&
	    (t = ofs_json_next(&j, NULL)) == OFS_JSON_KEY) {
		struct ofs_str key = { name, j.str.len };

		if (j.str.len < sizeof(name))
			memcpy(name, j.str.p, j.str.len);
		else
			key.len = 0;
		t = ofs_json_next(&j, NULL);
		if (t == OFS_JSON_STRING)
			fit = take_text(&key, &j.str, text, n);
		else if (ofs_json_skip(&j, t, NULL) == -1)
			break;
	}
	ofs_json_fini(&j);
	return fit;
}

static int take_keys(struct keys *k, struct ofs_http_request *q, bool xml,
    const char *from, struct optimfs_error *err)
{
	char expires[64] = "", root[OFS_HTTP_ROOT];
	struct ofs_http_text text[] = {
		{ "AccessKeyId", k->key, sizeof(k->key) },
		{ "SecretAccessKey", k->secret, sizeof(k->secret) },
		{ xml ? "SessionToken" : "Token", k->session,
		    sizeof(k->session) },
		{ "Expiration", expires, sizeof(expires) },
	};
	const size_t n = sizeof(text) / sizeof(*text);
	bool fit = true;

	if (!xml)
		fit = take_json(&q->body, text, n);
	else if (ofs_http_texts(http, &q->body, text, n, root) == -1)
		k->key[0] = '\0';
	else /* these always have one */
		fit = k->key[0] == '\0' || k->session[0] != '\0';
	ofs_buf_fini(&q->body);
	if (!fit)
		return optimfs_fail(err, EACCES,
		    "OFS923 %s gives keys of AWS whose session token is too "
		    "long",
		    from);
	k->expires = ofs_http_date_ns(expires) / 1000000000;
	return k->key[0] != '\0' && k->secret[0] != '\0' ? 0
							 : no_keys(from, err);
}

/* The first line of a file, without spaces around it. */
static int read_line(const char *path, char *to, size_t size,
    struct optimfs_error *err)
{
	FILE *f = fopen(path, "re");
	size_t n;

	if (f == NULL)
		return optimfs_fail(err, EACCES,
		    "OFS923 %s, the token for keys of AWS: %m", path);
	n = fread(to, 1, size - 1, f);
	fclose(f);
	if (n == size - 1)
		return optimfs_fail(err, EACCES,
		    "OFS923 %s is too long for a token for keys of AWS", path);
	to[n] = '\0';
	to[strcspn(to, " \t\r\n")] = '\0';
	return 0;
}

/* Places. */

static const char *variable(const char *name)
{
	const char *v = getenv(name);

	return v != NULL && v[0] != '\0' ? v : NULL;
}

/* Without TLS a token may go to this machine only, or to the address that a
 * container has for this. */
static bool may_have_token(const char *url)
{
	static const char *const hosts[] = { "169.254.170.2", "169.254.170.23",
		"fd00:ec2::23", "localhost", "::1", NULL };
	const char *host = url + 7;
	size_t n;

	if (strncmp(url, "https://", 8) == 0)
		return true;
	/* behind a user, which none of these needs, another host could be */
	if (strncmp(url, "http://", 7) != 0 || strpbrk(url, "@\\") != NULL)
		return false;
	if (*host == '[')
		n = strcspn(++host, "]");
	else
		n = strcspn(host, ":/?#");
	if (n > 4 && strncmp(host, "127.", 4) == 0 &&
	    strspn(host, "0123456789.") >= n)
		return true;
	for (size_t i = 0; hosts[i] != NULL; i++)
		if (strlen(hosts[i]) == n && strncmp(host, hosts[i], n) == 0)
			return true;
	return false;
}

static int fetch_container(struct keys *k, struct optimfs_error *err)
{
	const char *path = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
	const char *full = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
	const char *file = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
	const char *token = variable("AWS_CONTAINER_AUTHORIZATION_TOKEN");
	static const char from[] = "the metadata of the container";
	char url[2048], line[8192], header[8300];
	const char *headers[] = { "Accept: application/json", NULL, NULL };
	struct ofs_http_request q = { .url = url,
		.header = headers,
		.direct = true,
		.timeout = CONTAINER_WAIT };

	snprintf(url, sizeof(url), "%s%s", path != NULL ? CONTAINER_SERVER : "",
	    path != NULL ? path : full);
	if (!may_have_token(url))
		return optimfs_fail(err, EACCES,
		    "OFS923 AWS_CONTAINER_CREDENTIALS_FULL_URI is the address "
		    "of another machine, without TLS");
	if (path == NULL && file != NULL) {
		if (read_line(file, line, sizeof(line), err) == -1)
			return -1;
		token = line;
	}
	if (path == NULL && token != NULL) {
		snprintf(header, sizeof(header), "Authorization: %s", token);
		if (strpbrk(token, "\r\n") != NULL)
			return no_keys(from, err);
		headers[1] = header;
	}
	if (ask(&q, from, CONTAINER_TRIES, err) == -1)
		return -1;
	return take_keys(k, &q, false, from, err);
}

/* One document of the metadata of an instance, into q->body. */
static int ask_instance(struct ofs_http_request *q, const char *path,
    const char *header, struct optimfs_error *err)
{
	const char *server = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT");
	const char *mode = variable("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE");
	const char *headers[] = { header, NULL };
	char url[1024];
	size_t n;

	if (server == NULL)
		server = mode != NULL && strcasecmp(mode, "ipv6") == 0
		    ? "http://[fd00:ec2::254]"
		    : INSTANCE_SERVER;
	n = strlen(server);
	snprintf(url, sizeof(url), "%.*s/latest/%s",
	    (int)(n > 0 && server[n - 1] == '/' ? n - 1 : n), server, path);
	q->url = url;
	q->header = headers;
	q->direct = true;
	q->timeout = INSTANCE_WAIT;
	return ask(q, "the metadata of the instance", INSTANCE_TRIES, err);
}

static int fetch_instance(struct keys *k, struct optimfs_error *err)
{
	struct ofs_http_request q = { .method = "PUT", .send = "" };
	char header[1024], path[512];

	if (ask_instance(&q, "api/token",
		"x-aws-ec2-metadata-token-ttl-seconds: 21600", err) == -1)
		return -1;
	snprintf(header, sizeof(header), "x-aws-ec2-metadata-token: %.*s",
	    (int)q.body.len, (const char *)q.body.data);
	ofs_buf_fini(&q.body);
	q = (struct ofs_http_request){ .url = NULL };
	if (ask_instance(&q, "meta-data/iam/security-credentials/", header,
		err) == -1)
		return -1;
	snprintf(path, sizeof(path), "meta-data/iam/security-credentials/%.*s",
	    (int)q.body.len, (const char *)q.body.data);
	path[strcspn(path, "\r\n")] = '\0';
	ofs_buf_fini(&q.body);
	q = (struct ofs_http_request){ .url = NULL };
	if (ask_instance(&q, path, header, err) == -1)
		return -1;
	return take_keys(k, &q, false, "the metadata of the instance", err);
}

static void put_field(struct ofs_buf *b, const char *name, const char *value)
{
	ofs_buf_printf(b, "&%s=", name);
	ofs_url_escape(b, value, strlen(value));
}

/* A token of who runs this, for keys. */
static int fetch_web(struct keys *k, struct optimfs_error *err)
{
	static const char from[] = "the security token service";
	struct ofs_buf body = { 0 };
	const struct ofs_http_login login = {
		.ca = profile.ca[0] == '\0' ? NULL : profile.ca,
	};
	struct ofs_http_request q = { .method = "POST", .timeout = STS_WAIT };
	char token[20000], url[600], session[64];
	int ret;

	if (read_line(profile.token_file, token, sizeof(token), err) == -1)
		return -1;
	if (profile.sts[0] != '\0')
		snprintf(url, sizeof(url), "%s", profile.sts);
	else if (profile.region[0] != '\0')
		ofs_aws_address(url, sizeof(url), "sts", profile.region);
	else
		snprintf(url, sizeof(url), "https://sts.amazonaws.com");
	snprintf(session, sizeof(session), "optimfs-%ld", (long)getpid());
	ofs_buf_puts(&body,
	    "Action=AssumeRoleWithWebIdentity&Version=2011-06-15");
	put_field(&body, "RoleArn", profile.role);
	put_field(&body, "RoleSessionName",
	    profile.role_session[0] != '\0' ? profile.role_session : session);
	put_field(&body, "WebIdentityToken", token);
	if (body.bad) {
		ofs_buf_fini(&body);
		return ofs_no_memory(err);
	}
	q.url = url;
	q.login = &login;
	q.send = body.data;
	q.nsend = body.len;
	ret = ask(&q, from, STS_TRIES, err);
	ofs_buf_fini(&body);
	return ret == -1 ? -1 : take_keys(k, &q, true, from, err);
}

static const struct place of_web = { "web identity", fetch_web };
static const struct place of_container = { "container", fetch_container };
static const struct place of_instance = { "instance", fetch_instance };

/* Choosing one. */

static int refuse(const char *what, struct optimfs_error *err)
{
	return optimfs_fail(err, EACCES,
	    "OFS923 the profile %s of AWS has %s, which optimfs cannot use: "
	    "aws configure export-credentials --format env prints keys for the "
	    "environment",
	    profile.name, what);
}

static int choose(struct optimfs_error *err)
{
	const char *off = variable("AWS_EC2_METADATA_DISABLED");

	if (profile.too_long != NULL)
		return optimfs_fail(err, EACCES,
		    "OFS923 %s, a setting of AWS, is too long",
		    profile.too_long);
	if (profile.no_services)
		return optimfs_fail(err, EACCES,
		    "OFS923 the profile %s of AWS has the addresses of services "
		    "%s, and there is no such section",
		    profile.name, profile.services);
	if (profile.from_variables)
		return 0;
	if (!profile.found && strcmp(profile.name, "default") != 0)
		return optimfs_fail(err, EACCES,
		    "OFS923 there is no profile %s of AWS (AWS_PROFILE)",
		    profile.name);
	if (profile.role[0] != '\0' && profile.source != NULL)
		return refuse(profile.source, err);
	if (profile.token_file[0] != '\0' && profile.role[0] == '\0')
		return optimfs_fail(err, EACCES,
		    "OFS923 a token of AWS (web identity) needs a role: set "
		    "AWS_ROLE_ARN");
	if (profile.token_file[0] != '\0')
		place = &of_web;
	else if (profile.key[0] != '\0')
		return 0;
	else if (profile.other != NULL)
		return refuse(profile.other, err);
	else if (variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") != NULL ||
	    variable("AWS_CONTAINER_CREDENTIALS_FULL_URI") != NULL)
		place = &of_container;
	else if (off == NULL || strcasecmp(off, "true") != 0)
		place = &of_instance;
	return 0;
}

/* Keys. */

static void publish(struct keys *k)
{
	k->signer = (struct ofs_http_signer){ k->key, k->secret,
		k->session[0] == '\0' ? NULL : k->session };
	k->before = atomic_load(&current);
	atomic_store(&current, k);
}

static int fetch(const struct place *from, struct optimfs_error *err)
{
	struct keys *k = ofs_alloc(1, sizeof(*k), err);

	if (k == NULL)
		return -1;
	k->began = ofs_now_ns() / 1000000000;
	if (from->fetch(k, err) == -1) {
		free(k);
		return -1;
	}
	publish(k);
	return 0;
}

static int keep_static(struct optimfs_error *err)
{
	struct keys *k = ofs_alloc(1, sizeof(*k), err);

	if (k == NULL)
		return -1;
	strcpy(k->key, profile.key);
	strcpy(k->secret, profile.secret);
	strcpy(k->session, profile.session);
	publish(k);
	return 0;
}

/* When to ask again, in seconds since 1970. */
static int64_t due_at(void)
{
	const struct keys *k = atomic_load(&current);
	int64_t now = ofs_now_ns() / 1000000000, life;

	if (why.code != 0)
		return now + AGAIN;
	if (k == NULL || k->expires == 0)
		return now + 3600;
	life = k->expires - k->began;
	life -= life / 4 < EARLY ? life / 4 : EARLY;
	return k->began + (life > AGAIN ? life : AGAIN);
}

static void *keep_fresh(void *ctx)
{
	struct timespec t = { .tv_sec = due_at() };

	(void)ctx;
	pthread_mutex_lock(&lock);
	for (;;) {
		struct optimfs_error err = { 0 };

		while (!wanted &&
		    pthread_cond_timedwait(&changed, &lock, &t) != ETIMEDOUT)
			;
		pthread_mutex_unlock(&lock);
		if (fetch(place, &err) == 0)
			err.code = 0;
		pthread_mutex_lock(&lock);
		why = err;
		wanted = false;
		rounds++;
		t.tv_sec = due_at();
		pthread_cond_broadcast(&changed);
	}
	return NULL;
}

static int start(struct optimfs_error *err)
{
	pthread_t thread;

	if (place == NULL || the_process == getpid())
		return 0;
	if (atomic_load(&current) == NULL && fetch(place, err) == -1) {
		/* most machines are no instance */
		if (place != &of_instance)
			return -1;
		none = *err;
		place = NULL;
		return 0;
	}
	pthread_cond_init(&changed, NULL); /* of a parent, before a fork */
	if (pthread_create(&thread, NULL, keep_fresh, NULL) != 0)
		return optimfs_fail(err, EAGAIN, "cannot start a thread");
	pthread_detach(thread);
	the_process = getpid();
	return 0;
}

int ofs_credentials_prepare(const struct ofs_http *h, struct optimfs_error *err)
{
	int ret = 0;

	pthread_mutex_lock(&lock);
	http = h;
	if (!is_chosen) {
		ofs_profile_read(&profile);
		ret = choose(err);
		if (ret == 0 && place == NULL && profile.key[0] != '\0')
			ret = keep_static(err);
		is_chosen = ret == 0;
	}
	if (ret == 0)
		ret = start(err);
	pthread_mutex_unlock(&lock);
	return ret;
}

const struct ofs_profile *ofs_credentials_profile(void)
{
	return &profile;
}

const struct ofs_http_signer *ofs_credentials(void)
{
	const struct keys *k = atomic_load(&current);

	return k == NULL ? NULL : &k->signer;
}

const char *ofs_credentials_missing(void)
{
	return none.code == 0 ? "no keys of AWS were found"
			      : optimfs_error_words(&none);
}

int ofs_credentials_renew(const struct ofs_http_signer *was,
    struct optimfs_error *err)
{
	unsigned round;
	int ret = 0;

	pthread_mutex_lock(&lock);
	round = rounds;
	if (place != NULL && the_process == getpid())
		while (ofs_credentials() == was && round == rounds) {
			wanted = true;
			pthread_cond_broadcast(&changed);
			pthread_cond_wait(&changed, &lock);
		}
	if (ofs_credentials() == was)
		ret = why.code != 0
		    ? optimfs_fail_with(err, &why)
		    : optimfs_fail(err, EACCES,
			  "OFS923 the keys of AWS have expired: "
			  "get new ones, and open it again");
	pthread_mutex_unlock(&lock);
	return ret;
}
