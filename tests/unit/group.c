/* group.c - checkpoints spread over ranks that are threads */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "api/group.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "cluster/manifest.h"
#include "cluster/transport.h"
#include "cluster/wire.h"
#include "handmade.h"
#include "support/fakegroup.h"
#include "support/truth.h"
#include "tap.h"

#define MAX_RANKS 8

static char top[] = "/tmp/optimfs-group.XXXXXX";
static char each_rank[sizeof(top) + 3]; /* "/tmp/.../%r" */

/* One job: each rank runs work on a thread of its own. */
struct job {
	struct fakegroup *f;
	int size;
	const char *path;
	bool first;
	struct optimfs_options options;
	void (*work)(struct job *j, int rank, struct optimfs_group *w);
	void *ctx;
	struct optimfs_error err[MAX_RANKS]; /* of the offer */
	pthread_barrier_t barrier;
};

struct rank {
	struct job *job;
	int rank;
	pthread_t thread;
};

static void *run_rank(void *arg)
{
	struct rank *r = arg;
	struct job *j = r->job;
	bool worker[MAX_RANKS];
	struct optimfs_error err;
	struct optimfs_group *w;

	memset(worker, true, sizeof(worker));
	fakegroup_be(j->f, r->rank);
	w = ofs_group_new(&fakegroup_ops, 1, ofs_group_services, &err);
	if (w == NULL)
		bail_out("%s", err.text);
	pthread_barrier_wait(&j->barrier);
	j->err[r->rank].code = 0;
	if (optimfs_group_offer(w, j->path, j->first, &j->options,
		&j->err[r->rank]) == 0 &&
	    j->work != NULL)
		j->work(j, r->rank, w);
	pthread_barrier_wait(&j->barrier);
	fakegroup_mute(j->f, r->rank, 0);
	fakegroup_kill(j->f, r->rank, 0);
	pthread_barrier_wait(&j->barrier);
	optimfs_group_leave(w, worker);
	return NULL;
}

static void run(struct job *j)
{
	struct rank r[MAX_RANKS];

	j->f = fakegroup_new(j->size);
	pthread_barrier_init(&j->barrier, NULL, (unsigned)j->size);
	for (int i = 0; i < j->size; i++) {
		r[i] = (struct rank){ .job = j, .rank = i };
		if (pthread_create(&r[i].thread, NULL, run_rank, &r[i]) != 0)
			bail_out("no thread");
	}
	for (int i = 0; i < j->size; i++)
		pthread_join(r[i].thread, NULL);
	pthread_barrier_destroy(&j->barrier);
	fakegroup_free(j->f);
}

/* Directories. */

static const char *path_of(const char *fmt, ...)
    __attribute__((format(printf, 1, 2)));
static const char *path_of(const char *fmt, ...)
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

static void put(const char *path, const void *p, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd == -1 || write(fd, p, n) != (ssize_t)n)
		bail_out("%s: %s", path, strerror(errno));
	close(fd);
}

static void copy(const char *from, const char *to)
{
	FILE *f = fopen(from, "re");
	struct ofs_buf b = { 0 };
	char part[65536];
	size_t n;

	if (f == NULL)
		bail_out("%s: %s", from, strerror(errno));
	while ((n = fread(part, 1, sizeof(part), f)) > 0)
		ofs_buf_put(&b, part, n);
	fclose(f);
	put(to, b.data, b.len);
	ofs_buf_fini(&b);
}

static void make_dirs(int n)
{
	for (int r = 0; r < n; r++)
		if (mkdir(path_of("%d", r), 0755) == -1 && errno != EEXIST)
			bail_out("%s", strerror(errno));
}

static void clear(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -rf %s/?", top);
	if (system(command) != 0)
		bail_out("rm");
}

