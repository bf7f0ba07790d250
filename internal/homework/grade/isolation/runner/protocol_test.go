package runner

import (
	"testing"
	"unsafe"

	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/testkit/level"
	"llmmemory/internal/testkit/source"
)

func TestTheRunnerHasTheSameProtocol(t *testing.T) {
	level.SkipQuick(t)
	source.RequireC(t, "../../../../../grader/process/runner.c", "../../../../..", map[string]int64{
		"sizeof(struct request)":           int64(unsafe.Sizeof(Request{})),
		"offsetof(struct request, call)":   int64(unsafe.Offsetof(Request{}.Call)),
		"offsetof(struct request, a)":      int64(unsafe.Offsetof(Request{}.A)),
		"offsetof(struct request, b)":      int64(unsafe.Offsetof(Request{}.B)),
		"offsetof(struct request, fail)":   int64(unsafe.Offsetof(Request{}.Fail)),
		"offsetof(struct request, engine)": int64(unsafe.Offsetof(Request{}.Engine)),
		"offsetof(struct request, size)":   int64(unsafe.Offsetof(Request{}.Size)),
		"sizeof(struct event)":             int64(unsafe.Sizeof(Event{})),
		"offsetof(struct event, what)":     int64(unsafe.Offsetof(Event{}.What)),
		"offsetof(struct event, at)":       int64(unsafe.Offsetof(Event{}.At)),
		"offsetof(struct event, size)":     int64(unsafe.Offsetof(Event{}.Size)),
		// As Process.Do and memory.Fault read them.
		"sizeof(struct reply)": replySize, "offsetof(struct reply, returned)": 0, "offsetof(struct reply, events)": 8,
		"sizeof(struct fault)": faultSize, "offsetof(struct fault, faults)": 0, "offsetof(struct fault, address)": 8, "offsetof(struct fault, events)": 16,

		"POOLS_SIZE": PoolsSize, "HEAP_SIZE": HeapSize, "MOST_EVENTS": maxEvents, "WATCHED": oracle.Slack,
		"INIT": int64(Init), "CREATE": int64(Create), "FORK": int64(Fork), "APPEND": int64(Append), "FREE": int64(Free),
		"DESTROY": int64(Destroy), "FORKS": int64(Forks), "CREATES": int64(Creates), "APPENDS": int64(Appends), "FREES": int64(Frees),
		"OPEN": int64(Open), "ALLOCATE": int64(Allocate), "GIVE_BACK": int64(GiveBack), "ALIAS": int64(alias), "MOST_REPORTED": maxReported, "ATTACK_CALL": attackCall,
		"READ_ONLY": int64(ReadOnly),
		"MALLOC":    int64(Malloc), "CALLOC": int64(Calloc), "REALLOC": int64(Realloc), "RELEASE": int64(Release),
		"REFUSED": int64(Refused), "BAD_RELEASE": int64(BadRelease),
	})
}
