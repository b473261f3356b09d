/* renames.c - names that are moved, removed and copied, in every format */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "support/edited.h"
#include "support/listing.h"
#include "support/truth.h"
#include "tap.h"

/* Each action on one thing of each kind of checkpoint. What is committed must
 * be what the mount showed before; what is refused must change nothing. */

#define PATH  400
#define UNITS "pytorch/fsdp1_local_flat_fullshard_w3/units.json"

/* One of each kind; "": there is none. */
struct things {
	char states[PATH];          /* optim/state, where it is */
	char dir[PATH], dir2[PATH]; /* of the states of two parameters */
	char state[PATH];           /* in dir */
	char model[PATH], group[PATH], option[PATH];
	char extra[PATH], extra_dir[PATH];
};

static void put(char out[PATH], const char *path, const char *end)
{
	if (out[0] == '\0')
		snprintf(out, PATH, "%.*s", (int)(end - path), path);
}

static void find_in_optim(struct things *t, const char *path)
{
	const char *end = path + strlen(path), *last = strrchr(path, '/');
	const char *state = strstr(path, "/state/"), *dir;

	if (state == NULL) {
		if (strcmp(last, "/lr") == 0) {
			put(t->option, path, end);
			put(t->group, path, last);
		}
		return;
	}
	dir = strchr(state + 7, '/');
	if (dir == NULL)
		return;
	put(t->states, path, state + 6);
	if (strcmp(last, "/step") != 0) {
		put(t->state, path, end);
		put(t->dir, path, dir);
	}
	if (strncmp(path, t->dir, strlen(t->dir)) != 0 &&
	    strncmp(path, t->states, strlen(t->states)) == 0)
		put(t->dir2, path, dir);
}

static void find_things(struct things *t, struct optimfs *fs)
{
	struct listing l;

	memset(t, 0, sizeof(*t));
	listing_read(&l, fs, "");
	for (size_t i = 0; i < l.n; i++) {
		const char *path = l.v[i].path, *end = path + strlen(path);

		if (strncmp(path, "optim/", 6) == 0)
			find_in_optim(t, path);
		else if (strncmp(path, "model/", 6) == 0)
			put(t->model, path, end);
		else if (strncmp(path, "extra/", 6) == 0) {
			put(t->extra, path, end);
			if (strchr(path + 6, '/') != NULL)
				put(t->extra_dir, path, strchr(path + 6, '/'));
		}
	}
	listing_fini(&l);
}

/* The directory and the name of path. */
static uint64_t split(struct optimfs *fs, const char *path, const char **name)
{
	char dir[PATH];
	const char *last = strrchr(path, '/');

	snprintf(dir, PATH, "%.*s", (int)(last - path), path);
	*name = last + 1;
	return listing_node(fs, dir);
}

static int move(struct optimfs *fs, const char *from, const char *to,
    struct optimfs_error *err)
{
	const char *name, *newname;
	uint64_t dir = split(fs, from, &name), newdir = split(fs, to, &newname);

	return optimfs_rename(fs, dir, name, newdir, newname, true, err);
}

static int remove_one(struct optimfs *fs, const char *path, bool is_dir,
    struct optimfs_error *err)
{
	const char *name;
	uint64_t dir = split(fs, path, &name);

	return optimfs_remove(fs, dir, name, is_dir, err);
}

struct names {
	struct {
		char path[PATH];
		bool is_dir;
	} * v;
	size_t n;
	const char *dir;
};

static int add_name(void *ctx, const struct optimfs_dirent *e)
{
	struct names *names = ctx;

	names->v = reallocarray(names->v, names->n + 1, sizeof(*names->v));
	snprintf(names->v[names->n].path, PATH, "%s/%s", names->dir, e->name);
	names->v[names->n++].is_dir = S_ISDIR(e->mode);
	return 0;
}

static struct names names_in(struct optimfs *fs, const char *dir)
{
	struct names names = { .dir = dir };

	if (optimfs_readdir(fs, listing_node(fs, dir), 0, false, add_name,
		&names, NULL) == -1)
		bail_out("%s cannot be listed", dir);
	return names;
}

/* rm -r */
static int remove_all(struct optimfs *fs, const char *dir,
    struct optimfs_error *err)
{
	struct names names = names_in(fs, dir);
	int ret = 0;

	for (size_t i = 0; i < names.n && ret == 0; i++)
		ret = names.v[i].is_dir
		    ? remove_all(fs, names.v[i].path, err)
		    : remove_one(fs, names.v[i].path, false, err);
	free(names.v);
	return ret == 0 ? remove_one(fs, dir, true, err) : ret;
}

