/* render.c - a checkpoint as model.pt and optim.pt */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "format/torch/torch.h"

#include <stdio.h>
#include <stdlib.h>

#include "layout/archive.h"
#include "layout/state_dict.h"

/* One archive for each section of the tree. */

#define MAX_FILES 3u

struct torch_files {
	struct ofs_files files;
	const struct ofs_catalog *cat;
	struct archive {
		char name[16];
		struct ofs_torch_new a;
	} archive[MAX_FILES];
};

static const struct torch_files *torch_files(const struct ofs_files *f)
{
	return (const struct torch_files *)f;
}

static void file_name(const struct ofs_files *files, uint32_t file,
    char name[OFS_FILE_NAME])
{
	snprintf(name, OFS_FILE_NAME, "%s",
	    torch_files(files)->archive[file].name);
}

static int spans(const struct ofs_files *files, uint32_t file,
    struct ofs_spans *out, struct optimfs_error *err)
{
	return ofs_torch_new_spans(&torch_files(files)->archive[file].a, out,
	    err);
}

static int make(const struct ofs_files *files, uint32_t file,
    const struct ofs_span *span, uint64_t at, struct ofs_composition *c,
    struct optimfs_error *err)
{
	const struct torch_files *f = torch_files(files);

	return ofs_torch_new_make(&f->archive[file].a, f->cat, span, at, c,
	    err);
}

static void files_free(struct ofs_files *files)
{
	struct torch_files *f = (struct torch_files *)files;

	for (unsigned i = 0; i < MAX_FILES; i++)
		ofs_torch_new_fini(&f->archive[i].a);
	free(f);
}

/* Add a file for a section, unless that is empty. */
static int add_section(struct torch_files *f, const struct ofs_render *from,
    const struct ofs_layout *to, const char *section, struct optimfs_error *err)
{
	struct archive *a = &f->archive[f->files.n];
	int made = ofs_state_archive(&a->a, from, to, section, err);

	if (made == 1) {
		snprintf(a->name, sizeof(a->name), "%s.pt", section);
		f->files.n++;
	}
	return made == -1 ? -1 : 0;
}

static int lay(struct ofs_files *files, const struct ofs_render *from,
    const struct ofs_layout *to, struct optimfs_error *err)
{
	static const char *const sections[MAX_FILES] = { "extra", "model",
		"optim" };
	struct torch_files *f = (struct torch_files *)files;

	f->cat = from->cat;
	for (unsigned i = 0; i < MAX_FILES; i++)
		if (add_section(f, from, to, sections[i], err) == -1)
			return -1;
	return 0;
}

const struct ofs_files_ops ofs_torch_render = {
	.size = sizeof(struct torch_files),
	.lay = lay,
	.name = file_name,
	.spans = spans,
	.make = make,
	.free = files_free,
};
