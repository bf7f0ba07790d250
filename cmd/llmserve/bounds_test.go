package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/testkit/level"
)

func (s *server) peak(t *testing.T) int {
	t.Helper()
	folder := fmt.Sprintf("/proc/%d/", s.cmd.Process.Pid)
	status, err := os.ReadFile(folder + "status")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(folder+"clear_refs", []byte("5"), 0))
	kb, err := strconv.Atoi(regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindStringSubmatch(string(status))[1])
	require.NoError(t, err)
	return kb << 10
}

func (s *server) processorTime(t *testing.T) int {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	require.NoError(t, err)
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+2:]))
	user, err := strconv.Atoi(fields[11])
	require.NoError(t, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(t, err)
	return user + system
}

func (s *server) generated(t *testing.T) int {
	t.Helper()
	r, err := http.Get(strings.TrimSuffix(s.url, "/v1") + "/metrics")
	require.NoError(t, err)
	n := regexp.MustCompile(`vllm:generation_tokens_total\{.*\} (\S+)`).FindStringSubmatch(text(t, r))
	f, err := strconv.ParseFloat(n[1], 64)
	require.NoError(t, err)
	return int(f)
}

func (s *server) streams() {
	for {
		r, err := http.Post(s.url+"/completions", "application/json",
			strings.NewReader(`{"model": "demo", "prompt": "x", "max_tokens": 4000, "ignore_eos": true, "stream": true}`))
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body) // the server may end
		_ = r.Body.Close()
	}
}

// Ensure that 16 bodies of the largest sizes within the limits, sent at the same time, take little memory. A stream
// that runs at the same time must get more than 15 % of the processor time.
//
// While only the stream runs, the test measures the processor time per token. While the server handles the bodies,
// the test counts the tokens of the stream. The number of these tokens multiplied by the processor time per token is
// the processor time that the stream gets.
func TestTheLargestBodiesTakeLittleMemoryAndLeaveAStreamItsPace(t *testing.T) {
	level.SkipNormal(t)
	const maxBody, values, tokens = 1 << 19, 1 << 16, 1 << 17
	const atATime, maxMemory, share = 16, 160 << 20, 0.15
	t.Setenv("GOMAXPROCS", "2")
	s := serveDemoTo(t, io.Discard, "--max-body", strconv.Itoa(maxBody))
	const name, message = `{"model": "demo", `, `{"role": "user", "content": "x"}`
	fill := func(begin, one, end string, n int) string {
		return begin + strings.Repeat(one, min(n, (maxBody-len(begin)-len(end))/len(one))) + end
	}
	go s.streams()
	begin, made := s.processorTime(t), s.generated(t)
	for s.processorTime(t) < begin+50 || s.generated(t) < made+200 {
		time.Sleep(time.Millisecond)
	}
	alone := float64(s.processorTime(t)-begin) / float64(s.generated(t)-made)
	before := s.peak(t)
	begin, made = s.processorTime(t), s.generated(t)
	for _, test := range []struct {
		name, path, body string
		status           int
	}{
		{"a text", "/v1/completions", fill(name+`"prompt": "`, "hello ", `"}`, maxBody), 400},
		{"texts of which the last is too long", "/v1/completions", fill(name+`"prompt": ["x"`, `, "`+strings.Repeat("x", 4000)+`"`,
			`, "`+strings.Repeat("x", 4096)+`"]}`, 126), 400},
		{"tokens", "/v1/completions", fill(name+`"prompt": [1`, ",1", `]}`, maxBody), 400},
		{"a chat", "/v1/chat/completions", fill(name+`"messages": [{"role": "user", "content": "`, "hello ", `"}]}`, maxBody), 400},
		{"messages", "/v1/chat/completions", fill(name+`"messages": [`+message, ", "+message, `]}`, values/2-10), 400},
		{"variables", "/v1/chat/completions", fill(name+`"max_tokens": 1, "messages": [`+message+`], "chat_template_kwargs": {"x": [{}`,
			",{}", `]}}`, values-10), 200},
		{"a text to be counted", "/tokenize", fill(name+`"return_token_strs": true, "prompt": "`, "x", `"}`, tokens-1), 200},
		{"tokens to be read", "/detokenize", fill(`{"tokens": [1`, ",1", `]}`, tokens-1), 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			var wave sync.WaitGroup
			for range atATime {
				wave.Go(func() {
					r, err := http.Post(strings.TrimSuffix(s.url, "/v1")+test.path, "application/json", strings.NewReader(test.body))
					if assert.NoError(t, err) {
						got := text(t, r)
						assert.Contains(t, []int{test.status, 503}, r.StatusCode, "%.200s", got) // 503: it has waited too long for memory
					}
				})
			}
			wave.Wait()
			require.Less(t, s.peak(t), before+maxMemory)
		})
	}
	used := float64(s.processorTime(t) - begin)
	require.Greater(t, float64(s.generated(t)-made)*alone/used, share)
}