static int copy_attr(struct optimfs *fs, uint64_t from, uint64_t to,
    const char *name, struct optimfs_error *err)
{
	char *value;
	size_t len;
	int ret;

	if (optimfs_getxattr(fs, from, name, &value, &len, NULL) == -1)
		return 0;
	ret = optimfs_setxattr(fs, to, name, value, len, err);
	free(value);
	return ret;
}

/* cp -a */
static int copy_one(struct optimfs *fs, const char *from, const char *to,
    struct optimfs_error *err)
{
	const char *name;
	uint64_t dir = split(fs, to, &name), node = listing_node(fs, from);
	struct optimfs_file *f;
	struct optimfs_attr made;
	size_t len;
	uint8_t *bytes = listing_content(fs, node, &len);
	int ret = -1;

	if (bytes != NULL &&
	    optimfs_create(fs, dir, name, false, &made, err) == 0 &&
	    copy_attr(fs, node, made.node, "user.optimfs.dtype", err) == 0 &&
	    copy_attr(fs, node, made.node, "user.optimfs.shape", err) == 0 &&
	    optimfs_file_open_write(fs, made.node, true, &f, err) == 0) {
		ret = optimfs_file_write(f, bytes, len, 0, err) == -1
		    ? -1
		    : optimfs_file_flush(f, err);
		optimfs_file_close(f);
	}
	free(bytes);
	return ret;
}

/* cp -a of a directory */
static int copy_all(struct optimfs *fs, const char *from, const char *to,
    struct optimfs_error *err)
{
	const char *name;
	uint64_t dir = split(fs, to, &name);
	struct optimfs_attr made;
	struct names names;
	int ret = optimfs_create(fs, dir, name, true, &made, err);

	if (ret == -1)
		return -1;
	names = names_in(fs, from);
	for (size_t i = 0; i < names.n && ret == 0; i++) {
		char path[PATH];

		snprintf(path, PATH, "%.150s/%.100s", to,
		    strrchr(names.v[i].path, '/') + 1);
		ret = names.v[i].is_dir
		    ? copy_all(fs, names.v[i].path, path, err)
		    : copy_one(fs, names.v[i].path, path, err);
	}
	free(names.v);
	return ret;
}

/* path with another last component: a free name of its kind. */
static const char *other(const char *path, const char *name)
{
	static char out[4][PATH];
	static unsigned next;
	const char *last = strrchr(path, '/');
	char *to = out[next++ % 4];

	if (strspn(last + 1, "0123456789") == strlen(last + 1))
		name = name[0] == 'n' ? "97" : "98";
	snprintf(to, PATH, "%.*s/%s", (int)(last - path), path, name);
	return to;
}

#define MISSING 1 /* the checkpoint has nothing of this kind */

typedef int action_fn(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err);

static int move_to(struct optimfs *fs, const char *path, const char *name,
    struct optimfs_error *err)
{
	return path[0] == '\0' ? MISSING
			       : move(fs, path, other(path, name), err);
}

static int move_state(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return move_to(fs, t->state, "new", err);
}

/* The same state of all parameters. */
static int each_state(struct optimfs *fs, const struct things *t,
    bool is_removed, struct optimfs_error *err)
{
	struct listing l;
	int ret = t->state[0] == '\0' ? MISSING : 0;

	if (ret == MISSING)
		return ret;
	listing_read(&l, fs, t->states);
	for (size_t i = 0; i < l.n && ret == 0; i++) {
		const char *path = l.v[i].path;

		if (strcmp(strrchr(path, '/'), strrchr(t->state, '/')) != 0)
			continue;
		ret = is_removed ? remove_one(fs, path, false, err)
				 : move_to(fs, path, "new", err);
	}
	listing_fini(&l);
	return ret;
}

static int move_states(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return each_state(fs, t, false, err);
}

static int move_across(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	char to[PATH];

	if (t->dir2[0] == '\0')
		return MISSING;
	snprintf(to, PATH, "%.200s/new", t->dir2);
	return move(fs, t->state, to, err);
}

static int move_dir(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return move_to(fs, t->dir, "new.weight", err);
}

static int swap_dirs(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	if (t->dir2[0] == '\0')
		return MISSING;
	if (move(fs, t->dir, other(t->dir, "tmp"), err) == -1 ||
	    move(fs, t->dir2, t->dir, err) == -1)
		return -1;
	return move(fs, other(t->dir, "tmp"), t->dir2, err);
}

