/* mpiping.c - the throughput of MPI between two ranks, as a line of JSON */
/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ping-pong of 1 MiB, from one buffer to another. */
enum { SIZE = 1 << 20, TURNS = 500 };

static void turn(int rank, void *from, void *to)
{
	if (rank == 0)
		MPI_Send(from, SIZE, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
	MPI_Recv(to, SIZE, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD,
	    MPI_STATUS_IGNORE);
	if (rank == 1)
		MPI_Send(from, SIZE, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
	char *from = malloc(SIZE), *to = malloc(SIZE);
	double began = 0;
	int rank, size;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	if (size != 2 || from == NULL || to == NULL)
		MPI_Abort(MPI_COMM_WORLD, 2);
	memset(from, 1, SIZE);
	memset(to, 2, SIZE);
	for (int i = 0; i < TURNS + 10; i++) {
		if (i == 10)
			began = MPI_Wtime();
		turn(rank, from, to);
	}
	if (rank == 0)
		printf("{\"s\":%.6f,\"bytes\":%.0f}\n", MPI_Wtime() - began,
		    2.0 * TURNS * SIZE);
	MPI_Finalize();
	free(from);
	free(to);
	return 0;
}
