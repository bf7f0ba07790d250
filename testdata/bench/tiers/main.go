// Command tiers measures what keys and values outside the process gain and cost, and prints the table of
// cmd/llmserve/README.md: go run ./testdata/bench/tiers [-redis URL] [-rounds N] LLMSERVE MODEL.gguf
//
// In each round one prompt of 2,048 random tokens is computed by a server without tiers, and then by one with
// tiers that is killed when it has stored everything. Servers that were started after that load it: from
// files in the page cache, from files that were dropped from it, and from Redis. Then 16 requests at once
// share a prompt on a new replica, and decoding is timed with and without a tier, in turns.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

var (
	redis   = flag.String("redis", "", "URL of a Redis server")
	rounds  = flag.Int("rounds", 3, "prompts")
	command string
	model   string
)

func main() {
	log.SetFlags(0)
	if flag.Parse(); flag.NArg() != 2 {
		log.Fatal("usage: tiers [-redis URL] [-rounds N] LLMSERVE MODEL.gguf")
	}
	command, model = flag.Arg(0), flag.Arg(1)
	dir, err := os.MkdirTemp(filepath.Dir(model), "tier-")
	check(err)
	defer os.RemoveAll(dir)
	files := []string{"--kv-offload-dir", dir, "--kv-offload-gb", "20"}
	server := []string{"--kv-offload-url", *redis}
	times := map[string][]time.Duration{}
	note := func(name string, took time.Duration) {
		times[name] = append(times[name], took)
		fmt.Printf("%-28s %8.3f s\n", name, took.Seconds())
	}
	for range *rounds {
		body := prompt(2048, 1)
		note("computed", once(nil, body))
		fill(files, body)
		once(files, body) // reads them into the page cache
		note("files, in the page cache", once(files, body))
		drop(dir)
		note("files, not in it", once(files, body))
		if *redis != "" {
			fill(server, body)
			note("Redis", once(server, body))
		}
	}
	shared(files)
	for range *rounds {
		note("decoding, no tier", decode(nil))
		note("decoding, files", decode(files))
	}
	fmt.Println()
	for _, name := range []string{"files, in the page cache", "files, not in it", "Redis"} {
		if len(times[name]) > 0 {
			fmt.Printf("%s: %.3f of the time of computing\n", name, median(times[name])/median(times["computed"]))
		}
	}
	fmt.Printf("decoding with a tier: %.3f of the time without\n", median(times["decoding, files"])/median(times["decoding, no tier"]))
}

func check(err error) {
	if err != nil {
		log.Fatal("tiers: ", err)
	}
}

func median(all []time.Duration) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]).Seconds() / 2
}

// prompt is a request of n random tokens.
func prompt(n, most int) string {
	tokens := make([]string, n)
	for i := range tokens {
		tokens[i] = strconv.Itoa(300 + rand.IntN(20000))
	}
	return fmt.Sprintf(`{"model": "m", "prompt": [%s], "max_tokens": %d, "temperature": 0, "ignore_eos": true}`, strings.Join(tokens, ","), most)
}

// A process serves the model.
type process struct {
	cmd *exec.Cmd
	url string
}

func start(args []string) *process {
	c := exec.Command(command, append([]string{model, "--port", "0", "--kv-cache-gb", "1", "--served-model-name", "m"}, args...)...)
	out, err := c.StdoutPipe()
	check(err)
	c.Stderr = os.Stderr
	check(c.Start())
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if url := regexp.MustCompile(`http://[^/]*`).FindString(lines.Text()); url != "" {
			go io.Copy(io.Discard, out)
			return &process{c, url}
		}
	}
	log.Fatal("tiers: the server does not start")
	return nil
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func (p *process) ask(body string) (took time.Duration, cached int) {
	begin := time.Now()
	r, err := http.Post(p.url+"/v1/completions", "application/json", strings.NewReader(body))
	check(err)
	defer r.Body.Close()
	var a struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	check(json.NewDecoder(r.Body).Decode(&a))
	if r.StatusCode != 200 {
		log.Fatal("tiers: status ", r.StatusCode)
	}
	return time.Since(begin), a.Usage.Details.Cached
}

// metric is the value of a line of /metrics.
func (p *process) metric(name string) float64 {
	r, err := http.Get(p.url + "/metrics")
	check(err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	check(err)
	found := regexp.MustCompile(`\n` + name + ` (\S+)`).FindSubmatch(text)
	if found == nil {
		log.Fatal("tiers: no metric ", name)
	}
	v, err := strconv.ParseFloat(string(found[1]), 64)
	check(err)
	return v
}

// once asks a server that was just started.
func once(args []string, body string) time.Duration {
	p := start(args)
	defer p.kill()
	took, cached := p.ask(body)
	if args != nil && cached == 0 {
		log.Fatal("tiers: nothing was loaded")
	}
	return took
}

// fill computes a prompt, and kills the server when everything is stored.
func fill(args []string, body string) {
	p := start(args)
	defer p.kill()
	p.ask(body)
	before := -1.0
	for {
		now := p.metric(`vllm:kv_offload_total_bytes\{.*CPU_to_tier.*\}`)
		if now > 0 && now == before && p.metric(`llmserve:kv_offload_queued_blocks\{.*\}`) == 0 {
			return
		}
		before = now
		time.Sleep(200 * time.Millisecond)
	}
}

// drop takes the files out of the page cache.
func drop(dir string) {
	unix.Sync()
	check(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	}))
}

// shared has 16 requests at once over one prompt on two replicas, and prints how often each block was read.
func shared(args []string) {
	body := prompt(2048, 1)
	fill(args, body)
	for replica := range 2 {
		p := start(args)
		var wait sync.WaitGroup
		begin := time.Now()
		for range 16 {
			wait.Go(func() { p.ask(body) })
		}
		wait.Wait()
		took := time.Since(begin)
		loaded := p.metric(`vllm:external_prefix_cache_hits_total\{.*\}`)
		fmt.Printf("replica %d: 16 requests over one prompt took %.3f s and loaded %.0f tokens of 2,048\n", replica+1, took.Seconds(), loaded)
		p.kill()
	}
}

// decode times 16 requests of 64 tokens with 128 new ones, the second time on a server.
func decode(args []string) time.Duration {
	p := start(args)
	defer p.kill()
	var took time.Duration
	for range 2 {
		var wait sync.WaitGroup
		begin := time.Now()
		for range 16 {
			body := prompt(64, 128)
			wait.Go(func() { p.ask(body) })
		}
		wait.Wait()
		took = time.Since(begin)
	}
	return took
}
