/* naming.c - tree paths from the nested keys of each framework */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "naming/naming.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "naming/file_name.h"
#include "pickle/pickle.h"
#include "tap.h"

/* A checkpoint is written as lines "KIND SOURCE = TREE". The components of
 * SOURCE are separated by '|', and list indexes begin with '#'. KIND is v for a
 * plain value, i for an item that is not read, f for a file, t for a
 * 0-dimensional tensor, t3,2 for one with a shape. t3,2@7 is stored at offset
 * 7; v[a,b] and v[0,1] are lists. */

struct line {
	char kind[64], source[1200], tree[1200];
};

static bool next_line(const char **text, struct line *l)
{
	const char *end, *sep, *sp;

	while (**text == '\n')
		(*text)++;
	if (**text == '\0')
		return false;
	end = strchrnul(*text, '\n');
	sp = strchr(*text, ' ');
	sep = strstr(*text, " = ");
	if (sp == NULL || sep == NULL || sep > end)
		bail_out("bad line: %s", *text);
	snprintf(l->kind, sizeof(l->kind), "%.*s", (int)(sp - *text), *text);
	snprintf(l->source, sizeof(l->source), "%.*s", (int)(sep - sp - 1),
	    sp + 1);
	snprintf(l->tree, sizeof(l->tree), "%.*s", (int)(end - sep - 3),
	    sep + 3);
	*text = end;
	return true;
}

static uint32_t path_of(struct ofs_catalog *cat, const char *text)
{
	uint32_t c[64], index;
	size_t n = 0;

	for (;; text++) {
		size_t k = strcspn(text, "|");

		index = *text == '#' ? OFS_PATH_INDEX : 0;
		c[n++] = ofs_catalog_str(cat, text + (index != 0),
			     k - (index != 0), NULL) |
		    index;
		text += k;
		if (*text == '\0')
			break;
	}
	return ofs_catalog_path(cat, c, n, NULL);
}

static uint32_t tensor_of(struct ofs_catalog *cat, const char *kind)
{
	struct ofs_shard s = { .box = OFS_NONE, .view = OFS_NONE };
	struct ofs_tensor t = { .dtype = OFS_FLOAT32, .error = OFS_NONE };
	static uint64_t unshared = 1 << 20;
	uint64_t dims[8];
	char *end;

	while (*++kind != '\0' && *kind != '@') {
		dims[t.ndim++] = strtoull(kind, &end, 10);
		kind = *end == ',' ? end : end - 1;
	}
	t.shape = t.grid = ofs_catalog_dims(cat, dims, t.ndim, NULL);
	t.grid_ndim = t.ndim;
	s.at.encoding = OFS_TORCH_RECORD;
	s.at.off = *kind == '@' ? strtoull(kind + 1, NULL, 10) : unshared++;
	s.at.len = 64;
	s.at.object = ofs_catalog_object(cat, "data", -1, NULL);
	t.shard = ofs_catalog_shard(cat, &s, NULL);
	t.nshards = 1;
	return ofs_catalog_tensor(cat, &t, NULL);
}

/* The pickle of "[a,b]" or "[0,1]", or of None. */
static uint32_t value_of(struct ofs_catalog *cat, const char *kind)
{
	static uint8_t bytes[16][256];
	static unsigned int turn;
	uint8_t *b = bytes[turn++ % 16];
	struct ofs_pickle *doc;
	size_t n = 0, k;
	uint64_t used;

	b[n++] = 0x80;
	b[n++] = 2;
	if (kind[1] != '[')
		b[n++] = 'N';
	else {
		b[n++] = ']';
		b[n++] = '(';
		for (kind += 2; *kind != '\0' && *kind != ']'; kind += k + 1) {
			k = strcspn(kind, ",]");
			if (*kind >= '0' && *kind <= '9') {
				b[n++] = 'K';
				b[n++] = (uint8_t)atoi(kind);
				continue;
			}
			b[n++] = 'X';
			b[n++] = (uint8_t)k;
			memset(b + n, 0, 3);
			memcpy(b + n + 3, kind, k);
			n += 3 + k;
		}
		b[n++] = 'e';
	}
	b[n++] = '.';
	doc = ofs_pickle_parse(b, n, false, NULL, &used, NULL);
	if (doc == NULL || ofs_catalog_doc(cat, doc, NULL) == OFS_NONE)
		bail_out("cannot make a pickle");
	return ofs_catalog_value(cat, doc, ofs_pickle_root(doc), NULL);
}

static void add_line(struct ofs_catalog *cat, const struct line *l)
{
	struct ofs_item item = { .error = OFS_NONE };
	struct ofs_entry e = { .tree = OFS_NONE };
	struct optimfs_error why = { 0 };

	e.path = path_of(cat, l->source);
	if (l->kind[0] == 't' || l->kind[0] == 'f') {
		e.kind = OFS_ENTRY_TENSOR;
		e.ref = tensor_of(cat, l->kind);
		if (l->kind[0] == 'f')
			cat->tensors[e.ref].flags = OFS_TENSOR_FILE;
	} else if (l->kind[0] == 'v') {
		e.kind = OFS_ENTRY_VALUE;
		e.ref = value_of(cat, l->kind);
	} else {
		if (l->kind[0] == 'q') {
			optimfs_fail(&why, EOPNOTSUPP, "OFS533 a subclass");
			item.error = ofs_catalog_error(cat, &why, NULL);
		}
		e.kind = OFS_ENTRY_ITEM;
		e.ref = ofs_catalog_item(cat, &item, NULL);
	}
	if (ofs_catalog_entry(cat, &e, NULL) == OFS_NONE)
		bail_out("no memory");
}

/* Do the files keep the order of the lines? */
static bool keeps_order = true;

static struct ofs_catalog *catalog_of(const char *text)
{
	struct ofs_dir dir = { .fd = -1 };
	struct ofs_catalog *cat = ofs_catalog_new(&dir, NULL);
	struct line l;

	if (cat == NULL)
		bail_out("no memory");
	while (next_line(&text, &l))
		add_line(cat, &l);
	if (keeps_order)
		ofs_catalog_ordered(cat, 0, cat->nentries);
	return cat;
}

static void print_path(const struct ofs_catalog *cat, uint32_t path,
    struct ofs_buf *b)
{
	char name[OFS_NAME_MAX + 1];
	uint32_t n;
	const uint32_t *c;

	b->len = 0;
	if (path == OFS_NONE) {
		ofs_buf_putc(b, '-');
		ofs_buf_putc(b, 0);
		return;
	}
	c = ofs_catalog_components(cat, path, &n);
	for (uint32_t i = 0; i < n; i++) {
		struct ofs_str s = ofs_catalog_string(cat, c[i]);

		ofs_name_encode(s.p, s.len, name);
		ofs_buf_printf(b, "%s%s", i > 0 ? "/" : "", name);
	}
	ofs_buf_putc(b, 0);
}

static const struct optimfs_options defaults;

/* Names the entries and compares their paths. Returns the catalog, which the
 * caller frees. */
static struct ofs_catalog *check_with(const char *what,
    const struct optimfs_options *opt, const char *text)
{
	struct ofs_catalog *cat = catalog_of(text);
	struct optimfs_error err = { 0 };
	struct ofs_buf b = { 0 };
	struct line l;

	if (ofs_name_entries(cat, opt, &err) == -1) {
		ok(false, "%s", what);
		diag("%s", err.text);
		return cat;
	}
	for (uint32_t i = 0; next_line(&text, &l); i++) {
		print_path(cat, cat->entries[i].tree, &b);
		is_str((char *)b.data, l.tree, "%s: path of %s", what,
		    l.source);
	}
	ofs_buf_fini(&b);
	return cat;
}

static void check(const char *what, const char *text)
{
	ofs_catalog_free(check_with(what, &defaults, text));
}

static void fails(const char *what, const struct optimfs_options *opt,
    const char *text, int code, const char *part)
{
	struct ofs_catalog *cat = catalog_of(text);
	struct optimfs_error err = { 0 };

	ok(ofs_name_entries(cat, opt, &err) == -1, "%s: naming fails", what);
	is_error(err, code, part, "%s: error code and text", what);
	ofs_catalog_free(cat);
}

/* Compares the notes of this kind, one per line. */
static void has_notes(const struct ofs_catalog *cat, enum ofs_note_kind kind,
    const char *want, const char *what)
{
	struct ofs_buf b = { 0 };

	for (uint32_t i = 0; i < cat->nnotes; i++)
		if (cat->notes[i].kind == kind)
			ofs_buf_printf(&b, "%s\n", cat->notes[i].text);
	ofs_buf_putc(&b, 0);
	is_str((char *)b.data, want, "%s", what);
	ofs_buf_fini(&b);
}

