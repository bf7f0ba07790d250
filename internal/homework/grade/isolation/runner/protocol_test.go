package runner

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/ctree"
	"llmmemory/internal/testkit/level"
)

// The two processes share memory and structs, so that both sides must say the same.
func TestTheRunnerHasTheSameProtocol(t *testing.T) {
	level.SkipQuick(t)
	c, err := ctree.ParseHeader("../../../../../grader/process/runner.c", "../../../../..")
	require.NoError(t, err)

	for name, want := range map[string][]uintptr{
		"request": {unsafe.Sizeof(Request{}), unsafe.Offsetof(Request{}.Call), unsafe.Offsetof(Request{}.A), unsafe.Offsetof(Request{}.B),
			unsafe.Offsetof(Request{}.Fail), unsafe.Offsetof(Request{}.Engine), unsafe.Offsetof(Request{}.Size)},
		"event": {unsafe.Sizeof(Event{}), unsafe.Offsetof(Event{}.What), unsafe.Offsetof(Event{}.At), unsafe.Offsetof(Event{}.Size)},
		"reply": {replySize, 0, 8},     // as Process.Do reads it
		"fault": {faultSize, 0, 8, 16}, // as memory.Fault reads it
	} {
		s, err := c.Struct(name)
		require.NoError(t, err)
		got := []uintptr{uintptr(s.Size)}
		for _, f := range s.Fields {
			got = append(got, uintptr(f.Offset))
		}
		require.Equal(t, want, got, "struct %s", name)
	}
	for name, want := range map[string]int64{
		"POOLS_SIZE": PoolsSize, "HEAP_SIZE": HeapSize, "MOST_EVENTS": mostEvents, "WATCHED": oracle.Slack,
		"INIT": int64(Init), "CREATE": int64(Create), "FORK": int64(Fork), "APPEND": int64(Append), "FREE": int64(Free),
		"DESTROY": int64(Destroy), "FORKS": int64(Forks), "CREATES": int64(Creates), "APPENDS": int64(Appends), "FREES": int64(Frees),
		"OPEN": int64(Open), "ALLOCATE": int64(Allocate), "GIVE_BACK": int64(GiveBack), "ALIAS": int64(alias), "MOST_TOLD": mostTold, "ATTACK_CALL": attackCall,
		"READ_ONLY": int64(ReadOnly),
		"MALLOC":    int64(Malloc), "CALLOC": int64(Calloc), "REALLOC": int64(Realloc), "RELEASE": int64(Release),
		"REFUSED": int64(Refused), "BAD_RELEASE": int64(BadRelease),
	} {
		got, err := c.Constant(name)
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
}
