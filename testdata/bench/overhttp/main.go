// Command overhttp measures llmserve over HTTP. ../llamacpp/bench.cpp measures llama.cpp with the same loads through
// its library. One load is 16 concurrent requests with prompts of 2,048 tokens that differ only in the last token. The
// other is 8 completions of a prompt of 1,024 tokens. Every answer has 64 tokens.
//
// Usage: overhttp LLMSERVE MODEL THREADS ROUNDS
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"llmmemory/testdata/bench/fatal"
	"llmmemory/testdata/bench/replica"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 5 {
		log.Fatal("usage: overhttp LLMSERVE MODEL THREADS ROUNDS")
	}
	rounds := fatal.Get(strconv.Atoi(os.Args[4]))
	r := replica.Start(os.Args[1], os.Args[2], "--threads", os.Args[3])
	defer r.Kill()
	for _, work := range []struct {
		name                string
		requests, n, prompt int
	}{{"shared=16", 16, 1, 2048}, {"n=8", 1, 8, 1024}} {
		fastest := time.Hour
		for round := range rounds {
			fastest = min(fastest, ask(r, work.requests, work.n, work.prompt, round))
		}
		fmt.Printf("%s %.2f s\n", work.name, fastest.Seconds())
	}
}

// ask sends several requests at once, and returns the time until the last answer. In a round, the prompts
// differ only in their last token; each round has new prompts.
func ask(r *replica.Replica, requests, n, prompt, round int) time.Duration {
	tokens := make([]int, prompt)
	for i := range tokens {
		tokens[i] = (i*37 + 1000*(round+1)) % 32000
	}
	var bodies []string
	for i := range requests {
		tokens[prompt-1] = 100 + i
		bodies = append(bodies, string(fatal.Get(json.Marshal(map[string]any{
			"model": "m", "prompt": tokens, "max_tokens": 64, "n": n, "ignore_eos": true, "temperature": 1, "seed": i,
		}))))
	}
	var wait sync.WaitGroup
	begin := time.Now()
	for _, body := range bodies {
		wait.Go(func() {
			var answer struct {
				Usage struct {
					Completion int `json:"completion_tokens"`
				}
			}
			fatal.If(json.Unmarshal(r.Complete(body), &answer))
			if got := answer.Usage.Completion; got != 64*n {
				log.Fatalf("%d tokens; want %d", got, 64*n)
			}
		})
	}
	wait.Wait()
	return time.Since(begin)
}
