package openai

import (
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/pooling"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/induction"
	"llmmemory/internal/serving/parallel"
)

// A noticedRunner is a stuckRunner that says when it has a batch.
type noticedRunner struct {
	stuckRunner
	begun chan struct{}
}

type noticed struct {
	Stuck
	begun chan struct{}
}

func (d *noticed) NewRunner(engine.RunnerConfig) (engine.DeviceRunner, error) {
	return &noticedRunner{stuckRunner{device: &d.Stuck}, d.begun}, nil
}

func (r *noticedRunner) Forward(b *model.Batch) error {
	r.begun <- struct{}{}
	return r.stuckRunner.Forward(b)
}

func (r *noticedRunner) ForwardPrepared(b *model.Batch) error { return r.Forward(b) }

// Ensure that a request for vectors keeps of its body the tokens, and the documents only if they are part of the answer,
// and that all is free when it is answered.
func TestWhatARequestForVectorsKeepsIsCounted(t *testing.T) {
	pool, err := parallel.New(1)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	m, err := induction.New(pool, model.Part{})
	require.NoError(t, err)
	const size = 8 * shortBody
	blank, long := strings.Repeat(" ", size), `"`+strings.Repeat("x", 900)+`"`
	many := "[" + long + strings.Repeat(", "+long, size/len(long)) + "]"
	for _, test := range []struct {
		name, path, fields string
		pieces             int
	}{
		{"one input", "/v1/embeddings", `"input": "x", ` + blank + `"user": "x"`, 0},
		{"many inputs", "/v1/embeddings", `"input": ` + many, 8},
		{"one document", "/v1/rerank", `"query": "x", "documents": ["x"], ` + blank + `"return_documents": true`, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			device := &noticed{Stuck{m, make(chan struct{})}, make(chan struct{}, 1000)}
			e, err := engine.New(engine.Config{Model: m, Tokenizer: induction.Tokenizer(), Pool: pool, KVCacheBytes: 32 << 20, MaxModelLen: 1024,
				Device: device}, nil)
			require.NoError(t, err)
			s := New(Config{
				Engine:      e,
				ModelConfig: ModelConfig{Name: "demo", Pooling: &Pooling{Type: pooling.Last}},
				Metrics:     NewMetrics("demo"),
			})
			w, r := httptest.NewRecorder(), httptest.NewRequest("POST", test.path, strings.NewReader("{"+test.fields+"}"))
			var wait sync.WaitGroup
			wait.Go(func() { s.ServeHTTP(w, r) })
			<-device.begun
			s.bodies.mu.Lock()
			used := s.bodies.used
			s.bodies.mu.Unlock()
			close(device.Released)
			wait.Wait()
			require.NoError(t, e.Close())
			require.Equal(t, 200, w.Code, w.Body)
			require.Equal(t, test.pieces, used, "pieces")
			require.Zero(t, s.bodies.used)
			require.Zero(t, s.vectorMemory.used)
			require.Empty(t, s.vectorMemory.byClient)
		})
	}
}

// Ensure that neither the server nor a client has more vectors under way than the limits allow.
func TestVectorsUnderWayAreLimited(t *testing.T) {
	m := vectorMemory{byClient: map[string]int{}}
	require.NoError(t, m.take("a", maxVectorsForClient-1))
	require.ErrorIs(t, m.take("a", 2), engine.ErrBusy)
	require.NoError(t, m.take("a", 1))
	require.NoError(t, m.take("b", maxVectors-maxVectorsForClient))
	require.ErrorIs(t, m.take("c", 1), engine.ErrBusy)
	m.giveBack("b", 1)
	require.NoError(t, m.take("c", 1))
	m.giveBack("a", maxVectorsForClient)
	require.NotContains(t, m.byClient, "a")
	require.GreaterOrEqual(t, maxVectorsForClient, maxInputs, "a request can be accepted")
}
