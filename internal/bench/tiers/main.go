// Command tiers measures the advantage and the cost of a tier, which keeps keys and values in files or in Redis. It
// prints the table of cmd/llmserve/README.md:
//
//	go run ./internal/bench/tiers [-redis URL] [-rounds N] LLMSERVE MODEL.gguf
//
// Each round has a prompt of 2,048 random tokens. A server without tiers computes it. A server with a tier computes it,
// too, and is killed when it has stored all blocks. New servers then load the blocks from files in the page cache and
// from files dropped from the page cache. With -redis, the same is done with Redis. After the rounds, two new replicas
// with the tier of files are started one after the other, and each gets 16 concurrent requests with the same prompt.
// Decoding is timed alternately with and without this tier.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"llmmemory/internal/bench/fatal"
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
	dir := fatal.Get(os.MkdirTemp(filepath.Dir(model), "tier-"))
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
		note("computed", askNew(nil, body))
		fill(files, body)
		askNew(files, body) // reads them into the page cache
		note("files, in the page cache", askNew(files, body))
		drop(dir)
		note("files, not in it", askNew(files, body))
		if *redis != "" {
			fill(server, body)
			note("Redis", askNew(server, body))
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

func median(times []time.Duration) float64 {
	sorted := slices.Sorted(slices.Values(times))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]).Seconds() / 2
}

func prompt(n, maxTokens int) string {
	tokens := make([]string, n)
	for i := range tokens {
		tokens[i] = strconv.Itoa(300 + rand.IntN(20000))
	}
	return fmt.Sprintf(`{"model": "m", "prompt": [%s], "max_tokens": %d, "temperature": 0, "ignore_eos": true}`, strings.Join(tokens, ","), maxTokens)
}

func ask(r *replica, body string) (took time.Duration, cached int) {
	begin := time.Now()
	text := r.complete(body)
	took = time.Since(begin)
	var a struct {
		Usage struct {
			Details struct {
				Cached int `json:"cached_tokens"`
			} `json:"prompt_tokens_details"`
		}
	}
	fatal.If(json.Unmarshal(text, &a))
	return took, a.Usage.Details.Cached
}

// metric returns the value of a metric. name is a regular expression that matches the metric's name and labels.
func metric(r *replica, name string) float64 {
	found := regexp.MustCompile(`\n` + name + ` (\S+)`).FindSubmatch(r.metrics())
	if found == nil {
		log.Fatal("no metric ", name)
	}
	return fatal.Get(strconv.ParseFloat(string(found[1]), 64))
}

func askNew(args []string, body string) time.Duration {
	p := start(args)
	defer p.kill()
	took, cached := ask(p, body)
	if args != nil && cached == 0 {
		log.Fatal("nothing was loaded")
	}
	return took
}

// fill makes a server compute a prompt, waits until the server has stored all blocks, and kills it.
func fill(args []string, body string) {
	p := start(args)
	defer p.kill()
	ask(p, body)
	before := -1.0
	for {
		now := metric(p, `vllm:kv_offload_total_bytes\{.*CPU_to_tier.*\}`)
		if now > 0 && now == before && metric(p, `llmserve:kv_offload_queued_blocks\{.*\}`) == 0 {
			return
		}
		before = now
		time.Sleep(200 * time.Millisecond)
	}
}

func drop(dir string) {
	unix.Sync()
	fatal.If(filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
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

func together(call func()) time.Duration {
	var wait sync.WaitGroup
	begin := time.Now()
	for range 16 {
		wait.Go(call)
	}
	wait.Wait()
	return time.Since(begin)
}

// shared fills the tier with the blocks of a prompt. Then it starts two replicas, one after the other, and sends each
// of them 16 requests with this prompt at the same time. It prints how long they took and how many tokens the replica
// loaded from the tier.
func shared(args []string) {
	body := prompt(2048, 1)
	fill(args, body)
	for number := range 2 {
		p := start(args)
		took := together(func() { ask(p, body) })
		loaded := metric(p, `vllm:external_prefix_cache_hits_total\{.*\}`)
		fmt.Printf("replica %d: 16 requests over one prompt took %.3f s and loaded %.0f tokens of 2,048\n", number+1,
			took.Seconds(), loaded)
		p.kill()
	}
}

// decode returns how long a server takes to generate 128 tokens for each of 16 prompts of 64 tokens. The
// server has answered other requests before, so that it is warm.
func decode(args []string) time.Duration {
	p := start(args)
	defer p.kill()
	together(func() { ask(p, prompt(64, 128)) })
	return together(func() { ask(p, prompt(64, 128)) })
}
