/* Unit tests of the kernels' C modules; `make -C kernels/c check` builds and runs them. */
#include "check.h"

int check_failures;

int main(void)
{
    check_crypto();
    check_json();
    check_numbers();
    check_options();
    check_messages();
    check_counters();
    check_decide();
    check_fuzz();
    check_capture();
    if (!check_failures)
        puts("all C unit tests passed");
    return check_failures != 0;
}
