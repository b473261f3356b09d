/* mkdcp.c - write a PyTorch distributed checkpoint of any size and shape */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "content.h"
#include "item.h"
#include "metadata.h"
#include "shape.h"
#include "sink.h"

static const char usage[] =
    "usage: mkdcp [options] DIR\n"
    "       mkdcp -v NUMBER [options] FILE\n"
    "Write a DCP checkpoint as PyTorch 2.11 does, its content known from a "
    "seed;\n"
    "with -v say whether FILE is the bytes of tensor NUMBER of one.\n"
    "  -n N      parameters [8]\n"
    "  -s SHAPE  of each, 4096,1024 [256,256]\n"
    "  -t DTYPE  float32 bfloat16 float64 int64 uint8 [float32]\n"
    "  -r N      ranks [1]\n"
    "  -S HOW    rows, columns, RxC (a grid) or replicated [rows]\n"
    "  -c N      parts that rows and columns are cut into [ranks]\n"
    "  -f N      files a rank, or 'items': one file an item [1]\n"
    "  -o        with AdamW's state: exp_avg, exp_avg_sq, step, param_groups\n"
    "  -z LEVEL  compress items with zstd\n"
    "  -C        without checksums\n"
    "  -e        of each rank's items that are alike only the first is written:\n"
    "            the others are holes, which cannot be read\n"
    "  -x SEED   of the content [0]\n"
    "Numbers: parameter i is 4 * i, its exp_avg the next, its exp_avg_sq the "
    "one\n"
    "after that.\n";

static void parse_shape(struct checkpoint *c, char *s)
{
	char *save = NULL;

	c->ndim = 0;
	for (s = strtok_r(s, ",", &save); s != NULL;
	     s = strtok_r(NULL, ",", &save)) {
		if (c->ndim == MAX_DIMS)
			die("more than %d dimensions", MAX_DIMS);
		c->shape[c->ndim++] = number(s);
	}
}

static void parse_sharding(struct checkpoint *c, const char *s)
{
	unsigned r, k;
	char rest;

	if (strcmp(s, "rows") == 0)
		c->sharding = ROWS;
	else if (strcmp(s, "columns") == 0)
		c->sharding = COLUMNS;
	else if (strcmp(s, "replicated") == 0)
		c->sharding = REPLICATED;
	else if (sscanf(s, "%ux%u%c", &r, &k, &rest) == 2 && r > 0 && k > 0) {
		c->sharding = GRID;
		c->grid[0] = r;
		c->grid[1] = k;
	} else
		die("'%s' is no sharding", s);
}

/* The places of items, for the metadata. */
static void place(struct checkpoint *c, uint64_t item, uint32_t rank,
    uint32_t file, uint64_t off, uint64_t len)
{
	c->place[item] = (struct place){ off, len, rank, file };
}

/* Sizes of items: of a step, and parts of one or two sizes. */
#define NLIKE 4

/* The open files of one rank. */
struct files {
	struct checkpoint *c;
	uint32_t rank, n, next;
	struct sink *sink;
	char (*path)[PATH_SIZE];
	struct like {
		uint64_t numel, len; /* len 0: none was written */
	} like[NLIKE];               /* numel 0: of a step */
};

static struct sink *open_file(struct files *f, uint32_t i)
{
	snprintf(f->path[i], PATH_SIZE, "%s/__%u_%u.distcp", f->c->dir, f->rank,
	    f->c->file_an_item ? f->n : i);
	sink_open(&f->sink[i], f->path[i], f->c->level);
	return &f->sink[i];
}

static void open_files(struct files *f, struct checkpoint *c, uint32_t rank)
{
	uint32_t n = c->file_an_item ? 1 : c->files;

	*f = (struct files){ .c = c, .rank = rank };
	f->sink = must_alloc(n * sizeof(*f->sink));
	f->path = must_alloc(n * sizeof(*f->path));
	if (c->file_an_item)
		return;
	for (uint32_t i = 0; i < n; i++)
		open_file(f, i);
}

static void close_files(struct files *f)
{
	for (uint32_t i = 0; i < f->c->files && !f->c->file_an_item; i++)
		sink_close(&f->sink[i]);
	free(f->sink);
	free(f->path);
}

/* The file of the rank's next item. Items of one kind have equal sizes, so taking
 * the files in turn always takes the smallest. */
static struct sink *begin_item(struct files *f, uint32_t *file, uint64_t *began)
{
	struct sink *s;

	if (f->c->file_an_item) {
		*file = f->n;
		s = open_file(f, 0);
		f->n++;
	} else {
		*file = f->next++ % f->c->files;
		s = &f->sink[*file];
	}
	*began = s->stored + s->fill;
	sink_begin(s);
	return s;
}

static void end_item(struct files *f, struct sink *s, uint64_t item,
    uint32_t file, uint64_t began)
{
	place(f->c, item, f->rank, file, began, sink_end(s, began));
	if (f->c->file_an_item)
		sink_close(s);
}

static void write_object(struct files *f, uint64_t item, struct ofs_buf *pickle)
{
	uint64_t began;
	uint32_t file;
	struct sink *s = begin_item(f, &file, &began);

	if (pickle->bad)
		die("out of memory");
	item_object(s, pickle->data, pickle->len);
	end_item(f, s, item, file, began);
	pickle->len = 0;
}

/* The last item of this rank with a box of this size. */
static struct like *find_like(struct files *f, const struct box *b)
{
	uint64_t numel = b->ndim == 0 ? 0 : box_numel(b);
	unsigned i = 0;

