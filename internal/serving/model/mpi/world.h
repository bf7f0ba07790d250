#ifndef WORLD_H
#define WORLD_H

/* What ends a wait. */
enum { DONE, LATE, FAILED };

int world_start(int *rank, int *size);
void world_host(char name[256]);
void world_end(void);
void world_abort(int status);

/* world_reduce replaces the n values of x by the sums over all processes; other has room for as many. */
int world_reduce(float *x, float *other, int n, double limit);

/* world_send sends n bytes to a process. */
int world_send(const void *data, int n, int to, double limit);

/* world_next waits for a message from a process and returns its size. */
int world_next(int from, int *n, double limit);

/* world_receive receives n bytes. */
int world_receive(void *data, int n, int from, double limit);

/* world_silent tells the others that this process is there, and returns those, as bits, that do not say so. */
unsigned world_silent(double patience);

#endif
