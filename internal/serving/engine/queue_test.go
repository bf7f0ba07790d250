package engine

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine/sampling"
)

// Ensure that the engine accepts requests until they have MaxNumSeqs+MaxWaiting answers or more, no matter how many of
// them are scheduled already. For each request that ends, the engine accepts another.
func TestAsManyRequestsWaitAsMay(t *testing.T) {
	for _, test := range []struct {
		name               string
		seqs, waiting, all int
		n                  int // answers of each
		taken              int
		hold               int // the step that lasts until all have come
	}{
		{"before any step has ended", 2, 2, 8, 1, 4, 1},
		{"one at a time", 1, 3, 8, 1, 4, 1},
		{"more may wait than run", 3, 5, 20, 1, 8, 2},
		{"each answer counts", 2, 4, 8, 3, 2, 1},
		{"an answer that goes beyond the limit is taken with the others", 2, 5, 8, 3, 3, 1},
		{"each answer counts when the first are forked", 2, 4, 8, 3, 2, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			held, release := make(chan struct{}), make(chan struct{})
			e := startRelayed(t, &relay{computed: func(step int, _ *modelInput) error {
				if step == test.hold {
					close(held)
					<-release
				}
				return nil
			}}, func(c *Config) { c.MaxNumSeqs, c.MaxWaiting = test.seqs, test.waiting })
			goOn := sync.OnceFunc(func() { close(release) })
			t.Cleanup(goOn) // before the engine is closed, also when the test fails
			r := Request{Prompt: []int32{'a', 'b', 'a'}, N: test.n, MaxTokens: 20, IgnoreEOS: true, Params: sampling.Default()}
			var taken []*Stream
			for i := range test.all {
				s, err := e.Submit(r)
				if i < test.taken {
					require.NoError(t, err, "request %d", i)
					taken = append(taken, s)
				} else {
					require.ErrorIs(t, err, ErrBusy, "request %d", i)
				}
				if i == 0 {
					<-held
				}
			}
			taken[len(taken)-1].Cancel()
			s, err := e.Submit(r)
			require.NoError(t, err)
			_, err = e.Submit(r)
			require.ErrorIs(t, err, ErrBusy)
			goOn()
			for _, s := range append(taken[:len(taken)-1], s) {
				_, err := answer(t, s)
				require.NoError(t, err)
			}
		})
	}
}

// Ensure that a fork allocates no memory for generated tokens before it runs.
func TestForksThatWaitTakeMemoryForTheirPrompts(t *testing.T) {
	held, release := make(chan struct{}), make(chan struct{})
	e := startRelayed(t, &relay{computed: func(step int, _ *modelInput) error {
		if step == 2 { // the first one has computed the prompt
			close(held)
			<-release
		}
		return nil
	}}, func(c *Config) { c.MaxNumSeqs = 2 })
	goOn := sync.OnceFunc(func() { close(release) })
	t.Cleanup(goOn)
	s, err := e.Submit(Request{
		Prompt: []int32{'a', 'b', 'a'}, MaxTokens: 100, N: 5, IgnoreEOS: true, Params: sampling.Default(),
	})
	require.NoError(t, err)
	<-held
	var tokens, blocks []int // for which there is memory, by answer
	e.mu.Lock()
	for _, q := range s.answers {
		tokens, blocks = append(tokens, cap(q.tokens)), append(blocks, cap(q.tables[0]))
	}
	e.mu.Unlock()
	goOn()
	for i := range tokens {
		if i < 2 {
			require.GreaterOrEqual(t, tokens[i], 103, "answer %d runs", i)
		} else {
			require.Less(t, tokens[i], 20, "answer %d waits", i)
			require.Zero(t, blocks[i], "answer %d waits", i)
		}
	}
	_, err = answer(t, s)
	require.NoError(t, err)
}
