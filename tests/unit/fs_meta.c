/* fs_meta.c - files of .optimfs, extended attributes, fsck */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "sample.h"
#include "tap.h"

static struct sample s;

static void is_text(const char *path, const char *want)
{
	struct optimfs_error err = { 0 };
	char *got = sample_read(&s, path, NULL, &err);

	is_str(got == NULL ? err.text : got, want, "contents of %s", path);
	free(got);
}

/* Tests that the file has each of these parts, in this order. */
static void holds(const char *path, const char *const *part)
{
	struct optimfs_error err = { 0 };
	char *got = sample_read(&s, path, NULL, &err);
	const char *p = got == NULL ? err.text : got;

	for (; *part != NULL; part++) {
		const char *at = strstr(p, *part);

		if (!ok(at != NULL, "%s has %s", path, *part))
			diag("%s", p);
		else
			p = at + strlen(*part);
	}
	free(got);
}

static void tables(void)
{
	struct optimfs_attr a;

	is_text(".optimfs/tensors.tsv",
	    "path\tdtype\tshape\tbytes\tshards\towners\n"
	    "model/bad\tuint8\t4\t4\t2\t0-1\n"
	    "model/conj\tcomplex64\t2\t16\t1\t\n"
	    "model/empty\tfloat32\t0,3\t0\t0\t\n"
	    "model/odd\tuint8\t4\t4\t1\t0-1\n"
	    "model/rep\tuint8\t4\t4\t1\t0-1\n"
	    "model/swap\tint32\t3\t12\t1\t\n"
	    "model/t\tint16\t2,4\t16\t2\t0-1\n"
	    "model/w\tfloat32\t5,3\t60\t2\t0-1\n"
	    "optim/state/w/exp_avg\tfloat32\t4\t16\t2\t0,2\n"
	    "optim/state/w/step\tfloat32\t\t4\t1\t1\n");
	optimfs_resolve(s.fs, ".optimfs/tensors.tsv", &a, NULL);
	ok(a.exact && a.size > 300,
	    "the size of tensors.tsv is known without reading it");
	is_text(".optimfs/missing", "OFS140 gone.bin is missing\n");
	is_text(".optimfs/globals", "");
	is_text(".optimfs/control", "clean\n");
	is_text(".optimfs/errors", "");
	holds(".optimfs/warnings",
	    (const char *const[]){ "OFS610", "\n", NULL });
	holds(".optimfs/README",
	    (const char *const[]){ s.h.dir, "tensors.tsv", NULL });
}

static char *mount_info(void *ctx)
{
	return strdup(ctx);
}

static void info(void)
{
	static char first[] = "{\"direct\": true}";
	static char second[] = "{\"direct\": false}";

	optimfs_set_mount_info(s.fs, mount_info, first);
	holds(".optimfs/info.json",
	    (const char *const[]){ "\"optimfs\": \"", "\"format\": \"sample\"",
		"\"writer\": null", "\"world_size\": 3", "\"tensors\": 10",
		"\"parameters\": 8", "\"optimizer_states\": 2", "\"values\": 2",
		"\"objects\": 2", "\"files\": 4", "\"missing_files\": 1",
		"\"damaged\": 2", "\"logical\": 136", "\"complex64\": 1",
		"\"strict\": false", "\"mount\": {\"direct\": true}", "}\n",
		NULL });
	optimfs_set_mount_info(s.fs, mount_info, second);
	holds(".optimfs/info.json",
	    (const char *const[]){ "\"mount\": {\"direct\": false}", NULL });
}

