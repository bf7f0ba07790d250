package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"llmmemory/internal/testkit/cudatest"
	"llmmemory/internal/testkit/level"
)

// The test binary is the command if this is set.
const asCommand = "LLMSERVE_TEST_COMMAND"

// When the test binary runs as the command, it reads these environment variables. The value of hangingGPU is the path
// of an emulated GPU, which the command then uses. The value of hangingCall is the name of a function of its driver
// that never returns.
const hangingGPU, hangingCall = "LLMSERVE_TEST_GPU", "LLMSERVE_TEST_HANG"

// patience is the longest time that a test waits for an event. It is not a measure of speed.
const patience = 10 * time.Minute

// runTests runs the tests. Those in a browser replace it.
var runTests = (*testing.M).Run

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		if path := os.Getenv(hangingGPU); path != "" {
			driver, slowAfter = path, time.Millisecond
			if err := cudatest.HangIn(path, os.Getenv(hangingCall)); err != nil {
				panic(err)
			}
		}
		main()
		return
	}
	os.Exit(runTests(m))
}

func llmserve(args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), asCommand+"=1")
	return c
}

type server struct {
	cmd   *exec.Cmd
	out   io.Closer
	lines *bufio.Reader
	url   string
}

func serveDemo(t *testing.T, args ...string) *server { return serveDemoTo(t, os.Stderr, args...) }

func serveDemoTo(t *testing.T, stderr io.Writer, args ...string) *server {
	s, _ := serveTo(t, stderr, "demo", args...)
	return s
}

func serveModelFile(t *testing.T, path string, args ...string) (*server, string) {
	return serveTo(t, os.Stderr, path, args...)
}

func serveTo(t *testing.T, stderr io.Writer, model string, args ...string) (s *server, before string) {
	c := llmserve(append([]string{model, "--port", "0", "--kv-cache-gb", "0.2"}, args...)...)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	c.Stderr = stderr
	require.NoError(t, c.Start())
	t.Cleanup(func() {
		_ = c.Process.Kill() // it may have ended
		_ = c.Wait()
	})
	s = &server{cmd: c, out: out, lines: bufio.NewReader(out)}
	for {
		line, err := s.lines.ReadString('\n')
		require.NoError(t, err, before)
		if s.url = regexp.MustCompile(`http://127\.0\.0\.1:\d+/v1`).FindString(line); s.url != "" {
			return s, before
		}
		before += line
	}
}

func (s *server) post(t *testing.T, path, body string) *http.Response {
	r, err := http.Post(s.url+path, "application/json", strings.NewReader(body))
	require.NoError(t, err)
	return r
}

func text(t *testing.T, r *http.Response) string {
	b, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	return string(b)
}

const question = `{"model": "demo", "prompt": "one two three, one two", "max_tokens": 6, "temperature": 0}`

func TestDemoAnswersTheLineThatItPrints(t *testing.T) {
	s := serveDemo(t)
	line, err := s.lines.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, `an answer ends with "\x03" (3)`)
	line, err = s.lines.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "tool calls: json, by the chat template")
	line, err = s.lines.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "/memory")
	line, err = s.lines.ReadString('\n')
	require.NoError(t, err)
	body := regexp.MustCompile(`-d '(.*)'`).FindStringSubmatch(line)
	require.Len(t, body, 2, line)
	require.Contains(t, text(t, s.post(t, "/completions", body[1])), `"text":" three"`)
}

// Ensure that after a signal the running requests are answered completely and new requests are refused.
func TestASignalLetsRequestsEnd(t *testing.T) {
	s := serveDemo(t, "--drain", patience.String())
	beams := make(chan *http.Response, 1)
	go func() {
		r, _ := http.Post(s.url+"/completions", "application/json",
			strings.NewReader(`{"model": "demo", "prompt": "abc abc", "max_tokens": 100, "use_beam_search": true, "n": 2}`))
		beams <- r
	}()
	s.waitForMetric(t, `vllm:request_success_total\{.*"length".*\} [1-9]`) // its first step is over
	r := s.post(t, "/completions",
		`{"model": "demo", "prompt": "abc abc", "max_tokens": 300, "stream": true, "ignore_eos": true, "temperature": 0}`)
	require.Equal(t, "no", r.Header.Get("X-Accel-Buffering"), "for nginx")
	_, err := r.Body.Read(make([]byte, 1))
	require.NoError(t, err)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	rest := text(t, r)
	require.True(t, strings.HasSuffix(rest, "data: [DONE]\n\n"), rest[max(0, len(rest)-200):])
	require.Equal(t, 300, strings.Count(rest, `"text"`))
	found := <-beams
	require.NotNil(t, found, "an answer, not a closed connection")
	require.Contains(t, text(t, found), `"completion_tokens":200`)
	require.NoError(t, s.cmd.Wait())
	_, err = http.Get(s.url + "/models")
	require.Error(t, err)
}