/* The state of one parameter becomes that of another. */
static int replace_dir(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	if (t->dir2[0] == '\0')
		return MISSING;
	if (remove_all(fs, t->dir2, err) == -1)
		return -1;
	return move(fs, t->dir, t->dir2, err);
}

/* A state of it is replaced by that of another parameter. */
static int copy_to_moved(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	const char *state = strrchr(t->state, '/');
	char from[PATH], to[PATH];
	int ret = t->dir2[0] == '\0' ? MISSING : move_dir(fs, t, err);

	if (ret != 0)
		return ret;
	snprintf(from, PATH, "%.200s%.100s", t->dir2, state);
	snprintf(to, PATH, "%.200s%.100s", other(t->dir, "new.weight"), state);
	ret = remove_one(fs, to, false, err);
	return ret == 0 ? copy_one(fs, from, to, err) : ret;
}

static int move_model(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return move_to(fs, t->model, "new.weight", err);
}

/* A parameter with its state. */
static int move_parameter(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	struct optimfs_attr attr;
	char path[PATH];

	if (t->dir[0] == '\0')
		return MISSING;
	snprintf(path, PATH, "model%.300s", strrchr(t->dir, '/'));
	if (optimfs_resolve(fs, path, &attr, NULL) == -1)
		return MISSING;
	return move_to(fs, path, "new.weight", err) == 0
	    ? move_to(fs, t->dir, "new.weight", err)
	    : -1;
}

static int move_group(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return move_to(fs, t->group, "new", err);
}

static int move_option(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return move_to(fs, t->option, "new", err);
}

static int move_extra(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return move_to(fs, t->extra, "new", err);
}

static int move_extra_dir(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return move_to(fs, t->extra_dir, "new", err);
}

static int rm(struct optimfs *fs, const char *path, bool is_dir,
    struct optimfs_error *err)
{
	if (path[0] == '\0')
		return MISSING;
	return is_dir ? remove_all(fs, path, err)
		      : remove_one(fs, path, false, err);
}

static int remove_state(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return rm(fs, t->state, false, err);
}

static int remove_dir(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return rm(fs, t->dir, true, err);
}

static int remove_states(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return each_state(fs, t, true, err);
}

static int remove_model(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return rm(fs, t->model, false, err);
}

static int remove_option(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return rm(fs, t->option, false, err);
}

static int remove_extra(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return rm(fs, t->extra, false, err);
}

static int remove_extra_dir(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return rm(fs, t->extra_dir, true, err);
}

static int cp(struct optimfs *fs, const char *path, const char *name,
    bool is_dir, struct optimfs_error *err)
{
	if (path[0] == '\0')
		return MISSING;
	return is_dir ? copy_all(fs, path, other(path, name), err)
		      : copy_one(fs, path, other(path, name), err);
}

static int copy_state(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return cp(fs, t->state, "new", false, err);
}

static int copy_dir(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return cp(fs, t->dir, "new.weight", true, err);
}

static int copy_model(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return cp(fs, t->model, "new.weight", false, err);
}

static int copy_option(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return cp(fs, t->option, "new", false, err);
}

static int copy_extra_dir(struct optimfs *fs, const struct things *t,
    struct optimfs_error *err)
{
	return cp(fs, t->extra_dir, "new", true, err);
}

static const struct {
	const char *what;
	action_fn *go;
	bool several; /* steps, of which the first ones may succeed */
} actions[] = {
	{ "mv of a state", move_state, false },
	{ "mv of a state of all parameters", move_states, true },
	{ "mv of a state to another parameter", move_across, false },
	{ "mv of the state of a parameter", move_dir, false },
	{ "mv that swaps the states of two parameters", swap_dirs, true },
	{ "mv onto the removed state of a parameter", replace_dir, true },
	{ "cp of a state to a parameter that was moved", copy_to_moved, true },
	{ "mv of a parameter of the model", move_model, false },
	{ "mv of a parameter and its state", move_parameter, true },
	{ "mv of a group", move_group, false },
	{ "mv of an option", move_option, false },
	{ "mv of an extra value", move_extra, false },
	{ "mv of a directory of extra", move_extra_dir, false },
	{ "rm of a state", remove_state, false },
	{ "rm -r of the state of a parameter", remove_dir, false },
	{ "rm of a state of all parameters", remove_states, false },
	{ "rm of a parameter of the model", remove_model, false },
	{ "rm of an option", remove_option, false },
	{ "rm of an extra value", remove_extra, false },
	{ "rm -r of a directory of extra", remove_extra_dir, false },
	{ "cp of a state", copy_state, false },
	{ "cp -r of the state of a parameter", copy_dir, false },
	{ "cp of a parameter of the model", copy_model, false },
	{ "cp of an option", copy_option, false },
	{ "cp -r of a directory of extra", copy_extra_dir, false },
};
#define NACTIONS (sizeof(actions) / sizeof(*actions))

