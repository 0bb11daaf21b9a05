/* The programs file: which foreign programs a job may start. Written by hpcq for one job, read at each end, so that no
 * word of a command comes over the network. Text; one record a line, the rest of the line is its value:
 *
 *   programs 1
 *   program TEST_NO                    then, of this program:
 *   name NAME
 *   limit_s SECONDS                    the client, or the rank, is ended then
 *   ready words|listening|at_once      how its server shows that it is ready
 *   ready_words TEXT                   ... in its output
 *   ready_s SECONDS                    within this time
 *   server_ends yes|no                 ends by itself after one client
 *   exit_code N                        repeated: those that mean success; default 0
 *   failure_words TEXT                 repeated: failed when its output has them
 *   file NAME, then line TEXT ...      repeated: a file in the folder where it starts
 *   output_file PATTERN                what it writes there belongs to its output
 *   version|server|client WORD         repeated: the words of a command; {address}, {client_address}, {port} and
 *                                      {second_port} are filled in
 */
#ifndef HPCQ_PROGRAMS_H
#define HPCQ_PROGRAMS_H

#include "programs/child.h"

enum { PROGRAM_CODES_MAX = 16 };
enum ready { READY_AT_ONCE, READY_WORDS, READY_LISTENING };

struct foreign {
    unsigned long test_no;
    char name[64];
    double limit_s, ready_s;
    enum ready ready;
    char *ready_words;
    bool server_ends;
    int codes[PROGRAM_CODES_MAX];
    size_t code_count;
    struct words failure_words, version, server, client;
    struct words file_names, file_texts; /* as many of both */
    char *output_file;                   /* NULL: none */
    char *folder;                        /* with the files, made for this run; NULL: it starts where we are */
};

struct places {
    const char *address, *client_address; /* NULL: not filled in */
    unsigned port, second_port;
};

/* The program of a test. The failure names file and line. */
bool foreign_read(const char *path, unsigned long test_no, struct foreign *foreign, struct failure *failure);
/* Removes its folder, with all that the program left there. */
void foreign_free(struct foreign *foreign);
/* Makes the folder with its files, where it has some. */
bool foreign_folder(struct foreign *foreign, struct failure *failure);
/* Of a program that has ended: the files that it wrote, after what it said. */
void foreign_collect(const struct foreign *foreign, struct child *child);
bool words_mention(const struct words *words, const char *piece);
/* The words with what is known now in place of {address}, {client_address} and {port}. */
void foreign_fill(const struct words *words, const struct places *places, struct words *filled);
/* What its version command says, its first lines; empty without a command. A failure where it says nothing. */
bool foreign_version(const struct foreign *foreign, struct text *version, struct failure *failure);
/* Whether the program did what it was started for; the failure says why not, with its last words. */
bool foreign_succeeded(const struct foreign *foreign, const struct child *child, struct failure *failure);

#endif
