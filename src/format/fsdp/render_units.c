/* render_units.c - the units file of a view of flat parameters */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <inttypes.h>

#include "base/dtype.h"
#include "base/json_write.h"
#include "base/memory.h"
#include "format/fsdp/render.h"

/* A name without the prefix of its module, if it has that prefix. */
static struct ofs_str below(struct ofs_str name, struct ofs_str prefix)
{
	uint32_t n =
	    prefix.len > 0 && name.len > prefix.len ? prefix.len + 1 : 0;

	return (struct ofs_str){ name.p + n, name.len - n };
}

/* Writes "a.b.c" as "c", "a.b". */
static void put_parts(struct ofs_buf *b, struct ofs_str name)
{
	uint32_t dot = name.len;

	while (dot > 0 && name.p[dot - 1] != '.')
		dot--;
	ofs_json_quote(b, name.p + dot, name.len - dot);
	ofs_buf_puts(b, ", ");
	ofs_json_quote(b, name.p, dot == 0 ? 0 : dot - 1);
}

static void put_ties(const struct ofs_fsdp_files *f, uint32_t unit,
    struct ofs_buf *b)
{
	struct ofs_str prefix = f->units.unit[unit].prefix;
	const char *sep = "";

	ofs_buf_puts(b, ",\n   \"shared\": [");
	for (uint32_t i = 0; i < f->units.nties; i++) {
		const struct ofs_unit_tie *t = &f->units.tie[i];
		uint32_t param = ofs_fsdp_new_find(f, t->target);

		if (param == OFS_NONE || f->m.param[param].flat != unit)
			continue;
		ofs_buf_printf(b, "%s[", sep);
		put_parts(b, below(t->name, prefix));
		ofs_buf_puts(b, ", ");
		put_parts(b, below(t->target, prefix));
		ofs_buf_putc(b, ']');
		sep = ", ";
	}
	ofs_buf_putc(b, ']');
}

static void put_pieces(struct ofs_buf *b, const struct ofs_flat *flat,
    bool mask)
{
	struct ofs_unit_pieces p = { .f = flat };
	const char *sep = "";
	uint64_t len;
	bool pad;

	while (ofs_unit_next(&p, &len, &pad)) {
		if (mask)
			ofs_buf_printf(b, "%s%s", sep, pad ? "true" : "false");
		else
			ofs_buf_printf(b, "%s%" PRIu64, sep, len);
		sep = ", ";
	}
}

static void put_unit(const struct ofs_fsdp_files *f, uint32_t unit,
    struct ofs_buf *b)
{
	const struct ofs_unit *u = &f->units.unit[unit];
	const struct ofs_fsdp_new_unit *n = &f->unit[unit];

	ofs_buf_puts(b, "  {\"prefix\": ");
	ofs_json_quote(b, u->prefix.p, u->prefix.len);
	ofs_buf_puts(b, ",\n   \"fqns\": [");
	for (uint32_t i = 0; i < n->nparams; i++) {
		struct ofs_str name = below(u->param[i].fqn, u->prefix);

		ofs_buf_puts(b, i > 0 ? ", " : "");
		ofs_json_quote(b, name.p, name.len);
	}
	ofs_buf_puts(b, "],\n   \"shapes\": [");
	for (uint32_t i = 0; i < n->nparams; i++) {
		ofs_buf_puts(b, i > 0 ? ", [" : "[");
		ofs_buf_numbers(b, u->param[i].shape, u->param[i].ndim, ", ");
		ofs_buf_putc(b, ']');
	}
	ofs_buf_puts(b, "],\n   \"numels_with_padding\": [");
	put_pieces(b, &n->flat, false);
	ofs_buf_puts(b, "],\n   \"is_padding_mask\": [");
	put_pieces(b, &n->flat, true);
	ofs_buf_printf(b,
	    "],\n   \"unpadded_unsharded_size\": [%" PRIu64
	    "], \"sharded_size\": [%" PRIu64 "],\n   \"use_orig_params\": %s, "
	    "\"world_size\": %" PRIu32
	    ", \"strategy\": \"ShardingStrategy.%s\"",
	    n->flat.size, n->flat.shard, f->orig ? "true" : "false",
	    f->whole ? f->world : f->m.to.shards,
	    f->whole                   ? "NO_SHARD"
		: f->m.to.replicas > 1 ? "HYBRID_SHARD"
				       : "FULL_SHARD");
	if (n->dtype != OFS_DTYPE_NONE)
		ofs_buf_printf(b, ", \"dtype\": \"torch.%s\"",
		    ofs_dtype_name(n->dtype));
	put_ties(f, unit, b);
	ofs_buf_putc(b, '}');
}

/* Writes the names of a group in the order of IDs. Names of one flat parameter
 * are consecutive. */
static void put_group(const struct ofs_fsdp_files *f,
    const struct ofs_optim_group *g, struct ofs_buf *b)
{
	const char *sep = "";

	for (uint32_t i = g->first; i < g->first + g->n; i++) {
		uint32_t first, n = 1;

		if (f->id[i] < 0)
			continue;
		first = f->by_id[f->id[i]];
		if (!f->orig) {
			n = f->unit[first].nparams;
			first = f->unit[first].param;
		}
		for (uint32_t k = first; k < first + n; k++) {
			ofs_buf_puts(b, sep);
			ofs_json_quote(b, f->m.param[k].fqn.p,
			    f->m.param[k].fqn.len);
			sep = ", ";
		}
	}
}

int ofs_fsdp_new_units(struct ofs_fsdp_files *f, struct optimfs_error *err)
{
	struct ofs_buf *b = &f->text;

	ofs_buf_puts(b, "{\"units\": [");
	for (uint32_t i = 0; i < f->units.n; i++) {
		ofs_buf_puts(b, i > 0 ? ",\n" : "\n");
		put_unit(f, i, b);
	}
	ofs_buf_putc(b, ']');
	if (f->m.has_optim)
		ofs_buf_puts(b, ",\n \"param_groups\": [");
	for (uint32_t i = 0; f->m.has_optim && i < f->m.groups.n; i++) {
		ofs_buf_puts(b, i > 0 ? ",\n  [" : "\n  [");
		put_group(f, &f->m.groups.v[i], b);
		ofs_buf_putc(b, ']');
	}
	ofs_buf_puts(b, f->m.has_optim ? "]}\n" : "}\n");
	return b->bad ? ofs_no_memory(err) : 0;
}
