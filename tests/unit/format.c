/* detect/read.c - reading a path into a catalog */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "cluster/source.h"
#include "detect/read.h"
#include "support/dcp_writer.h"
#include "support/pickle_writer.h"
#include "support/truth.h"
#include "tap.h"

/* A checkpoint file of torch.save with {'k': 1}. */
static void put_torch(const char *dir, const char *name)
{
	struct ofs_buf b = { 0 }, pk = { 0 };

	pw_begin(&pk);
	pw_dict_open(&pk);
	pw_str(&pk, "k");
	pw_int(&pk, 1);
	pw_dict_close(&pk);
	pw_end(&pk);
	mk_write_object(&b, pk.data, pk.len);
	mk_file(dir, name, b.data, b.len);
	ofs_buf_fini(&pk);
	ofs_buf_fini(&b);
}

static void put_damaged(const char *dir, const char *name)
{
	mk_file(dir, name, "PK\3\4 that is all", 16);
}

/* Number of entries of the catalog of path; -1 with err. */
static int entries(const char *path, const struct optimfs_options *opt,
    struct optimfs_error *err)
{
	struct ofs_catalog *cat = ofs_read_checkpoint(path, opt, err);
	int n = cat == NULL ? -1 : (int)cat->nentries;

	ofs_catalog_free(cat);
	return n;
}

static const char *in(const char *dir, const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

/* Files that cannot be read are left out, whatever their place among the
 * others, with one warning each. With strict they are an error. */
static void some_fail(void)
{
	static const char *const names[] = { "a.pt", "b.pt", "c.pt", "d.pt",
		"e.pt" };
	struct optimfs_options strict = { .strict = true };
	struct optimfs_error err;
	struct ofs_catalog *cat;
	char dir[64];
	size_t wrong = 0;

	for (unsigned int mask = 1; mask < 31; mask++) {
		uint32_t good = 0, lost = 0, damaged = 0;

		mk_dir(dir);
		for (int i = 0; i < 5; i++)
			if ((mask >> i & 1) != 0) {
				put_damaged(dir, names[i]);
			} else {
				put_torch(dir, names[i]);
				good++;
			}
		cat = ofs_read_checkpoint(dir, NULL, &err);
		for (uint32_t i = 0; cat != NULL && i < cat->nnotes; i++)
			lost += cat->notes[i].kind == OFS_NOTE_MISSING &&
			    strstr(cat->notes[i].text, ".pt") != NULL;
		for (uint32_t i = 0; cat != NULL && i < cat->nobjects; i++)
			damaged += cat->objects[i].damaged;
		if (cat == NULL || cat->nentries != good || lost != 5 - good ||
		    damaged != 5 - good || cat->nobjects != 5)
			wrong++;
		ofs_catalog_free(cat);
		if (entries(dir, &strict, &err) != -1)
			wrong++;
		mk_remove(dir);
	}
	is_u64(wrong, 0,
	    "damaged files are left out and reported, and fail with strict");
	ok(entries(data_path("pytorch/torchtitan_like_w2/ckpt/step-3"), &strict,
	       &err) > 0,
	    "strict accepts a frozen parameter without optimizer state");
	mk_dir(dir);
	put_damaged(dir, "a.pt");
	put_damaged(dir, "b.pt");
	is_int(entries(dir, NULL, &err), -1,
	    "a directory with only damaged files fails");
	ok(strncmp(err.text, "OFS5", 4) == 0 &&
		strstr(err.text, "a.pt") != NULL,
	    "a directory of damaged files fails with the error of the first");
	mk_remove(dir);
	mk_dir(dir);
	put_damaged(dir, "alone.pt");
	is_int(entries(dir, NULL, &err), -1,
	    "a directory with a single damaged file fails");
	mk_remove(dir);
}

/* Kinds of paths that can be given. */
static void paths(void)
{
	struct optimfs_options opt = { 0 };
	struct optimfs_error err = { 0 };
	char dir[64], to[64];

	mk_dir(dir);
	put_torch(dir, "a.pt");
	is_int(entries(in(dir, "a.pt"), NULL, &err), 1,
	    "the path of a torch.save file is read");
	opt.type = "raw";
	is_int(entries(in(dir, "a.pt"), &opt, &err), 1,
	    "a file is read as raw bytes with the type raw");
	is_int(entries(in(dir, "gone"), NULL, &err), -1,
	    "a path that does not exist fails");
	is_int(err.code, ENOENT,
	    "a path that does not exist fails with ENOENT");
	if (mkfifo(in(dir, "fifo"), 0600) == -1)
		bail_out("mkfifo: %m");
	is_int(entries(in(dir, "fifo"), NULL, &err), -1,
	    "a path of a FIFO fails");
	is_error(err, EUCLEAN, "OFS602",
	    "a FIFO is refused with OFS602, without waiting for a writer");
	mk_dir(to);
	if (symlink(dir, in(to, "link")) == -1)
		bail_out("symlink: %m");
	is_int(entries(in(to, "link"), NULL, &err), 1,
	    "a symbolic link to a directory is followed");
	mk_remove(to);
	mk_remove(dir);
	is_int(entries(data_path("pytorch/dcp_names/ckpt/.metadata"), NULL,
		   &err),
	    17, "the path of .metadata stands for its directory");
}

static void writers(void)
{
	static const char *const cases[][4] = {
		{ "pytorch/dcp_torch113/ckpt", "dcp", "PyTorch 1.13", "" },
		{ "pytorch/dcp_names/ckpt", "dcp", "PyTorch 2.10 or later",
		    "" },
		{ "pytorch/torchtitan_like_w2/ckpt/step-3", "dcp",
		    "torchtitan, PyTorch 2.10 or later", "torchtitan" },
		{ "extra/trainers/pl_sharded.ckpt", "dcp",
		    "Lightning, PyTorch 2.10 or later", "Lightning" },
		{ "extra/trainers/acc_v2_SHARDED_STATE_DICT", "dcp",
		    "Accelerate, PyTorch 2.10 or later", "Accelerate" },
		{ "pytorch/hf_storage_w2/ckpt", "safetensors",
		    "PyTorch 2.8 or later", "" },
	};
	struct optimfs_error err = { 0 };

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct ofs_catalog *cat =
		    ofs_read_checkpoint(data_path(cases[i][0]), NULL, &err);

		if (!ok(cat != NULL, "%s is read", cases[i][0])) {
			diag("%s", err.text);
			continue;
		}
		is_str(cat->format, cases[i][1], "format of %s", cases[i][0]);
		is_str(cat->writer, cases[i][2], "writer of %s", cases[i][0]);
		is_str(cat->trainer == NULL ? "" : cat->trainer, cases[i][3],
		    "trainer of %s", cases[i][0]);
		ofs_catalog_free(cat);
	}
}