/* What happens to each action, in their order: c it is committed, r it is
 * refused at once, x the commit refuses it, - there is nothing of this kind. Of
 * mv (the first 13) two are left to the commit: a universal checkpoint has a
 * state of all parameters of a group or of none, and a file with an optimizer
 * twice would have two different ones. */
static const struct {
	const char *name, *units, *results;
} cases[] = {
	{ "pytorch/dcp_fsdp2_w2/ckpt", NULL, "cccccccccrc--ccccc--cccc-" },
	{ "pytorch/dcp_fsdp2_flatosd_w4/ckpt", NULL,
	    "ccccccccccc--ccccc--cccc-" },
	{ "pytorch/torchtitan_like_w2/ckpt", NULL,
	    "ccccccccccccccccccccccccc" },
	{ "pytorch/dcp_by_id_w2/ckpt", NULL, "cccccccc-rc--ccccc--cccc-" },
	{ "pytorch/dcp_torch113/ckpt", NULL, "cccccccc-rcc-cccccc-cxcc-" },
	{ "pytorch/dcp_fsdp2_safetensors_w2/ckpt", NULL,
	    "rrrrrrrrrrc--ccccc--xxxc-" },
	{ "pytorch/dcp_names/ckpt", NULL, "cccccccccrc--ccccc--cccc-" },
	{ "pytorch/hf_storage_w2/ckpt", NULL, "-------r--------x-----x--" },
	{ "pytorch/torchsave_full/ckpt", NULL, "cccccccc-rccrccccccccxccx" },
	{ "pytorch/torchsave_full/ckpt/state.pt", NULL,
	    "cccccccc-rcccccccccccxccc" },
	{ "pytorch/torchsave_full/ckpt/state_legacy.pt", NULL,
	    "ccrcccxc-rccccccccccxxxcc" },
	{ "pytorch/rank_dtensor_fsdp2_tp_w4/ckpt", NULL,
	    "ccrcccxccrc--ccccc--xxxc-" },
	{ "pytorch/rank_dtensor_fsdp2_tp_w4/ckpt_raw", NULL,
	    "ccrcccxc-rc--ccccc--xxxc-" },
	{ "pytorch/fsdp1_sharded_flat_fullshard_w3/ckpt_rankfiles", NULL,
	    "ccrcccxccrc--ccccc--xxxc-" },
	{ "pytorch/fsdp1_sharded_flat_fullshard_w3/ckpt_full", NULL,
	    "xxxccxxccrccrxxxccccxxccx" },
	{ "pytorch/fsdp1_local_flat_fullshard_w3/ckpt", UNITS,
	    "rrrrrrrrrrc--xxxxc--xxxc-" },
	{ "pytorch/fsdp1_local_flat_fullshard_w3/ckpt_local_sd", UNITS,
	    "ccrrrrrrrrc--cccxc--xxxc-" },
	{ "extra/trainers/pl_full.ckpt", NULL, "cccccccc-rcccccccccccxccc" },
	{ "deepspeed/z2_ws2_bf16/ckpt", NULL, "rrrrrrrrrrcccxxxxcccxxxcc" },
	{ "deepspeed/z2_ws2_bf16/ckpt_universal", NULL,
	    "xcxrrrrrrrcccxxcxcccxxxcc" },
	{ "megatron/llama_dp2/fully_reshardable", NULL,
	    "rrrrrrrrrrrrrxxxxcccxxxxx" },
};

static void test_refused(const char *name, const char *what, struct optimfs *fs,
    const struct listing *before)
{
	struct listing now;

	listing_read(&now, fs, "");
	is_int(listing_differs(before, &now), 0,
	    "%s: %s that is refused changes nothing", name, what);
	listing_fini(&now);
}