/* Compares the aliases, as lines "path -> target", in order. */
static void has_aliases(const struct ofs_catalog *cat, const char *want,
    const char *what)
{
	struct ofs_buf b = { 0 }, p = { 0 };

	for (uint32_t i = 0; i < cat->naliases; i++) {
		print_path(cat, cat->aliases[i].path, &p);
		ofs_buf_printf(&b, "%s -> ", (char *)p.data);
		if (cat->aliases[i].target == OFS_NONE) {
			ofs_buf_puts(&b, "nothing\n");
			continue;
		}
		print_path(cat, cat->aliases[i].target, &p);
		ofs_buf_printf(&b, "%s\n", (char *)p.data);
	}
	ofs_buf_putc(&b, 0);
	is_str((char *)b.data, want, "%s", what);
	ofs_buf_fini(&b);
	ofs_buf_fini(&p);
}

static void producers(void)
{
	check("get_state_dict",
	    "t3,2 model|l.weight = model/l.weight\n"
	    "t optim|state|l.weight|step = optim/state/l.weight/step\n"
	    "t3,2 optim|state|l.weight|exp_avg = optim/state/l.weight/exp_avg\n"
	    "i optim|param_groups|#0|lr = optim/param_groups/0/lr\n"
	    "i optim|param_groups|#0|params = optim/param_groups/0/params\n");
	check("get_state_dict, flattened",
	    "t3,2 model|l.weight = model/l.weight\n"
	    "t3,2 optim|state.l.weight.exp_avg = optim/state/l.weight/exp_avg\n"
	    "t optim|state.l.weight.step = optim/state/l.weight/step\n"
	    "i optim|param_groups.l.weight.lr = "
	    "optim/param_groups/l.weight/lr\n");
	check("AppState",
	    "t3,2 app|model|l.weight = model/l.weight\n"
	    "t3,2 app|optim|state|l.weight|exp_avg = "
	    "optim/state/l.weight/exp_avg\n"
	    "i app|optim|param_groups|#0|lr = optim/param_groups/0/lr\n"
	    "i app|epoch = extra/app/epoch\n");
	check("an optimizer's own state_dict()",
	    "t3,2 model|l.weight = model/l.weight\n"
	    "t3,2 optim|state|0|exp_avg = optim/state/0/exp_avg\n"
	    "i optim|param_groups|#0|params = optim/param_groups/0/params\n");
	check("torch 2.0 to 2.3",
	    "t3,2 optim|state|l.weight|exp_avg = optim/state/l.weight/exp_avg\n"
	    "i optim|param_groups = optim/param_groups\n");
	check("torchtitan",
	    "t3,2 lin.weight = model/lin.weight\n"
	    "t4 rope = model/rope\n"
	    "t3,2 optimizer|state.lin.weight.exp_avg = "
	    "optim/state/lin.weight/exp_avg\n"
	    "i optimizer|param_groups.lin.weight.lr = "
	    "optim/param_groups/lin.weight/lr\n"
	    "i lr_scheduler|last_epoch = extra/lr_scheduler/last_epoch\n"
	    "i dataloader|dp_rank_0 = extra/dataloader/dp_rank_0\n"
	    "t train_state|step = extra/train_state/step\n"
	    "i lin._extra_state = model/lin._extra_state\n");
	check("quantized weights of a kind that cannot be read",
	    "t3 lin.bias = model/lin.bias\n"
	    "q lin.weight = model/lin.weight\n"
	    "i step = extra/step\n");
	check("Lightning, sharded checkpoint",
	    "t3 model|layer.bias = model/layer.bias\n"
	    "t3 optimizer_0|state|layer.bias|exp_avg = "
	    "optim/state/layer.bias/exp_avg\n"
	    "i optimizer_0|param_groups|#0|lr = optim/param_groups/0/lr\n"
	    "v epoch = extra/epoch\n");
	check("Lightning, full checkpoint",
	    "t3 state_dict|layer.bias = model/layer.bias\n"
	    "v epoch = extra/epoch\n"
	    "t3 optimizer_states|#0|state|layer.bias|exp_avg = "
	    "optim/state/layer.bias/exp_avg\n"
	    "v optimizer_states|#0|param_groups|#0|lr = "
	    "optim/param_groups/0/lr\n"
	    "v lr_schedulers|#0|last_epoch = "
	    "extra/lr_schedulers/0/last_epoch\n");
	check("Composer",
	    "t3 state|model|lin.bias = model/lin.bias\n"
	    "t3 state|optimizers|AdamW|state|lin.bias|exp_avg = "
	    "optim/state/lin.bias/exp_avg\n"
	    "i state|optimizers|AdamW|param_groups|#0|lr = "
	    "optim/param_groups/0/lr\n"
	    "i state|timestamp|Timestamp|epoch = "
	    "extra/state/timestamp/Timestamp/epoch\n"
	    "i rng|#0|torch = extra/rng/0/torch\n");
	check("a file with one optimizer's state dict",
	    "t3 state|l.bias|exp_avg = optim/state/l.bias/exp_avg\n"
	    "v param_groups|#0|lr = optim/param_groups/0/lr\n"
	    "v epoch = extra/epoch\n");
	check("one optimizer's flattened state dict",
	    "t3 state.l.bias.exp_avg = optim/state/l.bias/exp_avg\n"
	    "v param_groups.l.bias.lr = optim/param_groups/l.bias/lr\n");
	check("one optimizer's flattened state dict without groups",
	    "t3 state.l.bias.exp_avg = optim/state/l.bias/exp_avg\n"
	    "t state.l.bias.step = optim/state/l.bias/step\n");
	check("a plain state dict",
	    "t3,2 l.weight = model/l.weight\n"
	    "t model.state.step = model/model.state.step\n"
	    "t2 layers.0.state.proj = model/layers.0.state.proj\n");
	check("Fabric with keys chosen by the user",
	    "t3,2 generator|l.weight = model/l.weight\n"
	    "t3 generator|l.bias = model/l.bias\n"
	    "t9 noise = extra/noise\n"
	    "t3,2 gen_opt|state|l.weight|exp_avg = "
	    "optim/state/l.weight/exp_avg\n"
	    "v gen_opt|param_groups|#0|lr = optim/param_groups/0/lr\n");
	check("nanoGPT",
	    "t3,2 model|_orig_mod.l.weight = model/l.weight\n"
	    "t3,2 optimizer|state|0|exp_avg = optim/state/0/exp_avg\n"
	    "v optimizer|param_groups|#0|lr = optim/param_groups/0/lr\n"
	    "v model_args|n_layer = extra/model_args/n_layer\n"
	    "v iter_num = extra/iter_num\n");
	check("values without tensors",
	    "v epoch = extra/epoch\n"
	    "v args|lr = extra/args/lr\n");
	check("an empty checkpoint", "");
}

static void several(void)
{
	check("two optimizers with different names",
	    "t3 model|w = model/w\n"
	    "t3 optimizer_0|state|w|exp_avg = optim/optimizer_0/state/w/exp_avg\n"
	    "t3 optimizer_1|state|w|exp_avg = optim/optimizer_1/state/w/exp_avg\n"
	    "i optimizer_1|param_groups|#0|lr = "
	    "optim/optimizer_1/param_groups/0/lr\n");
	check("two optimizers with class names",
	    "t3 state|optimizers|SGD|state|w|momentum_buffer = "
	    "optim/SGD/state/w/momentum_buffer\n"
	    "t3 state|optimizers|AdamW|state|w|exp_avg = "
	    "optim/AdamW/state/w/exp_avg\n");
	check("two optimizers in a list",
	    "t3 optimizer_states|#0|state|w|exp_avg = "
	    "optim/0/state/w/exp_avg\n"
	    "t3 optimizer_states|#1|state|w|exp_avg = "
	    "optim/1/state/w/exp_avg\n");
	check("two optimizers, named by their owners",
	    "t3 gen|optim|state|w|exp_avg = optim/gen/state/w/exp_avg\n"
	    "t3 disc|optim|state|w|exp_avg = optim/disc/state/w/exp_avg\n");
	check("two optimizers at different depths",
	    "t3 optim|state|w|exp_avg = optim/optim/state/w/exp_avg\n"
	    "t3 app|optim|state|w|exp_avg = optim/app.optim/state/w/exp_avg\n");
}

