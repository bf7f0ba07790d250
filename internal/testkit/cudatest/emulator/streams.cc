// The driver's functions for streams, events and graphs.
#include "driver.h"
#include <sched.h>
#include <time.h>
#include <unistd.h>

bool capturing() {
  for (auto &[handle, s] : state.streams) {
    if (s->capture) return true;
  }
  return false;
}

int drain(Stream &s, uint64_t until) {
  while (!s.queue.empty() && s.executed < until) {
    Work work = std::move(s.queue.front());
    s.queue.pop_front();
    s.executed++; // before the work, which may wait for this stream
    int status = work();
    if (status) return state.broken = status;
  }
  return state.broken;
}

int drain_default() {
  for (; !state.under_way.empty(); state.under_way.pop_front()) state.under_way.front()();
  return state.broken;
}

int drain_all() {
  if (int status = drain_default()) return status;
  for (auto &[handle, s] : state.streams) {
    if (int status = drain(*s, ~0ull)) return status;
  }
  return state.broken;
}

// The default stream waits for the blocking ones, and is waited for.
int push(void *stream, Work work) {
  if (!stream) {
    if (int status = drain_default()) return status;
    for (auto &[handle, s] : state.streams) {
      if (int status = s->blocking ? drain(*s, ~0ull) : OK) return status;
    }
    int status = work();
    if (status) state.broken = status;
    return status;
  }
  auto s = state.streams.find(stream);
  if (s == state.streams.end()) return INVALID_HANDLE;
  if (s->second->blocking) drain_default();
  if (s->second->capture) {
    s->second->capture->work.push_back(work);
  } else {
    s->second->queue.push_back(work);
    s->second->appended++;
  }
  return OK;
}

template <class T> static void *keep(std::map<void *, std::shared_ptr<T>> &all, std::shared_ptr<T> made) {
  all[made.get()] = made;
  return made.get();
}
// FIND declares variable, or ends the function.
#define FIND(variable, all, handle)              \
  auto found_##variable = (all).find(handle);    \
  if (found_##variable == (all).end()) return INVALID_HANDLE; \
  auto variable = found_##variable->second

API cuStreamCreate(void **stream, unsigned flags) {
  BEGIN(context);
  auto s = std::make_shared<Stream>();
  s->blocking = !(flags & 1);
  *stream = keep(state.streams, s);
  return OK;
}
API cuStreamDestroy_v2(void *stream) {
  BEGIN(context);
  FIND(s, state.streams, stream);
  int status = drain(*s, ~0ull);
  state.streams.erase(stream);
  return status;
}
API cuStreamSynchronize(void *stream) {
  BEGIN(context);
  if (!stream) return push(nullptr, [] { return OK; });
  FIND(s, state.streams, stream);
  return s->capture ? CAPTURE_UNSUPPORTED : drain(*s, ~0ull);
}
API cuStreamWaitEvent(void *stream, void *event, unsigned) {
  BEGIN(context);
  FIND(s, state.streams, stream);
  FIND(e, state.events, event);
  if (e->capture) return s->capture = e->capture, OK;
  if (!e->stream) return OK;
  return push(stream, [on = e->stream, mark = e->mark] { return drain(*on, mark); });
}

static double now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1e3 + t.tv_nsec * 1e-6;
}

API cuEventCreate(void **event, unsigned flags) {
  BEGIN(context);
  if (flags > 3) return INVALID_VALUE;
  if (flags & 1) state.calls["cuEventCreate of a blocking event"]++;
  *event = keep(state.events, std::make_shared<Event>());
  return OK;
}
API cuEventDestroy_v2(void *event) {
  BEGIN(context);
  return state.events.erase(event) ? OK : INVALID_HANDLE;
}
API cuEventRecord(void *event, void *stream) {
  BEGIN(context);
  FIND(e, state.events, event);
  FIND(s, state.streams, stream);
  e->capture = s->capture;
  if (s->capture) return OK;
  int status = push(stream, [e] { return e->time = now(), OK; });
  e->stream = s, e->mark = s->appended;
  return status;
}
API cuEventSynchronize(void *event) {
  BEGIN(context);
  while (state.config.hang) {
    bool ends = state.config.hang == 2;
    locked_.unlock();
    while (!ends) pause(); // also after cudatest_reset, which frees what this call would use
    sched_yield();
    locked_.lock();
  }
  FIND(e, state.events, event);
  return e->stream ? drain(*e->stream, e->mark) : OK;
}
API cuEventQuery(void *event) { // does one piece of work, so that a loop ends
  BEGIN(context);
  FIND(e, state.events, event);
  if (!e->stream || e->stream->executed >= e->mark) return OK;
  int status = drain(*e->stream, e->stream->executed + 1);
  return status ? status : int(NOT_READY);
}
API cuEventElapsedTime(float *ms, void *start, void *end) {
  BEGIN(context);
  FIND(a, state.events, start);
  FIND(b, state.events, end);
  if (!a->stream || !b->stream) return INVALID_HANDLE;
  if (a->stream->executed < a->mark || b->stream->executed < b->mark) return NOT_READY;
  *ms = float(b->time - a->time);
  return OK;
}

API cuStreamBeginCapture_v2(void *stream, int) {
  BEGIN(context);
  FIND(s, state.streams, stream);
  if (s->capture) return INVALID_VALUE;
  s->capture = std::make_shared<Graph>(), s->origin = true;
  return OK;
}
API cuStreamEndCapture(void *stream, void **graph) {
  BEGIN(context);
  FIND(s, state.streams, stream);
  if (!s->capture || !s->origin) return CAPTURE_UNMATCHED;
  auto made = s->capture;
  for (auto &[handle, other] : state.streams) {
    if (other->capture == made) other->capture = nullptr, other->origin = false;
  }
  *graph = keep(state.graphs, made);
  return OK;
}
API cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long) {
  BEGIN(context);
  FIND(g, state.graphs, graph);
  *executable = keep(state.executables, std::make_shared<Graph>(*g));
  return OK;
}
API cuGraphDestroy(void *graph) {
  BEGIN(context);
  return state.graphs.erase(graph) ? OK : INVALID_HANDLE;
}
API cuGraphExecDestroy(void *executable) {
  BEGIN(context);
  return state.executables.erase(executable) ? OK : INVALID_HANDLE;
}
API cuGraphLaunch(void *executable, void *stream) {
  BEGIN(context);
  FIND(g, state.executables, executable);
  return push(stream, [g] {
    for (auto &work : g->work) {
      if (int status = work()) return status;
    }
    return int(OK);
  });
}
