#ifndef WORLD_H
#define WORLD_H

/* How a wait ends. */
enum { DONE, LATE, FAILED };

int world_start(int *rank, int *size);
void world_host(char name[256]);
void world_end(void);
void world_abort(int status);

/* world_reduce replaces the n values of x by the sums over all processes; buffer has room for n values. */
int world_reduce(float *x, float *buffer, int n, double limit);

/* world_send sends n bytes to a process. */
int world_send(const void *data, int n, int receiver, double limit);

/* world_next waits for a message from a process and returns its size. */
int world_next(int sender, int *n, double limit);

/* world_receive receives n bytes. */
int world_receive(void *data, int n, int sender, double limit);

/* world_silent tells the other processes that this process still runs. It returns the set of processes from which no
   such message arrives; bit r stands for rank r. */
unsigned world_silent(double patience);

#endif