static void doubtful(void)
{
	check("a \"state\" that is not an optimizer's",
	    "t3 model|w = model/w\n"
	    "t3 sampler|state|a|b = extra/sampler/state/a/b\n"
	    "v optim|lr = optim/lr\n");
	check("options of a job beside an optimizer",
	    "v optim|lr = extra/optim/lr\n"
	    "t3 optimizer|state|w|exp_avg = optim/state/w/exp_avg\n");
	check("\"state\" as a name inside an optimizer's state",
	    "t3 optim|state|w|state|exp_avg = optim/state/w/state/exp_avg\n"
	    "t3 optim|state|w|param_groups = optim/state/w/param_groups\n"
	    "t3 optim|state|w|inner|state|x|exp_avg = "
	    "optim/state/w/inner/state/x/exp_avg\n");
	check("a module called param_groups",
	    "t3,2 model|param_groups.weight = model/param_groups.weight\n"
	    "t model|param_groups.0.scale = model/param_groups.0.scale\n"
	    "i model|param_groups.0._extra_state = "
	    "model/param_groups.0._extra_state\n"
	    "i optim|param_groups|#0|lr = optim/param_groups/0/lr\n"
	    "t3,2 optim|state|param_groups.weight|exp_avg = "
	    "optim/state/param_groups.weight/exp_avg\n"
	    "t optim|state|param_groups.weight|step = "
	    "optim/state/param_groups.weight/step\n");
	check("a module called param_groups, without an optimizer",
	    "t3,2 model|param_groups.weight = model/param_groups.weight\n"
	    "t3,2 model|param_groups|weight = model/param_groups/weight\n"
	    "t3,2 model|param_groups|#0|lr = model/param_groups/0/lr\n");
	check("a module called param_groups, in dotted keys",
	    "t3,2 model.param_groups.weight = model/param_groups.weight\n"
	    "i optim.param_groups.0.lr = optim/param_groups/0/lr\n"
	    "t3,2 optim.state.param_groups.weight.exp_avg = "
	    "optim/state/param_groups.weight/exp_avg\n");
	check("param_groups in a model beside an optimizer",
	    "v model|param_groups|scale = model/param_groups/scale\n"
	    "t3 model|w = model/w\n"
	    "v optim|param_groups|#0|lr = optim/param_groups/0/lr\n");
	check("param_groups with tensors as values",
	    "t optim|param_groups|#0|lr = optim/param_groups/0/lr\n"
	    "t optim|param_groups|#0|betas|#0 = "
	    "optim/param_groups/0/betas/0\n"
	    "t3 optim|state|w|m = optim/state/w/m\n");
	check("further entries of an optimizer",
	    "t3 optim|state|w|exp_avg = optim/state/w/exp_avg\n"
	    "v optim|scaler|scale = optim/scaler/scale\n"
	    "t3 optim|state|w = optim/state/w\n");
	check("nested state of a parameter",
	    "t3 optim|state|w|nested|a = optim/state/w/nested/a\n"
	    "t3 optim|state|w|nested|b|c = optim/state/w/nested/b/c\n"
	    "v optim|state|w|name = optim/state/w/name\n");
	check("groups keyed by parameter name",
	    "t3 optim|state|w|exp_avg = optim/state/w/exp_avg\n"
	    "v optim|param_groups|w|lr = optim/param_groups/w/lr\n");
	check("keys that are invalid as file names",
	    "t3 model|a/b = model/a%2Fb\n"
	    "t3 model|.. = model/%2E%2E\n"
	    "t3 model| = model/%\n"
	    "t optim|state|a/b|step = optim/state/a%2Fb/step\n"
	    "t3 optim|state|..|exp_avg = optim/state/%2E%2E/exp_avg\n"
	    "t3 optim|state||exp_avg = optim/state/%/exp_avg\n");
	check("a model beside other containers of tensors",
	    "v model = extra/model\n"
	    "t3 state_dict|w = model/w\n"
	    "t3 ema|w = extra/ema/w\n"
	    "t3 loose = extra/loose\n");
	check("tensors that are files at the top, with a container",
	    "f9 trainer_state.json = extra/trainer_state.json\n"
	    "t3 adapter|w = extra/adapter/w\n");
	check("tensors that are files at the top, with a plain state dict",
	    "f9 config.json = extra/config.json\n"
	    "t3 w = model/w\n");
	check("two containers that could both be the model",
	    "t3 a|w = extra/a/w\n"
	    "t3 b|w = extra/b/w\n"
	    "t3 optim|state|w|exp_avg = optim/state/w/exp_avg\n");
	check("a list of models",
	    "t3 model|#0|w = model/0/w\n"
	    "t3 model|#1|w = model/1/w\n");
}

static void flattened(void)
{
	check("flattened state, cut at the longest parameter name of the model",
	    "t3 model|a = model/a\n"
	    "t3 model|a.b = model/a.b\n"
	    "t3 optim|state.a.exp_avg = optim/state/a/exp_avg\n"
	    "t3 optim|state.a.b.exp_avg = optim/state/a.b/exp_avg\n"
	    "t3 optim|state.a.b.mine = optim/state/a.b/mine\n"
	    "t3 optim|state.a.b.mine.sub = optim/state/a.b/mine/sub\n"
	    "t3 optim|state.a.exp_avg.sub = optim/state/a/exp_avg/sub\n");
	check("flattened state without a model, cut at a name from the groups",
	    "t3 optim|state.a.b.mine.sub = optim/state/a.b/mine/sub\n"
	    "i optim|param_groups.a.b.lr = optim/param_groups/a.b/lr\n");
	check("flattened state without names, cut by rules",
	    "t3 optim|state.a.b.mine.sub = optim/state/a.b/mine/sub\n"
	    "t3 optim|state.a.b.exp_avg = optim/state/a.b/exp_avg\n"
	    "t3 optim|state.a.b.exp_avg.inner = optim/state/a.b/exp_avg/inner\n"
	    "t3 optim|state.c.d.other = optim/state/c.d/other\n"
	    "t3 optim|state.lonely = optim/state/lonely\n");
	check("Megatron, with the state's name before the parameter's",
	    "t3 optimizer.state.exp_avg.a.weight = "
	    "optim/state/a.weight/exp_avg\n"
	    "t3 optimizer.state.fp32_param.a.weight = "
	    "optim/state/a.weight/fp32_param\n"
	    "t3 optimizer.state.param.a.weight = optim/state/a.weight/param\n"
	    "t3 a.weight = model/a.weight\n");
	check("flattened down to the parameter only",
	    "t3 model|w = model/w\n"
	    "t3 optim|state.w|exp_avg = optim/state/w/exp_avg\n");
	check("flattened state, with wrapped names only in the model",
	    "t3 model|a._orig_mod.b = model/a.b\n"
	    "t3 optim|state.a.b.mine.x = optim/state/a.b/mine/x\n");
}

static void textual(void)
{
	struct ofs_catalog *cat;

	cat = check_with("dotted keys without a map of keys", &defaults,
	    "t3 model.l.weight = model/l.weight\n"
	    "t3 model.l.bias = model/l.bias\n"
	    "t3 optim.state.l.weight.exp_avg = optim/state/l.weight/exp_avg\n"
	    "i optim.param_groups.0.lr = optim/param_groups/0/lr\n"
	    "i optim.param_groups.0.params = optim/param_groups/0/params\n"
	    "t9 other = extra/other\n"
	    "i lr_scheduler.last_epoch = extra/lr_scheduler.last_epoch\n");
	has_notes(cat, OFS_NOTE_WARNING,
	    "OFS640 no map of keys: 3 dotted keys of optimizers were split at "
	    "parameter names\n",
	    "dotted keys without a map of keys: a warning counts the cut ones");
	ofs_catalog_free(cat);
	check("dotted keys, a model with a child called model",
	    "t3 model.l.weight = model/model.l.weight\n"
	    "t3 lm_head.weight = model/lm_head.weight\n"
	    "t3 optim.state.model.l.weight.exp_avg = "
	    "optim/state/model.l.weight/exp_avg\n");
	check("dotted keys of Composer",
	    "t3 state.model.lin.bias = model/lin.bias\n"
	    "t3 state.optimizers.AdamW.state.lin.bias.exp_avg = "
	    "optim/state/lin.bias/exp_avg\n"
	    "i state.optimizers.AdamW.param_groups.0.lr = "
	    "optim/param_groups/0/lr\n");
	check("dotted keys with parameter IDs",
	    "t3 optim.state.0.exp_avg = optim/state/0/exp_avg\n"
	    "t3 optim.state.10.exp_avg = optim/state/10/exp_avg\n");
	check("dotted keys of two optimizers",
	    "t3 optimizer_0.state.w.exp_avg = "
	    "optim/optimizer_0/state/w/exp_avg\n"
	    "t3 optimizer_1.state.w.exp_avg = "
	    "optim/optimizer_1/state/w/exp_avg\n");
	check("modules called state in modules called like optimizers",
	    "t3 optim.state.weight = model/optim.state.weight\n"
	    "t3 optim.state.fc.weight = model/optim.state.fc.weight\n"
	    "t3 optimizer.param_groups.weight = "
	    "model/optimizer.param_groups.weight\n");
	check("modules called like the optimizer beside them",
	    "t3 optimizer.state.weight = model/optimizer.state.weight\n"
	    "t3 optimizer.param_groups.weight = "
	    "model/optimizer.param_groups.weight\n"
	    "t3 optimizer|state.optimizer.state.weight.exp_avg = "
	    "optim/state/optimizer.state.weight/exp_avg\n"
	    "v optimizer|param_groups.optimizer.state.weight.lr = "
	    "optim/param_groups/optimizer.state.weight/lr\n");
	check("a parameter called like a state, in a module called state",
	    "t3 app|model|state.exp_avg = model/state.exp_avg\n"
	    "t3 app|model|w = model/w\n"
	    "t3 app|optim|state|state.exp_avg|exp_avg = "
	    "optim/state/state.exp_avg/exp_avg\n");
	check("the same in a file of a model alone",
	    "t3 state.0.exp_avg = model/state.0.exp_avg\n"
	    "t3 w = model/w\n");
	check("the same in a file with a key for the model",
	    "t3 model|state.0.exp_avg = model/state.0.exp_avg\n"
	    "t3 model|w = model/w\n");
	check("flattened state of a module called state",
	    "t3 model|enc.state.w = model/enc.state.w\n"
	    "t3 optim|state.enc.state.w.exp_avg = "
	    "optim/state/enc.state.w/exp_avg\n"
	    "t3 optim|state|enc.state.w|step = optim/state/enc.state.w/step\n");
}