static bool is_dir(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* rel: "/a/b", of a directory of the checkpoint, or "". */
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

/* The files of a checkpoint to n directories, each file to one. */
static void spread_more(const char *from, int n)
{
	int k = 0;

	make_dirs(n);
	spread_below(from, "", n, &k);
}

static void spread(const char *from, int n)
{
	clear();
	spread_more(from, n);
}

/* Is every file of one tree in the other, with the same bytes? */
struct comparison {
	struct optimfs *a, *b;
	uint64_t dir;
	char path[4096];
	unsigned files, bad;
};

static bool same_file(struct comparison *c, const struct optimfs_attr *a,
    const char *path)
{
	struct optimfs_attr b;
	struct optimfs_file *fa = NULL, *fb = NULL;
	struct optimfs_error err;
	bool same = false;
	uint8_t *pa, *pb;
	uint64_t n;

	if (optimfs_resolve(c->b, path, &b, &err) == -1 ||
	    optimfs_file_open(c->a, a->node, &fa, &err) == -1 ||
	    optimfs_file_open(c->b, b.node, &fb, &err) == -1) {
		diag("%s: %s", path, err.text);
		if (fa != NULL)
			optimfs_file_close(fa);
		return false;
	}
	n = optimfs_file_size(fa);
	pa = malloc(n + 1);
	pb = malloc(n + 1);
	if (pa != NULL && pb != NULL && n == optimfs_file_size(fb) &&
	    optimfs_file_read(fa, pa, n, 0, &err) == (ssize_t)n &&
	    optimfs_file_read(fb, pb, n, 0, &err) == (ssize_t)n)
		same = memcmp(pa, pb, n) == 0;
	else
		diag("%s: %s", path, err.text);
	free(pa);
	free(pb);
	optimfs_file_close(fa);
	optimfs_file_close(fb);
	return same;
}

static int compare_entry(void *ctx, const struct optimfs_dirent *e)
{
	struct comparison *c = ctx;
	size_t n = strlen(c->path);

	snprintf(c->path + n, sizeof(c->path) - n, "/%s", e->name);
	if (S_ISDIR(e->mode)) {
		if (optimfs_readdir(c->a, e->attr->node, 0, true, compare_entry,
			c, NULL) == -1)
			c->bad++;
	} else {
		c->files++;
		if (!same_file(c, e->attr, c->path)) {
			diag("%s differs", c->path);
			c->bad++;
		}
	}
	c->path[n] = '\0';
	return 0;
}

static unsigned compare(struct optimfs *a, struct optimfs *b, unsigned *files)
{
	struct comparison c = { .a = a, .b = b };

	if (optimfs_readdir(a, OPTIMFS_ROOT, 0, true, compare_entry, &c,
		NULL) == -1)
		c.bad++;
	*files = c.files;
	return c.bad;
}

/* Every rank against the checkpoint in one place. */
struct whole {
	struct optimfs *fs;
	unsigned files[MAX_RANKS], bad[MAX_RANKS];
};

static void check_rank(struct job *j, int rank, struct optimfs_group *w)
{
	struct whole *whole = j->ctx;
	struct optimfs_options o = j->options;
	struct optimfs_error err;
	struct optimfs *fs;

	o.group = w;
	fs = optimfs_open(j->path, &o, &err);
	whole->bad[rank] = 1;
	if (fs == NULL) {
		diag("%s", err.text);
		return;
	}
	whole->bad[rank] = compare(whole->fs, fs, &whole->files[rank]) +
	    compare(fs, whole->fs, &whole->files[rank]);
	if (optimfs_group_compare(w, fs, &err) == -1) {
		diag("%s", err.text);
		whole->bad[rank]++;
	}
	optimfs_close(fs);
}

static void check_case(const char *name, const char *units, int size)
{
	struct whole whole = { 0 };
	struct job j = { .size = size,
		.path = each_rank,
		.work = check_rank,
		.ctx = &whole };
	struct optimfs_error err;
	char from[4096], units_path[4096];
	unsigned bad = 0;

	snprintf(from, sizeof(from), "%s", data_path(name));
	if (units != NULL) {
		snprintf(units_path, sizeof(units_path), "%s",
		    data_path(units));
		j.options.units = units_path;
	}
	spread(from, size);
	whole.fs = optimfs_open(from, &j.options, &err);
	if (whole.fs == NULL)
		bail_out("%s", err.text);
	run(&j);
	for (int r = 0; r < size; r++) {
		if (j.err[r].code != 0)
			diag("%s", j.err[r].text);
		bad +=
		    whole.bad[r] + (j.err[r].code != 0) + (whole.files[r] == 0);
	}
	is_u64(bad, 0, "%s spread over %d ranks: %u files, the same on all",
	    name, size, whole.files[0]);
	optimfs_close(whole.fs);
}

static void test_cases(void)
{
	static const char flat[] = "pytorch/fsdp1_local_flat_fullshard_w3";
	char path[128], units[128];

	for (int n = 2; n <= 8; n *= 2) {
		check_case("pytorch/dcp_fsdp2_w3/ckpt", NULL, n);
		check_case("pytorch/dcp_fsdp2_zstd_w2/ckpt", NULL, n);
		check_case("pytorch/dcp_fsdp2_safetensors_w2/ckpt", NULL, n);
		check_case("pytorch/dcp_tp_fsdp_w4/ckpt", NULL, n);
		/* values of several parts, in the files of one rank */
		check_case("pytorch/dcp_torch113/ckpt", NULL, n);
		snprintf(path, sizeof(path), "%s/ckpt", flat);
		snprintf(units, sizeof(units), "%s/units.json", flat);
		check_case(path, units, n);
		check_case("pytorch/hf_storage_w2/ckpt", NULL, n);
	}
}

/* One of every format and writer, over two ranks: what the reader of a format
 * reads at mount must not depend on where its files are. */
static void test_formats(const char *kind, const char *inside)
{
	struct dirent **e;
	char top_of[4096], name[4096], path[4096], units[4096];
	int count;

	snprintf(top_of, sizeof(top_of), "%s", data_path(kind));
	count = scandir(top_of, &e, NULL, alphasort);
	if (count == -1)
		bail_out("%s: %s", top_of, strerror(errno));
	for (int i = 0; i < count; i++) {
		snprintf(name, sizeof(name), "%s/%s%s", kind, e[i]->d_name,
		    inside);
		snprintf(path, sizeof(path), "%s", data_path(name));
		snprintf(units, sizeof(units), "%s/%s/units.json", kind,
		    e[i]->d_name);
		if (e[i]->d_name[0] != '.' && is_dir(path))
			check_case(name,
			    access(data_path(units), F_OK) == 0 ? units : NULL,
			    2);
		free(e[i]);
	}
	free(e);
}

/* A rank that is silent while another reads a value of its files: that one must
 * not show fewer files than others do. */
static void open_alone(struct job *j, int rank, struct optimfs_group *w)
{
	struct optimfs_options o = { .group = w };
	struct optimfs_error err = { 0 };
	struct optimfs *fs;

	if (rank != 0)
		return;
	fakegroup_mute(j->f, 1, 1);
	fs = optimfs_open(j->path, &o, &err);
	fakegroup_mute(j->f, 1, 0);
	ok(fs == NULL, "no tree without a value of a rank that is silent");
	is_error(err, ETIMEDOUT, "rank 1", "and it is said which");
	optimfs_close(fs);
}

static void test_silent_value(void)
{
	struct job j = { .size = 2, .path = each_rank, .work = open_alone };

	spread(data_path("pytorch/dcp_torch113/ckpt"), 2);
	run(&j);
}

/* Ranks that make their trees with files that only they have. */
struct own_units {
	const char *units[MAX_RANKS]; /* "": this rank shows nothing */
	struct optimfs_error err[MAX_RANKS];
};

static void compare_rank(struct job *j, int rank, struct optimfs_group *w)
{
	struct own_units *own = j->ctx;
	struct optimfs_options o = { .group = w, .units = own->units[rank] };
	struct optimfs_error *err = &own->err[rank];
	struct optimfs *fs = NULL;

	if (o.units == NULL || o.units[0] != '\0') {
		fs = optimfs_open(j->path, &o, err);
		if (fs == NULL)
			bail_out("%s", err->text);
	}
	if (optimfs_group_compare(w, fs, err) == 0)
		err->code = 0;
	optimfs_close(fs);
}

static void check_compare(struct own_units own, const char *differ,
    const char *what)
{
	struct job j = {
		.size = 4, .path = each_rank, .work = compare_rank, .ctx = &own
	};
	unsigned bad = 0;

	run(&j);
	for (int r = 0; r < j.size; r++)
		bad += differ == NULL ? own.err[r].code != 0
				      : own.err[r].code != EPROTO ||
			strstr(own.err[r].text, differ) == NULL;
	if (!is_u64(bad, 0, "%s: all ranks say the same", what))
		diag("%d %s", own.err[0].code, own.err[0].text);
}

/* A copy of a file in which a word is another one of the same length. */
static void copy_with(const char *from, const char *to, const char *word,
    const char *other)
{
	struct ofs_buf b = { 0 };
	FILE *f = fopen(from, "re");
	size_t n = strlen(word);
	char part[4096];
	size_t got;

	if (f == NULL)
		bail_out("%s: %s", from, strerror(errno));
	while ((got = fread(part, 1, sizeof(part), f)) > 0)
		ofs_buf_put(&b, part, got);
	fclose(f);
	for (size_t i = 0; i + n <= b.len; i++)
		if (memcmp(b.data + i, word, n) == 0)
			memcpy(b.data + i, other, n);
	put(to, b.data, b.len);
	ofs_buf_fini(&b);
}

static void test_compare(void)
{
	char units[4096], same[4096], other[4096];

	spread(data_path("pytorch/fsdp1_local_flat_fullshard_w3/ckpt"), 4);
	snprintf(units, sizeof(units), "%s",
	    data_path("pytorch/fsdp1_local_flat_fullshard_w3/units.json"));
	snprintf(same, sizeof(same), "%s", path_of("9"));
	snprintf(other, sizeof(other), "%s", path_of("8"));
	copy(units, same);
	copy_with(units, other, "\"norm.bias", "\"norm.sane");
	check_compare((struct own_units){ .units = { units, same, units, "" } },
	    NULL, "equal files");
	check_compare((struct own_units){ .units = { "", "", other, "" } },
	    NULL, "one rank that shows a tree");
	check_compare((struct own_units){ .units = { "", units, same, other } },
	    "OFS916 'model/layers.0.norm.bias' differs between ranks 1 (odd) and 3",
	    "a file of one rank that differs");
	check_compare((struct own_units){ .units = { units, units, NULL, "" } },
	    "differs between ranks 0 (even) and 2 (even)",
	    "an option of one rank");
}

/* A check that all ranks share: what one process finds in one place, and no
 * tensor goes from rank to rank. */
struct findings {
	char text[2][65536]; /* of one process, of rank 0 */
	uint64_t problems[MAX_RANKS], files[MAX_RANKS];
	uint64_t moved; /* bytes that ranks gave each other */
	int failed;
};

static void note_finding(void *ctx, const struct optimfs_finding *f)
{
	char *text = ctx;
	size_t n = strlen(text);

	snprintf(text + n, 65536 - n, "%d %d %s %s\n", f->error, f->code,
	    f->path, f->text);
}

static void fsck_rank(struct job *j, int rank, struct optimfs_group *w)
{
	struct findings *found = j->ctx;
	struct optimfs_options o = j->options;
	struct optimfs_work work;
	struct optimfs_error err;
	struct optimfs *fs;
	uint64_t before;

	o.group = w;
	fs = optimfs_open(j->path, &o, &err);
	if (fs == NULL)
		bail_out("%s", err.text);
	pthread_barrier_wait(&j->barrier);
	before = fakegroup_counts(j->f)->bytes;
	pthread_barrier_wait(&j->barrier);
	if (optimfs_fsck(fs, true, note_finding, found->text[1],
		&found->problems[rank], &err) == -1)
		found->failed++;
	pthread_barrier_wait(&j->barrier);
	if (rank == 0)
		found->moved = fakegroup_counts(j->f)->bytes - before;
	for (int r = 0; rank == 0 && r < j->size; r++) {
		optimfs_group_work(w, r, &work);
		found->files[r] = work.files;
	}
	optimfs_close(fs);
}

static void check_fsck(const char *name, const char *damaged, long at, int size)
{
	struct findings *found = calloc(1, sizeof(*found));
	struct job j = {
		.size = size, .path = each_rank, .work = fsck_rank, .ctx = found
	};
	struct optimfs_error err;
	struct optimfs *fs;
	uint64_t problems;
	char path[4096];
	FILE *f;

	spread(data_path(name), 1);
	snprintf(path, sizeof(path), "%s/%s", path_of("0"), damaged);
	f = fopen(path, "r+e");
	if (found == NULL || f == NULL || fseek(f, at, SEEK_SET) != 0 ||
	    fputs("damaged!", f) == EOF || fclose(f) == EOF)
		bail_out("%s: %s", path, strerror(errno));
	fs = optimfs_open(path_of("0"), NULL, &err);
	if (fs == NULL ||
	    optimfs_fsck(fs, true, note_finding, found->text[0], &problems,
		&err) == -1)
		bail_out("%s", err.text);
	optimfs_close(fs);
	if (rename(path_of("0"), path_of("a")) == -1)
		bail_out("rename");
	snprintf(path, sizeof(path), "%s", path_of("a"));
	spread_more(path, size);
	run(&j);
	is_int(found->failed, 0, "%s checked by %d ranks", name, size);
	ok(problems > 0, "finds the damage");
	is_str(found->text[1], found->text[0], "as one process does");
	is_u64(found->problems[0], problems, "all of it");
	ok(found->files[0] > 0 && found->files[size - 1] > 0,
	    "every rank takes part");
	is_u64(found->moved, 0, "no byte of a file goes from rank to rank");
	free(found);
}

static void test_fsck(void)
{
	check_fsck("pytorch/dcp_fsdp2_w4/ckpt", "__2_0.distcp", 100000, 4);
	/* copies on other ranks */
	check_fsck("pytorch/fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles",
	    "state_rank2.pt", 44000, 4);
}

/* A view that all ranks write: the same files as one process makes. */
struct written {
	const char *to;
	char path[64]; /* the target, of all */
	int ret[MAX_RANKS];
	uint64_t files[MAX_RANKS];
};

static void reshard_rank(struct job *j, int rank, struct optimfs_group *w)
{
	struct written *written = j->ctx;
	struct optimfs_reshard how = { .to = written->to, .jobs = 2 };
	struct optimfs_options o = j->options;
	struct optimfs_work work;
	struct optimfs_error err;
	struct optimfs *fs;

	o.group = w;
	fs = optimfs_open(j->path, &o, &err);
	if (fs == NULL)
		bail_out("%s", err.text);
	written->ret[rank] = optimfs_reshard(fs, written->path, &how, &err);
	if (written->ret[rank] != 0)
		diag("rank %d: %s", rank, err.text);
	for (int r = 0; rank == 0 && r < j->size; r++) {
		optimfs_group_work(w, r, &work);
		written->files[r] = work.files;
	}
	optimfs_close(fs);
}

static void check_reshard(const char *name, const char *to, int size)
{
	struct written written = { .to = to };
	struct job j = { .size = size,
		.path = each_rank,
		.work = reshard_rank,
		.ctx = &written };
	struct optimfs_reshard how = { .to = to };
	struct optimfs_error err;
	struct optimfs *fs;
	char command[256];
	bool shared = true;

	spread(data_path(name), size);
	snprintf(written.path, sizeof(written.path), "%s/y", top);
	fs = optimfs_open(data_path(name), NULL, &err);
	if (fs == NULL || optimfs_reshard(fs, path_of("x"), &how, &err) != 0)
		bail_out("%s", err.text);
	optimfs_close(fs);
	run(&j);
	for (int r = 0; r < size; r++)
		shared = shared && written.ret[r] == 0 && written.files[r] > 0;
	ok(shared, "%s to %s: %d ranks write", name, to, size);
	snprintf(command, sizeof(command),
	    "diff -r %s/x %s/y && ! ls -d %s/.*.optimfs 2>/dev/null", top, top,
	    top);
	ok(system(command) == 0, "what one process writes, and nothing else");
}

static void test_reshard(void)
{
	check_reshard("pytorch/dcp_fsdp2_w4/ckpt", "dcp@7", 4);
	check_reshard("pytorch/dcp_fsdp2_w3/ckpt", "torch", 2);
#ifdef HAVE_ZSTD
	check_reshard("pytorch/dcp_fsdp2_w3/ckpt", "dcp@4,zstd", 2);
#endif
}

/* Agreement. */

static void expect(struct job *j, int code, const char *part, const char *what)
{
	unsigned bad = 0;

	run(j);
	for (int r = 0; r < j->size; r++)
		bad += j->err[r].code != code ||
		    (part != NULL && strstr(j->err[r].text, part) == NULL);
	if (!is_u64(bad, 0, "%s: all ranks say the same", what))
		diag("%d %s", j->err[0].code, j->err[0].text);
}

static void two_files(const char *name, const char *a, size_t na, const char *b,
    size_t nb)
{
	clear();
	make_dirs(3);
	put(path_of("0/other"), "x", 1);
	put(path_of("1/%s", name), a, na);
	put(path_of("2/%s", name), b, nb);
	/* so that the times differ whatever the clock */
	if (utimensat(AT_FDCWD, path_of("2/%s", name),
		(struct timespec[]){ { 1, 0 }, { 1, 0 } }, 0) == -1)
		bail_out("utimensat");
}

static void test_agreement(void)
{
	struct job j = { .size = 3, .path = each_rank };
	char state[64];

	two_files("data", "1234", 4, "12345", 5);
	expect(&j, EPROTO, "4 bytes on rank 1 (odd), 5 on rank 2 (even)",
	    "two lengths");
	two_files("data", "1234", 4, "1235", 4);
	expect(&j, EPROTO, "ranks 1 (odd) and 2 (even) have different files",
	    "two contents");
	two_files("data", "1234", 4, "1234", 4);
	expect(&j, 0, NULL, "a copy");
	two_files("data", "", 0, "", 0);
	expect(&j, 0, NULL, "nothing in it");
	put(path_of("0/state"), "x", 1);
	snprintf(state, sizeof(state), "%s/0/state%%r", top);
	j.path = state;
	expect(&j, ENOENT, "on any of 3 ranks", "no such file");
	put(path_of("0/state0"), "x", 1);
	expect(&j, 0, NULL, "a file that one rank has");
	if (mkdir(path_of("0/state1"), 0755) == -1)
		bail_out("mkdir");
	expect(&j, EPROTO, "not the same file or directory",
	    "a file here, a directory there");
	j.path = each_rank;
	j.first = true;
	two_files("data", "1234", 4, "1235", 4);
	expect(&j, 0, NULL, "but not if only rank 0 is asked");
}

/* A large file, read by a rank that lacks it. */

#define NLARGE ((size_t)(9 * OFS_GROUP_ANSWER_MAX + 12345))

static uint8_t *large;

struct trial {
	unsigned bad;
	int code;
	uint64_t asks, largest, spread;
};

static int read_there(const struct ofs_manifest *s,
    const struct ofs_segment *seg, size_t n, uint8_t *buf,
    struct optimfs_error *err)
{
	return ofs_remote_fetch(s, seg, n, buf, err);
}

static uint32_t find_file(const struct ofs_manifest *s, const char *name)
{
	struct ofs_dir dir;
	uint32_t file = OFS_NONE;
	char *rel;

	if (ofs_manifest_dir(s, &dir, &rel, NULL) == 0) {
		(void)ofs_dir_elsewhere(&dir, name, &file);
		ofs_dir_close(&dir);
		free(rel);
	}
	return file;
}

/* Segments of all shapes, some larger than a message, at once. */
static void check_segments(const struct ofs_manifest *s, uint32_t file,
    struct trial *t)
{
	static const struct ofs_segment shape[] = {
		{ .src = 5, .len = NLARGE - 10, .n = 1 },
		{ .src = 17, .len = 3, .n = 100000, .src_pitch = 41 },
		{ .src = NLARGE - 200,
		    .len = 64,
		    .n = 5000,
		    .src_pitch = -4096 },
		{ .src = 100,
		    .len = OFS_GROUP_ANSWER_MAX + 7,
		    .n = 3,
		    .src_pitch = 5000000 },
		{ .src = 9, .len = 1 << 20, .n = 11, .src_pitch = 3 << 20 },
		{ .src = 1, .len = 1, .n = 1 },
		{ .src = 1, .len = 0, .n = 7 },
	};
	enum { N = sizeof(shape) / sizeof(*shape) };
	struct ofs_segment seg[N];
	struct optimfs_error err;
	uint64_t total = 0;
	uint8_t *buf;

	for (size_t i = 0; i < N; i++) {
		seg[i] = shape[i];
		seg[i].object = file;
		seg[i].dst = total;
		seg[i].dst_pitch = (int64_t)seg[i].len + 1;
		total += seg[i].n * (seg[i].len + 1);
	}
	buf = calloc(total, 1);
	if (buf == NULL || read_there(s, seg, N, buf, &err) == -1) {
		diag("%s", buf == NULL ? "memory" : err.text);
		free(buf);
		t->bad++;
		t->code = err.code;
		return;
	}
	for (size_t i = 0; i < N; i++)
		for (uint64_t k = 0; k < seg[i].n; k++) {
			const uint8_t *p =
			    buf + seg[i].dst + k * (seg[i].len + 1);
			const uint8_t *want =
			    large + seg[i].src + (int64_t)k * seg[i].src_pitch;

			t->bad += memcmp(p, want, seg[i].len) != 0 ||
			    p[seg[i].len] != 0;
		}
	free(buf);
}

/* Four bytes, as zstd has them when they do not shrink. */
static const uint8_t frame[] = { 0x28, 0xb5, 0x2f, 0xfd, 0x20, 4, 0x21, 0, 0,
	'a', 'b', 'c', 'd' };

static void check_length(struct job *j, const struct ofs_manifest *s)
{
#ifdef HAVE_ZSTD
	struct optimfs_error err;

	for (int rank_of = 1; rank_of <= 2; rank_of++) {
		struct ofs_extent at = { .len = sizeof(frame),
			.object = find_file(s, "frame"),
			.codec = OFS_ZSTD };
		uint64_t len = 0;

		fakegroup_mute(j->f, rank_of, 1);
		is_int(ofs_remote_length(s, &at, 100, &len, &err), 0,
		    "an item's length, when rank %d is silent", rank_of);
		is_u64(len, 4, "the other says it");
		fakegroup_mute(j->f, rank_of, 0);
	}
#else
	(void)j;
	(void)s;
	skip(4, "no zstd");
#endif
}

static void check_large(struct job *j, int rank, struct optimfs_group *w)
{
	struct fakegroup_counts *c = fakegroup_counts(j->f);
	struct optimfs_error err = { 0 };
	struct trial *t = j->ctx;
	struct ofs_manifest *s;
	struct ofs_segment seg = { .len = 100, .n = 1 };
	uint8_t buf[100];

	if (rank != 0)
		return;
	s = ofs_group_manifest(w, j->path, NULL);
	seg.object = find_file(s, "large");
	check_segments(s, seg.object, t);
	is_u64(t->bad, 0, "segments of all shapes from another rank");
	is_u64(atomic_load(&c->largest), OFS_GROUP_ANSWER_MAX,
	    "in messages of a bounded size");
	ok(atomic_load(&c->answered[1]) > 5 && atomic_load(&c->answered[2]) > 5,
	    "from both that have it");

	check_length(j, s);
	fakegroup_mute(j->f, 1, 1);
	t->bad = 0;
	check_segments(s, seg.object, t);
	is_u64(t->bad, 0, "one of them does not answer: the other does");
	fakegroup_mute(j->f, 2, 1);
	is_int(read_there(s, &seg, 1, buf, &err), -1, "neither does");
	is_error(err, ETIMEDOUT, "rank ", "and that is said");
	fakegroup_mute(j->f, 1, 0);
	is_int(read_there(s, &seg, 1, buf, &err), 0, "one answers again");
	fakegroup_mute(j->f, 2, 0);

	/* what the owner finds is said with its name */
	seg.src = NLARGE - 50;
	is_int(read_there(s, &seg, 1, buf, &err), -1, "past the end");
	is_error(err, EIO, "OFS603 rank ", "the owner says it");

	fakegroup_kill(j->f, 1, 1);
	t->bad = 0;
	check_segments(s, seg.object, t);
	is_u64(t->bad, 0, "one has died: the other has it");
	fakegroup_kill(j->f, 2, 1);
	seg.src = 0;
	is_int(read_there(s, &seg, 1, buf, &err), -1, "both have died");
	is_error(err, EHOSTDOWN, "rank ", "and that is said");
}

static void test_large(void)
{
	struct trial t = { 0 };
	struct job j = {
		.size = 3, .path = each_rank, .work = check_large, .ctx = &t
	};

	clear();
	make_dirs(3);
	large = malloc(NLARGE);
	if (large == NULL)
		bail_out("out of memory");
	handmade_fill(large, NLARGE, 3);
	put(path_of("1/large"), large, NLARGE);
	put(path_of("2/large"), large, NLARGE);
	put(path_of("1/frame"), frame, sizeof(frame));
	put(path_of("2/frame"), frame, sizeof(frame));
	put(path_of("0/here"), "x", 1);
	run(&j);
	free(large);
}

/* A tensor that another rank has, read from one end to the other: what comes
 * next is asked for ahead of time, and what is not read is not. */

#define NTENSOR (4u << 20)
#define READ    (256u << 10)

static void put_tensor(const char *path)
{
	uint8_t *p = malloc(128 + NTENSOR);
	int n;

	if (p == NULL)
		bail_out("out of memory");
	memset(p, ' ', 128);
	memcpy(p, "\x93NUMPY\1\0\x76", 10);
	p[9] = 0;
	n = snprintf((char *)p + 10, 118,
	    "{'descr': '|u1', 'fortran_order': False, 'shape': (%u,), }",
	    NTENSOR);
	p[10 + n] = ' ';
	p[127] = '\n';
	memcpy(p + 128, large, NTENSOR);
	put(path, p, 128 + NTENSOR);
	free(p);
}

static void is_read(struct optimfs_file *file, uint64_t off, const char *what)
{
	static uint8_t buf[READ];
	struct optimfs_error err = { 0 };
	size_t want = off + READ > NTENSOR ? NTENSOR - off : READ;

	if (!is_int(optimfs_file_read(file, buf, READ, off, &err),
		(int64_t)want, "%s", what))
		diag("%s", err.text);
	else
		is_mem(buf, large + off, want, "its bytes");
}

static void check_ahead(struct job *j, int rank, struct optimfs_group *w)
{
	struct fakegroup_counts *c = fakegroup_counts(j->f);
	struct optimfs_options o = { .group = w };
	struct optimfs_file *file;
	struct optimfs_attr attr;
	struct optimfs_error err;
	uint64_t before, three;
	struct optimfs *fs;
	uint8_t buf[8];

	fs = optimfs_open(j->path, &o, &err);
	if (fs == NULL || optimfs_resolve(fs, "model/x", &attr, &err) == -1 ||
	    optimfs_file_open(fs, attr.node, &file, &err) == -1)
		bail_out("%s", err.text);
	pthread_barrier_wait(&j->barrier);
	if (rank != 0)
		goto out;
	is_int(optimfs_file_read(file, buf, 8, 0, &err), 8, "a little");
	before = atomic_load(&c->bytes);
	is_read(file, 5 * READ, "here");
	is_read(file, 11 * READ, "and there");
	is_u64(atomic_load(&c->bytes) - before, 2 * READ, "moves what is read");
	before = atomic_load(&c->bytes);
	for (unsigned i = 0; i < 3; i++)
		is_read(file, i * READ, "one after the other");
	three = atomic_load(&c->bytes) - before;
	ok(three > 3 * READ && three <= 7 * READ, "asks for some more");
	for (unsigned i = 3; i < NTENSOR / READ; i++)
		is_read(file, i * READ, "and so on");
	is_u64(atomic_load(&c->bytes) - before, NTENSOR,
	    "and for each byte once");
	for (unsigned i = 0; i < 3; i++)
		is_read(file, i * READ + 1, "again, from another byte on");
	fakegroup_kill(j->f, 1, 1);
	is_read(file, 3 * READ + 1, "the owner dies: what was read ahead");
	is_int(optimfs_file_read(file, buf, 8, NTENSOR - 8, &err), -1,
	    "nothing else");
	is_error(err, EHOSTDOWN, "rank 1", "and that is said");
	fakegroup_kill(j->f, 1, 0);
out:
	optimfs_file_close(file);
	optimfs_close(fs);
}

static void test_ahead(void)
{
	char path[64];
	struct job j = { .size = 2, .path = path, .work = check_ahead };

	clear();
	make_dirs(2);
	large = malloc(NTENSOR);
	if (large == NULL)
		bail_out("out of memory");
	handmade_fill(large, NTENSOR, 5);
	put_tensor(path_of("1/x.npy"));
	snprintf(path, sizeof(path), "%s/%%r/x.npy", top);
	run(&j);
	free(large);
}

/* Requests that make no sense. */

static void put_fetch(struct ofs_buf *b, uint32_t share, uint32_t n,
    const struct ofs_segment *seg)
{
	b->len = 0;
	ofs_wire_u8(b, OFS_WIRE_FETCH);
	ofs_wire_u32(b, share);
	ofs_wire_u32(b, n);
	if (seg != NULL)
		ofs_wire_segment(b, seg);
}

static void refuse(struct job *j, const struct ofs_buf *b, size_t n,
    uint64_t want, const char *what)
{
	struct optimfs_error err = { 0 };
	uint8_t out[64];

	is_int(fakegroup_ask(j->f, 1, b->data, n, out, want, &err), -1, "%s",
	    what);
	ok(err.code == EPROTO || err.code == EIO, "it is refused");
}

static void check_requests(struct job *j, int rank, struct optimfs_group *w)
{
	struct ofs_segment seg = { .len = 4, .n = 1 }, bad = seg;
	struct optimfs_error err;
	struct ofs_buf b = { 0 };
	uint8_t out[64];

	(void)w;
	if (rank != 0)
		return;
	put_fetch(&b, 0, 1, &seg);
	is_int(fakegroup_ask(j->f, 1, b.data, b.len, out, 4, &err), 0,
	    "a request");
	is_mem(out, "abcd", 4, "and its answer");
	for (size_t n = 0; n < b.len; n++)
		if (fakegroup_ask(j->f, 1, b.data, n, out, 4, NULL) != -1)
			ok(false, "cut at %zu", n);
	refuse(j, &b, b.len, 5, "an answer of another length");
	put_fetch(&b, 1, 1, &seg);
	refuse(j, &b, b.len, 4, "a share there is not");
	put_fetch(&b, 0, UINT32_MAX, &seg);
	refuse(j, &b, b.len, 4, "more segments than there are");
	bad.object = 7;
	put_fetch(&b, 0, 1, &bad);
	refuse(j, &b, b.len, 4, "a file there is not");
	bad = seg;
	bad.len = UINT64_MAX / 2 + 3;
	bad.n = 2;
	put_fetch(&b, 0, 1, &bad);
	refuse(j, &b, b.len, 4, "a length that overflows");
	bad = seg;
	bad.src = UINT64_MAX - 1;
	put_fetch(&b, 0, 1, &bad);
	refuse(j, &b, b.len, 4, "a place that overflows");
	bad = seg;
	bad.n = 4;
	bad.len = 1;
	bad.src_pitch = INT64_MIN;
	put_fetch(&b, 0, 1, &bad);
	refuse(j, &b, b.len, 4, "a pitch that overflows");
	b.data[0] = 200;
	refuse(j, &b, b.len, 4, "a kind there is not");
	ofs_buf_fini(&b);
}

static void test_requests(void)
{
	struct job j = { .size = 2, .path = each_rank, .work = check_requests };

	clear();
	make_dirs(2);
	put(path_of("1/file"), "abcdef", 6);
	run(&j);
}

static void test_expand(void)
{
	struct fakegroup *f = fakegroup_new(1);
	bool worker = true;
	struct optimfs_group *w;
	char *path;

	fakegroup_be(f, 0);
	w = ofs_group_new(&fakegroup_ops, 1, ofs_group_services, NULL);
	path = optimfs_group_expand(w, "/a/%r/%h/%%/%x/%", NULL);
	is_str(path, "/a/0/even/%/%x/%", "%%r, %%h and %%%%");
	free(path);
	optimfs_group_leave(w, &worker);
	fakegroup_free(f);
}

/* A rank whose machine is gone says neither that it is done nor that it has
 * died: the others leave without it. */
static void *leave_as(void *arg)
{
	struct rank *r = arg;
	const bool none[2] = { false, false }, all[2] = { true, true };
	struct optimfs_group *w;

	fakegroup_be(r->job->f, r->rank);
	w = ofs_group_new(&fakegroup_ops, 1, ofs_group_services, NULL);
	pthread_barrier_wait(&r->job->barrier);
	optimfs_group_leave(w, r->rank == 1 ? none : all);
	return NULL;
}

static void test_leave(void)
{
	struct job j = { .size = 2, .f = fakegroup_new(2) };
	struct rank r[2] = { { .job = &j }, { .job = &j, .rank = 1 } };

	pthread_barrier_init(&j.barrier, NULL, 2);
	fakegroup_mute(j.f, 1, 1);
	for (int i = 0; i < 2; i++)
		if (pthread_create(&r[i].thread, NULL, leave_as, &r[i]) != 0)
			bail_out("no thread");
	for (int i = 0; i < 2; i++)
		pthread_join(r[i].thread, NULL);
	ok(true, "a rank that is silent keeps nobody from leaving");
	pthread_barrier_destroy(&j.barrier);
	fakegroup_free(j.f);
}

/* Launchers, by what they put into the environment. */
static void test_launched(void)
{
	static const char *const names[] = { "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
		"PMIX_RANK", "SLURM_STEP_NUM_TASKS" };
	static const struct {
		const char *what;
		const char *value[4]; /* of names */
		bool launched;
	} cases[] = {
		{ "no launcher", { NULL, NULL, NULL, NULL }, false },
		{ "mpirun -n 2", { "2", NULL, NULL, NULL }, true },
		{ "mpirun -n 1", { "1", NULL, "0", NULL }, false },
		{ "mpirun -n 1 in a job of two tasks", { "1", NULL, "0", "2" },
		    false },
		{ "MPICH, or srun --mpi=pmi2", { NULL, "4", NULL, "4" }, true },
		{ "srun --mpi=pmix -n 2", { NULL, NULL, "0", "2" }, true },
		{ "srun --mpi=pmix -n 1", { NULL, NULL, "0", "1" }, false },
		{ "srun without MPI", { NULL, NULL, NULL, "2" }, false },
		{ "another launcher with PMIx", { NULL, NULL, "1", NULL },
		    true },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		for (size_t v = 0; v < 4; v++)
			if (cases[i].value[v] == NULL)
				unsetenv(names[v]);
			else
				setenv(names[v], cases[i].value[v], 1);
		is_int(optimfs_group_launched(), cases[i].launched, "%s",
		    cases[i].what);
	}
	for (size_t v = 0; v < 4; v++)
		unsetenv(names[v]);
}

int main(void)
{
	if (mkdtemp(top) == NULL)
		bail_out("mkdtemp");
	snprintf(each_rank, sizeof(each_rank), "%s/%%r", top);
	test_launched();
	test_leave();
	test_expand();
	test_requests();
	test_agreement();
	test_large();
	test_ahead();
	test_cases();
	test_formats("pytorch", "/ckpt");
	test_formats("pytorch", "/ckpt_rankfiles");
	test_formats("deepspeed", "/ckpt");
	test_formats("megatron", "/dp_reshardable");
	test_formats("megatron", "/fully_reshardable");
	test_silent_value();
	test_compare();
	test_fsck();
	test_reshard();
	clear();
	rmdir(top);
	return done_testing();
}
