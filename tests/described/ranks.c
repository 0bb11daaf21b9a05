/* A foreign MPI program for tests: two ranks, a table of sizes as the OSU benchmarks print one.
 *   ranks LARGEST */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    static char buffer[1 << 16];
    int rank, count, largest = argc > 1 ? atoi(argv[1]) : 4;
    char name[MPI_MAX_PROCESSOR_NAME] = "", other[MPI_MAX_PROCESSOR_NAME] = "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &count);
    if (count != 2)
        MPI_Abort(MPI_COMM_WORLD, 3);
    MPI_Get_processor_name(name, &(int){0});
    MPI_Sendrecv(name, sizeof name, MPI_CHAR, 1 - rank, 0, other, sizeof other, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    if (rank == 0)
        printf("\n# Two ranks on %s and %s\n# Size  Latency (us)\n", name, other);
    for (int size = 1; size <= largest && size <= (int)sizeof buffer; size *= 2) {
        double start = MPI_Wtime();
        for (int turn = 0; turn < 100; turn++) {
            if (rank == 0)
                MPI_Send(buffer, size, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(buffer, size, MPI_CHAR, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (rank == 1)
                MPI_Send(buffer, size, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
        }
        if (rank == 0)
            printf("%-8d%12.2f\n", size, (MPI_Wtime() - start) / 200 * 1e6);
    }
    MPI_Finalize();
    return 0;
}
