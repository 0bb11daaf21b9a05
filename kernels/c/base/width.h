/* How wide the interval is that holds the mean of values from intervals of time, at a level; as a share of the mean. */
#ifndef HPCQ_WIDTH_H
#define HPCQ_WIDTH_H

#include <stddef.h>

enum { WIDTH_VALUES_MIN = 10 }; /* fewer tell too little of their own scatter */

/* NAN with fewer values, or where their mean is not above 0. Values that follow each other may be alike: their
 * correlation makes the interval wider (batch means; t quantile after Wallace 1959). */
double width_ratio(const double *values, size_t count, double level);

#endif
