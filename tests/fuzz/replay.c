/* replay.c - runs a fuzz target on stored inputs, without libFuzzer */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tap.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);

/* Inputs are small; the limit catches a wrong argument. */
#define INPUT_MAX ((size_t)64 << 20)

/* In a block of the exact size, so that sanitizers see a read past its end. */
static uint8_t *read_file(const char *path, size_t *n)
{
	FILE *f = fopen(path, "rb");
	uint8_t *bytes = NULL;
	struct stat st;

	if (f == NULL || fstat(fileno(f), &st) == -1)
		bail_out("%s: %s", path, strerror(errno));
	*n = (size_t)st.st_size;
	if (*n > INPUT_MAX)
		bail_out("%s: %zu bytes", path, *n);
	bytes = malloc(*n == 0 ? 1 : *n);
	if (bytes == NULL || fread(bytes, 1, *n, f) != *n)
		bail_out("%s: cannot be read", path);
	fclose(f);
	return bytes;
}

static void run_file(const char *path)
{
	size_t n;
	uint8_t *bytes = read_file(path, &n);

	/* A failing target does not return. */
	diag("%s", path);
	ok(LLVMFuzzerTestOneInput(bytes, n) == 0,
	    "the target takes an input of %zu bytes", n);
	free(bytes);
}

static void run_path(const char *path)
{
	struct dirent **entry;
	struct stat st;
	char below[4096];
	int n;

	if (stat(path, &st) == -1)
		bail_out("%s: %s", path, strerror(errno));
	if (!S_ISDIR(st.st_mode)) {
		run_file(path);
		return;
	}
	n = scandir(path, &entry, NULL, alphasort);
	if (n == -1)
		bail_out("%s: %s", path, strerror(errno));
	for (int i = 0; i < n; i++) {
		if (entry[i]->d_name[0] != '.') {
			snprintf(below, sizeof(below), "%s/%s", path,
			    entry[i]->d_name);
			run_file(below);
		}
		free(entry[i]);
	}
	free(entry);
}

/* Runs the target on the files of tests/data that tests/fuzz/seeds prints. */
static void run_seeds(const char *top, const char *name)
{
	char command[4096], path[4096];
	FILE *list;

	snprintf(command, sizeof(command), "'%s/tests/fuzz/seeds' '%s'", top,
	    name);
	list = popen(command, "re");
	if (list == NULL)
		bail_out("%s: %s", command, strerror(errno));
	while (fgets(path, sizeof(path), list) != NULL) {
		path[strcspn(path, "\n")] = '\0';
		run_file(path);
	}
	if (pclose(list) != 0)
		bail_out("%s failed", command);
}

/* Without arguments, fuzz_NAME.t takes its inputs from corpus/NAME and from
 * tests/data. */
static void run_corpus(void)
{
	const char *top = getenv("TOP_SRCDIR");
	const char *at = strstr(program_invocation_short_name, "fuzz_");
	char name[64], path[4096];

	if (at == NULL)
		bail_out("usage: %s FILE|DIRECTORY...",
		    program_invocation_short_name);
	if (top == NULL)
		top = ".";
	at += strlen("fuzz_");
	snprintf(name, sizeof(name), "%.*s", (int)strcspn(at, "."), at);
	snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/%s", top, name);
	run_path(path);
	run_seeds(top, name);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		run_path(argv[i]);
	if (argc < 2)
		run_corpus();
	return done_testing();
}
