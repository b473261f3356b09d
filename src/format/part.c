/* part.c - the files and directories that make up a checkpoint */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/part.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/str.h"
#include "rewrite/rewrite_impl.h"

static int copy_files(struct ofs_part *part, const struct ofs_part_spec *spec)
{
	if (spec->nfiles == 0)
		return 0;
	part->file = calloc(spec->nfiles, sizeof(*part->file));
	if (part->file == NULL)
		return -1;
	for (; part->nfiles < spec->nfiles; part->nfiles++) {
		struct ofs_part_file *f = &part->file[part->nfiles];

		f->rank = spec->file[part->nfiles].rank;
		f->rel = strdup(spec->file[part->nfiles].rel);
		if (f->rel == NULL)
			return -1;
	}
	return 0;
}

static int copy_spec(struct ofs_part *part, const struct ofs_part_spec *spec)
{
	*part = (struct ofs_part){
		.format = spec->format,
		.rel = strdup(spec->rel),
		.rank = spec->rank,
		.world = spec->world,
		.optional = spec->optional,
	};
	if (part->rel == NULL || copy_files(part, spec) == -1)
		return -1;
	for (int i = 0; i < OFS_PART_PREFIX && spec->prefix[i] != NULL; i++) {
		part->prefix[i] = strdup(spec->prefix[i]);
		if (part->prefix[i] == NULL)
			return -1;
	}
	return 0;
}

static void free_part(struct ofs_part *part)
{
	free(part->rel);
	for (size_t i = 0; i < part->nfiles; i++)
		free(part->file[i].rel);
	free(part->file);
	for (int i = 0; i < OFS_PART_PREFIX; i++)
		free(part->prefix[i]);
}

int ofs_parts_add(struct ofs_parts *parts, const struct ofs_part_spec *spec,
    struct optimfs_error *err)
{
	struct ofs_part *p;

	if (parts->n == OFS_PARTS_MAX)
		return optimfs_fail(err, E2BIG,
		    "OFS624 more than %d files in one checkpoint: give one of "
		    "them",
		    OFS_PARTS_MAX);
	if (ofs_grow(parts->part, parts->n, parts->cap, err) == -1)
		return -1;
	p = &parts->part[parts->n];
	if (copy_spec(p, spec) == -1) {
		free_part(p);
		return ofs_no_memory(err);
	}
	parts->n++;
	return 0;
}

static void free_left(struct ofs_part_left *left)
{
	free(left->path);
	free(left->why);
}

int ofs_parts_leave(struct ofs_parts *parts, const char *path,
    enum ofs_left_kind kind, const char *why, struct optimfs_error *err)
{
	struct ofs_part_left left = {
		.path = strdup(path),
		.why = strdup(why),
		.kind = kind,
	};

	if (left.path == NULL || left.why == NULL) {
		free_left(&left);
		return ofs_no_memory(err);
	}
	if (ofs_grow(parts->left, parts->nleft, parts->left_cap, err) == -1) {
		free_left(&left);
		return -1;
	}
	parts->left[parts->nleft++] = left;
	return 0;
}

int ofs_parts_note(struct ofs_parts *parts, struct optimfs_error *err,
    const char *fmt, ...)
{
	char text[sizeof(err->text)];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return ofs_names_add(&parts->notes, text, strlen(text), err);
}

int ofs_parts_drop(struct ofs_parts *parts, size_t i, enum ofs_left_kind kind,
    const char *why, struct optimfs_error *err)
{
	struct ofs_part *p = &parts->part[i];

	if (p->nfiles == 0 &&
	    ofs_parts_leave(parts, p->rel, kind, why, err) == -1)
		return -1;
	for (size_t k = 0; k < p->nfiles; k++)
		if (ofs_parts_leave(parts, p->file[k].rel, kind, why, err) ==
		    -1)
			return -1;
	free_part(p);
	parts->n--;
	memmove(p, p + 1, (parts->n - i) * sizeof(*p));
	return 0;
}

