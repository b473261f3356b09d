/* file.c - a file of torch.save or pickle.dump, opened and parsed */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/torch_file/file.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "archive/torch.h"
#include "base/str.h"
#include "catalog/budget.h"
#include "format/globals.h"
#include "format/torch_file/legacy.h"

/* The number of bytes that ofs_torch_magic examines. */
#define HEAD 512

/* A file that is being read. */
struct file {
	struct ofs_catalog *cat;
	const char *rel;
	struct ofs_input in;
	uint64_t size;
	uint8_t head[HEAD];
	size_t nhead;
	struct ofs_torch_file *out;
};

static int read_file(void *ctx, uint64_t off, uint64_t len, void *buf,
    struct optimfs_error *err)
{
	const struct file *f = ctx;

	return ofs_input_read(&f->in, buf, len, off, err);
}

#define WARN(f, ...) \
 ofs_catalog_note((f)->cat, OFS_NOTE_WARNING, 0, err, __VA_ARGS__)

static const struct ofs_zip_record *find_record(const struct ofs_zip *zip,
    const char *name)
{
	return ofs_zip_find(zip, name, strlen(name));
}

/* Is the record a decimal number from 1 to 2^30? torch writes 64. */
static bool alignment_is_sane(struct file *f, const struct ofs_zip *zip,
    const struct ofs_zip_record *r)
{
	char text[16] = "";
	uint64_t off, v = 0;
	uint32_t i;

	if (r->size == 0 || r->size >= sizeof(text) ||
	    ofs_zip_data(zip, r, read_file, f, &off, NULL) == -1 ||
	    read_file(f, off, r->size, text, NULL) == -1)
		return false;
	for (i = 0; text[i] >= '0' && text[i] <= '9'; i++)
		v = 10 * v + (uint64_t)(text[i] - '0');
	return i == r->size && v > 0 && v <= 1 << 30;
}

static bool is_script(const struct ofs_zip *zip)
{
	if (find_record(zip, "constants.pkl") != NULL)
		return true;
	for (size_t i = 0; i < zip->n; i++)
		if (zip->record[i].name.len > 5 &&
		    memcmp(zip->record[i].name.p, "code/", 5) == 0)
			return true;
	return false;
}

/* Does the record begin with zeros? */
static bool is_zero(struct file *f, const struct ofs_zip *zip,
    const struct ofs_zip_record *r)
{
	uint8_t bytes[4096];
	uint64_t n = r->size < sizeof(bytes) ? r->size : sizeof(bytes), off;

	if (ofs_zip_data(zip, r, read_file, f, &off, NULL) == -1 ||
	    read_file(f, off, n, bytes, NULL) == -1)
		return false;
	for (uint64_t i = 0; i < n; i++)
		if (bytes[i] != 0)
			return false;
	return true;
}

/* torch.serialization.skip_data() reserves space for storages and writes no
 * checksums for them, only for data.pkl. Programs that fill them in write none
 * either. Are all elements still zero? */
static bool is_unwritten(struct file *f, const struct ofs_zip *zip)
{
	size_t nstorage = 0;

	if (find_record(zip, "data.pkl")->crc == 0)
		return false;
	for (size_t i = 0; i < zip->n; i++) {
		const struct ofs_zip_record *r = &zip->record[i];

		if (r->size == 0 || !ofs_str_begins(r->name, "data/"))
			continue;
		if (r->crc != 0 || !is_zero(f, zip, r))
			return false;
		nstorage++;
	}
	return nstorage > 0;
}

/* Note harmless oddities of an archive, and storages without data. */
static int note_archive(struct file *f, const struct ofs_zip *zip,
    struct optimfs_error *err)
{
	const struct ofs_zip_record *r = find_record(zip, ".storage_alignment");
	int ret = 0;

	if (zip->nodd > 0)
		ret = WARN(f,
		    "OFS522 %.150s: %zu directories or links in the archive, "
		    "the first is '%.150s'",
		    f->rel, zip->nodd, zip->odd.p);
	if (ret == 0 && zip->big_endian)
		ret = WARN(f, "OFS525 %.150s: written on a big-endian machine",
		    f->rel);
	if (ret == 0 && r != NULL && !alignment_is_sane(f, zip, r))
		ret = WARN(f, "OFS526 %.150s: .storage_alignment is ignored",
		    f->rel);
	if (ret == 0 && is_script(zip))
		ret =
		    WARN(f, "OFS532 %.150s: TorchScript code ignored", f->rel);
	if (ret == 0 && is_unwritten(f, zip))
		ret = ofs_catalog_note(f->cat, OFS_NOTE_WARNING, ENODATA, err,
		    "OFS537 %.150s: elements were never written: all are zero "
		    "(torch.serialization.skip_data)",
		    f->rel);
	return ret;
}

static const char *writer_of(const struct ofs_zip *zip)
{
	if (find_record(zip, ".format_version") != NULL)
		return "PyTorch 2.7 or later";
	if (find_record(zip, "byteorder") != NULL)
		return "PyTorch 2.1 or later";
	return "PyTorch 1.6 or later";
}

/* An archive without an end record is truncated: replace the error. */
static int say_cut(const struct file *f, struct optimfs_error *err)
{
	if (err == NULL || err->number != 501)
		return -1;
	return optimfs_fail(err, EIO,
	    "OFS502 the archive is truncated: it ends at %" PRIu64 " bytes, "
	    "before its directory",
	    f->size);
}