static void options(void)
{
	static const char two[] =
	    "t3 net|w = extra/net/w\n"
	    "t3 ema|w = model/w\n"
	    "t3 a|opt|state|w|exp_avg = extra/a/opt/state/w/exp_avg\n"
	    "t3 b|opt|state|w|exp_avg = optim/state/w/exp_avg\n"
	    "t3 b|opt|more = optim/more\n";
	static const char flat[] =
	    "t3 the.net.w = model/w\n"
	    "t3 my.state.w.exp_avg = optim/state/w/exp_avg\n"
	    "t3 my.other = optim/other\n"
	    "t3 w = extra/w\n";
	struct optimfs_options opt = { .optim_key = "b.opt",
		.model_key = "ema" };

	ofs_catalog_free(check_with("optim_key= and model_key= of nested keys",
	    &opt, two));
	opt.optim_key = "my";
	opt.model_key = "the.net";
	ofs_catalog_free(check_with("optim_key= and model_key= of dotted keys",
	    &opt, flat));
	opt.optim_key = "c.opt";
	opt.model_key = NULL;
	fails("an unknown optim_key=", &opt, two, ENOENT,
	    "a.opt, b.opt; at the top: a, b, ema, net");
	opt.optim_key = NULL;
	opt.model_key = "em";
	fails("an unknown model_key=", &opt, two, ENOENT,
	    "OFS632 model_key=em names nothing");
	opt.model_key = "net.w";
	fails("a model_key= that names a tensor", &opt, two, ENOENT, "OFS632");
	opt = (struct optimfs_options){ .subtree = "/optim/b/" };
	ofs_catalog_free(check_with("subtree= of a directory", &opt,
	    "t3 model|w = -\n"
	    "t3 a|opt|state|w|exp_avg = -\n"
	    "t3 b|opt|state|w|exp_avg = optim/b/state/w/exp_avg\n"));
	opt.subtree = "model/a%2Fb";
	ofs_catalog_free(check_with("subtree= of one file", &opt,
	    "t3 model|a/b = model/a%2Fb\n"
	    "t3 model|a/bc = -\n"));
	opt.subtree = "";
	ofs_catalog_free(check_with("an empty subtree=", &opt,
	    "t3 model|w = model/w\n"));
	opt.subtree = "mod";
	fails("an unknown subtree=", &opt, "t3 model|w = -\n", ENOENT,
	    "OFS638 subtree=mod");
}

static void wrappers(void)
{
	struct ofs_catalog *cat;

	cat = check_with("wrapper prefixes", &defaults,
	    "t3 model|_fsdp_wrapped_module.a._checkpoint_wrapped_module.w = "
	    "model/a.w\n"
	    "t3 model|b = model/b\n"
	    "t3 optim|state|a._orig_mod.w|exp_avg = optim/state/a.w/exp_avg\n"
	    "t optim|state|a._orig_mod.w|step = optim/state/a.w/step\n"
	    "v optim|param_groups|a._orig_mod.w|lr = "
	    "optim/param_groups/a.w/lr\n");
	has_aliases(cat,
	    "model/_fsdp_wrapped_module.a._checkpoint_wrapped_module.w -> "
	    "model/a.w\n"
	    "optim/state/a._orig_mod.w -> optim/state/a.w\n"
	    "optim/param_groups/a._orig_mod.w -> optim/param_groups/a.w\n",
	    "wrapper prefixes: each wrapped name is an alias, once");
	ofs_catalog_free(cat);
	cat = check_with("prefix \"module.\" on all parameters", &defaults,
	    "t3 model|module.a.w = model/a.w\n"
	    "t3 model|module.module.b = model/module.b\n"
	    "t3 optim|state|a.w|exp_avg = optim/state/a.w/exp_avg\n");
	has_aliases(cat,
	    "model/module.a.w -> model/a.w\n"
	    "model/module.module.b -> model/module.b\n",
	    "prefix \"module.\" on all parameters: wrapped names are aliases");
	ofs_catalog_free(cat);
	check("prefix \"module.\" on some parameters",
	    "t3 model|module.a = model/module.a\n"
	    "t3 model|n_averaged = model/n_averaged\n");
	cat =
	    check_with("two wrapped names with the same clean name", &defaults,
		"t3 model|x._orig_mod.w = model/x._orig_mod.w\n"
		"t3 model|x.w = model/x.w\n"
		"t3 optim|state|x._orig_mod.w|exp_avg = "
		"optim/state/x.w/exp_avg\n");
	has_notes(cat, OFS_NOTE_WARNING,
	    "OFS639 x._orig_mod.w and x.w have the same name without the "
	    "prefixes of their wrappers; the first keeps its prefixes\n",
	    "two wrapped names with the same clean name: a warning names both");
	ofs_catalog_free(cat);
}

static void raw_names(void)
{
	static const char *const want[] = { "_orig_mod.a.w", "a._orig_mod.w",
		"a._orig_mod.w", "_fsdp_wrapped_module.v", NULL, NULL };
	struct ofs_catalog *cat = check_with("wrapped names", &defaults,
	    "t3 model|_orig_mod.a.w = model/a.w\n"
	    "t3 optim|state|a._orig_mod.w|exp_avg = "
	    "optim/state/a.w/exp_avg\n"
	    "t3 optim|state|a._orig_mod.w|x|y = optim/state/a.w/x/y\n"
	    "t3 optim|state._fsdp_wrapped_module.v.exp_avg = "
	    "optim/state/v/exp_avg\n"
	    "t3 model|w = model/w\n"
	    "v _orig_mod.w = extra/_orig_mod.w\n");
	struct ofs_str raw;

	for (uint32_t i = 0; i < cat->nentries; i++) {
		bool found = ofs_raw_fqn(cat, &cat->entries[i], &raw);

		if (want[i] == NULL)
			ok(!found, "entry %u has no other raw name", i);
		else
			ok(found && raw.len == strlen(want[i]) &&
				memcmp(raw.p, want[i], raw.len) == 0,
			    "raw name %s is found", want[i]);
	}
	ofs_catalog_free(cat);
}

static void clean_fqn(void)
{
	static const char *const table[][2] = {
		{ "a.b", "a.b" },
		{ "", "" },
		{ "_orig_mod.a", "a" },
		{ "a._orig_mod.b", "a.b" },
		{ "a._orig_mod._fsdp_wrapped_module.b", "a.b" },
		{ "a_orig_mod.b", "a_orig_mod.b" },
		{ "a._orig_mod", "a._orig_mod" },
		{ "_orig_mod.", "_orig_mod." },
		{ "module.a", "module.a" },
	};
	char out[64];

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		size_t n = ofs_clean_fqn(table[i][0], strlen(table[i][0]), out);

		out[n] = '\0';
		is_str(out, table[i][1], "\"%s\" without wrapper prefixes",
		    table[i][0]);
	}
}

/* Writes text to a temporary file, always the same; main removes it. */
static const char *file_of(const char *text)
{
	static char path[] = "/tmp/optimfs-ids-XXXXXX";
	static int fd = -1;

	if (fd == -1)
		fd = mkstemp(path);
	if (fd == -1 || ftruncate(fd, 0) == -1 ||
	    pwrite(fd, text, strlen(text), 0) != (ssize_t)strlen(text))
		bail_out("%s", path);
	return path;
}

#define BY_ID                       \
 "t3,2 model|a.w = model/a.w\n"     \
 "t3 model|a.b = model/a.b\n"       \
 "t9 model|buffer = model/buffer\n" \
 "t4,3 model|c.w = model/c.w\n"

