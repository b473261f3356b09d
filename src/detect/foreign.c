/* foreign.c - what is recognized only to say that it is not read */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>

#include "archive/torch.h"
#include "detect/detect.h"
#include "format/probe.h"

/* The program that compressed a file; NULL: none that is known. */
static const char *compressor(const struct ofs_file_head *head)
{
	static const struct {
		const char *name, *magic;
		size_t n;
	} known[] = { { "gzip", "\x1f\x8b", 2 },
		{ "zstd", "\x28\xb5\x2f\xfd", 4 },
		{ "xz",
		    "\xfd"
		    "7zXZ",
		    5 },
		{ "bzip2", "BZh", 3 } };

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (head->n >= known[i].n &&
		    memcmp(head->p, known[i].magic, known[i].n) == 0)
			return known[i].name;
	return NULL;
}

static bool begins(const struct ofs_file_head *head, const char *magic)
{
	size_t n = strlen(magic);

	return head->n >= n && memcmp(head->p, magic, n) == 0;
}

static bool has_extension(const struct ofs_file_head *head, const char *dot)
{
	const char *const list[] = { dot, NULL };

	return ofs_probe_extension(ofs_path_last(head->name), list) != NULL;
}

/* The format of another program, with what to do; NULL: none that is known. */
static const char *foreign(const struct ofs_file_head *head)
{
	static const struct {
		const char *magic, *extension; /* "", NULL: any */
		const char *what;
	} known[] = {
		{ "\x89HDF\r\n\x1a\n", NULL,
		    "an HDF5 file, as Keras and h5py write it: load it there, "
		    "and save its arrays with numpy.savez" },
		{ "GGUF", NULL,
		    "a GGUF file for llama.cpp: use the checkpoint that it was "
		    "converted from" },
		{ "PK\3\4", ".keras",
		    "a model of Keras: load it there, and save its weights "
		    "with numpy.savez" },
		{ "", ".msgpack",
		    "a msgpack file, as Flax writes it: load it there, and "
		    "save its arrays with numpy.savez" },
		{ "", ".pdparams",
		    "weights of PaddlePaddle: load them there, and save them "
		    "with numpy.savez or safetensors" },
		{ "", ".pdopt",
		    "an optimizer of PaddlePaddle: load it there, and save "
		    "its arrays with numpy.savez" },
		{ "|TZR|", NULL,
		    "a file of tensorizer: load it there, and save the state "
		    "dict with torch.save" },
		{ "lmgg", NULL,
		    "an old file of ggml: use the checkpoint that it was "
		    "converted from" },
		{ "tjgg", NULL,
		    "an old file of ggml: use the checkpoint that it was "
		    "converted from" },
		{ "", ".onnx",
		    "an ONNX model: use the checkpoint that it was exported "
		    "from" },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (begins(head, known[i].magic) &&
		    (known[i].extension == NULL ||
			has_extension(head, known[i].extension)))
			return known[i].what;
	return NULL;
}

/* Is it a zip archive of whole files? */
static bool is_packed(const struct ofs_file_head *head)
{
	return has_extension(head, ".zip") && begins(head, "PK\3\4") &&
	    !ofs_probe_first(head, "data.pkl") &&
	    !ofs_probe_first(head, ".npy");
}

/* The start of a line with the name of a module or a class, or NULL. */
static const uint8_t *past_name(const uint8_t *p, const uint8_t *end)
{
	const uint8_t *from = p;

	while (p < end && (isalnum(*p) || *p == '_' || *p == '.'))
		p++;
	return p > from && p < end && *p == '\n' ? p + 1 : NULL;
}

/* How pickle.dump begins a list, a dict or an object in protocol 0 or 1. */
static bool is_old_pickle(const struct ofs_file_head *head)
{
	const uint8_t *p;

	if (begins(head, "(dp") || begins(head, "(lp"))
		return isdigit(head->p[3]);
	if (head->n > 3 && (head->p[0] == '}' || head->p[0] == ']'))
		return head->p[1] == 'q' && head->p[2] <= 1;
	if (!begins(head, "c"))
		return false;
	p = past_name(head->p + 1, head->p + head->n);
	return p != NULL && past_name(p, head->p + head->n) != NULL;
}

bool ofs_detect_foreign(const struct ofs_dir *dir, const char *rel,
    struct optimfs_error *err)
{
	struct ofs_file_head head;
	const char *what;

	if (!ofs_probe_head(dir, rel, &head))
		return false;
	what = compressor(&head);
	if (what != NULL)
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS667 %s/%s is compressed with %s", dir->path, rel, what);
	else if (ofs_torch_magic(head.p, head.n) == OFS_TORCH_OTHER_TAR)
		optimfs_fail(err, EOPNOTSUPP, "OFS667 %s/%s: a tar archive",
		    dir->path, rel);
	else if (is_packed(&head))
		optimfs_fail(err, EOPNOTSUPP, "OFS667 %s/%s: a zip archive",
		    dir->path, rel);
	else if (ofs_probe_first(&head, "erialized_exported_program.json"))
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS668 %s/%s: a program of torch.export: save its "
		    "weights, torch.save(torch.export.load(FILE).state_dict, "
		    "NEW)",
		    dir->path, rel);
	else if ((what = foreign(&head)) != NULL)
		optimfs_fail(err, EOPNOTSUPP, "OFS668 %s/%s: %s", dir->path,
		    rel, what);
	else if (is_old_pickle(&head))
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS678 %s/%s: a pickle of protocol 0 or 1", dir->path,
		    rel);
	else
		return false;
	return true;
}

