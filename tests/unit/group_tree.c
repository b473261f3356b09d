/* group_tree.c - trees, checks and views of a checkpoint on several ranks */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "optimfs/optimfs.h"

#include "base/buf.h"
#include "support/group_job.h"
#include "support/truth.h"
#include "tap.h"

/* Compares the files of one tree with those of another. */
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

/* The tree of every rank is compared with that of the checkpoint in one
 * place. */
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
	is_u64(bad, 0,
	    "%s on %d ranks: all ranks show the %u files of one process", name,
	    size, whole.files[0]);
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
		/* values that become several files, all stored on one rank */
		check_case("pytorch/dcp_torch113/ckpt", NULL, n);
		snprintf(path, sizeof(path), "%s/ckpt", flat);
		snprintf(units, sizeof(units), "%s/units.json", flat);
		check_case(path, units, n);
		check_case("pytorch/hf_storage_w2/ckpt", NULL, n);
	}
}

/* Every format and writer over two ranks: what a format reads at mount must not
 * depend on the rank that has it. */
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

/* While rank 0 reads a value of rank 1, that is silent. Rank 0 must not show
 * fewer files than the others. */
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
	ok(fs == NULL,
	    "opening fails while a rank with a value of the index is silent");
	is_error(err, ETIMEDOUT, "rank 1",
	    "opening fails with ETIMEDOUT and the silent rank");
	optimfs_close(fs);
}

static void test_silent_value(void)
{
	struct job j = { .size = 2, .path = each_rank, .work = open_alone };

	spread(data_path("pytorch/dcp_torch113/ckpt"), 2);
	run(&j);
}

/* Ranks whose trees depend on a local file. */
struct own_units {
	const char *units[MAX_RANKS]; /* "": this rank shows no tree */
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
	if (!is_u64(bad, 0, "%s: all ranks get the expected result", what))
		diag("%d %s", own.err[0].code, own.err[0].text);
}

/* Copies a file and replaces a word by one of the same length. */
static void copy_with(const char *from, const char *to, const char *word,
    const char *other)
{
	struct ofs_buf b = { 0 };
	size_t n = strlen(word);

	load(from, &b);
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
	    NULL, "trees from equal units files");
	check_compare((struct own_units){ .units = { "", "", other, "" } },
	    NULL, "a tree on one rank only");
	check_compare((struct own_units){ .units = { "", units, same, other } },
	    "OFS916 'model/layers.0.norm.bias' differs between ranks 1 (odd) "
	    "and 3",
	    "a tree from another units file on one rank");
	check_compare((struct own_units){ .units = { units, units, NULL, "" } },
	    "differs between ranks 0 (even) and 2 (even)",
	    "a tree without a units file on one rank");
}

/* Ranks that check a checkpoint together must find what one process finds,
 * without sending data. */
struct findings {
	char text[2][65536]; /* of one process, and of rank 0 */
	uint64_t problems[MAX_RANKS], files[MAX_RANKS];
	uint64_t moved; /* bytes that ranks sent each other */
	int failed;
};

static void note_finding(void *ctx, const struct optimfs_finding *f)
{
	char *text = ctx;
	size_t n = strlen(text);

	snprintf(text + n, 65536 - n, "%d %d %s %s\n", f->error, f->code,
	    f->path, f->text);
}

static void note_files(void *ctx, int rank, uint64_t files, uint64_t bytes)
{
	uint64_t *by_rank = ctx;

	(void)bytes;
	by_rank[rank] = files;
}

static void fsck_rank(struct job *j, int rank, struct optimfs_group *w)
{
	struct findings *found = j->ctx;
	struct optimfs_watch watch = { .did = note_files, .ctx = found->files };
	struct optimfs_options o = j->options;
	struct optimfs_error err;
	struct optimfs *fs;
	uint64_t before;

	o.group = w;
	o.together = true;
	fs = optimfs_open(j->path, &o, &err);
	if (fs == NULL)
		bail_out("%s", err.text);
	fakegroup_meet(j->f);
	optimfs_watch(fs, &watch);
	before = fakegroup_counts(j->f)->bytes;
	fakegroup_meet(j->f);
	if (optimfs_fsck(fs, true, note_finding, found->text[1],
		&found->problems[rank], &err) == -1)
		found->failed++;
	fakegroup_meet(j->f);
	if (rank == 0)
		found->moved = fakegroup_counts(j->f)->bytes - before;
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
	is_int(found->failed, 0, "%s: fsck by %d ranks succeeds", name, size);
	ok(problems > 0, "%s: fsck by one process finds the damage", name);
	is_str(found->text[1], found->text[0],
	    "%s: fsck by all ranks has the findings of one process", name);
	is_u64(found->problems[0], problems,
	    "%s: fsck by all ranks counts the problems of one process", name);
	ok(found->files[0] > 0 && found->files[size - 1] > 0,
	    "%s: the first and the last rank take part in fsck", name);
	is_u64(found->moved, 0, "%s: fsck sends no data between ranks", name);
	free(found);
}

static void test_fsck(void)
{
	check_fsck("pytorch/dcp_fsdp2_w4/ckpt", "__2_0.distcp", 100000, 4);
	/* has replicas on other ranks */
	check_fsck("pytorch/fsdp1_sharded_orig_hybridshard_w4/ckpt_rankfiles",
	    "state_rank2.pt", 44000, 4);
}

