/* cmd_serve.c - optimfs serve: the tree over HTTP */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "serve/server.h"
#include "serve/server_files.h"
#include "tools/command.h"

/* May everyone on this machine read the checkpoint anyway? */
static bool is_public(struct optimfs *fs, const struct ofs_server_files *files)
{
	struct optimfs_attr attr;

	if (files != NULL && !ofs_server_files_public(files))
		return false;
	return fs == NULL ||
	    (optimfs_getattr(fs, OPTIMFS_ROOT, &attr, NULL) == 0 &&
		(attr.mode & S_IROTH) != 0);
}

/* Whoever can connect, can read. So there is a token, unless that is nobody who
 * could not read the files. */
static int need_token(struct ofs_command *c,
    const struct ofs_server_files *files, struct optimfs_error *err)
{
	struct ofs_listener *l = &c->listener;

	if (l->token[0] != '\0' || (l->loopback && is_public(c->fs, files)))
		return 0;
	if (ofs_listener_make_token(l, err) == -1)
		return -1;
	ofs_tool_say("clients give this token, as a password or as "
		     "\"Authorization: Bearer TOKEN\": %s",
	    l->token);
	return 0;
}

static int serve(struct ofs_command *c, const struct ofs_server_files *files,
    struct optimfs_error *err)
{
	struct ofs_server *h;
	sigset_t ends;
	int sig;

	/* before there are threads, which inherit it */
	sigemptyset(&ends);
	sigaddset(&ends, SIGINT);
	sigaddset(&ends, SIGTERM);
	sigprocmask(SIG_BLOCK, &ends, NULL);
	signal(SIGPIPE, SIG_IGN);
	if (need_token(c, files, err) == -1)
		return -1;
	h = ofs_server_start(c->fs, files, &c->listener, err);
	if (h == NULL)
		return -1;
	printf("%s\n", c->listener.url);
	fflush(stdout);
	sigwait(&ends, &sig);
	ofs_server_stop(h);
	return 0;
}

/* The files of a directory are served with its tree, or without one. */
static int with_files(struct ofs_command *c, struct optimfs_error *err)
{
	struct ofs_server_files *files = NULL;
	struct stat st = { .st_mode = 0 };
	int ret;

	if (stat(c->checkpoint, &st) == 0 && S_ISDIR(st.st_mode))
		files = ofs_server_files_open(c->checkpoint, err);
	if (files == NULL && c->fs == NULL)
		return -1;
	if (files == NULL && S_ISDIR(st.st_mode))
		ofs_tool_say("its files are not served: %s", err->text);
	ret = serve(c, files, err);
	ofs_server_files_close(files);
	return ret;
}

static int run_serve(const struct ofs_verb *verb, int argc, char **argv)
{
	struct optimfs_error err;
	struct ofs_command c;
	int status;

	if (ofs_command_init(&c, verb, argc, argv, OFS_RUNS | OFS_SERVE, 0, 0,
		&status) == -1)
		return status;
	status = with_files(&c, &err) == -1 ? ofs_tool_fail(&err) : OFS_EXIT_OK;
	ofs_command_fini(&c);
	return ofs_tool_finish(status);
}

const struct ofs_verb ofs_verb_serve = {
	.name = "serve",
	.from = true,
	.synopsis =
	    "[--listen ADDR] [--token-file FILE] [-o OPTION] CHECKPOINT",
	.summary = "the tree over HTTP, until Ctrl-C",
	.options =
	    "  --listen ADDR      ADDRESS:PORT or PORT; 127.0.0.1:8080\n"
	    "  --token-file FILE  clients have to give what its first line has\n",
	.run = run_serve,
};
