/* The listening side: `hpcq-net server`. */
#ifndef HPCQ_SERVER_H
#define HPCQ_SERVER_H

#include "describe/program.h"
#include "wire/address.h"

int server_main(const struct program *program, int argc, char **argv); /* argv[1] is "server"; returns the exit code */
/* The line that says where something listens; named: the interface as the person named it, or NULL. */
bool server_print_ready(const char *named, const struct address *address, struct failure *failure);

#endif