/* A view that all ranks write together must have the files that one process
 * writes. */
struct written {
	const char *to;
	char path[64]; /* the common target */
	int ret[MAX_RANKS];
	uint64_t files[MAX_RANKS];
};

static void reshard_rank(struct job *j, int rank, struct optimfs_group *w)
{
	struct written *written = j->ctx;
	struct optimfs_reshard how = { .to = written->to,
		.jobs = 2,
		.watch = { .did = note_files, .ctx = written->files } };
	struct optimfs_options o = j->options;
	struct optimfs_error err;
	struct optimfs *fs;

	o.group = w;
	fs = optimfs_open(j->path, &o, &err);
	if (fs == NULL)
		bail_out("%s", err.text);
	written->ret[rank] = optimfs_reshard(fs, written->path, &how, &err);
	if (written->ret[rank] != 0)
		diag("rank %d: %s", rank, err.text);
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
	snprintf(written.path, sizeof(written.path), "%s", path_of("y"));
	fs = optimfs_open(data_path(name), NULL, &err);
	if (fs == NULL || optimfs_reshard(fs, path_of("x"), &how, &err) != 0)
		bail_out("%s", err.text);
	optimfs_close(fs);
	run(&j);
	for (int r = 0; r < size; r++)
		shared = shared && written.ret[r] == 0 && written.files[r] > 0;
	ok(shared, "%s to %s: all %d ranks write files", name, to, size);
	snprintf(command, sizeof(command),
	    "diff -r %s %s && ! ls -d %s.*.optimfs 2>/dev/null", path_of("x"),
	    path_of("y"), path_of("%s", ""));
	ok(system(command) == 0,
	    "%s to %s: the files are those of one process, without leftovers",
	    name, to);
}

static void test_reshard(void)
{
	check_reshard("pytorch/dcp_fsdp2_w4/ckpt", "dcp@7", 4);
	check_reshard("pytorch/dcp_fsdp2_w3/ckpt", "torch", 2);
#ifdef HAVE_ZSTD
	check_reshard("pytorch/dcp_fsdp2_w3/ckpt", "dcp@4,zstd", 2);
#endif
}

/* A rank whose files are of an earlier save. */
static void find_warning(struct job *j, int rank, struct optimfs_group *w)
{
	struct optimfs_options o = { .group = w };
	struct optimfs_file *file = NULL;
	struct optimfs_attr attr;
	struct optimfs_error err;
	struct optimfs *fs = optimfs_open(j->path, &o, &err);
	char text[4096] = "";

	if (fs == NULL ||
	    optimfs_resolve(fs, ".optimfs/warnings", &attr, &err) == -1 ||
	    optimfs_file_open(fs, attr.node, &file, &err) == -1 ||
	    optimfs_file_read(file, text, sizeof(text) - 1, 0, &err) == -1)
		bail_out("%s", err.text);
	((bool *)j->ctx)[rank] = strstr(text,
				     "OFS917 the files of rank 1 (odd) were "
				     "written 26 hours before those of rank 0 "
				     "(even)") != NULL;
	optimfs_file_close(file);
	optimfs_close(fs);
}

static void set_time(const char *path, time_t time)
{
	const struct timespec t[2] = { { .tv_sec = time }, { .tv_sec = time } };

	if (utimensat(AT_FDCWD, path, t, 0) == -1)
		bail_out("%s: %s", path, strerror(errno));
}

static void test_old_rank(void)
{
	bool warned[3] = { false };
	struct job j = { .size = 2,
		.path = each_rank,
		.work = find_warning,
		.ctx = warned };
	const time_t hour = 3600, now = 1000 * hour;

	spread(data_path("pytorch/dcp_fsdp2_w4/ckpt"), 2);
	set_time(path_of("0/.metadata"), now - 100 * hour);
	set_time(path_of("0/__1_0.distcp"), now);
	set_time(path_of("0/__3_0.distcp"), now + hour);
	set_time(path_of("1/__0_0.distcp"), now - 26 * hour);
	set_time(path_of("1/__2_0.distcp"), now - 30 * hour);
	run(&j);
	ok(warned[0] && warned[1],
	    "ranks warn that all files of one are 26 hours older");
	j.size = 3;
	make_dirs(3);
	if (rename(path_of("0/__3_0.distcp"), path_of("2/__3_0.distcp")) == -1)
		bail_out("rename");
	set_time(path_of("0/__1_0.distcp"), now - 28 * hour);
	run(&j);
	ok(!warned[0] && !warned[1] && !warned[2],
	    "one of three ranks with new files has been edited");
	set_time(path_of("0/__1_0.distcp"), now);
	set_time(path_of("2/__3_0.distcp"), now);
	run(&j);
	ok(warned[0] && warned[1] && warned[2],
	    "one of three ranks with old files gives the warning");
	set_time(path_of("1/__2_0.distcp"), now + hour);
	run(&j);
	ok(!warned[0] && !warned[1],
	    "a rank one of whose files is new gives no warning");
}

int main(void)
{
	begin_ranks();
	test_old_rank();
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
	end_ranks();
	return done_testing();
}
