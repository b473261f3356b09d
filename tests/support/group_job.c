/* group_job.c - jobs whose ranks are threads, and their directories */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "support/group_job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "api/api.h"
#include "cluster/group.h"
#include "tap.h"

static char top[] = "/tmp/optimfs-group.XXXXXX";
char each_rank[40];

void begin_ranks(void)
{
	if (mkdtemp(top) == NULL)
		bail_out("mkdtemp");
	snprintf(each_rank, sizeof(each_rank), "%s/%%r", top);
}

void end_ranks(void)
{
	clear();
	rmdir(top);
}

static void run_rank(struct fakegroup *f, int rank, void *ctx)
{
	struct job *j = ctx;
	bool worker[MAX_RANKS];
	struct optimfs_error err;
	struct optimfs_group *w;

	memset(worker, true, sizeof(worker));
	w = ofs_group_new(&fakegroup_ops, 1, ofs_group_services, &err);
	if (w == NULL)
		bail_out("%s", err.text);
	fakegroup_meet(f);
	j->err[rank].code = 0;
	if ((j->path == NULL ||
		optimfs_group_offer(w, j->path, j->first, &j->options,
		    &j->err[rank]) == 0) &&
	    j->work != NULL)
		j->work(j, rank, w);
	fakegroup_meet(f);
	fakegroup_mute(f, rank, 0);
	fakegroup_kill(f, rank, 0);
	fakegroup_meet(f);
	optimfs_group_leave(w, worker);
}

void run(struct job *j)
{
	j->f = fakegroup_new(j->size);
	fakegroup_run(j->f, run_rank, j);
	fakegroup_free(j->f);
}

const char *path_of(const char *fmt, ...)
{
	static _Thread_local char path[4][4096];
	static _Thread_local unsigned next;
	char *p = path[next++ % 4];
	va_list ap;
	int n = snprintf(p, 4096, "%s/", top);

	va_start(ap, fmt);
	vsnprintf(p + n, (size_t)(4096 - n), fmt, ap);
	va_end(ap);
	return p;
}

void put(const char *path, const void *p, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd == -1 || write(fd, p, n) != (ssize_t)n)
		bail_out("%s: %s", path, strerror(errno));
	close(fd);
}

void load(const char *from, struct ofs_buf *b)
{
	FILE *f = fopen(from, "re");
	char part[65536];
	size_t n;

	if (f == NULL)
		bail_out("%s: %s", from, strerror(errno));
	while ((n = fread(part, 1, sizeof(part), f)) > 0)
		ofs_buf_put(b, part, n);
	fclose(f);
}

void copy(const char *from, const char *to)
{
	struct ofs_buf b = { 0 };

	load(from, &b);
	put(to, b.data, b.len);
	ofs_buf_fini(&b);
}

void make_dirs(int n)
{
	for (int r = 0; r < n; r++)
		if (mkdir(path_of("%d", r), 0755) == -1 && errno != EEXIST)
			bail_out("%s", strerror(errno));
}

void clear(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s/?", top);
	if (system(command) != 0)
		bail_out("rm");
}

bool is_dir(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Distributes the directory rel, "/a/b" or "", of the checkpoint from. */
static void spread_below(const char *from, const char *rel, int n, int *k)
{
	struct dirent **e;
	char source[4096], below[4096];
	int count;

	snprintf(source, sizeof(source), "%s%s", from, rel);
	count = scandir(source, &e, NULL, alphasort);
	if (count == -1)
		bail_out("%s: %s", source, strerror(errno));
	for (int i = 0; i < count; i++) {
		const char *name = e[i]->d_name;
		int len = snprintf(below, sizeof(below), "%s/%s", rel, name);

		if ((size_t)len >= sizeof(below) ||
		    (size_t)snprintf(source, sizeof(source), "%s%s", from,
			below) >= sizeof(source))
			bail_out("%s: too long", name);
		if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0) {
			free(e[i]);
			continue;
		}
		if (is_dir(source)) {
			for (int r = 0; r < n; r++)
				if (mkdir(path_of("%d%s", r, below), 0755) ==
				    -1)
					bail_out("%s", strerror(errno));
			spread_below(from, below, n, k);
		} else {
			copy(source, path_of("%d%s", (*k)++ % n, below));
		}
		free(e[i]);
	}
	free(e);
}

/* Copies each file of a checkpoint to one of n directories, in turn. */
void spread_more(const char *from, int n)
{
	int k = 0;

	make_dirs(n);
	spread_below(from, "", n, &k);
}

void spread(const char *from, int n)
{
	clear();
	spread_more(from, n);
}
