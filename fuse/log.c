/* log.c - the messages of a daemon */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#define FUSE_USE_VERSION 312
#include <errno.h>
#include <fuse_log.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <time.h>

#include "base/utf8.h"
#include "fuse/log.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *file; /* NULL: syslog or standard error */
static bool to_syslog, begun, keeping;
static char kept[OFS_LOG_KEPT];

/* Under lock. text may end in a newline. */
static void put(int priority, const char *text)
{
	size_t n = strcspn(text, "\n");
	struct tm tm;
	char when[32];
	time_t now;

	if (begun && to_syslog) {
		syslog(priority, "%.*s", (int)n, text);
		return;
	}
	if (!begun || file == NULL) {
		fprintf(stderr, "optimfs: %.*s\n", (int)n, text);
		return;
	}
	now = time(NULL);
	strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &tm));
	fprintf(file, "%s %.*s\n", when, (int)n, text);
	fflush(file);
}

static void from_libfuse(enum fuse_log_level level, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));
static void from_libfuse(enum fuse_log_level level, const char *fmt, va_list ap)
{
	char text[1024];

	vsnprintf(text, sizeof(text), fmt, ap);
	pthread_mutex_lock(&lock);
	if (keeping && level != FUSE_LOG_DEBUG) {
		size_t n = strcspn(text, "\n");

		snprintf(kept, sizeof(kept), "%.*s", (int)n, text);
	} else if (level == FUSE_LOG_DEBUG) {
		fputs(text, stderr);
	} else {
		put((int)level, text);
	}
	pthread_mutex_unlock(&lock);
}

int ofs_log_open(const char *where, struct optimfs_error *err)
{
	fuse_set_log_func(from_libfuse);
	if (strcmp(where, "stderr") == 0)
		return 0;
	if (strcmp(where, "syslog") == 0) {
		openlog("optimfs", LOG_PID, LOG_DAEMON);
		to_syslog = true;
		return 0;
	}
	file = fopen(where, "ae");
	if (file == NULL)
		return optimfs_fail(err, EINVAL, "option 'log=%s': %m", where);
	return 0;
}

void ofs_log_begin(void)
{
	pthread_mutex_lock(&lock);
	begun = true;
	pthread_mutex_unlock(&lock);
}

void ofs_log_close(void)
{
	pthread_mutex_lock(&lock);
	if (to_syslog)
		closelog();
	if (file != NULL)
		fclose(file);
	to_syslog = begun = false;
	file = NULL;
	pthread_mutex_unlock(&lock);
}

void ofs_log(const char *fmt, ...)
{
	char text[1024];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	ofs_utf8_disarm(text);
	pthread_mutex_lock(&lock);
	put(LOG_NOTICE, text);
	pthread_mutex_unlock(&lock);
}

void ofs_log_keep(bool on)
{
	pthread_mutex_lock(&lock);
	keeping = on;
	if (on)
		kept[0] = '\0';
	pthread_mutex_unlock(&lock);
}

const char *ofs_log_kept(char text[OFS_LOG_KEPT])
{
	pthread_mutex_lock(&lock);
	strcpy(text, kept);
	pthread_mutex_unlock(&lock);
	return text;
}
