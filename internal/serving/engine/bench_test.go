package engine_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/tokenizer"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/structured"
	"llmmemory/internal/testkit/weightfile"
)

// startLarge makes an engine over a Llama of 134 million parameters with random weights in F16.
func startLarge(b *testing.B, o engine.Observer) *engine.Engine {
	path := filepath.Join(b.TempDir(), "134m.gguf")
	require.NoError(b, weightfile.LlamaFile(path, weightfile.Llama{Hidden: 768, Layers: 12, Heads: 12, KVHeads: 12,
		Inter: 2048, Vocab: 32000, Context: 2048, Type: "F16"}))
	g, err := weights.OpenGGUF(path)
	require.NoError(b, err)
	defer g.Close()
	pool := newPool(b, runtime.NumCPU())
	m, err := model.OpenGGUF(g, pool, model.Part{})
	require.NoError(b, err)
	tok, err := tokenizer.FromGGUF(g.Meta)
	require.NoError(b, err)
	return startModel(b, m, tok, pool, func(c *engine.Config) { c.KVCacheBytes = 256 << 20 }, o)
}

// pieces returns the vocabulary of an engine's tokenizer.
func pieces(b *testing.B, e *engine.Engine) *structured.Vocabulary {
	c := e.Config()
	tokens := make([][]byte, c.Model.VocabSize)
	for id := range tokens {
		tokens[id] = c.Tokenizer.Piece(int32(id))
	}
	v, err := structured.NewVocabulary(tokens, nil, []int{int(c.End[0])})
	require.NoError(b, err)
	return v
}

const orders = `{"type": "object", "properties": {"orders": {"type": "array", "minItems": %d, "items": {"type": "object", "properties": {
	"id": {"type": "integer", "minimum": 0, "maximum": 99999}, "customer": {"type": "string", "maxLength": 12},
	"state": {"enum": ["open", "paid", "shipped"]}, "prices": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 4},
	"paid": {"type": "boolean"}}, "required": ["id", "customer", "state", "prices", "paid"], "additionalProperties": false}}},
	"required": ["orders"], "additionalProperties": false}`

// decodes collects the times of steps that decode 16 sequences.
type decodes struct {
	engine.NoObserver
	elapsed []float64
}

func (d *decodes) Step(r engine.StepReport) {
	if r.Decodes == 16 && r.Tokens == 16 {
		d.elapsed = append(d.elapsed, r.Elapsed.Seconds())
	}
}

// BenchmarkConstrained compares steps that decode 16 sequences with and without a constraint. The two run
// alternately in one process. It reports the ratio of the median elapsed times and the ratio of the sums of
// processor time.
func BenchmarkConstrained(b *testing.B) {
	watch := &decodes{}
	e := startLarge(b, watch)
	v := pieces(b, e)
	var different []*structured.Constraint
	for i := range 16 {
		c, err := structured.Compile(v, structured.Form{JSONSchema: fmt.Appendf(nil, orders, 100+i)})
		require.NoError(b, err)
		different = append(different, c)
	}
	for _, test := range []struct {
		name        string
		temperature float64
		constraints []*structured.Constraint
	}{
		{"one schema, greedy", 0, different[:1]}, {"one schema, sampled", 1, different[:1]},
		{"16 schemas, greedy", 0, different}, {"16 schemas, sampled", 1, different},
	} {
		b.Run(test.name, func(b *testing.B) {
			var elapsed [2][]float64
			var processor [2]time.Duration
			turn := func(constrained int, seed int) {
				watch.elapsed = watch.elapsed[:0]
				before := processTime(b)
				var wait sync.WaitGroup
				for i := range 16 {
					r := request("a list of orders", 32)
					r.Temperature, r.Seed, r.IgnoreEOS, r.Prompt[0] = test.temperature, uint64(16*seed+i), true, int32(i)
					if constrained == 1 {
						r.Constraint = test.constraints[i%len(test.constraints)]
					}
					s, err := e.Submit(r)
					require.NoError(b, err)
					wait.Go(func() { read(b, s, 1) })
				}
				wait.Wait()
				processor[constrained] += processTime(b) - before
				elapsed[constrained] = append(elapsed[constrained], watch.elapsed...)
			}
			turn(0, 0)
			turn(1, 0)
			elapsed, processor = [2][]float64{}, [2]time.Duration{}
			for seed := 1; b.Loop(); seed++ {
				turn(seed%2, seed)
				turn(1-seed%2, seed)
			}
			free, constrained := median(elapsed[0]), median(elapsed[1])
			b.ReportMetric(1e3*free, "ms/step")
			b.ReportMetric(constrained/free, "x-elapsed")
			b.ReportMetric(float64(processor[1])/float64(processor[0]), "x-processor")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func median(x []float64) float64 {
	slices.Sort(x)
	return x[len(x)/2]
}

func processTime(b *testing.B) time.Duration {
	var t unix.Timespec
	require.NoError(b, unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t))
	return time.Duration(t.Nano())
}