static void ids(void)
{
	static const char named[] = BY_ID
	    "t3,2 optim|state|0|exp_avg = optim/state/a.w/exp_avg\n"
	    "t optim|state|0|step = optim/state/a.w/step\n"
	    "t4,3 optim|state|2|exp_avg = optim/state/c.w/exp_avg\n"
	    "i optim|param_groups|#0|params = optim/param_groups/0/params\n"
	    "i optim|param_groups|#1|params = optim/param_groups/1/params\n";
	static const char known[] =
	    BY_ID "t3,2 optim|state|0|exp_avg = x\n"
		  "v[0,1] optim|param_groups|#0|params = x\n"
		  "v[2] optim|param_groups|#1|params = x\n";
	struct optimfs_options opt = { 0 };
	struct ofs_catalog *cat;

	opt.ids = file_of("a.w\na.b\n\nc.w\n");
	cat = check_with("ids= with a file", &opt, named);
	ok(cat->nid_names == 1 && cat->id_names->n == 3 &&
		strcmp(ofs_catalog_string(cat, cat->id_names->name[1]).p,
		    "a.b") == 0,
	    "ids= with a file: the catalog has the names for lists of IDs");
	ofs_catalog_free(cat);
	opt.ids = file_of("a.w\r\na.b\r\nc.w");
	ofs_catalog_free(check_with("ids= with CRLF line ends and one group",
	    &opt, named));
	opt.ids = file_of("a.w\na.b\n");
	fails("ids= with too few names", &opt, named, EINVAL,
	    "line 3: the file ends after 2");
	opt.ids = file_of("a.w\na.b\nc.w\nbuffer\n");
	fails("ids= with too many names", &opt, known, EINVAL,
	    "line 4: 4 names, the optimizer has 3");
	opt.ids = file_of("a.w\na.b\n");
	fails("ids= with fewer names than the groups list", &opt, known, EINVAL,
	    "2 names, the optimizer has 3");
	opt.ids = file_of("a.w\na.b\nc.w\n");
	fails("a group that lists an ID without a parameter", &opt,
	    BY_ID "t3,2 optim|state|0|exp_avg = x\n"
		  "v[0,1] optim|param_groups|#0|params = x\n"
		  "v[7] optim|param_groups|#1|params = x\n",
	    EUCLEAN, "OFS644 group 1 lists ID 7, which no parameter has");
	opt.ids = file_of("a.w\n\na.b\nc.w\n");
	fails("ids= with groups of wrong sizes", &opt, known, EINVAL,
	    "line 1: group 0 has 1 names, the optimizer's has 2");
	opt.ids = file_of("a.w\n\na.b\n\nc.w\n");
	fails("ids= with too many groups", &opt, named, EINVAL,
	    "line 5: 3 groups of names, the optimizer has 2");
	opt.ids = file_of("a.b\na.w\nc.w\n");
	fails("ids= with names in a wrong order", &opt, named, EINVAL,
	    "line 1: a.b has shape [3], the state of ID 0 [3,2]");
	opt.ids = file_of("a.w\na.x\nc.w\n");
	fails("ids= with an unknown name", &opt, named, EINVAL,
	    "line 2: the model has no parameter \"a.x\"");
	opt.ids = file_of("a.w\na.b\na.w\n");
	fails("ids= with one name twice", &opt, named, EINVAL,
	    "line 3 names the parameter of line 1 again");
	opt.ids =
	    file_of("_orig_mod.a.very.much.longer.name.than.any.key\nw\n");
	ofs_catalog_free(check_with("ids= with wrapped names", &opt,
	    "t3 optim|state|1|exp_avg = optim/state/w/exp_avg\n"
	    "v optim|_orig_mod.x = optim/_orig_mod.x\n"
	    "t3 optim|state|0|exp_avg = "
	    "optim/state/a.very.much.longer.name.than.any.key/exp_avg\n"));
	/* other prefixes than those of the model's keys */
	opt.ids = file_of("module.w\nmodule._orig_mod.v\n");
	ofs_catalog_free(check_with("ids= with more prefixes than the model",
	    &opt,
	    "t3 model|_orig_mod.w = model/w\nt4 model|_orig_mod.v = model/v\n"
	    "t3 optim|state|0|exp_avg = optim/state/w/exp_avg\n"
	    "t4 optim|state|1|exp_avg = optim/state/v/exp_avg\n"));
	opt.ids = file_of("module.w\n_orig_mod.v\n");
	ofs_catalog_free(check_with("ids= with fewer prefixes than the model",
	    &opt,
	    "t3 model|module._orig_mod.w = model/w\n"
	    "t4 model|module._orig_mod.v = model/v\n"
	    "t3 optim|state|0|exp_avg = optim/state/w/exp_avg\n"
	    "t4 optim|state|1|exp_avg = optim/state/v/exp_avg\n"));
	opt.ids = file_of("module.w\nv\n");
	ofs_catalog_free(check_with("ids= with a module called module", &opt,
	    "t3 model|module.w = model/module.w\nt4 model|v = model/v\n"
	    "t3 optim|state|0|exp_avg = optim/state/module.w/exp_avg\n"
	    "t4 optim|state|1|exp_avg = optim/state/v/exp_avg\n"));
	opt.ids = file_of("module.w\nmodule._orig_mod.v\n");
	ofs_catalog_free(check_with("ids= with prefixes, without a model", &opt,
	    "t3 optim|state|0|exp_avg = optim/state/w/exp_avg\n"
	    "t4 optim|state|1|exp_avg = optim/state/v/exp_avg\n"));
	opt.ids = file_of("module.w\n_orig_mod.module.w\n");
	fails("ids= with one name with two prefixes", &opt,
	    "t3 model|w = x\nt3 model|v = x\n"
	    "t3 optim|state|0|exp_avg = x\nt3 optim|state|1|exp_avg = x\n",
	    EINVAL, "line 2 names the parameter of line 1 again");
	opt.ids = "/nonexistent/ids";
	fails("ids= with a file that does not exist", &opt, named, ENOENT,
	    "OFS635 ids=/nonexistent/ids");
	opt.ids = "/";
	fails("ids= with a directory", &opt, named, EINVAL, "OFS635 ids=/");
	opt.ids = file_of("w\n");
	fails("ids= with two optimizers", &opt,
	    "t3 o1|state|0|exp_avg = x\nt3 o2|state|0|exp_avg = x\n"
	    "i o1|param_groups|#0|lr = x\ni o2|param_groups|#0|lr = x\n",
	    EINVAL, "choose it with optim_key=, such as optim_key=o1");
	cat = check_with("ids= without integer IDs in the checkpoint", &opt,
	    "t3 optim|state|w|exp_avg = optim/state/w/exp_avg\n");
	has_notes(cat, OFS_NOTE_WARNING,
	    "OFS635 ids= has no effect: no optimizer here has integer "
	    "parameter IDs\n",
	    "ids= without integer IDs in the checkpoint: a warning");
	ofs_catalog_free(cat);
}