	while (i < NLIKE - 1 && f->like[i].len != 0 &&
	    f->like[i].numel != numel)
		i++;
	if (f->like[i].numel != numel)
		f->like[i] = (struct like){ .numel = numel };
	return &f->like[i];
}

static void write_tensor(struct files *f, uint64_t item,
    const struct content *content, uint64_t tensor, const struct box *b)
{
	struct like *like = find_like(f, b);
	uint64_t began;
	uint32_t file;
	struct sink *s = begin_item(f, &file, &began);

	if (f->c->sparse && like->len != 0)
		sink_skip(s, like->len);
	else
		item_tensor(s, content, tensor, b, f->c->crc);
	end_item(f, s, item, file, began);
	like->len = f->c->place[item].len;
}

/* Parameter groups are objects; the ranks write them in turn. */
static void write_objects(struct files *f)
{
	struct checkpoint *c = f->c;
	struct ofs_buf b = { 0 };

	for (size_t i = f->rank; i < checkpoint_nobjects(c); i += c->ranks) {
		checkpoint_object(c, i, &b);
		write_object(f, checkpoint_item(c, c->ntensors, i), &b);
	}
	ofs_buf_fini(&b);
}

static void write_tensors(struct files *f)
{
	static const struct box scalar = { 0 };
	struct checkpoint *c = f->c;
	const struct content step = { content_dtype("float32"), 1000, true };
	struct box b;

	for (uint64_t t = 0; t < c->ntensors; t++) {
		if (checkpoint_is_step(c, t)) {
			if (t % c->ranks == f->rank)
				write_tensor(f, checkpoint_item(c, t, 0), &step,
				    0, &scalar);
			continue;
		}
		for (uint64_t k = checkpoint_first_part(c, t, f->rank);
		     k < c->nparts; k += c->ranks) {
			checkpoint_box(c, k, &b);
			write_tensor(f, checkpoint_item(c, t, k), &c->content,
			    checkpoint_number(c, t), &b);
		}
	}
}

static void write_checkpoint(struct checkpoint *c)
{
	struct files f;

	if (mkdir(c->dir, 0755) == -1 && errno != EEXIST)
		die("%s: %s", c->dir, strerror(errno));
	c->place = must_alloc(checkpoint_nitems(c) * sizeof(*c->place));
	for (uint32_t rank = 0; rank < c->ranks; rank++) {
		open_files(&f, c, rank);
		write_objects(&f);
		write_tensors(&f);
		close_files(&f);
	}
	metadata_write(c);
	free(c->place);
}

/* Compares a file with a generated tensor. */
static int verify(const struct checkpoint *c, uint64_t tensor, const char *path)
{
	enum { CHUNK = 1 << 18 };
	static _Alignas(64) uint8_t want[CHUNK], got[CHUNK];
	size_t size = c->content.dtype->size;
	uint64_t left = 1, at = 0, n;
	FILE *f = fopen(path, "rbe");

	if (f == NULL)
		die("%s: %s", path, strerror(errno));
	for (size_t i = 0; i < c->ndim; i++)
		left *= c->shape[i];
	for (; left > 0; left -= n, at += n) {
		n = left < CHUNK / size ? left : CHUNK / size;
		content_fill(&c->content, tensor, at, n, want);
		if (fread(got, size, n, f) != n)
			die("%s: ends before element %" PRIu64, path, at + n);
		if (memcmp(got, want, n * size) == 0)
			continue;
		for (uint64_t i = 0; i < n; i++)
			if (memcmp(got + i * size, want + i * size, size) != 0)
				die("%s: element %" PRIu64 " differs", path,
				    at + i);
	}
	if (fgetc(f) != EOF)
		die("%s: is longer than its tensor", path);
	fclose(f);
	return 0;
}

int main(int argc, char **argv)
{
	struct checkpoint c = { .params = 8,
		.ranks = 1,
		.files = 1,
		.ndim = 2,
		.shape = { 256, 256 },
		.content = { .dtype = content_dtype("float32") },
		.crc = true };
	uint64_t tensor = UINT64_MAX;
	int opt;

	while ((opt = getopt(argc, argv, "n:s:t:r:S:c:f:oz:Cex:v:")) != -1)
		switch (opt) {
		case 'n':
			c.params = number(optarg);
			break;
		case 's':
			parse_shape(&c, optarg);
			break;
		case 't':
			c.content.dtype = content_dtype(optarg);
			if (c.content.dtype == NULL)
				die("no dtype '%s'", optarg);
			break;
		case 'r':
			c.ranks = (uint32_t)number(optarg);
			break;
		case 'S':
			parse_sharding(&c, optarg);
			break;
		case 'c':
			c.cut = number(optarg);
			break;
		case 'f':
			c.file_an_item = strcmp(optarg, "items") == 0;
			c.files = c.file_an_item ? 1 : (uint32_t)number(optarg);
			break;
		case 'o':
			c.optim = true;
			break;
		case 'z':
			c.level = (int)number(optarg);
			break;
		case 'C':
			c.crc = false;
			break;
		case 'e':
			c.sparse = true;
			break;
		case 'x':
			c.content.seed = number(optarg);
			break;
		case 'v':
			tensor = number(optarg);
			break;
		default:
			fputs(usage, stderr);
			return 2;
		}
	if (optind + 1 != argc || c.ranks == 0 || c.files == 0 ||
	    (c.sparse && (c.level != 0 || c.file_an_item))) {
		fputs(usage, stderr);
		return 2;
	}
	c.dir = argv[optind];
	checkpoint_init(&c);
	if (tensor != UINT64_MAX)
		return verify(&c, tensor, c.dir);
	write_checkpoint(&c);
	return 0;
}
