/* mutate.c - checkpoints of tests/data with changed parts */
/* SPDX-License-Identifier: Apache-2.0 */

/* Random bytes seldom get past the first check of a parser: a zip archive needs
 * its directory at the end, a pickle its opcodes, an index the names of files.
 * So an input is not a checkpoint but a list of changes to a real one, and a
 * change hits something that has a meaning: a number or a string of a pickle, an
 * opcode, a field of a header of a zip archive, a number or a word of JSON, the
 * name of a file, its length, its presence. What has a meaning is found with
 * little knowledge of the formats, by signatures, so that it does not share the
 * errors of the parsers. Checksums of changed archives are removed, as
 * PyTorch leaves them out if told to; otherwise they would catch nearly every
 * change. */
#include "config.h"

#include "mutate.h"

#include <ctype.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Small ones, of each format. */
static const char *const bases[] = {
	"extra/dcp_variants/dcp_plain_multifile",
	"extra/dcp_variants/dcp_safetensors",
	"extra/dcp_variants/hf_writer",
	"extra/dcp_variants/dcp_async",
	"extra/dcp_variants/fsdp2_raw_torchsave",
	"extra/olmo_local/hybrid",
	"extra/trainers/acc_v1_SHARDED_STATE_DICT",
	"extra/trainers/acc_v2_FULL_STATE_DICT",
	"pytorch/dcp_torch113/ckpt",
	"pytorch/checkpointable_w2/ckpt",
	"pytorch/checkpointable_w2/ckpt_rankfiles",
	"pytorch/dcp_fsdp1_local_flat_w3/ckpt",
	"pytorch/fsdp1_local_flat_fullshard_w3/ckpt",
	"pytorch/fsdp1_sharded_flat_fullshard_w3/ckpt_full",
	"pytorch/hf_storage_w2/ckpt",
	"pytorch/safetensors_plain/ckpt",
	"pytorch/dtypes_new/ckpt",
	"numpy",
	"deepspeed/z1_ws2_bf16/ckpt",
	"deepspeed/z2_ws1_bf16/ckpt",
	"deepspeed/z3_ws2_bf16/ckpt",
	"deepspeed/v0.18.5_z3_ws2_nozip/ckpt",
	"deepspeed/v0.19.6_z1_ws2_elastic/ckpt",
	"fsdp_dtensor/swiglu_w3/ckpt/iter_0000007",
	"deepspeed_moe/z0_w2ep2/ckpt",
	"deepspeed_moe/z2_w4ep2/ckpt",
	"torch_checkpointing/fsdp2_w2_safetensors/ckpt/step_3",
	"delta/slime_xxh3/ckpt",
	"delta/trl/ckpt",
};
#define NBASES (sizeof(bases) / sizeof(bases[0]))

static struct mutate original[NBASES]; /* those that were needed */

static void *need(void *p)
{
	if (p == NULL)
		abort(); /* of a test: out of memory */
	return p;
}

static void add_file(struct mutate *m, const char *name, const void *bytes,
    size_t len)
{
	struct mutate_file *f;

	m->file = need(realloc(m->file, (m->n + 1) * sizeof(*m->file)));
	f = &m->file[m->n++];
	*f = (struct mutate_file){ .name = need(strdup(name)), .len = len };
	f->bytes = need(malloc(len + 1));
	if (len > 0)
		memcpy(f->bytes, bytes, len);
}

/* The checkpoint that nftw reads. */
static struct mutate *reading;
static size_t top_length;

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct mutate_file *)a)->name,
	    ((const struct mutate_file *)b)->name);
}

static int read_one(const char *path, const struct stat *st, int type,
    struct FTW *at)
{
	uint8_t *bytes;
	FILE *f;

	(void)at;
	if (type != FTW_F)
		return 0;
	f = need(fopen(path, "rbe"));
	bytes = need(malloc((size_t)st->st_size + 1));
	if (fread(bytes, 1, (size_t)st->st_size, f) != (size_t)st->st_size)
		abort();
	fclose(f);
	add_file(reading, path + top_length, bytes, (size_t)st->st_size);
	free(bytes);
	return 0;
}

static const struct mutate *base(unsigned i)
{
	const char *top = getenv("TOP_SRCDIR");
	char path[4096];

	reading = &original[i];
	if (reading->n > 0)
		return reading;
	snprintf(path, sizeof(path), "%s/tests/data/%s",
	    top == NULL ? "." : top, bases[i]);
	top_length = strlen(path) + 1;
	if (nftw(path, read_one, 16, FTW_PHYS) != 0 || reading->n == 0) {
		fprintf(stderr, "%s: cannot be read; is TOP_SRCDIR set?\n",
		    path);
		exit(1);
	}
	/* the order of readdir is not part of an input */
	qsort(reading->file, reading->n, sizeof(*reading->file), compare_names);
	return reading;
}

