/* fuzz_note.c - arbitrary bytes as the note in a safetensors header */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "catalog/catalog.h"
#include "format/safetensors/safetensors.h"
#include "pickle/pickle.h"
#include "text/text.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

static void must(bool holds)
{
	if (!holds)
		abort();
}

/* Every value must have a path below the prefix, and a text. */
static void check_entry(const struct ofs_catalog *cat,
    const struct ofs_entry *e, uint32_t prefix)
{
	const struct ofs_value *v = &cat->values[e->ref];
	struct optimfs_error err = { 0 };
	struct ofs_buf text = { 0 };
	uint32_t n;
	const uint32_t *c = ofs_catalog_components(cat, e->path, &n);

	must(e->kind == OFS_ENTRY_VALUE && e->ref < cat->nvalues);
	must(n > 0 && c[0] == prefix);
	if (ofs_text_value(v->doc, v->node, NULL, &text, &err) == -1)
		must(err.code != 0);
	else
		must(!text.bad && text.len > 0);
	ofs_buf_fini(&text);
}

/* A key must have the path in the note, or its own. */
static void check_paths(struct ofs_safetensors_note *note,
    struct ofs_catalog *cat, uint32_t prefix)
{
	uint32_t n;

	for (uint32_t i = 0; i < note->keys.n; i++) {
		must(ofs_safetensors_note_path(note, cat, note->keys.v[i],
			 &prefix, 1, NULL) == note->path[i]);
		must(ofs_catalog_components(cat, note->path[i], &n)[0] ==
		    prefix);
	}
}

static void read_note(struct ofs_catalog *cat, const struct ofs_safetensors *st)
{
	struct optimfs_error err = { 0 };
	struct ofs_safetensors_note note = { 0 };
	uint32_t prefix = ofs_catalog_str(cat, "model", 5, NULL);

	if (ofs_safetensors_note_read(&note, cat, st, &prefix, 1, &err) == -1) {
		must(err.code != 0 && err.text[0] == 'O');
	} else {
		check_paths(&note, cat, prefix);
		for (uint32_t i = 0; i < cat->nentries; i++)
			check_entry(cat, &cat->entries[i], prefix);
	}
	ofs_safetensors_note_fini(&note);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	struct ofs_str pair[2] = { { OFS_SAFETENSORS_NOTE,
	    strlen(OFS_SAFETENSORS_NOTE) } };
	struct ofs_safetensors st = { .metadata = pair, .nmetadata = 1 };
	struct ofs_dir dir = { .fd = -1 };
	struct ofs_catalog *cat;
	char *text;

	if (n > UINT32_MAX)
		return 0;
	text = malloc(n + 1); /* exact, so that sanitizers see overruns */
	cat = ofs_catalog_new(&dir, NULL);
	must(text != NULL && cat != NULL);
	memcpy(text, bytes, n);
	pair[1] = (struct ofs_str){ text, (uint32_t)n };
	read_note(cat, &st);
	ofs_catalog_free(cat);
	free(text);
	return 0;
}
