package openai_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
	"llmmemory/internal/testkit/level"
)

// Ensure that many concurrent users of all kinds cause no leak of blocks, memory or goroutines. Correct requests get
// the expected answer. In make exhaustive the users send requests for ten minutes.
func TestAMixOfUsersLosesNothing(t *testing.T) {
	level.SkipNormal(t)
	s := start(t, func(c *openai.Config, e *engine.Config) {
		c.MaxBody, e.MaxNumSeqs, e.MaxModelLen = 1<<16, 16, 512
	})
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	u := &users{t: t, url: s.url, http: &http.Client{Transport: transport}}
	idle := u.connect(level.Pick(100, 1000))
	const rounds = 5 * together
	least := level.Pick(0, 5*time.Minute) // each half of a soak of ten minutes
	first := u.visit(rounds, least)       // the pools and caches fill
	before := settle(t, s)
	early := u.median()
	second := u.visit(rounds, least)
	after := settle(t, s)
	late := u.median()
	t.Logf("%d and %d visits; half of the answers came within %v and %v; %d and %d KB of heap", first, second, early,
		late, before.HeapAlloc>>10, after.HeapAlloc>>10)
	if level.Exhaustive() { // enough to even out the machine's other work
		require.Less(t, late, 3*early, "answers have become slower")
	}
	require.Less(t, after.HeapAlloc, before.HeapAlloc+before.HeapAlloc/2+8<<20, "the heap has grown")
	for _, c := range idle {
		require.NoError(t, c.Close())
	}
	transport.CloseIdleConnections()
	require.Eventually(t, func() bool { return runtime.NumGoroutine() < 60 }, 10*time.Minute, 10*time.Millisecond,
		"goroutines are left")
}

// settle waits until the engine has no request and every block is free. It returns the memory statistics at that time.
func settle(t *testing.T, s *served) runtime.MemStats {
	require.Eventually(t, func() bool {
		l := s.engine.Load()
		return l.Running+l.Waiting == 0 && l.FreeBlocks == l.Blocks
	}, 5*time.Minute, 10*time.Millisecond)
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m
}

// together is the number of users served at the same time.
const together = 40

type users struct {
	t    *testing.T
	url  string
	http *http.Client

	mu    sync.Mutex
	times []time.Duration // that polite users waited, since median was called
}

func (u *users) median() time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	slices.Sort(u.times)
	m := u.times[len(u.times)/2]
	u.times = u.times[:0]
	return m
}

// connect opens connections that say nothing.
func (u *users) connect(n int) []net.Conn {
	var all []net.Conn
	for range n {
		c, err := net.Dial("tcp", strings.TrimPrefix(u.url, "http://"))
		require.NoError(u.t, err)
		all = append(all, c)
	}
	return all
}

// visit runs n users. If they take less time than minTime, it runs further users until minTime is over. It returns the
// number of users.
func (u *users) visit(n int, minTime time.Duration) int {
	kinds := []func(*rand.Rand){u.polite, u.polite, u.leaves, u.slow, u.tooLong, u.badJSON, u.several}
	var wait sync.WaitGroup
	turns := make(chan int)
	for range together {
		wait.Go(func() {
			for i := range turns {
				rnd := rand.New(rand.NewPCG(uint64(i), 17))
				kinds[rnd.IntN(len(kinds))](rnd)
			}
		})
	}
	came := 0
	for begin := time.Now(); came < n || time.Since(begin) < minTime; came++ {
		turns <- came
	}
	close(turns)
	wait.Wait()
	return came
}

func (u *users) post(ctx context.Context, body string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, "POST", u.url+"/v1/completions", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	return u.http.Do(r)
}

// expect posts a body and wants a status.
func (u *users) expect(status int, body string) []byte {
	r, err := u.post(context.Background(), body)
	if err != nil {
		u.t.Error(err)
		return nil
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != status {
		u.t.Errorf("status %d, want %d: %v %s", r.StatusCode, status, err, text)
	}
	return text
}

func body(rnd *rand.Rand, maxTokens int, fields string) (text, answer string) {
	code := "" // six different digits, because after four equal ones the model cannot know its position
	for _, digit := range rnd.Perm(10)[:6] {
		code += strconv.Itoa(digit)
	}
	prompt := strings.Repeat(story, rnd.IntN(3)) + "Your number is " + code + "! Your number is"
	data, _ := json.Marshal(prompt)
	return fmt.Sprintf(`{"model": "demo", "prompt": %s, "max_tokens": %d, "temperature": 0%s}`, data, maxTokens, fields), " " +
		code
}

func (u *users) polite(rnd *rand.Rand) {
	text, answer := body(rnd, 7, "")
	begin := time.Now()
	defer func() {
		u.mu.Lock()
		u.times = append(u.times, time.Since(begin))
		u.mu.Unlock()
	}()
	if got := u.expect(200, text); !bytes.Contains(got, []byte(`"text":"`+answer+`"`)) {
		u.t.Errorf("%s, want %q", got, answer)
	}
}

func (u *users) several(rnd *rand.Rand) {
	text, answer := body(rnd, 7, `, "n": 3`)
	if got := u.expect(200, text); bytes.Count(got, []byte(`"text":"`+answer+`"`)) != 3 {
		u.t.Errorf("%s, want %q three times", got, answer)
	}
}

// leaves goes in the middle of an answer.
func (u *users) leaves(rnd *rand.Rand) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	text, _ := body(rnd, 200, `, "stream": true, "ignore_eos": true`)
	r, err := u.post(ctx, text)
	if err != nil {
		u.t.Error(err)
		return
	}
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	for range 1 + rnd.IntN(10) {
		lines.Scan()
	}
}

// slow reads five single bytes with pauses, and then the rest.
func (u *users) slow(rnd *rand.Rand) {
	text, _ := body(rnd, 20, `, "stream": true, "ignore_eos": true`)
	r, err := u.post(context.Background(), text)
	if err != nil {
		u.t.Error(err)
		return
	}
	defer r.Body.Close()
	for range 5 {
		if _, err := r.Body.Read(make([]byte, 1)); err != nil {
			u.t.Error(err)
		}
		time.Sleep(time.Duration(rnd.IntN(10)) * time.Millisecond)
	}
	rest, err := io.ReadAll(r.Body)
	if err != nil || !bytes.HasSuffix(rest, []byte("data: [DONE]\n\n")) {
		u.t.Errorf("the stream ends with %q: %v", rest[max(0, len(rest)-50):], err)
	}
}

func (u *users) tooLong(rnd *rand.Rand) {
	if rnd.IntN(2) == 0 {
		u.expect(400, fmt.Sprintf(`{"model": "demo", "prompt": "%s"}`, strings.Repeat("x", 600)))
		return
	}
	// The server stops reading, so the client may get an error before it gets the answer.
	if r, err := u.post(context.Background(), `{"prompt": "`+strings.Repeat("x", 1<<17)+`"}`); err == nil {
		if r.StatusCode != 413 {
			u.t.Errorf("status %d, want 413", r.StatusCode)
		}
		r.Body.Close()
	}
}

func (u *users) badJSON(rnd *rand.Rand) {
	text, _ := body(rnd, 7, "")
	u.expect(400, text[:rnd.IntN(len(text))])
}