/* Something of a file that has a meaning. */
enum kind { NUMBER, TEXT, OPCODE };
struct field {
	size_t off, len;
	enum kind kind;
};
struct fields {
	struct field *at;
	size_t n, cap;
};

static void add_field(struct fields *l, enum kind kind, size_t off, size_t len)
{
	if (len == 0)
		return;
	if (l->n == l->cap) {
		l->cap = l->cap * 2 + 64;
		l->at = need(realloc(l->at, l->cap * sizeof(*l->at)));
	}
	l->at[l->n++] = (struct field){ off, len, kind };
}

static size_t little_endian(const uint8_t *p, unsigned n)
{
	size_t v = 0;

	while (n-- > 0)
		v = v << 8 | p[n];
	return v;
}

/* Arguments of opcodes: that many bytes of a number, or of the length of a text
 * that follows. */
static const struct {
	char code;
	uint8_t number, length;
} arguments[] = {
	{ 'J', 4, 0 },
	{ 'K', 1, 0 },
	{ 'M', 2, 0 },
	{ 'G', 8, 0 },
	{ 'h', 1, 0 },
	{ 'j', 4, 0 },
	{ 'q', 1, 0 },
	{ 'r', 4, 0 },
	{ 'X', 0, 4 },
	{ 'T', 0, 4 },
	{ 'U', 0, 1 },
	{ 'B', 0, 4 },
	{ 'C', 0, 1 },
	{ '\x80', 1, 0 },
	{ '\x8a', 0, 1 },
	{ '\x8b', 0, 4 },
	{ '\x8c', 0, 1 },
	{ '\x8d', 0, 8 },
	{ '\x8e', 0, 8 },
	{ '\x95', 8, 0 },
};

/* Adds what is at an opcode; returns the offset of the next one. */
static size_t pickle_fields(struct fields *l, const uint8_t *p, size_t n,
    size_t at)
{
	size_t len;

	add_field(l, OPCODE, at, 1);
	for (size_t i = 0; i < sizeof(arguments) / sizeof(arguments[0]); i++) {
		if ((char)p[at] != arguments[i].code)
			continue;
		len = arguments[i].number + (size_t)arguments[i].length;
		if (at + 1 + len > n)
			return n;
		add_field(l, NUMBER, at + 1, len);
		at += 1 + len;
		if (arguments[i].length == 0)
			return at;
		len = little_endian(p + at - len, (unsigned)len);
		if (len > n - at)
			return n;
		add_field(l, TEXT, at, len);
		return at + len;
	}
	if (p[at] != 'c')
		return at + 1;
	/* a global: two lines */
	for (int line = 0; line < 2; line++) {
		const uint8_t *end = memchr(p + at + 1, '\n', n - at - 1);

		if (end == NULL)
			return n;
		add_field(l, TEXT, at + 1, (size_t)(end - p) - at - 1);
		at = (size_t)(end - p);
	}
	return at + 1;
}

/* Offsets of numbers in headers of zip archives, by signature. */
static void zip_fields(struct fields *l, const uint8_t *p, size_t n, size_t at)
{
	static const struct {
		uint8_t sign;
		uint8_t field[8][2]; /* offset, length; ended by 0 */
		uint8_t name;        /* offset of the length of the name */
		uint8_t end;         /* offset of the name */
	} headers[] = {
		{ 3, { { 6, 2 }, { 8, 2 }, { 18, 4 }, { 22, 4 }, { 28, 2 } },
		    26, 30 },
		{ 1,
		    { { 8, 2 }, { 10, 2 }, { 20, 4 }, { 24, 4 }, { 30, 2 },
			{ 42, 4 } },
		    28, 46 },
		{ 5, { { 8, 2 }, { 10, 2 }, { 12, 4 }, { 16, 4 }, { 20, 2 } },
		    0, 22 },
		{ 6, { { 4, 8 }, { 24, 8 }, { 32, 8 }, { 40, 8 }, { 48, 8 } },
		    0, 56 },
	};
	size_t len;

	for (size_t i = 0; i < sizeof(headers) / sizeof(headers[0]); i++) {
		if (p[at + 2] != headers[i].sign || at + headers[i].end > n)
			continue;
		for (int k = 0; headers[i].field[k][1] > 0; k++)
			add_field(l, NUMBER, at + headers[i].field[k][0],
			    headers[i].field[k][1]);
		if (headers[i].name == 0)
			continue;
		len = little_endian(p + at + headers[i].name, 2);
		if (len <= n - at - headers[i].end)
			add_field(l, TEXT, at + headers[i].end, len);
	}
}

