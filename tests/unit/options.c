/* options.c - parsing of \"-o name=value,...\" and of command lines */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "cli/options.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cli/args.h"
#include "cli/job.h"
#include "cli/tools.h"
#include "tap.h"

struct target {
	struct optimfs_options open;
	struct ofs_job_options job;
	bool flag;
	const char *text;
	uint64_t size;
	unsigned count, time;
	int choice;
};

static const char *const choices[] = { "red", "green", NULL };
#define AT(member) offsetof(struct target, member)
static const struct ofs_option table[] = {
	OFS_OPEN_OPTIONS(AT(open)),
	OFS_JOB_OPTIONS(AT(job)),
	OFS_OPTION_ROW("flag", OFS_OPTION_FLAG, AT(flag)),
	OFS_OPTION_ROW("text", OFS_OPTION_STRING, AT(text)),
	OFS_OPTION_ROW("size", OFS_OPTION_SIZE, AT(size)),
	{ .name = "count",
	    .kind = OFS_OPTION_COUNT,
	    .offset = AT(count),
	    .min = 1,
	    .max = 9 },
	OFS_OPTION_ROW("time", OFS_OPTION_TIME, AT(time)),
	{ .name = "choice",
	    .kind = OFS_OPTION_CHOICE,
	    .offset = AT(choice),
	    .choices = choices },
	{ .name = NULL },
};

static struct target got;
static struct optimfs_error err;

static int parse(const char *list)
{
	static struct ofs_options o;

	ofs_options_fini(&o);
	got = (struct target){ .flag = false };
	o = (struct ofs_options){
		.table = table, .target = &got, .ignored = "x-\0nodev\0"
	};
	return ofs_options_parse(&o, list, &err);
}

static void test_values(void)
{
	is_int(parse(""), 0, "an empty list is accepted");
	is_int(parse("flag,,size=3,"), 0, "empty words in a list are skipped");
	ok(got.flag && got.size == 3,
	    "words beside empty ones have their values");
	is_int(parse("flag,noflag"), 0, "noflag after flag is accepted");
	ok(!got.flag, "noflag after flag turns it off");
	is_int(parse("no_flag"), 0, "no_flag is accepted");
	is_int(parse("text=a\\,b\\\\c\\d=e,choice=green"), 0,
	    "escaped characters are accepted");
	is_str(got.text, "a,b\\c\\d=e",
	    "\\, and \\\\ are unescaped, other text is kept");
	is_int(got.choice, 1, "a choice becomes its index");
	is_int(parse("text="), 0, "an empty value is accepted");
	is_str(got.text, "", "text= gives an empty string");
	is_int(parse("x-anything=1,nodev,nodev=3,count=9,time=2m"), 0,
	    "ignored words and numbers are accepted");
	ok(got.count == 9 && got.time == 120,
	    "count=9 and time=2m have their values");
	is_int(parse("type=dcp,strict,cache=2g"), 0,
	    "options of every verb are accepted");
	ok(got.open.strict && got.open.cache == UINT64_C(2) << 30 &&
		strcmp(got.open.type, "dcp") == 0,
	    "options of every verb have their values");
	ok(got.job.transport == OFS_TRANSPORT_AUTO &&
		got.job.gather == OPTIMFS_GATHER_MPI && got.job.gpu_cache == 0,
	    "by default ranks gather over MPI, without a GPU cache");
	is_int(parse("transport=mpi,gather=nccl,gpu_cache=64m"), 0,
	    "options of ranks are accepted");
	ok(got.job.transport == OFS_TRANSPORT_MPI &&
		got.job.gather == OPTIMFS_GATHER_NCCL &&
		got.job.gpu_cache == 64 << 20,
	    "options of ranks have their values");
	is_int(parse("gather=auto"), 0, "gather=auto is accepted");
	is_int(got.job.gather, OPTIMFS_GATHER_AUTO,
	    "gather=auto has its value");
}

static void test_sizes(void)
{
	static const struct {
		const char *list;
		uint64_t size;
	} good[] = {
		{ "size=0", 0 },
		{ "size=4096", 4096 },
		{ "size=1k", 1024 },
		{ "size=1K", 1024 },
		{ "size=3MiB", 3 << 20 },
		{ "size=1GB", 1 << 30 },
		{ "size=2t", UINT64_C(2) << 40 },
		{ "size=18446744073709551615", UINT64_MAX },
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		is_int(parse(good[i].list), 0, "%s is accepted", good[i].list);
		is_u64(got.size, good[i].size, "%s has its value",
		    good[i].list);
	}
}