static void ids_of_model(void)
{
	struct optimfs_options opt = { .ids = "model" };
	struct ofs_catalog *cat;

	cat = check_with("ids=model", &opt,
	    BY_ID "t3,2 optim|state|0|exp_avg = optim/state/a.w/exp_avg\n"
		  "t3 optim|state|1|exp_avg = optim/state/a.b/exp_avg\n"
		  "t4,3 optim|state|2|exp_avg = optim/state/c.w/exp_avg\n"
		  "v optim|state|2|step = optim/state/c.w/step\n");
	is_u64(cat->id_names->n, 3, "ids=model: a buffer gets no ID");
	ofs_catalog_free(cat);
	cat = check_with("ids=model and an ID without state", &opt,
	    "t3 model|w = model/w\n"
	    "t4 model|b = model/b\n"
	    "t5 model|c = model/c\n"
	    "t3 optim|state|0|exp_avg = optim/state/w/exp_avg\n"
	    "t5 optim|state|2|exp_avg = optim/state/c/exp_avg\n");
	ok(strcmp(ofs_catalog_string(cat, cat->id_names->name[1]).p, "b") == 0,
	    "ids=model and an ID without state: the order gives its name");
	ofs_catalog_free(cat);
	ofs_catalog_free(check_with("ids=model and statistics of a batch norm",
	    &opt,
	    "t3 model|bn.weight = model/bn.weight\n"
	    "t3 model|bn.bias = model/bn.bias\n"
	    "t3 model|bn.running_mean = model/bn.running_mean\n"
	    "t3 model|bn.running_var = model/bn.running_var\n"
	    "t model|bn.num_batches_tracked = "
	    "model/bn.num_batches_tracked\n"
	    "t3 optim|state|0|exp_avg = optim/state/bn.weight/exp_avg\n"
	    "t3 optim|state|1|exp_avg = optim/state/bn.bias/exp_avg\n"));
	fails("ids=model and a tensor named like a batch norm statistic", &opt,
	    "t3 model|bn.weight = x\n"
	    "t3 model|bn.running_mean = x\n"
	    "t3 optim|state|0|exp_avg = x\n",
	    EINVAL,
	    "OFS636 ids=model: ID 0 may be bn.weight or "
	    "bn.running_mean");
	cat = check_with("ids=model and tied parameters", &opt,
	    "t3,2@5 model|emb = model/emb\n"
	    "t4 model|b = model/b\n"
	    "t3,2@5 model|head = model/head\n"
	    "t3,2 optim|state|0|exp_avg = optim/state/emb/exp_avg\n"
	    "t4 optim|state|1|exp_avg = optim/state/b/exp_avg\n");
	has_aliases(cat, "optim/state/head -> optim/state/emb\n",
	    "ids=model and tied parameters: the second name is an alias");
	ofs_catalog_free(cat);
	ofs_catalog_free(
	    check_with("ids=model and two groups with readable params", &opt,
		"t3,2 model|a.w = model/a.w\n"
		"t3 model|a.b = model/a.b\n"
		"t4,3 model|b.w = model/b.w\n"
		"t4 model|b.b = model/b.b\n"
		"t3,2 optim|state|0|exp_avg = optim/state/a.w/exp_avg\n"
		"t4,3 optim|state|1|exp_avg = optim/state/b.w/exp_avg\n"
		"t3 optim|state|2|exp_avg = optim/state/a.b/exp_avg\n"
		"t4 optim|state|3|exp_avg = optim/state/b.b/exp_avg\n"
		"v[0,1] optim|param_groups|#0|params = "
		"optim/param_groups/0/params\n"
		"v[2,3] optim|param_groups|#1|params = "
		"optim/param_groups/1/params\n"));
	ofs_catalog_free(check_with(
	    "ids=model and a tensor that the other group needs", &opt,
	    "t4,3 model|e = model/e\n"
	    "t3 model|n = model/n\n"
	    "t4,3 model|h = model/h\n"
	    "t4,3 optim|state|0|exp_avg = optim/state/e/exp_avg\n"
	    "t3 optim|state|1|exp_avg = optim/state/n/exp_avg\n"
	    "t4,3 optim|state|2|exp_avg = optim/state/h/exp_avg\n"
	    "v[0] optim|param_groups|#0|params = "
	    "optim/param_groups/0/params\n"
	    "v[1,2] optim|param_groups|#1|params = "
	    "optim/param_groups/1/params\n"));
	fails("ids=model and two groups with unread params", &opt,
	    "t3,2 model|a.w = x\nt3 model|a.b = x\n"
	    "t4,3 model|b.w = x\nt4 model|b.b = x\n"
	    "t3,2 optim|state|0|exp_avg = x\nt4,3 optim|state|1|exp_avg = x\n"
	    "t3 optim|state|2|exp_avg = x\nt4 optim|state|3|exp_avg = x\n"
	    "i optim|param_groups|#0|params = x\n",
	    EINVAL, "[3], which no tensor of the model has after b.w; params");
	fails("ids=model and two groups that fit one tensor", &opt,
	    "t3 model|w = x\nt4 model|b = x\n"
	    "t3 optim|state|0|exp_avg = x\nt3 optim|state|1|exp_avg = x\n"
	    "v[0] optim|param_groups|#0|params = x\n"
	    "v[1] optim|param_groups|#1|params = x\n",
	    EINVAL,
	    "ID 1 has shape [3], which no tensor of the model has, or "
	    "another ID must be that one");
	fails("ids=model and two matching parameters", &opt,
	    "t3 model|w = x\nt3 model|b = x\nt4 model|c = x\n"
	    "t3 optim|state|0|exp_avg = x\nt4 optim|state|1|exp_avg = x\n",
	    EINVAL, "ID 0 may be w or b");
	fails("ids=model and a state that fits no parameter", &opt,
	    "t3 model|w = x\nt4 model|b = x\n"
	    "t3 optim|state|0|exp_avg = x\nt5 optim|state|1|exp_avg = x\n",
	    EINVAL,
	    "ID 1 has shape [5], which no tensor of the model has after w");
	fails("ids=model and an ID beyond the model", &opt,
	    "t3 model|a = x\nt3 optim|state|999999999|exp_avg = x\n", EINVAL,
	    "ID 999999999, but the model has 1 tensors");
	fails("ids=model and state without a parameter's shape", &opt,
	    "t3 model|a = x\nt optim|state|0|step = x\n"
	    "t3 optim|state|0|row = x\n",
	    EINVAL, "ID 0 has no state with its parameter's shape");
	fails("ids=model without state", &opt,
	    "t3 model|a = x\ni optim|param_groups|#0|params = x\n", EINVAL,
	    "no state has a shape that");
}

/* Files that sort their keys: only shapes tell. */
static void ids_of_shapes(void)
{
	struct optimfs_options opt = { .ids = "model" };
	struct ofs_catalog *cat;

	keeps_order = false;
	fails("ids=model and equal shapes without an order", &opt,
	    "t4,4 model|key = x\nt4,4 model|query = x\nt4,4 model|value = x\n"
	    "t3 model|b = x\n"
	    "t4,4 optim|state|0|exp_avg = x\nt4,4 optim|state|1|exp_avg = x\n"
	    "t4,4 optim|state|2|exp_avg = x\nt3 optim|state|3|exp_avg = x\n",
	    EINVAL,
	    "OFS636 ids=model: IDs 0, 1, 2 may be any of key, query, value");
	fails("ids=model, no order, and a buffer with a parameter's shape",
	    &opt,
	    "t4,4 model|a = x\nt4,4 model|mask = x\n"
	    "t4,4 optim|state|0|exp_avg = x\n",
	    EINVAL, "OFS636 ids=model: ID 0 may be any of a, mask: shapes");
	ofs_catalog_free(check_with("ids=model and shapes that differ", &opt,
	    "t4,4 model|key = model/key\n"
	    "t4,5 model|query = model/query\n"
	    "t4 model|a = model/a\n"
	    "t4,5 optim|state|0|exp_avg = optim/state/query/exp_avg\n"
	    "t4,4 optim|state|1|exp_avg = optim/state/key/exp_avg\n"));
	ofs_catalog_free(check_with("ids=model and a projection that is left",
	    &opt,
	    "t8,8 model|a = model/a\n"
	    "t8,4 model|b = model/b\n"
	    "t8,2 optim|state|0|exp_avg = optim/state/a/exp_avg\n"
	    "v optim|state|0|projector = optim/state/a/projector\n"
	    "t8,4 optim|state|1|exp_avg = optim/state/b/exp_avg\n"));
	fails("ids=model and two projections of equal rank", &opt,
	    "t8,8 model|a = x\nt8,4 model|b = x\n"
	    "t8,2 optim|state|0|exp_avg = x\nv optim|state|0|projector = x\n"
	    "t8,2 optim|state|1|exp_avg = x\nv optim|state|1|projector = x\n",
	    EINVAL, "IDs 0, 1 may be any of a, b: shapes do not tell");
	fails("ids=model and a state that only another ID's tensor fits", &opt,
	    "t4 model|a = x\nt5 model|b = x\n"
	    "t4 optim|state|0|exp_avg = x\nt4 optim|state|1|exp_avg = x\n",
	    EINVAL, "the state of ID 1 has shape [4], which no tensor");
	cat = check_with("ids=model for an index without a map of keys", &opt,
	    "t3 a = model/a\nt3 optim.state.0.exp_avg = "
	    "optim/state/a/exp_avg\n");
	ofs_catalog_free(cat);
	keeps_order = true;
	fails("ids=model and names in their sorted order", &opt,
	    "t3 model|a.bias = x\nt4,4 model|a.key = x\n"
	    "t4,4 model|a.query = x\n"
	    "t4,4 optim|state|0|exp_avg = x\nt4,4 optim|state|1|exp_avg = x\n"
	    "t3 optim|state|2|exp_avg = x\n",
	    EINVAL,
	    "OFS636 ids=model: IDs 0, 1 may be any of a.key, a.query: shapes "
	    "do not tell, and the model's names are sorted, which need not be "
	    "its order");
	ofs_catalog_free(check_with("ids=model, sorted names, and shapes that "
				    "differ",
	    &opt,
	    "t3 model|a.bias = model/a.bias\n"
	    "t4,3 model|a.weight = model/a.weight\n"
	    "t4,3 optim|state|0|exp_avg = optim/state/a.weight/exp_avg\n"
	    "t3 optim|state|1|exp_avg = optim/state/a.bias/exp_avg\n"));
	/* a trainer whose optimizer has all parameters */
	opt.ids = NULL;
	for (int fits = 0; fits <= 1; fits++) {
		cat = catalog_of(fits ? "t4 model|w = x\nt4 model|b = x\n"
					"t4 optim|state|0|exp_avg = x\n"
					"t4 optim|state|1|exp_avg = x\n"
				      : "t4 model|w = x\nt4 model|b = x\n"
					"t4 model|c = x\n"
					"t4 optim|state|0|exp_avg = x\n"
					"t4 optim|state|1|exp_avg = x\n");
		cat->ids_of_model = true;
		ok(ofs_name_entries(cat, &opt, NULL) == 0 &&
			cat->nid_names == (fits ? 1u : 0u),
		    "IDs are those of the model%s",
		    fits ? "" : " only if there are as many");
		ofs_catalog_free(cat);
	}
	opt.ids = "model";
	/* two files: each keeps its own order only */
	cat = catalog_of("t4 model|a = x\nt4 model|b = x\n"
			 "t4 optim|state|0|exp_avg = x\n"
			 "t4 optim|state|1|exp_avg = x\n");
	ofs_catalog_ordered(cat, 1, 2);
	ok(ofs_name_entries(cat, &opt, NULL) == -1,
	    "ids=model fails for equal shapes in two files");
	ofs_catalog_free(cat);
}