int ofs_parts_join(struct ofs_parts *parts, struct ofs_parts *other,
    struct optimfs_error *err)
{
	while (other->n > 0) {
		if (ofs_grow(parts->part, parts->n, parts->cap, err) == -1)
			return -1;
		parts->part[parts->n++] = other->part[0];
		other->n--;
		memmove(other->part, other->part + 1,
		    other->n * sizeof(*other->part));
	}
	for (size_t i = 0; i < other->nleft; i++)
		if (ofs_parts_leave(parts, other->left[i].path,
			other->left[i].kind, other->left[i].why, err) == -1)
			return -1;
	for (size_t i = 0; i < other->missing.n; i++)
		if (ofs_names_add(&parts->missing, other->missing.name[i],
			strlen(other->missing.name[i]), err) == -1)
			return -1;
	for (size_t i = 0; i < other->notes.n; i++)
		if (ofs_names_add(&parts->notes, other->notes.name[i],
			strlen(other->notes.name[i]), err) == -1)
			return -1;
	if (parts->trainer == NULL)
		parts->trainer = other->trainer;
	parts->ids_of_model = parts->ids_of_model || other->ids_of_model;
	ofs_parts_free(other);
	return 0;
}

static bool is_below(const char *rel, const char *path)
{
	size_t n = strlen(path);

	return strncmp(rel, path, n) == 0 && (rel[n] == '\0' || rel[n] == '/');
}

bool ofs_parts_left(const struct ofs_parts *parts, const char *path)
{
	for (size_t i = 0; i < parts->nleft; i++)
		if (is_below(path, parts->left[i].path))
			return true;
	return false;
}

bool ofs_parts_cover(const struct ofs_parts *parts, const char *path)
{
	for (size_t i = 0; i < parts->n; i++) {
		const struct ofs_part *p = &parts->part[i];

		if (is_below(p->rel, path))
			return true;
		for (size_t k = 0; k < p->nfiles; k++)
			if (is_below(p->file[k].rel, path))
				return true;
	}
	return false;
}

void ofs_parts_free(struct ofs_parts *parts)
{
	for (size_t i = 0; i < parts->nleft; i++)
		free_left(&parts->left[i]);
	free(parts->left);
	ofs_names_free(&parts->notes);
	ofs_names_free(&parts->missing);
	for (size_t i = 0; i < parts->n; i++)
		free_part(&parts->part[i]);
	free(parts->part);
	*parts = (struct ofs_parts){ 0 };
}

static bool move(char **rel, const char *dir)
{
	char *moved = *rel[0] == '\0' ? strdup(dir) : ofs_path_join(dir, *rel);

	if (moved == NULL)
		return false;
	free(*rel);
	*rel = moved;
	return true;
}

int ofs_parts_move(struct ofs_parts *parts, const char *dir,
    struct optimfs_error *err)
{
	bool moved = true;

	for (size_t i = 0; i < parts->n && moved; i++) {
		struct ofs_part *p = &parts->part[i];

		moved = move(&p->rel, dir);
		for (size_t k = 0; k < p->nfiles && moved; k++)
			moved = move(&p->file[k].rel, dir);
	}
	for (size_t i = 0; i < parts->nleft && moved; i++)
		moved = move(&parts->left[i].path, dir);
	return moved ? 0 : ofs_no_memory(err);
}

uint32_t ofs_part_keys(const struct ofs_part *part, struct ofs_key *key)
{
	uint32_t n = 0;

	for (; n < OFS_PART_PREFIX && part->prefix[n] != NULL; n++)
		key[n] = (struct ofs_key){ ofs_str_of(part->prefix[n]), 0 };
	return n;
}

int ofs_part_prefix(struct ofs_catalog *cat, const struct ofs_part *part,
    uint32_t prefix[OFS_PART_PREFIX], size_t *n, struct optimfs_error *err)
{
	for (*n = 0; *n < OFS_PART_PREFIX && part->prefix[*n] != NULL; ++*n) {
		const char *s = part->prefix[*n];

		prefix[*n] = ofs_catalog_str(cat, s, strlen(s), err);
	}
	return ofs_catalog_failed(cat, err) ? -1 : 0;
}
