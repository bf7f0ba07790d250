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

// Ensure that the work for a single query token is divided into items of at most half a worker's share. The context has
// few partitions, and the last can be short, so the work is also divided by heads.
func TestFewPartitionsAreSharedOutByHeads(t *testing.T) {
	c := &Cache{Shape: Shape{BlockSize: 16, NumKVHeads: 12, HeadSize: 64, DType: F16}}
	for _, tokens := range []int{513, 700, 1100, 1600} {
		for _, workers := range []int{2, 4} {
			b := &Batch{NumHeads: 12, QueryStart: []int32{0, 1}, SeqLens: []int32{int32(tokens)}}
			var p plan
			p.make(c, b, workers)
			all := 0
			for _, it := range p.items {
				read := it.heads * (min(tokens, it.part1*partitionSize) - it.part0*partitionSize)
				require.LessOrEqual(t, read, 12*tokens/(2*workers), "%d tokens, %d workers", tokens, workers)
				all += read
			}
			require.Equal(t, 12*tokens, all, "%d tokens, %d workers", tokens, workers)
		}
	}
}

// Ensure that the plan keeps at most maxSavedBytes of intermediate results. An item whose results do not fit is not cut
// into runs. Without the limit, V2 would keep 4.6 GB for the last 4,096 tokens of a prompt of 32,768 tokens: a result
// for each row and partition.
func TestThePlanKeepsNoMoreResultsThanItMay(t *testing.T) {
	c := &Cache{Shape: Shape{BlockSize: 16, NumKVHeads: 8, HeadSize: 128, DType: F16}}
	for _, tc := range []struct {
		name            string
		queries, tokens int32
		cut             bool
	}{
		{"one token", 1, 32768, true},
		{"a chunk of a prompt", 4096, 32768, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &Batch{NumHeads: 32, QueryStart: []int32{0, tc.queries}, SeqLens: []int32{tc.tokens}, Version: V2}
			var p plan
			p.make(c, b, 2)
			require.LessOrEqual(t, 4*p.records*recordSize(c), maxSavedBytes)
			require.Equal(t, tc.cut, p.records > 0)
			require.Equal(t, int(tc.queries)*8, rowsOf(p.items, p.reductions), "each token and KV head has one output")
		})
	}
}

// vLLM's rule for its two kernels.
func TestTheRuleOfVLLMForV1(t *testing.T) {
	for _, c := range []struct {
		name                 string
		seqs, heads, longest int
		v1                   bool
	}{
		{"one partition", 1, 8, 512, true},
		{"two partitions, 512 rows", 16, 32, 513, false},
		{"two partitions, more than 512 rows", 17, 32, 513, true},
		{"the longest that V1 takes", 17, 32, 8192, true},
		{"longer", 17, 32, 8193, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := Batch{NumHeads: c.heads, SeqLens: make([]int32, c.seqs)}
			b.SeqLens[0] = int32(c.longest)
			require.Equal(t, c.v1, ruleV1(&b))
		})
	}
}

func rowsOf(items []item, reductions []reduction) int {
	n := 0
	for _, it := range items {
		if it.kind == itemWhole {
			n += (it.token1 - it.token0) * it.heads
		}
	}
	for _, r := range reductions {
		n += (r.token1 - r.token0) * r.heads
	}
	return n
}

func TestTheAssemblyKnowsTheFieldsOfArgs(t *testing.T) {
	var c args
	want := map[string]uintptr{
		"atInput": unsafe.Offsetof(c.input), "atInputStride": unsafe.Offsetof(c.inputStride),
		"atData": unsafe.Offsetof(c.data), "atOut": unsafe.Offsetof(c.out), "atOutStride": unsafe.Offsetof(c.outStride),
		"atN": unsafe.Offsetof(c.n), "atSize": unsafe.Offsetof(c.size), "atGroups": unsafe.Offsetof(c.groups),
		"atSumSize": unsafe.Offsetof(c.param), "atFirstSum": unsafe.Offsetof(c.param),
		"atOffset": unsafe.Offsetof(c.param), "atBypass": unsafe.Offsetof(c.param), "atFlag": unsafe.Offsetof(c.flag),
		"atX": unsafe.Offsetof(c.x), "atY": unsafe.Offsetof(c.y), "atZ": unsafe.Offsetof(c.z),
		"atCount": unsafe.Offsetof(c.count), "atBuffer": unsafe.Offsetof(c.buffer),
		"atPrefetchList": unsafe.Offsetof(c.prefetchList), "atLow": unsafe.Offsetof(c.low),
		"atRemaining": unsafe.Offsetof(c.remaining),
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

// Ensure that Forward allocates nothing. A worker allocates scratch memory when it computes an item that is larger than
// its earlier items, and this can happen in any call of Forward. So the test measures up to ten times, and passes if
// one measurement has no allocation.
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
