/* detect/inventory.c - every file of a directory is accounted for */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "detect/inventory.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cluster/source.h"
#include "detect/candidates.h"
#include "support/dcp_writer.h"
#include "support/truth.h"
#include "tap.h"

/* Every file of every fixture. */

/* Files that say how to read the others. */
static bool tells(const char *name)
{
	static const char *const names[] = { "metadata.json",
		"fsdp_config.json", "latest", "latest_universal",
		"latest_checkpointed_iteration.txt",
		"model.safetensors.index.json" };

	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(name, names[i]) == 0)
			return true;
	return strstr(name, ".metadata") != NULL;
}

static bool is_left(const struct ofs_inventory *left, const char *path)
{
	for (size_t i = 0; i < left->n; i++) {
		const char *of = left->item[i].path;
		size_t n = strlen(of);

		if (of[n - 1] == '/' ? strncmp(path, of, n) == 0
				     : strcmp(path, of) == 0)
			return true;
	}
	return false;
}

/* The files below rel that are neither read nor left out; names the first. */
static unsigned unaccounted(const struct ofs_catalog *cat,
    const struct ofs_inventory *left, const char *rel, char first[512])
{
	struct ofs_names names;
	unsigned n = 0;

	if (ofs_dir_list_sub(&cat->dir, rel, &names, NULL) == -1)
		bail_out("%s/%s cannot be listed", cat->dir.path, rel);
	for (size_t i = 0; i < names.n; i++) {
		char path[512];
		struct stat st;

		snprintf(path, sizeof(path), "%s%s%s", rel,
		    rel[0] == '\0' ? "" : "/", names.name[i]);
		if (!ofs_dir_stat(&cat->dir, path, &st))
			bail_out("%s is gone", path);
		if (S_ISDIR(st.st_mode)) {
			n += unaccounted(cat, left, path, first);
		} else if (ofs_catalog_find_object(cat, path) == OFS_NONE &&
		    !is_left(left, path) && !tells(names.name[i]) && n++ == 0) {
			snprintf(first, 512, "%s", path);
		}
	}
	ofs_names_free(&names);
	return n;
}

static void account(const char *name)
{
	struct optimfs_error err = { 0 };
	struct ofs_catalog *cat =
	    ofs_read_checkpoint(data_path(name), NULL, &err);
	struct ofs_inventory left;
	char first[512] = "";
	unsigned n;

	if (cat == NULL) {
		ok(err.number == 681 || err.number == 667,
		    "%s is refused by name: %s", name, err.text);
		return;
	}
	if (ofs_inventory_left(cat, &left, &err) == -1)
		bail_out("%s: %s", name, err.text);
	n = unaccounted(cat, &left, "", first);
	is_int(n, 0, "every file of %s is accounted for%s%s", name,
	    n == 0 ? "" : ", but not ", first);
	ofs_inventory_free(&left);
	ofs_catalog_free(cat);
}

static void fixtures(void)
{
	static const char *const kinds[] = { "pytorch", "deepspeed", "megatron",
		"extra", "fsdp_dtensor", "deepspeed_moe",
		"torch_checkpointing" };

	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++) {
		struct ofs_names names;
		struct ofs_dir dir;
		char path[512];

		if (ofs_dir_open(data_path(kinds[i]), &dir, NULL) == -1 ||
		    ofs_dir_list(&dir, &names, NULL) == -1)
			bail_out("%s cannot be listed", kinds[i]);
		for (size_t k = 0; k < names.n; k++) {
			snprintf(path, sizeof(path), "%s/%s", kinds[i],
			    names.name[k]);
			account(path);
		}
		ofs_names_free(&names);
		ofs_dir_close(&dir);
	}
}

/* Directories that the test makes. */

static void put_text(const char *dir, const char *name, const char *text)
{
	mk_file(dir, name, text, strlen(text));
}

static void put_safetensors(const char *dir, const char *name)
{
	static const char header[] =
	    "{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}} ";
	char file[8 + sizeof(header)] = { sizeof(header) - 1 };

	memcpy(file + 8, header, sizeof(header));
	mk_file(dir, name, file, sizeof(file));
}

/* What is left out, as "path: kind: why; ..."; the text of the error. */
static const char *left_of(const char *dir, struct optimfs_error *err)
{
	static char text[4096];
	struct ofs_catalog *cat = ofs_read_checkpoint(dir, NULL, err);
	struct ofs_inventory left;
	size_t n = 0;

	if (cat == NULL || ofs_inventory_left(cat, &left, err) == -1) {
		ofs_catalog_free(cat);
		return err->text;
	}
	text[0] = '\0';
	for (size_t i = 0; i < left.n; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n,
		    "%s%s: %s: %s", i == 0 ? "" : "; ", left.item[i].path,
		    ofs_left_kind_name(left.item[i].kind), left.item[i].why);
	ofs_inventory_free(&left);
	ofs_catalog_free(cat);
	return text;
}

