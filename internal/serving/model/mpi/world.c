//go:build mpi

#include "world.h"

#include <mpi.h>
#include <string.h>
#include <time.h>

enum { TAG_SUM = 1, TAG_DATA, TAG_HERE };

static int rank, size;

int world_start(int *r, int *n) {
  int provided;
  if (MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &provided) != MPI_SUCCESS || provided < MPI_THREAD_SERIALIZED)
    return FAILED;
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  *r = rank, *n = size;
  return DONE;
}

void world_host(char name[256]) {
  char full[MPI_MAX_PROCESSOR_NAME];
  int n;
  MPI_Get_processor_name(full, &n);
  strncpy(name, full, 255);
  name[255] = 0;
}

void world_end(void) { MPI_Finalize(); }

void world_abort(int status) { MPI_Abort(MPI_COMM_WORLD, status); }

/* A wait polls, because MPI has no limits of time. When it has polled for longer than a sum of a decoding step takes,
   it sleeps between polls: a process that waits does not take a processor from one that computes. */
typedef struct {
  double begin, limit, looked;
  int nap, polls, each;
} Wait;

static Wait begin_wait(double limit, int nap) {
  double now = MPI_Wtime();
  return (Wait){now, limit, now, nap, 0, 64};
}

/* go_on returns DONE if the wait goes on. It looks now and then whether another process asks who is there. */
static int go_on(Wait *w) {
  if (++w->polls % w->each) return DONE;
  double now = MPI_Wtime(), waited = now - w->begin;
  if (waited > w->limit) return LATE;
  if (now - w->looked > 0.01) {
    int asks;
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_HERE, MPI_COMM_WORLD, &asks, MPI_STATUS_IGNORE) != MPI_SUCCESS) return FAILED;
    if (asks) return LATE;
    w->looked = now;
  }
  if (waited > 0.0003) {
    struct timespec t = {0, w->nap && waited > 0.1 ? 500000 : 20000};
    w->each = 1;
    nanosleep(&t, NULL);
  }
  return DONE;
}

/* finish waits for one request or two. */
static int finish(MPI_Request *requests, int n, double limit) {
  Wait w = begin_wait(limit, 0);
  for (;;) {
    int done;
    MPI_Status statuses[2]; /* not MPI_STATUSES_IGNORE, of which gcc warns with MPICH's header */
    if (MPI_Testall(n, requests, &done, statuses) != MPI_SUCCESS) return FAILED;
    if (done) return DONE;
    int r = go_on(&w);
    if (r != DONE) return r;
  }
}

int world_reduce(float *x, float *buffer, int n, double limit) {
  for (int distance = 1; distance < size; distance *= 2) {
    int partner = rank ^ distance;
    MPI_Request both[2];
    if (MPI_Irecv(buffer, n, MPI_FLOAT, partner, TAG_SUM, MPI_COMM_WORLD, &both[0]) != MPI_SUCCESS ||
        MPI_Isend(x, n, MPI_FLOAT, partner, TAG_SUM, MPI_COMM_WORLD, &both[1]) != MPI_SUCCESS)
      return FAILED;
    int r = finish(both, 2, limit);
    if (r != DONE) return r;
    /* The sum of two numbers does not depend on their order. */
    for (int i = 0; i < n; i++) x[i] += buffer[i];
  }
  return DONE;
}

int world_send(const void *data, int n, int receiver, double limit) {
  MPI_Request one;
  if (MPI_Isend(data, n, MPI_BYTE, receiver, TAG_DATA, MPI_COMM_WORLD, &one) != MPI_SUCCESS) return FAILED;
  return finish(&one, 1, limit);
}

int world_next(int sender, int *n, double limit) {
  Wait w = begin_wait(limit, 1);
  for (;;) {
    int there;
    MPI_Status status;
    if (MPI_Iprobe(sender, TAG_DATA, MPI_COMM_WORLD, &there, &status) != MPI_SUCCESS) return FAILED;
    if (there) return MPI_Get_count(&status, MPI_BYTE, n) == MPI_SUCCESS ? DONE : FAILED;
    int r = go_on(&w);
    if (r != DONE) return r;
  }
}

int world_receive(void *data, int n, int sender, double limit) {
  MPI_Request one;
  if (MPI_Irecv(data, n, MPI_BYTE, sender, TAG_DATA, MPI_COMM_WORLD, &one) != MPI_SUCCESS) return FAILED;
  return finish(&one, 1, limit);
}

unsigned world_silent(double patience) {
  static char here;
  MPI_Request request;
  unsigned silent = 0;
  for (int i = 0; i < size; i++)
    if (i != rank) {
      silent |= 1u << i;
      if (MPI_Isend(&here, 0, MPI_BYTE, i, TAG_HERE, MPI_COMM_WORLD, &request) == MPI_SUCCESS)
        MPI_Request_free(&request);
    }
  double begin = MPI_Wtime();
  while (silent && MPI_Wtime() - begin < patience) {
    int there;
    MPI_Status status;
    if (MPI_Iprobe(MPI_ANY_SOURCE, TAG_HERE, MPI_COMM_WORLD, &there, &status) == MPI_SUCCESS && there) {
      MPI_Recv(&here, 0, MPI_BYTE, status.MPI_SOURCE, TAG_HERE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
      silent &= ~(1u << status.MPI_SOURCE);
      continue;
    }
    struct timespec t = {0, 1000000};
    nanosleep(&t, NULL);
  }
  return silent;
}