/* Words and numbers, up to the first byte that is not text. */
static void text_fields(struct fields *l, const uint8_t *p, size_t n, size_t at)
{
	while (at < n && (isprint(p[at]) || isspace(p[at]))) {
		size_t from = at;

		while (at < n && (isalnum(p[at]) || p[at] == '_'))
			at++;
		add_field(l, TEXT, from, at - from);
		add_field(l, OPCODE, at, at < n ? 1 : 0);
		at++;
	}
}

static bool starts_pickle(const uint8_t *p, size_t n)
{
	return n > 3 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5 &&
	    strchr("}](.cKMJX\x95\x8a", p[2]) != NULL;
}

static void find_fields(struct fields *l, const struct mutate_file *f)
{
	const uint8_t *p = f->bytes;
	size_t n = f->len, at = 0;

	if (n > 10 && (p[0] == '{' || p[8] == '{'))
		text_fields(l, p, n, p[0] == '{' ? 0 : 8);
	if (n > 10 && p[0] != '{' && p[8] == '{')
		add_field(l, NUMBER, 0, 8);
	while (at + 4 < n)
		if (p[at] == 'P' && p[at + 1] == 'K') {
			zip_fields(l, p, n, at);
			at += 4;
		} else if (p[at] == 0x93 && n - at > 10 && p[at + 1] == 'N') {
			add_field(l, NUMBER, at + 6, 4);
			text_fields(l, p, n, at + 10);
			at += 10;
		} else if (starts_pickle(p + at, n - at)) {
			while (at < n && p[at] != '.')
				at = pickle_fields(l, p, n, at);
		} else {
			at++;
		}
}

/* A change: what, to which file, where, and a value. */
struct change {
	uint8_t what, file;
	uint16_t where;
	uint32_t value;
};

static void set_number(uint8_t *p, size_t len, uint32_t value)
{
	uint64_t old = little_endian(p, (unsigned)(len > 8 ? 8 : len));
	const uint64_t choice[] = { 0, 1, UINT64_MAX, UINT64_MAX >> 1, old + 1,
		old - 1, old * 2, old << 32, value, value & 0xff, UINT32_MAX,
		INT32_MAX, old ^ (UINT64_C(1) << (value >> 26)),
		UINT64_C(1) << 53, old / 2, ~old };
	uint64_t v = choice[value % 16];

	for (size_t i = 0; i < len && i < 8; i++)
		p[i] = (uint8_t)(v >> 8 * i);
}

static void set_text(uint8_t *p, size_t len, const uint8_t *other, size_t n,
    uint32_t value)
{
	size_t at = (value >> 8) % len;

	switch (value % 6) {
	case 0:
		p[at] = (uint8_t)(value >> 24);
		break;
	case 1: /* the text of another field */
		memcpy(p, other, n < len ? n : len);
		break;
	case 2: /* another rank, layer or size */
		for (size_t i = 0; i < len; i++)
			if (isdigit(p[i]))
				p[i] = (uint8_t)('0' + (value >> 24) % 10);
		break;
	case 3:
		memset(p, '9', len);
		break;
	case 4:
		p[at] = "/.%~\n\"\\"[(value >> 24) % 7];
		break;
	default:
		memset(p + at, "\0\x1b\xc2\x9b"[(value >> 24) % 4], 1);
	}
}

/* Records without checksums have zeros. */
static void drop_checksums(struct mutate_file *f)
{
	for (size_t i = 0; i + 20 < f->len; i++) {
		if (f->bytes[i] != 'P' || f->bytes[i + 1] != 'K')
			continue;
		if (f->bytes[i + 2] == 3)
			memset(f->bytes + i + 14, 0, 4);
		else if (f->bytes[i + 2] == 1)
			memset(f->bytes + i + 16, 0, 4);
		else if (f->bytes[i + 2] == 7)
			memset(f->bytes + i + 4, 0, 4);
	}
}

static void change_field(struct mutate_file *f, const struct change *c)
{
	static const uint8_t opcodes[] = "(.}])]tRbsueaNK\x85\x86\x87\x88";
	struct fields l = { 0 };
	const struct field *to, *from;

	find_fields(&l, f);
	if (l.n > 0) {
		to = &l.at[(c->where * (size_t)31 + c->value / 7) % l.n];
		from = &l.at[c->value / 6 % l.n];
		if (to->kind == NUMBER)
			set_number(f->bytes + to->off, to->len, c->value);
		else if (to->kind == TEXT)
			set_text(f->bytes + to->off, to->len,
			    f->bytes + from->off, from->len, c->value);
		else
			f->bytes[to->off] =
			    opcodes[c->value % (sizeof(opcodes) - 1)];
		drop_checksums(f);
	}
	free(l.at);
}

static size_t part(size_t n, uint16_t where)
{
	return (size_t)((uint64_t)n * where >> 16);
}

