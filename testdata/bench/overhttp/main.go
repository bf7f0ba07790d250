// Command overhttp measures llmserve over HTTP as ../llamacpp/bench.cpp measures llama.cpp through its
// library: 16 requests over one shared prompt of 2,048 tokens, at once, 64 new tokens each; and 8
// completions of one prompt of 1,024 tokens, 64 new tokens each.
// Usage: overhttp LLMSERVE MODEL THREADS ROUNDS
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
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

func main() {
	log.SetFlags(0)
	if len(os.Args) != 5 {
		log.Fatal("usage: overhttp LLMSERVE MODEL THREADS ROUNDS")
	}
	rounds, err := strconv.Atoi(os.Args[4])
	if err != nil {
		log.Fatal("ROUNDS is a number")
	}
	if err := measure(os.Args[1], os.Args[2], os.Args[3], rounds); err != nil {
		log.Fatal(err)
	}
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+/v1`)

func measure(binary, model, threads string, rounds int) error {
	c := exec.Command(binary, model, "--port", "0", "--threads", threads, "--kv-cache-gb", "1", "--served-model-name", "m")
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	defer func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	}()
	url := ""
	for lines := bufio.NewScanner(out); url == "" && lines.Scan(); {
		url = address.FindString(lines.Text())
	}
	if url == "" {
		return errors.New("llmserve ended before it said its address")
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	for _, work := range []struct {
		name                string
		requests, n, prompt int
	}{{"shared=16", 16, 1, 2048}, {"n=8", 1, 8, 1024}} {
		fastest := time.Hour
		for round := range rounds {
			took, err := ask(url, work.requests, work.n, work.prompt, round)
			if err != nil {
				return err
			}
			fastest = min(fastest, took)
		}
		fmt.Printf("%s %.2f s\n", work.name, fastest.Seconds())
	}
	return nil
}

// ask sends requests at once, whose prompts are the same but for the last token, and returns when all
// are answered. Each round has a prompt that was not there before.
func ask(url string, requests, n, prompt, round int) (time.Duration, error) {
	tokens := make([]int, prompt)
	for i := range tokens {
		tokens[i] = (i*37 + 1000*(round+1)) % 32000
	}
	bodies := make([][]byte, requests)
	for i := range bodies {
		tokens[prompt-1] = 100 + i
		body, err := json.Marshal(map[string]any{
			"model": "m", "prompt": tokens, "max_tokens": 64, "n": n, "ignore_eos": true, "temperature": 1, "seed": i,
		})
		if err != nil {
			return 0, err
		}
		bodies[i] = body
	}
	errs := make(chan error, requests)
	var wait sync.WaitGroup
	begin := time.Now()
	for _, body := range bodies {
		wait.Go(func() { errs <- post(url, body, 64*n) })
	}
	wait.Wait()
	took := time.Since(begin)
	for range bodies {
		if err := <-errs; err != nil {
			return 0, err
		}
	}
	return took, nil
}

// post asks for an answer of want tokens.
func post(url string, body []byte, want int) error {
	r, err := http.Post(url+"/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer r.Body.Close()
	var answer struct {
		Usage struct {
			Completion int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK || answer.Usage.Completion != want {
		return fmt.Errorf("status %d, %d tokens; want 200 and %d", r.StatusCode, answer.Usage.Completion, want)
	}
	return nil
}
