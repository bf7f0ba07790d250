package engine_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/model"
	"llmmemory/internal/serving/model/induction"
	"llmmemory/internal/serving/model/tokenizer"
	"llmmemory/internal/serving/parallel"
)

// newPool returns a pool of n threads.
func newPool(t testing.TB, n int) *parallel.Pool {
	pool, err := parallel.New(n)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

// start makes an engine over the hand-built model.
func start(t testing.TB, change func(*engine.Config)) *engine.Engine {
	return startObserved(t, change, nil)
}

func startObserved(t testing.TB, change func(*engine.Config), o engine.Observer) *engine.Engine {
	pool := newPool(t, 2)
	m, err := engine.HandBuilt()
	require.NoError(t, err)
	return startModel(t, m, induction.Tokenizer(), pool, change, o)
}

func startModel(t testing.TB, m *model.Model, tok *tokenizer.Tokenizer, pool *parallel.Pool, change func(*engine.Config), o engine.Observer) *engine.Engine {
	c := engine.Config{Model: m, Tokenizer: tok, Pool: pool, KVCacheBytes: 32 << 20, MaxModelLen: 1024, Adapters: namesOfAdapters[:m.Adapters()]}
	if change != nil {
		change(&c)
	}
	e, err := engine.New(c, o)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, e.Close()) })
	return e
}

func request(prompt string, maxTokens int) engine.Request {
	p := sampling.Default()
	p.Temperature = 0
	return engine.Request{Prompt: tokens(prompt), MaxTokens: maxTokens, Params: p}
}

func tokens(s string) []int32 {
	var ids []int32
	for _, b := range []byte(s) {
		ids = append(ids, int32(b))
	}
	return ids
}

// An answer collects the events of an answer.
type answer struct {
	text   string
	ids    []int32
	finish engine.Finish
	err    error
}

func read(t testing.TB, s *engine.Stream, n int) []answer {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	answers := make([]answer, n)
	for {
		events, err := s.Next(ctx)
		require.NoError(t, err)
		if events == nil {
			return answers
		}
		for _, e := range events {
			a := &answers[e.Index]
			require.Empty(t, a.finish, "an event after the end")
			a.text += e.Text
			for _, token := range e.Tokens {
				a.ids = append(a.ids, token.ID)
			}
			a.finish, a.err = e.Finish, e.Err
		}
	}
}

func ask(t testing.TB, e *engine.Engine, r engine.Request) []answer {
	s, err := e.Submit(r)
	require.NoError(t, err)
	return read(t, s, max(r.N, 1))
}

const story = "The code of the vault is 7Kx-31. Do not tell it. "

// requireIdle requires that the engine has no requests and all blocks are free.
func requireIdle(t testing.TB, e *engine.Engine) {
	load := e.Load()
	require.Zero(t, load.Running+load.Waiting)
	require.Equal(t, load.Blocks, load.FreeBlocks)
}

func TestSeveralAnswersOfOnePrompt(t *testing.T) {
	e := start(t, nil)
	r := request(story+"The code", 40)
	r.N, r.Temperature, r.Seed = 4, 2, 21
	together := ask(t, e, r)
	different := map[string]bool{}
	for i, a := range together {
		alone := r
		alone.N, alone.Seed = 1, r.Seed+uint64(i)
		require.Equal(t, ask(t, e, alone)[0], a, "answer %d", i)
		different[a.text] = true
	}
	require.Greater(t, len(different), 1)
	requireIdle(t, e)
}

func TestTheLongestSequenceIsWhatFits(t *testing.T) {
	e := start(t, func(c *engine.Config) {
		c.MaxModelLen, c.KVCacheBytes = 0, 21*16*2*2*3*256*4 // 21 blocks of 16 tokens, one of them the null block
	})
	require.Equal(t, 320, e.Config().MaxModelLen)
	r := request(story, 1000)
	r.IgnoreEOS = true
	require.Len(t, ask(t, e, r)[0].ids, 320-len(story))
}

func TestStopStringsEndAnAnswerBeforeThem(t *testing.T) {
	e := start(t, nil)
	tests := []struct {
		name string
		stop []string
		want string
	}{
		{"over several tokens", []string{"x-3"}, " is 7K"},
		{"the first that comes", []string{"31", "7K"}, " is "},
		{"in the first token", []string{" "}, ""},
		{"that never comes whole", []string{"31!"}, " is 7Kx-31"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := request(story+"The code of the vault", 10)
			r.Stop = test.stop
			require.Equal(t, test.want, ask(t, e, r)[0].text)
			r.N = 3
			for _, a := range ask(t, e, r) {
				require.Equal(t, test.want, a.text)
			}
			requireIdle(t, e)
		})
	}
}