static void test_committed(const char *name, const char *what, struct edited *e,
    const struct listing *staged)
{
	struct optimfs_error err = { 0 };
	struct optimfs *now = optimfs_open(e->path, &e->options, &err);
	struct listing after;

	if (now == NULL)
		bail_out("%s: %s: %s", name, what, err.text);
	listing_read(&after, now, "");
	is_int(listing_differs(staged, &after), 0,
	    "%s: %s is committed as the mount showed it", name, what);
	listing_fini(&after);
	optimfs_close(now);
	is_int(edited_fsck(e), 0, "%s: fsck finds nothing after %s", name,
	    what);
}

static char result_of(size_t i, size_t action)
{
	struct optimfs_options o = { 0 };
	const char *name = cases[i].name, *what = actions[action].what;
	struct optimfs_error err = { 0 };
	struct listing before, staged;
	struct optimfs *fs;
	struct things t;
	struct edited e;
	char result, units[300];
	int ret;

	if (cases[i].units != NULL) {
		snprintf(units, sizeof(units), "%s", data_path(cases[i].units));
		o.units = units;
	}
	edited_init(&e, name, &o);
	o.rw = o.explicit_commit = true;
	fs = optimfs_open(e.path, &o, &err);
	if (fs == NULL)
		bail_out("%s: %s", name, err.text);
	find_things(&t, fs);
	listing_read(&before, fs, "");
	ret = actions[action].go(fs, &t, &err);
	listing_read(&staged, fs, "");
	if (ret == MISSING) {
		result = '-';
	} else if (ret == -1) {
		result = 'r';
		if (!actions[action].several)
			test_refused(name, what, fs, &before);
	} else if (optimfs_commit(fs, NULL, NULL, &err) == 0) {
		result = 'c';
		test_committed(name, what, &e, &staged);
	} else {
		result = 'x';
		optimfs_abort(fs, NULL);
		is_int(edited_differs(&e, true), 0,
		    "%s: %s that the commit refuses changes nothing", name,
		    what);
	}
	if (result == 'r' || result == 'x')
		ok(strstr(err.text, "OFS8") != NULL,
		    "%s: %s is refused with its reason: %s", name, what,
		    err.text);
	listing_fini(&before);
	listing_fini(&staged);
	optimfs_close(fs);
	edited_fini(&e);
	return result;
}

/* The files of a mirror show what is staged, as after the commit. */
static void test_mirror(const char *name, const char *mirror, bool adds)
{
	struct optimfs_options rw = { .rw = true, .explicit_commit = true };
	struct listing staged, after, fresh;
	struct optimfs_error err = { 0 };
	struct optimfs *fs, *now;
	struct things t;
	struct edited e;

	edited_init(&e, name, NULL);
	fs = optimfs_open(e.path, &rw, &err);
	if (fs == NULL)
		bail_out("%s: %s", name, err.text);
	find_things(&t, fs);
	if ((adds && copy_model(fs, &t, &err) != 0) ||
	    move_state(fs, &t, &err) != 0 || remove_model(fs, &t, &err) != 0)
		bail_out("%s: %s", name, err.text);
	listing_read(&staged, fs, mirror);
	is_int(optimfs_commit(fs, NULL, NULL, &err), 0,
	    "%s: a rename and a removal are committed", name);
	listing_read(&after, fs, mirror);
	now = optimfs_open(e.path, NULL, &err);
	if (now == NULL)
		bail_out("%s: %s", name, err.text);
	listing_read(&fresh, now, mirror);
	ok(fresh.n > 0, "%s: %s has files", name, mirror);
	is_int(listing_differs(&staged, &fresh), 0,
	    "%s: %s shows what is staged", name, mirror);
	is_int(listing_differs(&after, &fresh), 0,
	    "%s: %s shows what was committed", name, mirror);
	listing_fini(&staged);
	listing_fini(&after);
	listing_fini(&fresh);
	optimfs_close(now);
	optimfs_close(fs);
	edited_fini(&e);
}

int main(void)
{
	test_mirror("pytorch/dcp_fsdp2_w2/ckpt", ".optimfs/npy", true);
	test_mirror("pytorch/dcp_fsdp2_w2/ckpt", ".optimfs/stat", true);
	test_mirror("pytorch/dcp_fsdp2_w2/ckpt", ".optimfs/rank/0", false);
	test_mirror("pytorch/dcp_dtypes/ckpt", ".optimfs/npy32", false);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++)
		for (size_t k = 0; k < NACTIONS; k++)
			is_int(result_of(i, k), cases[i].results[k],
			    "%s: %s has the expected result", cases[i].name,
			    actions[k].what);
	return done_testing();
}
