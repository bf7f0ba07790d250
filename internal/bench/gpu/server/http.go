package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

type load struct {
	Name    string  `json:"name"`
	Prompts []int   `json:"prompts"` // their lengths
	New     int     `json:"new"`     // tokens of each answer
	minimum float64 // how many times as fast as transformers
}

func (b *bench) loads() (all []load) {
	new := b.pick(128, 4)
	for _, n := range []int{b.pick(64, 3), b.pick(256, 5)} {
		l := load{Name: fmt.Sprintf("%d requests of %d to %d tokens, %d new", n, b.pick(64, 4), b.pick(1024, 40), new), New: new, minimum: 2}
		for i := range n { // in an order like that of random requests
			l.Prompts = append(l.Prompts, b.pick(64, 4)+i*37%n*b.pick(960, 36)/(n-1))
		}
		all = append(all, l)
	}
	length := b.pick(544, 22)
	return append(all, load{Name: fmt.Sprintf("1 request of %d tokens, %d new", length, new), Prompts: []int{length}, New: new, minimum: 3})
}

func (b *bench) work(w io.Writer) error {
	return json.NewEncoder(w).Encode(map[string]any{"config": llama(b.small).config, "loads": b.loads()})
}

// minute returns a context that ends programs after a minute, in case they hang. With -small it has no time limit.
func (b *bench) minute() (context.Context, context.CancelFunc) {
	if b.small {
		return context.WithCancel(context.Background())
	}
	return context.WithTimeout(context.Background(), time.Minute)
}

// child returns a command that is killed when this process ends. With -small, the child loads the file that the flag
// -driver names, and not NVIDIA's driver.
func (b *bench) child(ctx context.Context, program string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, program, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.Stderr = os.Stderr
	if b.small {
		c.Env = append(os.Environ(), "LD_LIBRARY_PATH="+b.dir)
	}
	return c
}

// limits are flags of llmserve.
func (b *bench) limits() []string {
	if b.small {
		return []string{"--max-num-batched-tokens", "64", "--max-model-len", "128", "--kv-cache-gb", "0.001"}
	}
	return []string{"--max-num-seqs", "256", "--max-num-batched-tokens", "2048", "--max-model-len", "2048"}
}

type server struct {
	url   string
	cmd   *exec.Cmd
	ready time.Duration // from the start of the process to the address
	loads []string      // the lines about the weights and the device
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

func (b *bench) serve(ctx context.Context, dir string, args ...string) (*server, error) {
	s := &server{cmd: b.child(ctx, b.llmserve, append([]string{dir, "--port", "0", "--device", "cuda", "--served-model-name", "m"}, args...)...)}
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if line := lines.Text(); strings.Contains(line, "loaded in") || strings.HasPrefix(line, "  device: ") {
			s.loads = append(s.loads, strings.TrimSpace(line))
		}
		if s.url = address.FindString(lines.Text()); s.url != "" {
			s.ready = time.Since(begin)
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return s, nil
		}
	}
	return nil, fmt.Errorf("llmserve does not start: %w", s.cmd.Wait())
}

func (s *server) stop() error {
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	return errors.Join(err, s.cmd.Wait())
}

// ask sends all requests of a load at once, and returns the time until the last answer. The prompts are
// random; their seed is computed from the sizes of the load.
func (s *server) ask(ctx context.Context, l *load, vocabulary int) (time.Duration, error) {
	var wait sync.WaitGroup
	bodies, errs := make([][]byte, len(l.Prompts)), make([]error, len(l.Prompts))
	for i, length := range l.Prompts {
		bodies[i], errs[i] = json.Marshal(map[string]any{"model": "m", "prompt": randomTokens(rand.New(rand.NewPCG(uint64(len(bodies)<<16+l.New), uint64(i))), length, vocabulary),
			"max_tokens": l.New, "ignore_eos": true, "temperature": 0})
	}
	begin := time.Now()
	for i := range bodies {
		wait.Go(func() { errs[i] = errors.Join(errs[i], s.complete(ctx, bodies[i], l.New)) })
	}
	wait.Wait()
	return time.Since(begin), errors.Join(errs...)
}

func (s *server) complete(ctx context.Context, body []byte, tokens int) error {
	r, err := http.NewRequestWithContext(ctx, "POST", s.url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	var parsed struct {
		Usage struct {
			Tokens int `json:"completion_tokens"`
		} `json:"usage"`
	}
	if err := json.Unmarshal(text, &parsed); err != nil || answer.StatusCode != http.StatusOK || parsed.Usage.Tokens != tokens {
		return fmt.Errorf("%s: %s", answer.Status, text)
	}
	return nil
}

// http measures llmserve over HTTP. llmserve reads the weights from the page cache: all tensors of the model's file
// use the same 1 GB of data.
func (b *bench) http() (err error) {
	s := llama(b.small)
	dir, err := b.folder("llama", s)
	if err != nil {
		return err
	}
	ctx, cancel := b.minute()
	defer cancel()
	llmserve, err := b.serve(ctx, dir, b.limits()...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, llmserve.stop()) }()
	send := float64(s.bytes()) / b.uploaded
	b.row(fmt.Sprintf("start with %.1f GB of weights", float64(s.bytes())/1e9), fmt.Sprintf("%.2f s; to send them %.2f s", llmserve.ready.Seconds(), send),
		send/llmserve.ready.Seconds(), fmt.Sprintf("at most %.1f times as long as sending", 1.5), 1/1.5)
	fmt.Printf("  %s\n", strings.Join(llmserve.loads, "; "))
	vocabulary := s.config["vocab_size"].(int)
	for _, l := range b.loads() {
		warm := load{Prompts: l.Prompts, New: 3}
		if _, err := llmserve.ask(ctx, &warm, vocabulary); err != nil {
			return err
		}
		took, err := llmserve.ask(ctx, &l, vocabulary)
		if err != nil {
			return err
		}
		ratio, measured := 0.0, fmt.Sprintf("%.0f tokens/s", float64(len(l.Prompts)*l.New)/took.Seconds())
		for _, rival := range b.rivals[l.Name] {
			ratio = rival.Seconds / took.Seconds()
			measured += fmt.Sprintf("; %s %.0f", rival.Way, float64(len(l.Prompts)*l.New)/rival.Seconds)
		}
		b.row(l.Name, measured, ratio, fmt.Sprintf("%.2f of transformers", l.minimum), l.minimum)
	}
	return nil
}

// linkDriver links the library of -driver into b.dir under the name of NVIDIA's driver, for the programs that
// child starts.
func (b *bench) linkDriver() error {
	path, err := filepath.Abs(b.library)
	if err != nil {
		return err
	}
	return os.Symlink(path, filepath.Join(b.dir, "libcuda.so.1"))
}
