package guest_test

import (
	"strconv"
	"testing"
	"time"

	"llmmemory/internal/testkit/level"
)

// Ensure that engines read the right values back from the blocks in which the library lets them store values. Each
// request must read what it would read if it were the only request.
func TestEnginesReadWhatARequestAloneWouldHave(t *testing.T) {
	level.SkipNormal(t)
	t.Parallel()
	prog := shared.compileCache(t, "cache_engine")
	r := succeed(t, t.TempDir(), nil, prog, level.Pick("100000", "2000000"), "10000")
	t.Log(r.stdout)
	if level.Exhaustive() {
		r := succeed(t, t.TempDir(), nil, prog, "18000000", strconv.FormatInt(time.Now().Unix(), 10))
		t.Log(r.stdout)
		checkCache(t, shared, "cache_engine", "3000", "10000")
	}
}