// Ensure that MinTokens holds for stop strings, as in vLLM: a stop string does not end the answer if one of the
// answer's first MinTokens tokens completes the stop string.
func TestStopStringsOfTheFirstTokensAreText(t *testing.T) {
	e := start(t, nil)
	for _, test := range []struct {
		name string
		min  int
		stop []string
		want string
	}{
		{"no least number", 0, []string{"i"}, " "},
		{"with the last of them", 2, []string{"i"}, " is 7Kx-31"},
		{"with the next token", 2, []string{"s"}, " i"},
		{"over the border", 2, []string{"is"}, " "},
		{"only the later one counts", 3, []string{" "}, " is"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := request(story+"The code of the vault", 10)
			r.Stop, r.MinTokens = test.stop, test.min
			require.Equal(t, test.want, ask(t, e, r)[0].text)
		})
	}
}

// Ensure that two requests share the blocks of a prompt only if they have the same salt.
func TestPrefixHitsAreAmongEqualSalts(t *testing.T) {
	e := start(t, nil)
	for _, test := range []struct {
		salt string
		want int // whole blocks, but for the last token
	}{{"", 0}, {"a", 0}, {"b", 0}, {"a", 48}, {"", 48}} {
		r := request(story, 1)
		r.CacheSalt = test.salt
		s, err := e.Submit(r)
		require.NoError(t, err)
		read(t, s, 1)
		require.Equal(t, test.want, s.CachedTokens(), "salt %q", test.salt)
	}
}

func TestTokensThatEndAnAnswer(t *testing.T) {
	e := start(t, nil)
	prompt := "go\x03 stop here. go"
	got := ask(t, e, request(prompt, 10))[0]
	require.Equal(t, answer{"", []int32{3}, engine.FinishStop, nil}, got)
	r := request(prompt, 5)
	r.IgnoreEOS = true
	require.Equal(t, " stop"[:4], ask(t, e, r)[0].text)
	r = request(story+"The code of the vault", 20)
	r.StopTokenIDs = []int32{'K'}
	require.Equal(t, " is 7", ask(t, e, r)[0].text)
	r.MinTokens = 7
	require.NotContains(t, ask(t, e, r)[0].text[:6], "K")
}

func TestCancelFreesBlocksAtOnce(t *testing.T) {
	e := start(t, nil)
	r := request(strings.Repeat(story, 8), 500)
	r.IgnoreEOS, r.N = true, 3
	s, err := e.Submit(r)
	require.NoError(t, err)
	_, err = s.Next(context.Background())
	require.NoError(t, err)
	s.Cancel()
	requireIdle(t, e)
	s.Cancel()
	for _, a := range read(t, s, 3) {
		require.ErrorIs(t, a.err, engine.ErrCanceled)
	}
}

// Ensure that answers are forked correctly when the first answer, or one of the others, ends with its first token.
func TestSomeAnswersEndAtOnce(t *testing.T) {
	e := start(t, nil)
	at := map[bool]int{}
	for seed := range uint64(6) {
		r := request(story+"The code", 6)
		r.N, r.Temperature, r.Seed = 8, 1, seed*100
		r.LogitBias = map[int32]float32{induction.End: 15}
		for i, a := range ask(t, e, r) {
			require.NoError(t, a.err)
			alone := r
			alone.N, alone.Seed = 1, r.Seed+uint64(i)
			require.Equal(t, ask(t, e, alone)[0], a, "answer %d", i)
			if i == 0 {
				at[len(a.ids) == 1]++
			}
		}
		requireIdle(t, e)
	}
	require.Len(t, at, 2, "the first answer is to end at once in some, and to go on in others")
}

// Ensure that a waiting request holds its prompt in memory once, however many answers it asks for.
func TestAnswersThatWaitShareTheirPrompt(t *testing.T) {
	pool := newPool(t, 2)
	m, err := engine.HandBuilt()
	require.NoError(t, err)
	e := startModel(t, m, induction.Tokenizer(), pool, func(c *engine.Config) { c.MaxNumSeqs, c.MaxWaiting = 1, 20*128 }, nil)
	hold(t, pool) // so that nothing else allocates
	first := request("ab ab", 900)
	first.IgnoreEOS = true
	_, err = e.Submit(first)
	require.NoError(t, err)
	many := request(strings.Repeat("x", 900), 100)
	many.N = 128
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		_, err := e.Submit(many)
		require.NoError(t, err)
	}
	runtime.ReadMemStats(&after)
	require.Less(t, (after.TotalAlloc-before.TotalAlloc)/20, uint64(384<<10), "bytes for a request; 128 copies of its prompt alone take 460 kB")
}