/* Moments that are smaller than their parameter. */
static void ids_smaller(void)
{
	struct optimfs_options opt = { .ids = "model" };
	static const char factored[] =
	    "t8,6 model|a = model/a\n"
	    "t6 model|b = model/b\n"
	    "t8,6 optim|state|0|step = optim/state/a/step\n"
	    "t8 optim|state|0|exp_avg_sq_row = optim/state/a/exp_avg_sq_row\n"
	    "t6 optim|state|0|exp_avg_sq_col = optim/state/a/exp_avg_sq_col\n"
	    "t6 optim|state|1|exp_avg_sq = optim/state/b/exp_avg_sq\n";
	static const char galore[] =
	    "t8,6 model|a = model/a\n"
	    "t6 model|b = model/b\n"
	    "t2,6 optim|state|0|exp_avg = optim/state/a/exp_avg\n"
	    "t2,6 optim|state|0|exp_avg_sq = optim/state/a/exp_avg_sq\n"
	    "t6 optim|state|1|exp_avg = optim/state/b/exp_avg\n";

	ofs_catalog_free(check_with("ids=model and Adafactor", &opt, factored));
	ofs_catalog_free(check_with("ids=model and Adafactor of PyTorch", &opt,
	    "t8,6 model|a = model/a\n"
	    "t8,1 optim|state|0|row_var = optim/state/a/row_var\n"
	    "t1,6 optim|state|0|col_var = optim/state/a/col_var\n"));
	ofs_catalog_free(check_with("ids=model and GaLore", &opt, galore));
	ofs_catalog_free(check_with("ids=model and a rank in the group", &opt,
	    "t8,6 model|a = model/a\n"
	    "t8,5 optim|state|0|exp_avg = optim/state/a/exp_avg\n"
	    "v[0] optim|param_groups|#0|params = optim/param_groups/0/params\n"
	    "v optim|param_groups|#0|rank = optim/param_groups/0/rank\n"));
	fails("ids=model and a moment that is a row shorter", &opt,
	    "t8,6 model|a = x\nt7,6 optim|state|0|exp_avg = x\n", EINVAL,
	    "OFS636 ids=model: the state of ID 0 has shape [7,6]");
	fails("ids=model and means of another matrix", &opt,
	    "t8,6 model|a = x\nt8 optim|state|0|exp_avg_sq_row = x\n"
	    "t7 optim|state|0|exp_avg_sq_col = x\n",
	    EINVAL, "OFS636 ids=model: the state of ID 0 has shape [8]");
	fails("ids=model and float32 weights of another shape", &opt,
	    "t8,6 model|a = x\nt4,6 optim|state|0|fp32 = x\n"
	    "v optim|state|0|projector = x\n",
	    EINVAL, "OFS636 ids=model: the state of ID 0 has shape [4,6]");
	opt.ids = file_of("a\nb\n");
	ofs_catalog_free(check_with("ids= with a file and Adafactor", &opt,
	    factored));
	ofs_catalog_free(check_with("ids= with a file and GaLore", &opt,
	    galore));
	opt.ids = file_of("b\na\n");
	fails("ids= with names that are exchanged, and GaLore", &opt, galore,
	    EINVAL, "line 1: b has shape [6], the state of ID 0 [2,6]");
}

static void warns(const char *what, const struct optimfs_options *opt,
    const char *text, const char *warning)
{
	struct ofs_catalog *cat = check_with(what, opt, text);
	bool found = false;

	for (uint32_t i = 0; i < cat->nnotes; i++)
		found |= strstr(cat->notes[i].text, warning) != NULL;
	if (!ok(found, "%s: a warning", what) && cat->nnotes > 0)
		diag("%s", cat->notes[0].text);
	ofs_catalog_free(cat);
}

/* param_names of the groups. */
static void ids_of_groups(void)
{
	static const char named[] =
	    "t4,4 optim|state|0|exp_avg = optim/state/query/exp_avg\n"
	    "t4,4 optim|state|2|exp_avg = optim/state/b/exp_avg\n"
	    "v[2,0] optim|param_groups|#0|params = optim/param_groups/0/params\n"
	    "v[b,query] optim|param_groups|#0|param_names = "
	    "optim/param_groups/0/param_names\n"
	    "v[1] optim|param_groups|#1|params = optim/param_groups/1/params\n"
	    "v[key] optim|param_groups|#1|param_names = "
	    "optim/param_groups/1/param_names\n";
	struct optimfs_options opt = { 0 };
	struct ofs_catalog *cat;

	cat = check_with("param_names", &defaults, named);
	ok(cat->nid_names == 1 && cat->id_names->n == 3 &&
		strcmp(ofs_catalog_string(cat, cat->id_names->name[1]).p,
		    "key") == 0,
	    "param_names: the catalog has the names for lists of IDs");
	is_u64(cat->nnotes, 1, "param_names: the only note");
	has_notes(cat, OFS_NOTE_MISSING,
	    "OFS642 optim/state/key: in param_groups, but without state\n",
	    "param_names: a parameter without state has its name");
	ofs_catalog_free(cat);
	opt.ids = "model";
	ofs_catalog_free(check_with(
	    "param_names, and ids=model without a model", &opt, named));
	ofs_catalog_free(check_with("param_names of two optimizers", &defaults,
	    "t3 g|optim|state|0|exp_avg = optim/g/state/a/exp_avg\n"
	    "v[0] g|optim|param_groups|#0|params = "
	    "optim/g/param_groups/0/params\n"
	    "v[a] g|optim|param_groups|#0|param_names = "
	    "optim/g/param_groups/0/param_names\n"
	    "t3 d|optim|state|0|exp_avg = optim/d/state/b/exp_avg\n"
	    "v[0] d|optim|param_groups|#0|params = "
	    "optim/d/param_groups/0/params\n"
	    "v[b] d|optim|param_groups|#0|param_names = "
	    "optim/d/param_groups/0/param_names\n"));
	ofs_catalog_free(check_with("param_names with prefixes of wrappers",
	    &defaults,
	    "t3 model|w = model/w\n"
	    "t3 optim|state|0|exp_avg = optim/state/w/exp_avg\n"
	    "v[0] optim|param_groups|#0|params = optim/param_groups/0/params\n"
	    "v[module._orig_mod.w] optim|param_groups|#0|param_names = "
	    "optim/param_groups/0/param_names\n"));
	cat = check_with("param_names of a state dict by names", &defaults,
	    "t3 optim|state|w|exp_avg = optim/state/w/exp_avg\n"
	    "v[w] optim|param_groups|#0|params = optim/param_groups/0/params\n"
	    "v[w] optim|param_groups|#0|param_names = "
	    "optim/param_groups/0/param_names\n");
	is_u64(cat->nnotes, 0, "param_names of a state dict by names: no note");
	ofs_catalog_free(cat);
	warns("param_names of another length", &defaults,
	    "t3 optim|state|0|exp_avg = optim/state/0/exp_avg\n"
	    "v[0] optim|param_groups|#0|params = optim/param_groups/0/params\n"
	    "v[a,b] optim|param_groups|#0|param_names = "
	    "optim/param_groups/0/param_names\n",
	    "OFS634 param_names of group 0: params has another length");
	warns("param_names of one group only", &defaults,
	    "t3 optim|state|0|exp_avg = optim/state/0/exp_avg\n"
	    "v[0] optim|param_groups|#0|params = optim/param_groups/0/params\n"
	    "v[a] optim|param_groups|#0|param_names = "
	    "optim/param_groups/0/param_names\n"
	    "v[1] optim|param_groups|#1|params = optim/param_groups/1/params\n",
	    "OFS634 param_names of group 1: it lacks this list");
	warns("param_names with one name twice", &defaults,
	    "t3 optim|state|0|exp_avg = optim/state/0/exp_avg\n"
	    "v[0,1] optim|param_groups|#0|params = "
	    "optim/param_groups/0/params\n"
	    "v[a,a] optim|param_groups|#0|param_names = "
	    "optim/param_groups/0/param_names\n",
	    "OFS634 param_names of group 0: IDs 0 and 1 are both called a");
	warns("param_names and an ID twice", &defaults,
	    "t3 optim|state|0|exp_avg = optim/state/0/exp_avg\n"
	    "v[0,0] optim|param_groups|#0|params = "
	    "optim/param_groups/0/params\n"
	    "v[a,b] optim|param_groups|#0|param_names = "
	    "optim/param_groups/0/param_names\n",
	    "OFS634 param_names of group 0: the IDs of params do not count");
	warns("param_names with shapes of other parameters", &defaults,
	    "t3 model|a = model/a\nt4 model|b = model/b\n"
	    "t3 optim|state|0|exp_avg = optim/state/0/exp_avg\n"
	    "v[0,1] optim|param_groups|#0|params = "
	    "optim/param_groups/0/params\n"
	    "v[b,a] optim|param_groups|#0|param_names = "
	    "optim/param_groups/0/param_names\n",
	    "OFS634 param_names of group 0: b has shape [4], the state of ID 0 "
	    "[3]");
	opt.ids = file_of("query\nb\nkey\n");
	warns("ids= with other names than param_names", &opt,
	    "t4,4 optim|state|0|exp_avg = optim/state/query/exp_avg\n"
	    "t4,4 optim|state|1|exp_avg = optim/state/b/exp_avg\n"
	    "v[0,1,2] optim|param_groups|#0|params = "
	    "optim/param_groups/0/params\n"
	    "v[query,key,b] optim|param_groups|#0|param_names = "
	    "optim/param_groups/0/param_names\n",
	    "line 2: ID 1 is called b, and param_names of the optimizer has "
	    "key");
}