static void test_mistakes(void)
{
	static const struct {
		const char *list, *says;
	} bad[] = {
		{ "flg", "did you mean 'flag'?" },
		{ "cahce=1g", "did you mean 'cache'?" },
		{ "CACHE=1g", "did you mean 'cache'?" },
		{ "xylophone", "unknown option 'xylophone'" },
		{ "flag=1", "takes no value" },
		{ "text", "needs a value" },
		{ "size", "needs a value" },
		{ "size=", "not a size" },
		{ "size=-1", "not a size" },
		{ "size= 1", "not a size" },
		{ "size=1x", "not a size" },
		{ "size=1kk", "not a size" },
		{ "size=18446744073709551616", "not a size" },
		{ "size=17179869184g", "not a size" },
		{ "count=0", "must be 1 or more" },
		{ "count=10", "must be 9 or less" },
		{ "count=1k", "not a number" },
		{ "time=1d", "not a time" },
		{ "time=4294967296", "not a time" },
		{ "choice=blue", "must be one of red, green" },
		{ "gather=gpu", "must be one of mpi, auto, nccl" },
		{ "gather", "must be one of mpi, auto, nccl" },
		{ "gpu_cache=much", "not a size" },
		{ "gpu_cache", "needs a value" },
		{ "gpucache=1g", "did you mean 'gpu_cache'?" },
		{ "nochoice=red", "unknown option 'nochoice'" },
		{ "=", "unknown option ''" },
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		is_int(parse(bad[i].list), -1, "%s is refused", bad[i].list);
		is_error(err, EINVAL, bad[i].says, "%s: error text",
		    bad[i].list);
	}
}

/* The parsed command line as text: flags by letter, operands in brackets. */
static const char *walk(int argc, const char **argv)
{
	static const struct ofs_flag flags[] = {
		{ 'a', "all", false },
		{ 'v', "value", true },
		{ 0, NULL, false },
	};
	static const struct ofs_verb verb = {
		.name = "x", .synopsis = "", .summary = ""
	};
	static struct ofs_options o;
	static char text[256];
	struct ofs_args a;
	const char *value;
	int id, status;

	ofs_options_fini(&o);
	got = (struct target){ .flag = false };
	o = (struct ofs_options){ .table = table, .target = &got };
	text[0] = '\0';
	ofs_args_init(&a, &verb, argc, (char **)argv, flags, &o);
	while ((id = ofs_args_next(&a, &value, &status)) != OFS_ARGS_END) {
		char *end = text + strlen(text);
		size_t room = sizeof(text) - strlen(text);

		if (id == OFS_ARGS_STOP)
			return status == OFS_EXIT_USAGE ? "usage" : "help";
		if (id == OFS_ARGS_OPERAND)
			snprintf(end, room, "[%s]", value);
		else
			snprintf(end, room, "%c%s", id,
			    value != NULL ? value : "");
	}
	return text;
}
#define WALK(...)                                                           \
 walk((int)(sizeof((const char *[]){ "x", __VA_ARGS__ }) / sizeof(char *)), \
     (const char *[]){ "x", __VA_ARGS__, NULL })

static void test_walk(void)
{
	is_str(WALK("one", "-a", "two"), "[one]a[two]",
	    "flags and operands may be in any order");
	is_str(WALK("-av1", "-v", "2"), "av1v2",
	    "short flags may be joined, with the value");
	is_str(WALK("--value=1", "--value", "2", "--all"), "v1v2a",
	    "long flags, with = or a separate value");
	is_str(WALK("--value="), "v", "--value= gives an empty value");
	is_str(WALK("-a", "--", "-a", "--all"), "a[-a][--all]",
	    "everything after -- is an operand");
	is_str(WALK("-"), "[-]", "\"-\" is an operand");
	is_str(WALK(""), "[]", "an empty argument is an operand");
	is_str(WALK("-o", "flag,size=1k", "x"), "[x]",
	    "-o takes its list of options");
	ok(got.flag && got.size == 1024, "options after -o have their values");
	is_str(WALK("-oflag", "--size", "2k", "--no-strict",
		   "--max-metadata=5"),
	    "", "options are accepted as long flags");
	ok(got.flag && got.size == 2048 && got.open.max_metadata == 5,
	    "options given as long flags have their values");
	is_str(WALK("--al"), "usage", "a long flag cannot be abbreviated");
	is_str(WALK("-z"), "usage", "an unknown short flag is a usage error");
	is_str(WALK("-v"), "usage",
	    "a short flag without its value is a usage error");
	is_str(WALK("--value"), "usage",
	    "a long flag without its value is a usage error");
	is_str(WALK("--all=1"), "usage",
	    "a value for a flag without one is a usage error");
	is_str(WALK("--size"), "usage",
	    "an option without its value is a usage error");
	is_str(WALK("-o"), "usage", "-o without a list is a usage error");
	is_str(WALK("-o", "bogus"), "usage",
	    "an unknown option after -o is a usage error");
	is_str(WALK("-a", "--help", "-z"), "help",
	    "--help before a mistake shows help");
}

int main(void)
{
	test_values();
	test_sizes();
	test_mistakes();
	test_walk();
	parse("");
	return done_testing();
}