// Ensure that the server then still answers its running requests.
func TestAServerWhoseOutputNobodyReadsDrains(t *testing.T) {
	s := serveDemo(t, "--drain", patience.String())
	r := s.post(t, "/completions",
		`{"model": "demo", "prompt": "abc abc", "max_tokens": 100, "stream": true, "ignore_eos": true, "temperature": 0}`)
	require.NoError(t, s.out.Close())
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	rest := text(t, r)
	require.True(t, strings.HasSuffix(rest, "data: [DONE]\n\n"), rest[max(0, len(rest)-200):])
	require.NoError(t, s.cmd.Wait())
}

// A model that is still being loaded has nothing to finish.
func TestASignalEndsTheProcessWhileTheModelIsLoaded(t *testing.T) {
	dir := t.TempDir()
	config := filepath.Join(dir, "config.json")
	require.NoError(t, syscall.Mkfifo(config, 0o600))
	for _, test := range []struct {
		name   string
		args   []string
		status int
	}{
		{"serving", []string{dir, "--port", "0"}, 0},
		{"run", []string{"run", dir, "x"}, 130},
		{"bench", []string{"bench", dir}, 130},
	} {
		c := llmserve(test.args...)
		require.NoError(t, c.Start())
		slow, err := os.OpenFile(config, os.O_WRONLY, 0) // waits until the process reads
		require.NoError(t, err)
		require.NoError(t, c.Process.Signal(syscall.SIGTERM))
		_ = c.Wait()
		require.Equal(t, test.status, c.ProcessState.ExitCode(), test.name)
		require.NoError(t, slow.Close())
	}
}

func TestBenchSaysByItsStatusThatItWasInterrupted(t *testing.T) {
	level.SkipQuick(t)
	c := llmserve("bench", "demo", "--num-prompts", "20000")
	require.NoError(t, c.Start())
	require.Eventually(t, func() bool { // it has computed for longer than loading the demo takes
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.Process.Pid))
		require.NoError(t, err)
		// utime is the 14th field, the name the second
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')'):]))
		ticks, err := strconv.Atoi(fields[12])
		require.NoError(t, err)
		return ticks >= 30
	}, patience, 5*time.Millisecond)
	require.NoError(t, c.Process.Signal(os.Interrupt))
	_ = c.Wait()
	require.Equal(t, 130, c.ProcessState.ExitCode())
}

// Ensure that requests are aborted if they do not end during --drain. The error must say that the server is shutting
// down.
func TestRequestsThatDoNotEndAreCutOff(t *testing.T) {
	s := serveDemo(t, "--drain", "10ms")
	const body = `{"model": "demo", "prompt": "abc abc", "max_tokens": 4000, "ignore_eos": true, "stream": `
	whole := make(chan *http.Response, 1)
	go func() {
		r, _ := http.Post(s.url+"/completions", "application/json", strings.NewReader(body+"false}"))
		whole <- r
	}()
	r := s.post(t, "/completions", body+"true}")
	_, err := r.Body.Read(make([]byte, 1))
	require.NoError(t, err)
	waitForRequests(t, s, 2)
	require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
	rest := text(t, r)
	require.Contains(t, rest[max(0, len(rest)-200):], `data: {"error":{"message":"The server is shutting down."`)
	cut := <-whole
	require.NotNil(t, cut, "an answer, not a closed connection")
	require.Equal(t, 503, cut.StatusCode)
	require.Contains(t, text(t, cut), "shutting_down")
	require.NoError(t, s.cmd.Wait())
}

func waitForRequests(t *testing.T, s *server, n int) {
	s.waitForMetric(t, fmt.Sprintf(`vllm:num_requests_running\{.*\} %d\n`, n))
}

func (s *server) waitForMetric(t *testing.T, line string) {
	wanted := regexp.MustCompile(`\n` + line)
	require.Eventually(t, func() bool {
		r, err := http.Get(strings.TrimSuffix(s.url, "/v1") + "/metrics")
		require.NoError(t, err)
		return wanted.MatchString(text(t, r))
	}, patience, 5*time.Millisecond)
}