static int open_archive(struct file *f, struct optimfs_error *err)
{
	struct ofs_pickle_limits limits = ofs_pickle_budget(f->cat);
	struct ofs_torch_file *out = f->out;

	out->doc =
	    ofs_torch_open(f->size, &limits, read_file, f, &out->zip, err);
	if (out->doc == NULL)
		return say_cut(f, err);
	out->is_zip = true;
	if (f->cat->writer == NULL)
		f->cat->writer = writer_of(&out->zip);
	return note_archive(f, &out->zip, err);
}

static int note_stream(struct file *f, const struct ofs_legacy *l,
    struct optimfs_error *err)
{
	int ret = 0;

	if (l->lost > 0)
		ret = ofs_catalog_note(f->cat, OFS_NOTE_MISSING, EIO, err,
		    "OFS672 %.200s: %zu storages are not in the stream, or "
		    "have other sizes than the object says",
		    f->rel, l->lost);
	if (ret == 0 && l->trailing > 0)
		ret = WARN(f,
		    "OFS405 %.200s: %" PRIu64 " bytes after the last storage",
		    f->rel, l->trailing);
	return ret;
}

static int open_legacy(struct file *f, struct optimfs_error *err)
{
	struct ofs_pickle_limits limits = ofs_pickle_budget(f->cat);
	struct ofs_torch_file *out = f->out;

	if (ofs_legacy_open(&out->legacy, f->size, &limits, read_file, f,
		err) == -1)
		return -1;
	out->doc = out->legacy.doc;
	out->legacy.doc = NULL;
	if (f->cat->writer == NULL)
		f->cat->writer = "PyTorch (legacy stream)";
	return note_stream(f, &out->legacy, err);
}

/* Read a file of pickle.dump, which is only a pickle. */
static int open_pickle(struct file *f, struct optimfs_error *err)
{
	struct ofs_pickle_limits limits = ofs_pickle_budget(f->cat);
	uint8_t *bytes;
	uint64_t n;

	if (ofs_dir_read_file(&f->cat->dir, f->rel, limits.bytes, &bytes, &n,
		err) == -1)
		return -1;
	f->out->doc = ofs_pickle_parse(bytes, n, true, &limits, NULL, err);
	return f->out->doc == NULL ? -1 : 0;
}

static int open_any(struct file *f, struct optimfs_error *err)
{
	switch (ofs_torch_magic(f->head, f->nhead)) {
	case OFS_TORCH_ZIP:
		if ((f->nhead > 8 && f->head[8] == '{') ||
		    ofs_str_ends(ofs_str_of(f->rel), ".safetensors"))
			return optimfs_fail(err, EUCLEAN,
			    "OFS662 ambiguous type: an archive and safetensors "
			    "(-o type=)");
		return open_archive(f, err);
	case OFS_TORCH_STREAM:
		return open_legacy(f, err);
	case OFS_TORCH_OTHER_TAR:
		return optimfs_fail(err, EOPNOTSUPP, "OFS667 a tar archive");
	case OFS_TORCH_TAR:
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS673 tar container of torch 0.1: if you trust the file, "
		    "load it with a newer PyTorch and save it again");
	case OFS_TORCH_PICKLE:
		return open_pickle(f, err);
	case OFS_TORCH_OLD_STREAM:
		return optimfs_fail(err, EOPNOTSUPP,
		    "OFS431 a stream of torch.save in pickle protocol 0 or 1: "
		    "load it in Python and save it again, "
		    "torch.save(torch.load(FILE), FILE)");
	case OFS_TORCH_GIT_LFS:
		return optimfs_fail(err, EIO,
		    "OFS666 a pointer of Git LFS, not the file itself");
	default:
		if (f->size == 0)
			return optimfs_fail(err, EIO,
			    "OFS502 the file is empty: the save or the copy "
			    "did not complete");
		return optimfs_fail(err, EUCLEAN,
		    "OFS671 not written by torch.save: neither an archive nor "
		    "a stream");
	}
}

static int look(struct file *f, int rank, bool bare, struct optimfs_error *err)
{
	struct ofs_torch_file *out = f->out;
	struct stat st;

	if (ofs_dir_open_input(&f->cat->dir, f->rel, &f->in, &st, err) == -1)
		return -1;
	f->size = (uint64_t)st.st_size;
	f->nhead = f->size < HEAD ? (size_t)f->size : HEAD;
	out->at.at.len = f->size;
	out->at.at.object = ofs_catalog_object(f->cat, f->rel, rank, err);
	if (out->at.at.object == OFS_NONE ||
	    ofs_input_read(&f->in, f->head, f->nhead, 0, err) == -1 ||
	    (bare ? open_pickle(f, err) : open_any(f, err)) == -1)
		return -1;
	if (out->is_zip)
		out->at.zip = &out->zip;
	out->at.storage = out->legacy.storage;
	out->at.nstorage = out->legacy.n;
	return ofs_note_globals(f->cat, out->doc, f->rel, err);
}

int ofs_torch_file_open(struct ofs_torch_file *out, struct ofs_catalog *cat,
    const char *rel, int rank, bool bare, struct optimfs_error *err)
{
	struct file f = { .cat = cat, .rel = rel, .in.fd = -1, .out = out };
	int ret;

	*out = (struct ofs_torch_file){ 0 };
	ret = look(&f, rank, bare, err);
	ofs_input_close(&f.in);
	if (ret == 0)
		return 0;
	ofs_torch_file_fini(out);
	optimfs_fail_in(err, "%s", rel);
	return -1;
}

void ofs_torch_file_fini(struct ofs_torch_file *f)
{
	ofs_pickle_free(f->doc);
	if (f->is_zip)
		ofs_zip_fini(&f->zip);
	ofs_legacy_fini(&f->legacy);
	*f = (struct ofs_torch_file){ 0 };
}
