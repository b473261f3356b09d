/* terminal.h - does a person see what is written? */
/* SPDX-License-Identifier: Apache-2.0 */
#ifndef OFS_CLI_TERMINAL_H
#define OFS_CLI_TERMINAL_H

#include <stdbool.h>

/* Is the descriptor, STDOUT_FILENO or STDERR_FILENO, a terminal? Open MPI gives
 * ranks on its own machine a terminal that it made, and passes on what they write:
 * then, is that of mpirun one? */
bool ofs_is_terminal(int fd);

#endif