static void foreign(void)
{
	struct optimfs_error err = { 0 };
	char dir[64];

	mk_dir(dir);
	put_safetensors(dir, "model.safetensors");
	is_str(left_of(dir, &err), "", "a lone file leaves nothing out");
	put_text(dir, "._model.safetensors", "Mac OS X");
	put_text(dir, ".DS_Store", "Bud1");
	put_text(dir, "._notes.config", "Mac OS X");
	put_text(dir, ".model.safetensors.Xa3bQz", "half of it");
	put_text(dir, ".azDownload-7-model.safetensors", "half of it");
	put_text(dir, "tmp_model.pt", "half of it");
	put_text(dir, "model.safetensors.partial", "half of it");
	put_text(dir, ".nfs00000001", "PK\3\4");
	put_text(dir, "events.out.tfevents.17.host.pt", "no archive");
	put_text(dir, "model.safetensors.lock", "");
	put_text(dir, "README.md", "hello");
	put_text(dir, "config.json", "{}");
	put_text(dir, "noise", "nothing known");
	put_text(dir, "samples/0.txt", "a");
	is_str(left_of(dir, &err),
	    ".DS_Store: foreign: of macOS; ._model.safetensors: foreign: of "
	    "macOS; ._notes.config: foreign: of macOS; "
	    ".azDownload-7-model.safetensors: unfinished: a download by "
	    "azcopy; .model.safetensors.Xa3bQz: unfinished: a copy by rsync; "
	    ".nfs00000001: foreign: of NFS: a removed file that is "
	    "open; README.md: not read: text; config.json: not read: "
	    "settings; events.out.tfevents.17.host.pt: foreign: of "
	    "TensorBoard; model.safetensors.lock: foreign: a lock; "
	    "model.safetensors.partial: unfinished: a part of a download; "
	    "noise: not read: of no known format; samples/: not read: no "
	    "checkpoint; tmp_model.pt: unfinished: its name is that of a "
	    "temporary file",
	    "files of other programs are named, and read as nothing");
	mk_remove(dir);
}

/* Names that a save uses until it has finished. */
static void unfinished(void)
{
	static const struct {
		const char *name, *file;
		bool is;
	} cases[] = {
		{ "tmp-checkpoint-500", "__0_0.distcp", true },
		{ "step-3.tmp", ".metadata", true },
		{ "step-3", "__0_0.distcp", true },
		{ "step-3", ".metadata", false },
		{ "step-3", "model.safetensors", false },
		{ "template", ".metadata", false },
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		char *name = (char *)(uintptr_t)cases[i].file;
		const struct ofs_names names = { .name = &name, .n = 1 };

		ok((ofs_unfinished(cases[i].name, &names) != NULL) ==
			cases[i].is,
		    "%s with %s is %sfinished", cases[i].name, cases[i].file,
		    cases[i].is ? "not " : "");
	}
}

static void candidates(void)
{
	struct optimfs_error err = { 0 };
	struct ofs_candidates c;
	struct ofs_names names;
	struct ofs_dir dir;
	char top[64];

	mk_dir(top);
	put_safetensors(top, "step-9/model.safetensors");
	put_safetensors(top, "step-10/model.safetensors");
	put_text(top, "step-20/__0_0.distcp", "PK\3\4");
	put_text(top, "logs/0.txt", "a");
	if (ofs_dir_open(top, &dir, &err) == -1 ||
	    ofs_dir_list(&dir, &names, &err) == -1 ||
	    ofs_candidates_find(&dir, &names, 0, &c, &err) == -1)
		bail_out("%s", err.text);
	is_int((int64_t)c.n, 3, "three directories are checkpoints");
	is_str(c.v[0].path, "step-20", "the highest number comes first");
	ok(c.v[0].unfinished != NULL, "one without an index is not finished");
	is_str(c.v[1].path, "step-10", "numbers are not compared as text");
	ok(c.v[1].unfinished == NULL, "a whole one is finished");
	ofs_candidates_free(&c);
	ofs_names_free(&names);
	ofs_dir_close(&dir);
	mk_remove(top);
}

int main(void)
{
	fixtures();
	foreign();
	unfinished();
	candidates();
	return done_testing();
}
