"""Small programs that run on machines of the lab, apart from the product: what they find, they find by themselves."""

MPI_PROGRAM = r"""
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static void finished(int number) { _exit(number == SIGALRM ? 0 : 1); }
int main(int argc, char **argv) {
    int rank, size, length, bytes = 1000000;
    char name[MPI_MAX_PROCESSOR_NAME], *buffer = calloc(1, bytes);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < 5; i++) {
        if (rank == 0) MPI_Send(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        if (rank == 1) MPI_Recv(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Get_processor_name(name, &length);
    printf("rank %d of %d on %s\n", rank, size, name);
    fflush(stdout);
    signal(SIGALRM, finished);
    alarm(8); /* MPICH 4.0 over UCX hangs in MPI_Finalize now and then, long after the bytes were moved */
    MPI_Finalize();
    return 0;
}
"""
MPI_BYTES = 5_000_000
MPI_ENVIRONMENT = "OMPI_MCA_btl=tcp,self OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_mpi_yield_when_idle=1 UCX_NET_DEVICES=eth0"

ECHO_SERVER = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("0.0.0.0", 20001))
print("ready", flush=True)
while True:
    data, sender = server.recvfrom(2000)
    server.sendto(data, sender)
    if data == b"end":
        break
"""
ECHO_CLIENT = """
import socket, sys, time
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.connect((sys.argv[1], 20001))
client.settimeout(0.5)
for _ in range(int(sys.argv[2])):
    before_ns = time.perf_counter_ns()
    client.send(b"?")
    try:
        client.recv(100)
        print(time.perf_counter_ns() - before_ns)
    except TimeoutError:
        print("lost")
client.send(b"end")
"""
SINK = """
import socket, time
server = socket.create_server(("0.0.0.0", 20002))
print("ready", flush=True)
client, _ = server.accept()
byte_count, first_s = 0, None
while data := client.recv(1 << 18):
    first_s = first_s or time.monotonic()
    byte_count += len(data)
print(byte_count * 8 / (time.monotonic() - first_s))
"""
SOURCE = """
import socket, sys, time
client = socket.create_connection((sys.argv[1], 20002))
end_s = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end_s:
    client.sendall(bytes(65536))
"""
FLOOD = """
import socket, sys, time
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in range(int(sys.argv[2])):
    client.sendto(bytes(100), (sys.argv[1], 20009))
    if number % 20 == 0:
        time.sleep(0.001)
"""