static void layouts(void)
{
	is_text(".optimfs/layout/model/w",
	    "{\"path\": \"model/w\", \"dtype\": \"float32\", \"shape\": [5, 3],"
	    " \"shards\": [\n"
	    "  {\"offsets\": [0, 0], \"sizes\": [3, 3], \"rank\": 0, \"file\": "
	    "\"r0.bin\", \"offset\": 3, \"length\": 36, \"encoding\": \"raw\", "
	    "\"codec\": null},\n"
	    "  {\"offsets\": [3, 0], \"sizes\": [2, 3], \"rank\": 1, \"file\": "
	    "\"r1.bin\", \"offset\": 3, \"length\": 24, \"encoding\": \"raw\", "
	    "\"codec\": null}\n"
	    "]}\n");
	holds(".optimfs/layout/model/rep",
	    (const char *const[]){ "\"rank\": 0", "}", "\"rank\": 1",
		"\"replica\": true}\n]}", NULL });
	holds(".optimfs/layout/optim/state/w/exp_avg",
	    (const char *const[]){ "gone.bin", "\"missing\": true", NULL });
	holds(".optimfs/layout/optim/param_groups/0/lr",
	    (const char *const[]){
		"\"file\": \"r1.bin\"", "\"length\": 12", NULL });
}

static void attribute(const char *path, const char *name, const char *want)
{
	char full[64], *value = NULL;
	struct optimfs_error err = { 0 };
	size_t len = 0;

	snprintf(full, sizeof(full), "user.optimfs.%s", name);
	if (optimfs_getxattr(s.fs, sample_node(&s, path), full, &value, &len,
		&err) == -1) {
		ok(want == NULL && err.code == ENODATA, "%s has no %s", path,
		    name);
		return;
	}
	is_str(value, want, "%s of %s", name, path);
	is_u64(len, strlen(value), "length of %s of %s", name, path);
	free(value);
}

static void listed(const char *path, const char *want)
{
	struct ofs_buf text = { 0 };
	char *names;
	size_t len;

	optimfs_listxattr(s.fs, sample_node(&s, path), &names, &len, NULL);
	for (size_t i = 0; i < len; i += strlen(names + i) + 1)
		ofs_buf_printf(&text, "%s ", names + i);
	ofs_buf_putc(&text, '\0');
	is_str((char *)text.data, want, "names of the attributes of '%s'",
	    path);
	ofs_buf_fini(&text);
	free(names);
}

#define P "user.optimfs."

static void attributes(void)
{
	listed("model/w", P "fqn " P "dtype " P "shape " P "kind ");
	listed("extra/note", P "fqn " P "kind ");
	listed("optim/state/w", P "fqn ");
	listed("optim", "");
	listed("", "");
	listed(".optimfs/stats", "");
	listed(".optimfs/npy/model/w.npy",
	    P "fqn " P "dtype " P "shape " P "kind ");
	listed(".optimfs/rank/0/model/w", P "fqn ");
	attribute("model/w", "fqn", "w");
	attribute("model/w", "raw_fqn", NULL);
	attribute("model/w", "dtype", "float32");
	attribute("model/w", "shape", "5,3");
	attribute("model/w", "kind", "tensor");
	attribute("model/w", "shards", "2");
	attribute("model/w", "owners", "0-1");
	attribute("model/w", "source", "r0.bin:3+36\nr1.bin:3+24");
	attribute("model/w", "error", NULL);
	attribute("model/w", "nonsense", NULL);
	attribute("model/bad", "kind", "tensor");
	attribute("optim/state/w/exp_avg", "fqn", "w");
	attribute("optim/state/w/step", "shape", "");
	attribute("optim/state/w/step", "kind", "scalar");
	attribute("optim/state/w", "fqn", "w");
	attribute("optim/param_groups/0/lr", "kind", "object");
	attribute("optim/param_groups/0/lr", "dtype", NULL);
	attribute("extra/note", "kind", "string");
	attribute("extra/note", "crc32", "ed6f7a7a");
	attribute("", "fqn", NULL);
}

