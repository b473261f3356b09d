/* examine.c - what a name in the directory of a run is */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "run/examine.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "detect/candidates.h"
#include "detect/detect.h"
#include "detect/inventory.h"
#include "format/probe.h"

/* A listing of a run looks at this many files of each checkpoint. */
#define FILES_MAX 16

static void __attribute__((format(printf, 2, 3)))
unfinished(struct ofs_run_examined *out, const char *fmt, ...)
{
	va_list ap;

	out->kind = OFS_RUN_UNFINISHED;
	va_start(ap, fmt);
	vsnprintf(out->why, sizeof(out->why), fmt, ap);
	va_end(ap);
}

/* A reader of the mount needs the permissions of the source. */
static void narrow(struct ofs_run_examined *out, const struct stat *st)
{
	uint32_t bits = S_ISDIR(st->st_mode) ? (st->st_mode & 0111) << 2
					     : st->st_mode & 0444;
	int64_t mtime = ofs_time_ns(&st->st_mtim);

	out->mode &= bits;
	if (mtime > out->mtime_ns)
		out->mtime_ns = mtime;
}

/* Is there something at the end of the file that its writer writes last? A
 * pickle ends with STOP, a zip archive with its directory. */
static bool has_end(const struct ofs_dir *dir, const char *rel, bool pickle)
{
	struct ofs_file_head head;
	struct ofs_input in;
	struct stat st;
	uint8_t last = 0;

	/* what a server lists is whole, and each look is a request */
	if (dir->names != NULL)
		return true;
	if (!pickle)
		return !ofs_probe_head(dir, rel, &head) || head.n < 4 ||
		    memcmp(head.p, "PK\3\4", 4) != 0 || head.zip_end;
	if (ofs_dir_open_input(dir, rel, &in, &st, NULL) == -1)
		return true;
	if (st.st_size > 0 &&
	    ofs_input_read(&in, &last, 1, (uint64_t)st.st_size - 1, NULL) == -1)
		last = '.';
	ofs_input_close(&in);
	return last == '.';
}

static void set_format(struct ofs_run_examined *out,
    const struct ofs_format *format)
{
	out->format = format == NULL ? NULL : format->name;
	out->changes = format != NULL && format->changes;
}

/* Looks at the first files of a directory. *format gets that of one, if it is not
 * NULL. */
static void look_at_files(const struct ofs_dir *sub,
    const struct ofs_names *names, struct ofs_run_examined *out,
    const struct ofs_format **format)
{
	unsigned looked = 0;
	struct stat st;

	for (size_t i = 0; i < names->n && looked < FILES_MAX; i++) {
		const char *name = names->name[i];
		bool index = strcmp(name, ".metadata") == 0;

		if (!ofs_dir_stat(sub, name, &st) || !S_ISREG(st.st_mode))
			continue;
		looked++;
		narrow(out, &st);
		if (!index && !ofs_detect_has_extension(name))
			continue;
		if (!has_end(sub, name, index))
			unfinished(out, "%.80s has no end yet", name);
		if (format != NULL && *format == NULL && !index)
			*format = ofs_detect_file(sub, name, NULL);
	}
}

static void name_roles(const struct ofs_dir *sub, const struct ofs_names *names,
    const char *name, struct ofs_run_examined *out)
{
	char list[120] = "";
	size_t n = 0;

	for (size_t i = 0; i < names->n && n < sizeof(list); i++)
		if (ofs_probe_is_dir(sub, names->name[i]))
			n += (size_t)snprintf(list + n, sizeof(list) - n,
			    "%s%.40s/%.20s", n == 0 ? "" : " or ",
			    ofs_path_last(name), names->name[i]);
	unfinished(out, "it holds one for each role: give %s", list);
	out->roles = true;
}

static int examine_names(const struct ofs_dir *sub, const char *name,
    const struct ofs_names *names, bool told, struct ofs_run_examined *out,
    struct optimfs_error *err)
{
	const struct ofs_format *format = NULL;
	const char *why = ofs_unfinished(name, names);
	int is = ofs_detect_is_checkpoint(sub, names, err);

	if (is == -1)
		return -1;
	if (is == 1 && ofs_detect_dir(sub, names, &format, NULL) != 1)
		format = NULL;
	look_at_files(sub, names, out, is == 1 ? &format : NULL);
	set_format(out, format);
	if (out->kind == OFS_RUN_UNFINISHED)
		return 0;
	if (why != NULL && (is == 1 || told))
		unfinished(out, "%s", why);
	else if (is == 1)
		out->kind = OFS_RUN_COMPLETE;
	else if (told && ofs_detect_is_roles(sub, names))
		name_roles(sub, names, name, out);
	else if (told)
		unfinished(out,
		    names->n == 0 ? "it is empty" : "there is no index yet");
	return 0;
}

/* A checkpoint of a run that cannot be listed spoils no other. */
static int examine_dir(const struct ofs_dir *dir, const char *name, bool told,
    struct ofs_run_examined *out, struct optimfs_error *err)
{
	struct optimfs_error why = { 0 };
	struct ofs_names names;
	struct ofs_dir sub;
	int ret;

	ret = ofs_probe_open(dir, name, &sub, &names, &why);
	if (ret == 1) {
		ret = examine_names(&sub, name, &names, told, out, &why);
		ofs_names_free(&names);
		ofs_dir_close(&sub);
		told = false;
	}
	if (why.code == ENOMEM)
		return optimfs_fail_with(err, &why);
	if (ret == -1 || told)
		unfinished(out, "it cannot be opened");
	return 0;
}

static int examine_file(const struct ofs_dir *dir, const char *name, bool told,
    struct ofs_run_examined *out)
{
	const struct ofs_format *format;

	if (!ofs_detect_has_extension(name) || ofs_detect_is_no_step(dir, name))
		return 0;
	format = ofs_detect_file(dir, name, NULL);
	if (format != NULL && has_end(dir, name, false)) {
		out->kind = OFS_RUN_COMPLETE;
		set_format(out, format);
	} else if (told || format != NULL) {
		unfinished(out, "it has no end yet");
	}
	return 0;
}

int ofs_run_examine(const struct ofs_dir *dir, const char *name,
    const struct stat *st, bool told, struct ofs_run_examined *out,
    struct optimfs_error *err)
{
	struct ofs_run_examined found = { .mode = 0444 };
	int ret = 0;

	narrow(&found, st);
	if (S_ISDIR(st->st_mode))
		ret = examine_dir(dir, name, told, &found, err);
	else if (S_ISREG(st->st_mode))
		ret = examine_file(dir, name, told, &found);
	if (ret == -1)
		return -1;
	if (found.kind == OFS_RUN_COMPLETE && ofs_is_marked(dir, name))
		unfinished(&found, OFS_MARKED);
	*out = found;
	return 0;
}
