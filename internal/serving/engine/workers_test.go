package engine_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/lora"
	"llmmemory/internal/serving/model/tokenizer"
	"llmmemory/internal/serving/model/weights"
	"llmmemory/internal/serving/parallel"
)

// randomLlama returns a part of a Llama model with random weights and two random adapters. Its tokens are bytes.
func randomLlama(t testing.TB, pool *parallel.Pool, part model.Part) *model.Model {
	return llamaWithVocabulary(t, pool, part, 256)
}

// llamaWithVocabulary has more tokens, which have weights of zero.
func llamaWithVocabulary(t testing.TB, pool *parallel.Pool, part model.Part, vocab int) *model.Model {
	return changedLlama(t, pool, part, vocab, func(*model.Config) {})
}

// changedLlama has another configuration.
func changedLlama(t testing.TB, pool *parallel.Pool, part model.Part, vocab int, change func(*model.Config)) *model.Model {
	const hidden, heads, kvHeads, dim, inter = 64, 8, 4, 8, 96
	rnd := rand.New(rand.NewPCG(4, 4))
	tensor := func(name string, rows, cols int) *weights.Tensor {
		v := make([]float32, rows*cols)
		for i := range min(len(v), 256*cols) {
			v[i] = float32(rnd.NormFloat64() * 0.3)
		}
		return weights.FromFloats(name, rows, cols, v)
	}
	all := []*weights.Tensor{
		tensor("model.embed_tokens.weight", vocab, hidden), tensor("lm_head.weight", vocab, hidden), tensor("model.norm.weight", 1, hidden),
	}
	c := model.Config{
		Family: "llama", VocabSize: vocab, HiddenSize: hidden, NumLayers: 2, NumHeads: heads, NumKVHeads: kvHeads, HeadDim: dim,
		IntermediateSize: inter, MaxModelLen: 1024, NormEps: 1e-5, Activation: model.SiLU, Rope: &model.Rope{Theta: 10000}, End: []int32{3},
	}
	change(&c)
	for i := range c.NumLayers {
		at := fmt.Sprintf("model.layers.%d.", i)
		all = append(all, tensor(at+"input_layernorm.weight", 1, hidden), tensor(at+"post_attention_layernorm.weight", 1, hidden),
			tensor(at+"self_attn.q_proj.weight", heads*dim, hidden), tensor(at+"self_attn.k_proj.weight", kvHeads*dim, hidden),
			tensor(at+"self_attn.v_proj.weight", kvHeads*dim, hidden), tensor(at+"self_attn.o_proj.weight", hidden, heads*dim),
			tensor(at+"mlp.gate_proj.weight", inter, hidden), tensor(at+"mlp.up_proj.weight", inter, hidden), tensor(at+"mlp.down_proj.weight", hidden, inter))
	}
	adapters := []*lora.Adapter{randomAdapter(all, 5), randomAdapter(all, 8)}
	m, err := model.Build(c, weights.Collect(all...), pool, part, model.WithAdapters(adapters...))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// randomAdapter returns an adapter of the given rank for the projections among the tensors.
func randomAdapter(tensors []*weights.Tensor, rank int) *lora.Adapter {
	rnd, a := rand.New(rand.NewPCG(4, uint64(rank))), &lora.Adapter{Modules: map[string]*lora.Module{}}
	random := func(rows, cols int) *weights.Tensor {
		v := make([]float32, rows*cols)
		for i := range v {
			v[i] = float32(rnd.NormFloat64() * 0.3)
		}
		return weights.FromFloats("", rows, cols, v)
	}
	for _, t := range tensors {
		if name, ok := strings.CutSuffix(t.Name, "_proj.weight"); ok {
			a.Modules[name+"_proj"] = &lora.Module{A: random(rank, t.Cols), B: random(t.Rows, rank), Scale: 0.5}
		}
	}
	return a
}

// namesOfAdapters are the adapters of randomLlama.
var namesOfAdapters = []string{"one", "two"}

// A startFunc starts an engine of n workers or processes with a random model.
type startFunc = func(t *testing.T, n int, change func(*engine.Config), o engine.Observer) *engine.Engine

// startWorkers makes an engine of n workers over a random model.
func startWorkers(t *testing.T, n int, change func(*engine.Config), o engine.Observer) *engine.Engine {
	return startParts(t, n, func(pool *parallel.Pool, p model.Part) *model.Model { return randomLlama(t, pool, p) }, change, o)
}

// startParts makes an engine of n workers over a model.
func startParts(t *testing.T, n int, open func(*parallel.Pool, model.Part) *model.Model, change func(*engine.Config), o engine.Observer) *engine.Engine {
	var peers []engine.Peer
	for rank := range n {
		pool := newPool(t, 1)
		peers = append(peers, engine.Peer{Model: open(pool, model.Part{Rank: rank, Size: n}), Pool: pool})
	}
	return startModel(t, peers[0].Model, tokenizer.Bytes(1, 2, 3), peers[0].Pool, func(c *engine.Config) {
		c.Peers = peers[1:]
		if change != nil {
			change(c)
		}
	}, o)
}

// processes simulates the other processes for a Remote or a Leader.
type processes struct {
	*model.Workers
	sent      [][]chan []byte // by sender and receiver
	rank      int
	broadcast func() // is called before a message is broadcast; nil: nothing is
}

func (p processes) Size() int { return len(p.sent) }

func (p processes) Broadcast(message []byte) error {
	if p.broadcast != nil {
		p.broadcast()
	}
	for rank := 1; rank < p.Size(); rank++ {
		_ = p.Send(rank, message) // has no errors
	}
	return nil
}

func (p processes) Send(receiver int, message []byte) error {
	p.sent[p.rank][receiver] <- slices.Clone(message)
	return nil
}

func (p processes) Receive(sender int) ([]byte, error) { return <-p.sent[sender][p.rank], nil }

func (p processes) Abort(cause error) { panic(cause) }

// startProcesses makes an engine that n-1 others follow.
func startProcesses(t *testing.T, n int, change func(*engine.Config), o engine.Observer) *engine.Engine {
	return startHeldProcesses(t, n, nil, change, o)
}

// startHeldProcesses calls broadcast before each message to all processes.
func startHeldProcesses(
	t *testing.T, n int, broadcast func(), change func(*engine.Config), o engine.Observer,
) *engine.Engine {
	p := processes{Workers: model.NewWorkers(n), sent: make([][]chan []byte, n), broadcast: broadcast}
	for sender := range n {
		for range n {
			p.sent[sender] = append(p.sent[sender], make(chan []byte, 4))
		}
	}
	var first engine.Config
	var wait sync.WaitGroup
	t.Cleanup(wait.Wait)
	for rank := range n {
		pool, err := parallel.New(1)
		require.NoError(t, err)
		c := engine.Config{Model: randomLlama(t, pool, model.Part{Rank: rank, Size: n}), Pool: pool, Tokenizer: tokenizer.Bytes(1, 2, 3),
			KVCacheBytes: 1 << 20, Adapters: namesOfAdapters}
		change(&c)
		if rank == 0 {
			t.Cleanup(pool.Close)
			first = c
			continue
		}
		wait.Go(func() {
			defer pool.Close()
			if err := engine.Follow(c, processes{Workers: p.Workers, sent: p.sent, rank: rank}); err != nil {
				t.Error(err)
			}
		})
	}
	first.Remote = p
	e, err := engine.New(first, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func TestAPartWithoutTheOthersIsRefused(t *testing.T) {
	pool := newPool(t, 1)
	m := randomLlama(t, pool, model.Part{Size: 2})
	_, err := engine.New(engine.Config{Model: m, Tokenizer: tokenizer.Bytes(1, 2, 3), Pool: pool, KVCacheBytes: 1 << 20}, nil)
	require.ErrorIs(t, err, engine.ErrConfig)
	require.ErrorContains(t, err, "2 parts")
}