const char *ofs_detect_foreign_words(const struct optimfs_error *why)
{
	switch (why->number) {
	case 667:
		return "an archive, or compressed";
	case 678:
		return "a pickle of protocol 0 or 1";
	default:
		return "of a program whose format is not read";
	}
}

static bool has_pair(const struct ofs_names *names, const char *end,
    const char *other)
{
	bool first = false, second = false;

	for (size_t i = 0; i < names->n; i++) {
		size_t n = strlen(names->name[i]), k = strlen(end);

		first = first ||
		    (n > k && strcmp(names->name[i] + n - k, end) == 0);
		second = second || strstr(names->name[i], other) != NULL;
	}
	return first && second;
}

/* Names that only one program gives to a file of its checkpoints, with what to
 * do; the second one, if any, must be there as well. */
#define ARRAYS \
 "load it there, and save its arrays with numpy.savez or safetensors"
static const struct program {
	const char *name, *other, *who, *todo;
	bool alone; /* none of its files is read, whatever they look like */
} programs[] = {
	{ "_CHECKPOINT_METADATA", NULL, "JAX (Orbax)", ARRAYS, false },
	{ "manifest.ocdbt", NULL, "JAX (Orbax)", ARRAYS, false },
	{ "_METADATA", NULL, "JAX (Orbax)", ARRAYS, false },
	{ ".zarray", NULL, "Zarr (TensorStore, as JAX and Levanter write it)",
	    ARRAYS, false },
	{ "zarr.json", NULL, "Zarr (TensorStore, as JAX and Levanter write it)",
	    ARRAYS, false },
	{ "saved_model.pb", NULL, "TensorFlow", ARRAYS, false },
	{ ".snapshot_metadata", NULL, "torchsnapshot",
	    "restore it there, Snapshot(DIR).restore(...), and save the state "
	    "with torch.distributed.checkpoint",
	    true },
	{ "checkpoint_metadata.json", "model_config.json", "nanotron",
	    "convert its weights with examples/llama/convert_nanotron_to_hf.py "
	    "of nanotron; its optimizer is not read",
	    true },
};

/* The program that wrote a directory with these names; NULL: unknown. */
static const struct program *program_of(const struct ofs_names *names)
{
	static const struct program tensorflow = { "", NULL, "TensorFlow",
		ARRAYS, false };

	for (size_t i = 0; i < sizeof(programs) / sizeof(programs[0]); i++)
		if (ofs_probe_has(names, programs[i].name) &&
		    (programs[i].other == NULL ||
			ofs_probe_has(names, programs[i].other)))
			return &programs[i];
	return has_pair(names, ".index", ".data-00000-of-") ? &tensorflow
							    : NULL;
}

bool ofs_detect_foreign_dir(const struct ofs_dir *dir,
    const struct ofs_names *names, bool alone, struct optimfs_error *err)
{
	const struct program *p = program_of(names);

	if (p != NULL && alone && !p->alone)
		return false;
	if (p != NULL)
		optimfs_fail(err, EOPNOTSUPP,
		    "OFS668 %s: a checkpoint of %s: %s", dir->path, p->who,
		    p->todo);
	return p != NULL;
}

/* Arrays may lie far below: model/transformer/layers/attention/weight/.zarray */
#define FAR_DEPTH 7
#define FAR_LOOK  64 /* directories */

static bool far_below(const struct ofs_dir *dir, const struct ofs_names *names,
    bool alone, int depth, unsigned int *looked, struct optimfs_error *err)
{
	bool found = ofs_detect_foreign_dir(dir, names, alone, err);

	for (size_t i = 0; i < names->n && !found && depth > 0; i++) {
		struct ofs_names below;
		struct ofs_dir sub;

		if (*looked >= FAR_LOOK)
			return false;
		if (ofs_probe_open(dir, names->name[i], &sub, &below, NULL) !=
		    1)
			continue;
		++*looked;
		found = far_below(&sub, &below, alone, depth - 1, looked, err);
		ofs_names_free(&below);
		ofs_dir_close(&sub);
	}
	return found;
}

bool ofs_detect_foreign_below(const struct ofs_dir *dir,
    const struct ofs_names *names, bool alone, struct optimfs_error *err)
{
	unsigned int looked = 0;

	return far_below(dir, names, alone, alone ? 1 : FAR_DEPTH, &looked,
	    err);
}
