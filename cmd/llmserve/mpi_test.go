//go:build mpi

package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
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

	"llmmemory/internal/testkit/weightfile"
)

// mpirun returns the command that runs llmserve as n processes. A ":" in args begins the arguments of n further
// processes.
func mpirun(n int, args ...string) *exec.Cmd {
	words := []string{"--oversubscribe", "--bind-to", "none", "--tag-output", "-x", asCommand}
	for i, process := range strings.Split(strings.Join(args, "\x00"), "\x00:\x00") {
		if i > 0 {
			words = append(words, ":")
		}
		words = append(append(words, "-n", strconv.Itoa(n), os.Args[0]), strings.Split(process, "\x00")...)
	}
	c := exec.Command("mpirun", words...)
	c.Env = append(os.Environ(), asCommand+"=1", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
	return c
}

func randomModel(t *testing.T, kind string) string {
	path := filepath.Join(t.TempDir(), "random.gguf")
	require.NoError(t, weightfile.LlamaFile(path, weightfile.Llama{
		Hidden: 256, Layers: 3, Heads: 8, KVHeads: 4, Inter: 512, Vocab: 1024, Context: 512, Type: kind,
	}))
	return path
}

var prompts = []string{"one two three, one two", "The door code is 4711. The door", strings.Repeat("a long prompt ", 30)}

// answers returns the answers to all prompts, with log probabilities, and their vectors. If the logits of two servers
// differ, their log probabilities show it.
func answers(t *testing.T, url string) (all []string) {
	for _, p := range prompts {
		r, err := http.Post(url+"/completions", "application/json", strings.NewReader(
			fmt.Sprintf(`{"model": "m", "prompt": %q, "max_tokens": 12, "temperature": 0, "logprobs": 5, "ignore_eos": true}`, p)))
		require.NoError(t, err)
		choices := regexp.MustCompile(`"choices":\[.*\]`).FindString(text(t, r))
		require.Contains(t, choices, `"top_logprobs"`)
		r, err = http.Post(url+"/embeddings", "application/json", strings.NewReader(fmt.Sprintf(`{"model": "m", "input": %q}`, p)))
		require.NoError(t, err)
		vector := regexp.MustCompile(`"embedding":\[.*\]`).FindString(text(t, r))
		require.NotEmpty(t, vector)
		all = append(all, choices, vector)
	}
	return all
}

type job struct {
	*exec.Cmd
	errors bytes.Buffer
	url    string
}

// startJob starts a server of n ranks. If n is 0, it starts one process without mpirun.
func startJob(t *testing.T, n int, args ...string) *job {
	args = append(args, "--port", "0", "--kv-cache-gb", "0.1", "--threads", "1", "--served-model-name", "m")
	j := &job{Cmd: llmserve(args...)}
	if n > 0 {
		j.Cmd = mpirun(n, args...)
	}
	out, err := j.StdoutPipe()
	require.NoError(t, err)
	j.Stderr = &j.errors
	require.NoError(t, j.Start())
	t.Cleanup(func() {
		_ = j.Process.Signal(syscall.SIGTERM) // it may have ended
		_ = j.Wait()
	})
	text, buffer := "", make([]byte, 4096)
	for j.url == "" {
		n, err := out.Read(buffer)
		require.NoError(t, err, "%s%s", text, &j.errors)
		text += string(buffer[:n])
		j.url = regexp.MustCompile(`http://127\.0\.0\.1:\d+/v1`).FindString(text)
	}
	go func() { // so that it can write
		for err == nil {
			_, err = out.Read(buffer)
		}
	}()
	return j
}

// Ensure that servers of 1, 2 and 4 workers and of 2 and 4 ranks give the same answers and vectors, to the last
// digit of each log probability.
func TestRanksAnswerAsOneProcess(t *testing.T) {
	pool := []string{"--runner", "pooling", "--pooler-config", `{"pooling_type": "MEAN"}`}
	for _, kind := range []string{"F16", "Q8_0"} {
		path := randomModel(t, kind)
		want := answers(t, startJob(t, 0, append(pool, path)...).url)
		for _, n := range []int{2, 4} {
			workers := startJob(t, 0, append(pool, path, "--tensor-parallel-size", strconv.Itoa(n))...)
			require.Equal(t, want, answers(t, workers.url), "%d workers, %s", n, kind)
			require.Equal(t, want, answers(t, startJob(t, n, append(pool, path)...).url), "%d ranks, %s", n, kind)
		}
	}
	for _, n := range []int{2, 4} {
		workers := startJob(t, 0, append([]string{"demo", "--tensor-parallel-size", strconv.Itoa(n)}, pool...)...)
		require.Equal(t, answers(t, workers.url), answers(t, startJob(t, n, append([]string{"demo"}, pool...)...).url), "the demo, %d ranks", n)
	}
}

// Ensure that all ranks end if a setting must be the same but differs between them. Only rank 0 may report it.
func TestWhatRanksCannotShareIsRefused(t *testing.T) {
	path, other := randomModel(t, "F16"), randomModel(t, "Q8_0")
	for _, test := range []struct {
		name string
		n    int
		args []string
		want string
	}{
		{"a number of ranks", 3, []string{"run", path, "a"}, "3 processes were started; 1, 2 and 4 can share a model"},
		{"heads", 4, []string{"run", heads(t, 2), "a"}, "2 key heads cannot be shared out among 4 workers"},
		{"another number of workers", 2, []string{"run", path, "a", "--tensor-parallel-size", "4"}, "leave it out"},
		{"another model", 1, []string{"run", path, "a", ":", "run", other, "a"}, "the content of the weights is "},
		{"another flag", 1, []string{"run", path, "a", ":", "run", path, "a", "--block-size", "32"},
			"--block-size is 32 on rank 1 ("},
		{"another longest sequence", 1, []string{"run", path, "a", ":", "run", path, "a", "--max-model-len", "64"},
			"--max-model-len is 64 on rank 1 ("},
		{"no model on the first rank", 1, []string{"run", "nowhere", "a", ":", "run", path, "a"}, "rank 0 on "},
		{"no model on the second rank", 1, []string{"run", path, "a", ":", "run", "nowhere", "a"}, "rank 1 on "},
		{"an unknown flag", 2, []string{"run", path, "a", "--bogus"}, "unknown flag: --bogus"},
		{"a tier that is a file", 2, []string{path, "--kv-offload-dir", path}, "is not a folder"},
		{"too short a limit", 2, []string{"run", path, "a", "--iteration-timeout", "1ms"}, "it must be at least 1s"},
		{"memory", 2, []string{"run", path, "a", "--kv-cache-gb", "1000000"}, "GiB of memory are available"},
	} {
		t.Run(test.name, func(t *testing.T) {
			out, err := mpirun(test.n, test.args...).CombinedOutput()
			require.Error(t, err)
			sentences := regexp.MustCompile(`(?m)^\[.*llmserve: .*$`).FindAllString(string(out), -1)
			require.Len(t, sentences, 1, string(out))
			require.Contains(t, sentences[0], test.want)
			require.Contains(t, sentences[0], ",0]<stderr>", "rank 0 says it")
		})
	}
}

// Ensure that a server of several ranks finds the blocks that a server of one process has stored. It must also find
// the blocks that another server of several ranks has stored before one of its ranks was killed.
func TestRanksKeepBlocksOutside(t *testing.T) {
	path := randomModel(t, "F16")
	question := `{"model": "m", "prompt": [` + strings.TrimSuffix(strings.Repeat("5,6,7,9,", 60), ",") +
		`], "max_tokens": 40, "temperature": 0, "logprobs": 2, "ignore_eos": true}`
	for _, n := range []int{2, 4} {
		ofWorkers, ofRanks := t.TempDir(), t.TempDir()
		workers := startJob(t, 0, path, "--tensor-parallel-size", strconv.Itoa(n), "--kv-offload-dir", ofWorkers)
		want := workers.server().ask(t, question)
		first := startJob(t, n, path, "--kv-offload-dir", ofRanks)
		require.Equal(t, want, first.server().ask(t, question))
		require.Eventually(t, func() bool { return len(files(t, ofWorkers)) == 17 }, patience, 5*time.Millisecond,
			"279 tokens of which keys and values are known")
		require.Eventually(t, func() bool { return maps.Equal(files(t, ofWorkers), files(t, ofRanks)) }, patience,
			5*time.Millisecond)
		require.NoError(t, syscall.Kill(first.ranks(t)[1], syscall.SIGKILL))
		require.Error(t, first.Wait())
		for _, dir := range []string{ofRanks, ofWorkers} {
			again := startJob(t, n, path, "--kv-offload-dir", dir).server()
			got := again.ask(t, question)
			require.Equal(t, string(want.Choices), string(got.Choices))
			require.Equal(t, 224, got.Usage.Details.Cached)
			again.waitForMetric(t, `vllm:external_prefix_cache_hits_total\{.*\} 224\n`)
		}
	}
}

func (j *job) server() *server { return &server{url: j.url} }

func files(t *testing.T, dir string) map[string]string {
	all := map[string]string{}
	paths, err := filepath.Glob(filepath.Join(dir, "*", "??", "*"))
	require.NoError(t, err)
	for _, p := range paths {
		content, err := os.ReadFile(p)
		if !errors.Is(err, os.ErrNotExist) { // it was a file that had not its name yet
			require.NoError(t, err)
			all[strings.TrimPrefix(p, dir)] = string(content)
		}
	}
	return all
}

func heads(t *testing.T, n int) string {
	path := filepath.Join(t.TempDir(), "heads.gguf")
	require.NoError(t, weightfile.LlamaFile(path, weightfile.Llama{
		Hidden: 64, Layers: 1, Heads: n, KVHeads: n, Inter: 64, Vocab: 512, Context: 64, Type: "F16",
	}))
	return path
}

func TestRanksFlagIsInTheHelp(t *testing.T) {
	text, err := llmserve("--help").Output()
	require.NoError(t, err)
	require.Contains(t, string(text), "--iteration-timeout")
}

func TestRanksEndWithRankZero(t *testing.T) {
	j := startJob(t, 2, "demo")
	require.NoError(t, syscall.Kill(j.ranks(t)[0], syscall.SIGTERM))
	require.NoError(t, j.Wait(), &j.errors)
	require.Empty(t, j.errors.String())
}

func (j *job) ranks(t *testing.T) []int {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", j.Process.Pid))
	require.NoError(t, err)
	byRank := map[int]int{}
	for _, word := range strings.Fields(string(children)) {
		environment, err := os.ReadFile("/proc/" + word + "/environ")
		require.NoError(t, err)
		rank := regexp.MustCompile(`OMPI_COMM_WORLD_RANK=(\d+)`).FindSubmatch(environment)
		require.NotNil(t, rank)
		number, err := strconv.Atoi(string(rank[1]))
		require.NoError(t, err)
		byRank[number], err = strconv.Atoi(word)
		require.NoError(t, err)
	}
	all := make([]int, len(byRank))
	for rank, pid := range byRank {
		all[rank] = pid
	}
	return all
}

// Ensure that the loss of a rank ends all other ranks. Their message must name the lost rank. The rank is killed or
// stopped during a step, between two steps, or while blocks are stored or loaded.
func TestALostRankEndsTheOthers(t *testing.T) {
	dir, prompt := t.TempDir(), strings.Repeat("5,", 400)+"5"
	path := randomModel(t, "F16")
	rnd := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 0))
	for _, n := range []int{2, 4} {
		for lost := range n {
			for _, signal := range []syscall.Signal{syscall.SIGKILL, syscall.SIGSTOP} {
				for _, busy := range []bool{true, false} {
					t.Run(fmt.Sprintf("%v of rank %d of %d, busy %v", signal, lost, n, busy), func(t *testing.T) {
						j := startJob(t, n, path, "--iteration-timeout", "4s", "--kv-offload-dir", dir)
						if busy {
							go func() {
								r, err := http.Post(j.url+"/completions", "application/json", strings.NewReader(
									`{"model": "m", "prompt": [`+prompt+`], "max_tokens": 100, "ignore_eos": true, "n": 16}`))
								if err == nil {
									_ = r.Body.Close() // nobody reads it
								}
							}()
						}
						pids := j.ranks(t)
						time.Sleep(time.Duration(rnd.IntN(300)) * time.Millisecond)
						require.NoError(t, syscall.Kill(pids[lost], signal))
						require.Error(t, j.Wait())
						want := fmt.Sprintf(`llmserve: rank \d on \S+: rank %d is lost: no answer for 4s\n`, lost)
						if signal == syscall.SIGKILL { // mpirun sees it first
							want = fmt.Sprintf(`process rank %d with PID \d+ on node \S+ exited on\s+signal 9`, lost)
						}
						require.Regexp(t, want, j.errors.String())
						for _, pid := range pids {
							require.Eventually(t, func() bool { return syscall.Kill(pid, 0) != nil }, time.Minute, 10*time.Millisecond)
						}
					})
				}
			}
		}
	}
}