/* Notes each step once, and the number of its things. */
static void note_step(void *ctx, uint64_t done, uint64_t total,
    const char *step)
{
	struct ofs_buf *b = ctx;

	if (done == 0)
		ofs_buf_printf(b, "%s %d\n", step, (int)total);
}

static void steps(const char *path, const char *want)
{
	struct ofs_buf b = { 0 };
	const struct optimfs_watch watch = { .progress = note_step, .ctx = &b };
	const struct optimfs_options o = { .watch = &watch };
	struct optimfs *fs = optimfs_open(data_path(path), &o, NULL);

	ofs_buf_putc(&b, '\0');
	ok(fs != NULL, "%s opens", path);
	is_str((char *)b.data, want, "opening %s reports its steps", path);
	ofs_buf_fini(&b);
	optimfs_close(fs);
}

/* A commit reads its new files over the old ones, to check them: it must not be
 * content with the old ones. */
static void no_upper(void)
{
	const struct optimfs_options o = { 0 };
	struct optimfs_error err = { 0 };
	struct ofs_checkpoint in;
	struct ofs_catalog *cat;

	if (ofs_checkpoint_open(&in, data_path("pytorch/dcp_torch113/ckpt"), &o,
		&err) == -1)
		bail_out("%s", err.text);
	cat = ofs_checkpoint_read(&in, 9999, NULL, 0, &o, &err);
	ok(cat == NULL, "without the new files nothing is read");
	is_error(err, EBADF, "new files", "the error without them");
	ofs_catalog_free(cat);
	ofs_checkpoint_close(&in);
}

/* Interrupts once, at step at. */
struct interrupt {
	int calls, at;
};

static bool stop(void *ctx)
{
	struct interrupt *i = ctx;

	return ++i->calls == i->at;
}

/* Nothing is left out because of an interrupt: opening fails. */
static void interrupted(const char *path)
{
	struct interrupt i = { 0 };
	const struct optimfs_watch watch = { .stop = stop, .ctx = &i };
	const struct optimfs_options o = { .watch = &watch };
	struct optimfs_error err;
	int missed = 0, n = 0;

	do {
		struct optimfs *fs;

		i = (struct interrupt){ .at = ++n };
		fs = optimfs_open(data_path(path), &o, &err);
		if (i.calls >= i.at && (fs != NULL || err.code != ECANCELED)) {
			diag("step %d: %s", n,
			    fs != NULL ? "opened" : err.text);
			missed++;
		}
		optimfs_close(fs);
	} while (i.calls >= i.at);
	is_int(missed, 0, "%s: each of %d interrupts ends the opening", path,
	    n - 1);
}

int main(void)
{
	interrupted("deepspeed/v0.19.6_z1_ws2_bf16/ckpt_universal");
	interrupted("extra/olmo_local/new");
	interrupted("pytorch/dcp_torch113/ckpt");
	interrupted("extra/trainers/acc_v2_SHARDED_STATE_DICT");
	interrupted("pytorch/fsdp1_local_flat_fullshard_w3/ckpt");
	steps("pytorch/dcp_fsdp2_w2/ckpt",
	    "reading the index 48145\nadding tensors 132\n"
	    "naming tensors 132\nbuilding the tree 0\n");
	steps("deepspeed/z2_ws2_bf16/ckpt",
	    "reading the index 12\nreading the index 12\n"
	    "reading the files of ranks 3\nreading the files of ranks 3\n"
	    "naming tensors 129\nbuilding the tree 0\n");
	no_upper();
	some_fail();
	paths();
	writers();
	return done_testing();
}