static void errors(void)
{
	char *got, *value;
	size_t len;

	optimfs_getxattr(s.fs, sample_node(&s, "model/bad"), P "error", &value,
	    &len, NULL);
	ok(strncmp(value, "OFS610 ", 7) == 0,
	    "user.optimfs.error has the error before the file is read");
	free(value);
	for (int i = 0; i < 2; i++) {
		got = sample_read(&s, "optim/state/w/exp_avg", NULL, NULL);
		ok(got == NULL, "reading a tensor with a missing file fails");
	}
	got = sample_read(&s, "model/bad", NULL, NULL);
	ok(got == NULL, "opening a tensor with overlapping shards fails");
	holds(".optimfs/errors",
	    (const char *const[]){
		"OFS140\tEIO\toptim/state/w/exp_avg\tbytes 0-15\t", "\t2\n",
		"OFS610\tEUCLEAN\tmodel/bad\t-\t", "\t1\n", NULL });
	is_u64(sample_stat(&s, "failures"), 3,
	    "the counter failures has all failed calls");
	optimfs_getxattr(s.fs, sample_node(&s, "optim/state/w/exp_avg"),
	    P "error", &value, &len, NULL);
	ok(strstr(value, "gone.bin") != NULL,
	    "user.optimfs.error has the last failure of the file");
	free(value);
	optimfs_log_error(s.fs,
	    &(struct optimfs_error){ .code = ETIMEDOUT,
		.number = 999,
		.text = "OFS999 of the mount" });
	holds(".optimfs/errors",
	    (const char *const[]){
		"OFS999\tETIMEDOUT\t-\t-\tof the mount\t1\n", NULL });
}

static char *more_stats(void *ctx)
{
	(void)ctx;
	return strdup("mount.threads 7\n");
}

static void stats(void)
{
	optimfs_set_stats(s.fs, more_stats, NULL);
	is_u64(sample_stat(&s, "mount.threads"), 7,
	    ".optimfs/stats has the lines of the mount");
	ok(sample_stat(&s, "local.read_bytes") > 0,
	    ".optimfs/stats has the number of bytes read");
	ok(sample_stat(&s, "memory.resident") > 100000,
	    ".optimfs/stats has the resident memory");
}

static void note(void *ctx, const struct optimfs_finding *f)
{
	struct ofs_buf *out = ctx;

	ofs_buf_printf(out, "%s %d %s %.6s\n", f->error ? "E" : "W", f->code,
	    f->path, f->text);
}

static void check(bool data, const char *want, uint64_t problems)
{
	struct ofs_buf out = { 0 };
	struct optimfs_error err = { 0 };
	uint64_t n = 99;

	is_int(optimfs_fsck(s.fs, data, note, &out, &n, &err), 0,
	    "fsck %s data succeeds", data ? "with" : "without");
	ofs_buf_putc(&out, '\0');
	is_str((char *)out.data, want,
	    "fsck %s data reports the expected findings",
	    data ? "with" : "without");
	is_u64(n, problems, "fsck %s data counts its errors",
	    data ? "with" : "without");
	ofs_buf_fini(&out);
}

static void fsck(void)
{
	char want[512];

	snprintf(want, sizeof(want),
	    "E %d  OFS140\nW 0  OFS611\nE %d model/bad OFS610\n"
	    "E %d optim/state/w/exp_avg OFS140\n",
	    EIO, EUCLEAN, EIO);
	check(false, want, 3);
	snprintf(want, sizeof(want),
	    "E %d  OFS140\nW 0  OFS611\nE %d model/bad OFS610\n"
	    "E %d model/odd OFS612\nE %d optim/state/w/exp_avg OFS140\n",
	    EIO, EUCLEAN, EUCLEAN, EIO);
	check(true, want, 4);
}

int main(void)
{
	struct optimfs_error err;

	sample_init(&s, NULL, &err);
	if (s.fs == NULL)
		bail_out("%s", err.text);
	tables();
	info();
	layouts();
	attributes();
	errors();
	stats();
	fsck();
	sample_fini(&s);
	return done_testing();
}