static void mixed(void)
{
	struct ofs_catalog *cat;

	cat = check_with("integer and string keys in one optimizer", &defaults,
	    "t3 optim|state|own|exp_avg = optim/state/own/exp_avg\n"
	    "t3 optim|state|7|exp_avg = optim/state/7/exp_avg\n");
	ok(cat->nnotes > 0 &&
		strstr(cat->notes[0].text,
		    "OFS637 the optimizer's state has integer and string "
		    "keys: first integer 7, first string \"own\"") != NULL,
	    "integer and string keys in one optimizer: a warning");
	ofs_catalog_free(cat);
	check("a parameter called 0",
	    "t3 model|0 = model/0\n"
	    "t3 model|l.w = model/l.w\n"
	    "t3 optim|state|0|exp_avg = optim/state/0/exp_avg\n"
	    "t3 optim|state|l.w|exp_avg = optim/state/l.w/exp_avg\n");
	cat = check_with("a dotted key that can be cut in two ways", &defaults,
	    "t3 optim.state.0.exp_avg = optim/state/0/exp_avg\n"
	    "t3 optim.state.1.a.b = optim/state/1.a/b\n");
	ok(cat->nnotes == 2 && strstr(cat->notes[0].text, "OFS637") != NULL,
	    "a dotted key that can be cut in two ways: a warning");
	ofs_catalog_free(cat);
}

/* Compares which entries can be read: '1' or '0' for each. One that cannot must
 * say that the optimizer does not have its ID. */
static void readable(const struct ofs_catalog *cat, const char *want,
    const char *what)
{
	char have[16] = "";

	for (uint32_t i = 0; i < cat->nentries; i++) {
		const struct ofs_entry *e = &cat->entries[i];
		uint32_t note = OFS_NONE;

		if (e->kind == OFS_ENTRY_TENSOR)
			note = cat->tensors[e->ref].error;
		else if (e->kind == OFS_ENTRY_ITEM)
			note = cat->items[e->ref].error;
		have[i] = note == OFS_NONE ? '1' : '0';
		if (note != OFS_NONE) {
			is_int(cat->notes[note].code, EUCLEAN, "%s", what);
			ok(strstr(cat->notes[note].text, "OFS644") != NULL &&
				strstr(cat->notes[note].text, "ID 7") != NULL,
			    "an unreadable entry names the stray ID: %s",
			    cat->notes[note].text);
		}
	}
	is_str(have, want, "%s: which entries can be read", what);
}

static void orphans(void)
{
	static const char stray[] =
	    "t3,2 optim|state|0|exp_avg = optim/state/0/exp_avg\n"
	    "t3,2 optim|state|7|exp_avg = optim/state/7/exp_avg\n"
	    "v optim|state|7|step = optim/state/7/step\n"
	    "i optim|state|7|lazy = optim/state/7/lazy\n"
	    "t3 optim|state|1|exp_avg = optim/state/1/exp_avg\n"
	    "v[0] optim|param_groups|#0|params = optim/param_groups/0/params\n"
	    "v[1] optim|param_groups|#1|params = "
	    "optim/param_groups/1/params\n";
	struct optimfs_options opt = { 0 };
	struct ofs_catalog *cat;

	cat =
	    check_with("state of an ID that no group lists", &defaults, stray);
	readable(cat, "1000111", "state of an ID that no group lists");
	ofs_catalog_free(cat);
	opt.ids = file_of("a\nb\n");
	cat = check_with("state of an ID that no group lists, with ids=", &opt,
	    "t3,2 optim|state|0|exp_avg = optim/state/a/exp_avg\n"
	    "t3,2 optim|state|7|exp_avg = optim/state/7/exp_avg\n"
	    "t3 optim|state|1|exp_avg = optim/state/b/exp_avg\n"
	    "v[0,1] optim|param_groups|#0|params = "
	    "optim/param_groups/0/params\n");
	readable(cat, "1011", "state of an ID that no group lists, with ids=");
	ofs_catalog_free(cat);
	cat = check_with("state of an ID, one list of params unread", &defaults,
	    "t3,2 optim|state|0|exp_avg = optim/state/0/exp_avg\n"
	    "t3,2 optim|state|7|exp_avg = optim/state/7/exp_avg\n"
	    "v[0] optim|param_groups|#0|params = optim/param_groups/0/params\n"
	    "i optim|param_groups|#1|params = "
	    "optim/param_groups/1/params\n");
	readable(cat, "1111", "state of an ID, one list of params unread");
	ofs_catalog_free(cat);
	cat = check_with("state of an ID, one group without params", &defaults,
	    "t3,2 optim|state|7|exp_avg = optim/state/7/exp_avg\n"
	    "v[0] optim|param_groups|#0|params = optim/param_groups/0/params\n"
	    "v optim|param_groups|#1|lr = optim/param_groups/1/lr\n");
	readable(cat, "111", "state of an ID, one group without params");
	ofs_catalog_free(cat);
	opt.ids = "model";
	cat = check_with("state of an ID that no group lists, with ids=model",
	    &opt,
	    "t3,2 model|a = model/a\n"
	    "t3 model|b = model/b\n"
	    "t3,2 optim|state|0|exp_avg = optim/state/a/exp_avg\n"
	    "t9 optim|state|7|exp_avg = optim/state/7/exp_avg\n"
	    "t3 optim|state|1|exp_avg = optim/state/b/exp_avg\n"
	    "v[0,1] optim|param_groups|#0|params = "
	    "optim/param_groups/0/params\n");
	readable(cat, "111011",
	    "state of an ID that no group lists, with ids=model");
	ofs_catalog_free(cat);
}

static void missing(void)
{
	struct ofs_catalog *cat;

	cat = check_with("a listed parameter without state", &defaults,
	    "t3 model|a = model/a\n"
	    "t3 optim|state|a|exp_avg = optim/state/a/exp_avg\n"
	    "v[a,frozen] optim|param_groups|#0|params = "
	    "optim/param_groups/0/params\n");
	has_notes(cat, OFS_NOTE_MISSING,
	    "OFS642 optim/state/frozen: in param_groups, but without state\n",
	    "a listed parameter without state is noted as missing");
	has_aliases(cat, "optim/state/frozen -> nothing\n",
	    "a listed parameter without state has an alias without target");
	ofs_catalog_free(cat);
	cat = check_with("a listed ID without state", &defaults,
	    "t3 x|state|0|exp_avg = optim/state/0/exp_avg\n"
	    "v[0,1] x|param_groups|#0|params = optim/param_groups/0/params\n");
	has_notes(cat, OFS_NOTE_MISSING,
	    "OFS642 optim/state/1: in param_groups, but without state\n",
	    "a listed ID without state is noted as missing");
	ofs_catalog_free(cat);
	cat = check_with("flattened groups with a parameter without state",
	    &defaults,
	    "t3 optim|state.a.exp_avg = optim/state/a/exp_avg\n"
	    "i optim|param_groups.a.lr = optim/param_groups/a/lr\n"
	    "i optim|param_groups.b.c.lr = optim/param_groups/b.c/lr\n"
	    "i optim|param_groups.b.c.eps = optim/param_groups/b.c/eps\n");
	has_notes(cat, OFS_NOTE_MISSING,
	    "OFS642 optim/state/b.c: in param_groups, but without state\n",
	    "flattened groups: a parameter without state is noted once");
	ofs_catalog_free(cat);
	cat = check_with("groups of an optimizer without any state", &defaults,
	    "v[a,b] optim|param_groups|#0|params = "
	    "optim/param_groups/0/params\n");
	has_notes(cat, OFS_NOTE_MISSING, "",
	    "an optimizer without any state misses nothing");
	ofs_catalog_free(cat);
}

static void ties(void)
{
	struct ofs_catalog *cat;

	cat = check_with("tied parameters", &defaults,
	    "t3,2@5 model|head = model/head\n"
	    "t3,2@5 model|emb = model/emb\n"
	    "t3,2@5 model|third = model/third\n"
	    "t3,2@6 model|other = model/other\n"
	    "t2,3@5 model|reshaped = model/reshaped\n"
	    "t3,2 optim|state|emb|exp_avg = optim/state/emb/exp_avg\n"
	    "v[head] optim|param_groups|#0|params = "
	    "optim/param_groups/0/params\n");
	has_aliases(cat,
	    "optim/state/head -> optim/state/emb\n"
	    "optim/state/third -> optim/state/emb\n",
	    "the state of tied parameters is found by each name");
	has_notes(cat, OFS_NOTE_MISSING, "",
	    "tied parameters with one state miss nothing");
	ofs_catalog_free(cat);
}

int main(void)
{
	producers();
	several();
	doubtful();
	flattened();
	textual();
	options();
	wrappers();
	raw_names();
	clean_fqn();
	ids();
	ids_of_model();
	ids_of_shapes();
	ids_smaller();
	ids_of_groups();
	mixed();
	orphans();
	missing();
	ties();
	unlink(file_of(""));
	return done_testing();
}