/* Removes bytes, or repeats them. */
static void change_length(struct mutate_file *f, const struct change *c)
{
	size_t at = part(f->len, c->where), n = c->value >> 8 & 0xff;

	if (n > f->len - at)
		n = f->len - at;
	if (c->value & 1) {
		memmove(f->bytes + at, f->bytes + at + n, f->len - at - n);
		f->len -= n;
		return;
	}
	f->bytes = need(realloc(f->bytes, f->len + n + 1));
	memmove(f->bytes + at + n, f->bytes + at, f->len - at);
	f->len += n;
}

/* Another number in its name. */
static void change_name(char *name, const struct change *c)
{
	size_t digits = 0, at = 0;

	for (char *p = name; *p != '\0'; p++)
		digits += isdigit((unsigned char)*p) != 0;
	if (digits == 0) {
		name[strlen(name) - 1] ^= 1;
		return;
	}
	for (char *p = name; *p != '\0'; p++)
		if (isdigit((unsigned char)*p) && at++ == c->where % digits)
			*p = (char)('0' + c->value % 10);
}

static bool has_name(const struct mutate *m, const char *name)
{
	for (size_t i = 0; i < m->n; i++)
		if (!m->file[i].gone && strcmp(m->file[i].name, name) == 0)
			return true;
	return false;
}

static void copy_file(struct mutate *m, size_t i, const struct change *c)
{
	char *name = need(strdup(m->file[i].name));

	change_name(name, c);
	if (m->n < 64 && !has_name(m, name))
		add_file(m, name, m->file[i].bytes, m->file[i].len);
	free(name);
}

static void rename_file(struct mutate *m, size_t i, const struct change *c)
{
	char *name = need(strdup(m->file[i].name));

	change_name(name, c);
	if (has_name(m, name)) {
		free(name);
		return;
	}
	free(m->file[i].name);
	m->file[i].name = name;
}

static void exchange(struct mutate_file *a, struct mutate_file *b)
{
	struct mutate_file was = *a;

	a->bytes = b->bytes;
	a->len = b->len;
	b->bytes = was.bytes;
	b->len = was.len;
}

/* Most changes are of fields. */
static void change(struct mutate *m, const struct change *c)
{
	size_t i = c->file % m->n;
	struct mutate_file *f = &m->file[i];

	switch (c->what % 16) {
	case 0:
		f->gone = true;
		break;
	case 1:
		rename_file(m, i, c);
		break;
	case 2:
		copy_file(m, i, c);
		break;
	case 3:
		f->len = part(f->len, c->where);
		break;
	case 4:
		exchange(f, &m->file[c->value % m->n]);
		break;
	case 5:
		change_length(f, c);
		break;
	case 6:
		if (f->len > 0)
			f->bytes[part(f->len, c->where)] = (uint8_t)c->value;
		break;
	case 7:
		f->dir = (c->value & 7) == 0;
		break;
	default:
		change_field(f, c);
	}
}

void mutate_make(struct mutate *m, const uint8_t *bytes, size_t n)
{
	const struct mutate *from = base(n == 0 ? 0 : bytes[0] % NBASES);

	*m = (struct mutate){ 0 };
	for (size_t i = 0; i < from->n; i++)
		add_file(m, from->file[i].name, from->file[i].bytes,
		    from->file[i].len);
	if (n > 1 + MUTATE_MAX * MUTATE_STEP)
		n = 1 + MUTATE_MAX * MUTATE_STEP;
	for (size_t i = 1; i + MUTATE_STEP <= n; i += MUTATE_STEP) {
		struct change c = { bytes[i], bytes[i + 1],
			(uint16_t)little_endian(bytes + i + 2, 2),
			(uint32_t)little_endian(bytes + i + 4, 4) };

		change(m, &c);
	}
}

void mutate_free(struct mutate *m)
{
	for (size_t i = 0; i < m->n; i++) {
		free(m->file[i].name);
		free(m->file[i].bytes);
	}
	free(m->file);
}

static void make_parents(char *path, size_t from)
{
	for (char *p = path + from; (p = strchr(p, '/')) != NULL; p++) {
		*p = '\0';
		(void)mkdir(path, 0755);
		*p = '/';
	}
}

void mutate_write(const struct mutate *m, const char *dir)
{
	char path[4096];
	int fd;

	if (mkdir(dir, 0755) == -1)
		abort();
	for (size_t i = 0; i < m->n; i++) {
		const struct mutate_file *f = &m->file[i];

		if (f->gone)
			continue;
		snprintf(path, sizeof(path), "%s/%s", dir, f->name);
		make_parents(path, strlen(dir) + 1);
		if (f->dir) {
			(void)mkdir(path, 0755);
			continue;
		}
		fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		if (fd == -1)
			continue; /* it would be in a file */
		if (write(fd, f->bytes, f->len) != (ssize_t)f->len)
			abort();
		close(fd);
	}
}