func TestKeysComeFromTheFlagAndTheEnvironment(t *testing.T) {
	t.Setenv("LLMSERVE_API_KEY", "b")
	s := serveDemo(t, "--api-key", "a", "--api-key", "c,d")
	require.Equal(t, 401, s.post(t, "/completions", question).StatusCode)
	r, err := http.NewRequest("GET", s.url+"/models", nil)
	require.NoError(t, err)
	r.Header.Set("Authorization", "Bearer c")
	part, err := http.DefaultClient.Do(r)
	require.NoError(t, err)
	require.Equal(t, 401, part.StatusCode, "a part of a key with a comma is no key")
	for _, key := range []string{"a", "b", "c,d"} {
		r, err := http.NewRequest("POST", s.url+"/completions", strings.NewReader(question))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+key)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		require.Contains(t, text(t, answer), `"text":" three"`)
	}
}

func TestRunAnswersInTheTerminal(t *testing.T) {
	for _, more := range [][]string{nil, {"--tensor-parallel-size", "2"}, {"--tensor-parallel-size", "4"},
		{"--no-async-scheduling"}, {"--num-speculative-tokens", "3", "--no-prefix-caching"}} {
		out, err := llmserve(append([]string{"run", "demo", "The door code is 4711. The door", "--temperature", "0",
			"--max-tokens", "13"}, more...)...).Output()
		require.NoError(t, err)
		require.Equal(t, " code is 4711\n", string(out), "%v", more)
	}
	out, err := llmserve("run", "demo", "--chat", "Hello!", "--temperature", "0").Output()
	require.NoError(t, err)
	require.Equal(t, "Hello!\n", string(out))
}

func TestBenchWritesWhatVLLMsBenchWrites(t *testing.T) {
	dir := t.TempDir()
	file, steps, arrivals := filepath.Join(dir, "result.json"), filepath.Join(dir, "steps.csv"),
		filepath.Join(dir, "arrivals.csv")
	out, err := llmserve("bench", "demo", "--kv-cache-gb", "0.2", "--num-prompts", "6", "--prefix-len", "64",
		"--input-len", "8",
		"--output-len", "5", "--max-concurrency", "3", "--request-rate", "1000", "-o", file, "--steps", steps, "--arrivals",
		arrivals).Output()
	require.NoError(t, err)
	require.Contains(t, string(out), "6 requests in")
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	var r map[string]float64
	require.NoError(t, json.Unmarshal(data, &r))
	require.EqualValues(t, 6, r["completed"])
	require.EqualValues(t, 6*72, r["total_input_tokens"])
	require.EqualValues(t, 30, r["total_output_tokens"])
	for _, name := range []string{"duration", "output_throughput", "median_ttft_ms", "p90_tpot_ms", "p99_itl_ms",
		"overhead_percent"} {
		require.Positive(t, r[name], name)
	}
	list, err := os.ReadFile(steps)
	require.NoError(t, err)
	var tokens int
	for line := range strings.Lines(strings.TrimPrefix(string(list), "batch,context,prompt,seconds\n")) {
		var batch, prompt int
		var context, seconds float64
		_, err := fmt.Sscanf(strings.ReplaceAll(line, ",", " "), "%d %g %d %g", &batch, &context, &prompt, &seconds)
		require.NoError(t, err, line)
		require.Positive(t, seconds)
		require.True(t, prompt > 0 || context > 72, line)
		tokens += batch
	}
	require.Equal(t, 6*5, tokens, "all tokens of all answers")
	requests, err := os.ReadFile(arrivals)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(requests), "arrival,prompt,output\n"))
	require.Equal(t, 6, strings.Count(string(requests), ",72,5\n"))
}

func TestQuantilesLieBetweenTheNearestValues(t *testing.T) {
	got := spread([]float64{4, 1, 2, 3})
	require.InDeltaSlice(t, []float64{2.5, 2.5, 3.7, 3.97}, got[:], 1e-9)
}

func TestThreadsAreBoundToProcessors(t *testing.T) {
	var allowed unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &allowed))
	var cpus []string
	for i := 0; len(cpus) < 2 && i < 1024; i++ {
		if allowed.IsSet(i) {
			cpus = append(cpus, strconv.Itoa(i))
		}
	}
	if len(cpus) < 2 {
		t.Skip("one processor")
	}
	s := serveDemo(t, "--threads", "2", "--cpus", strings.Join(cpus, ","))
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", s.cmd.Process.Pid))
	require.NoError(t, err)
	var bound int
	for _, task := range tasks {
		status, err := os.ReadFile(task)
		require.NoError(t, err)
		if regexp.MustCompile(`(?m)^Cpus_allowed_list:\s*` + cpus[1] + `$`).Match(status) {
			bound++
		}
	}
	require.Equal(t, 1, bound, "the thread that helps the engine's own")
}
