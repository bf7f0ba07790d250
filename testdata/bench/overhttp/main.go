// Command overhttp measures llmserve over HTTP as ../llamacpp/bench.cpp measures llama.cpp through its
// library: 16 requests over one shared prompt of 2,048 tokens, at once, 64 new tokens each; and 8
// completions of one prompt of 1,024 tokens, 64 new tokens each.
// Usage: overhttp LLMSERVE MODEL THREADS ROUNDS
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"sync"
	"time"
)

var server *exec.Cmd

func main() {
	log.SetFlags(0)
	if len(os.Args) != 5 {
		log.Fatal("usage: overhttp LLMSERVE MODEL THREADS ROUNDS")
	}
	rounds, err := strconv.Atoi(os.Args[4])
	check(err)
	url := start(os.Args[1], os.Args[2], os.Args[3])
	for _, work := range []struct {
		name                string
		requests, n, prompt int
	}{{"shared=16", 16, 1, 2048}, {"n=8", 1, 8, 1024}} {
		fastest := time.Hour
		for round := range rounds {
			fastest = min(fastest, ask(url, work.requests, work.n, work.prompt, round))
		}
		fmt.Printf("%s %.2f s\n", work.name, fastest.Seconds())
	}
	stop()
}

func stop() {
	_ = server.Process.Kill()
	_ = server.Wait()
}

func check(err error) {
	if err == nil {
		return
	}
	if server != nil && server.Process != nil {
		stop()
	}
	log.Fatal("overhttp: ", err)
}

// start starts the server and returns its address.
func start(binary, model, threads string) string {
	server = exec.Command(binary, model, "--port", "0", "--threads", threads, "--kv-cache-gb", "1",
		"--served-model-name", "m")
	server.Stderr = os.Stderr
	out, err := server.StdoutPipe()
	check(err)
	check(server.Start())
	address := regexp.MustCompile(`http://127\.0\.0\.1:\d+/v1`)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if url := address.FindString(lines.Text()); url != "" {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return url
		}
	}
	check(io.ErrUnexpectedEOF)
	return ""
}

// ask sends requests at once, whose prompts are the same but for the last token, and returns how long all answers
// took. Each round has a prompt that was not there before.
func ask(url string, requests, n, prompt, round int) time.Duration {
	tokens := make([]int, prompt)
	for i := range tokens {
		tokens[i] = (i*37 + 1000*(round+1)) % 32000
	}
	var bodies [][]byte
	for i := range requests {
		tokens[prompt-1] = 100 + i
		body, err := json.Marshal(map[string]any{
			"model": "m", "prompt": tokens, "max_tokens": 64, "n": n, "ignore_eos": true, "temperature": 1, "seed": i,
		})
		check(err)
		bodies = append(bodies, body)
	}
	var wait sync.WaitGroup
	begin := time.Now()
	for _, body := range bodies {
		wait.Go(func() {
			r, err := http.Post(url+"/completions", "application/json", bytes.NewReader(body))
			check(err)
			defer r.Body.Close()
			var answer struct {
				Usage struct {
					Completion int `json:"completion_tokens"`
				}
			}
			check(json.NewDecoder(r.Body).Decode(&answer))
			if got := answer.Usage.Completion; got != 64*n {
				check(fmt.Errorf("status %d, %d tokens; want %d", r.StatusCode, got, 64*n))
			}
		})
	}
	wait.Wait()
	return time.Since(begin)
}
