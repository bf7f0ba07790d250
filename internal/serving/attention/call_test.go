package attention

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestTheAssemblyKnowsTheFieldsOfACall(t *testing.T) {
	var c call
	want := map[string]uintptr{
		"atIn": unsafe.Offsetof(c.in), "atInStride": unsafe.Offsetof(c.inStride), "atData": unsafe.Offsetof(c.data),
		"atOut": unsafe.Offsetof(c.out), "atOutStride": unsafe.Offsetof(c.outStride), "atN": unsafe.Offsetof(c.n),
		"atSize": unsafe.Offsetof(c.size), "atGroups": unsafe.Offsetof(c.groups), "atFirst": unsafe.Offsetof(c.first),
		"atFlag": unsafe.Offsetof(c.flag), "atX": unsafe.Offsetof(c.x), "atY": unsafe.Offsetof(c.y),
		"atZ": unsafe.Offsetof(c.z), "atCount": unsafe.Offsetof(c.count), "atBuffer": unsafe.Offsetof(c.buffer),
		"atAhead": unsafe.Offsetof(c.ahead), "atLow": unsafe.Offsetof(c.low), "atRemaining": unsafe.Offsetof(c.remaining),
	}
	file, err := parser.ParseFile(token.NewFileSet(), "gen/main.go", nil, 0)
	require.NoError(t, err)
	got := map[string]uintptr{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || len(spec.Values) != 1 || len(spec.Names[0].Name) < 3 || spec.Names[0].Name[:2] != "at" {
			return true
		}
		offset, err := strconv.Atoi(spec.Values[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		got[spec.Names[0].Name] = uintptr(offset)
		return true
	})
	require.Equal(t, want, got)
}

// A worker allocates its scratch memory with its first item, which can come late: one of ten runs without is enough.
func TestForwardAllocatesNothing(t *testing.T) {
	for _, d := range []DType{F32, F16, E4M3, Int8} {
		p := smallProblem(d)
		r := newRunner(t, 2)
		for _, v := range []Version{Auto, V1, V2} {
			p.batch.Version = v
			require.NoError(t, r.Forward(&p.cache, &p.batch))
			each := 1.0
			for measured := 0; each > 0 && measured < 10; measured++ {
				each = testing.AllocsPerRun(20, func() { _ = r.Forward(&p.cache, &p.batch) })
			}
			require.Zero(t, each, "%v, version %d", d, v)
		}
	}
}
