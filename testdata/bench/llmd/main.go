//go:build ignore

// Command llmd tests the KV events of llmserve with llm-d's indexer: it starts two replicas of llmserve demo, passes
// their events to the indexer, and checks its scores. The score of a replica is the number of its cached blocks from
// the start of a prompt. ../llmd.sh builds it with the modules of a checkout of llm-d-kv-cache. Usage: llmd LLMSERVE
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"time"

	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvcache/kvblock"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvevents"
	"github.com/llm-d/llm-d-kv-cache/pkg/kvevents/engineadapter"
)

const (
	model     = "demo"
	blockSize = 16               // tokens, llmserve's default
	patience  = 30 * time.Second // for events to arrive
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: llmd LLMSERVE")
	}
	if err := check(os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// check starts two replicas, sends them prompts, and compares the indexer's scores with the blocks of these prompts.
func check(llmserve string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	p := &pair{ctx: ctx}
	defer p.stop()
	if err := p.start(llmserve); err != nil {
		return err
	}
	if err := p.subscribed(); err != nil {
		return err
	}
	return p.compare()
}

// A pair is two replicas of llmserve, and the indexer that receives their events.
type pair struct {
	ctx      context.Context
	indexer  *kvcache.Indexer
	replicas []*replica
}

func (p *pair) start(llmserve string) error {
	indexer, subscribers, err := newIndexer(p.ctx)
	if err != nil {
		return err
	}
	p.indexer = indexer
	for i := range 2 {
		r, err := start(llmserve, fmt.Sprintf("replica%d", i))
		if err != nil {
			return err
		}
		p.replicas = append(p.replicas, r)
		if err := subscribers.EnsureSubscriber(p.ctx, r.name, r.events, "kv@", true); err != nil {
			return err
		}
	}
	return nil
}

func (p *pair) stop() {
	for _, r := range p.replicas {
		r.stop()
	}
}

func (p *pair) score(tokens []uint32) ([2]float64, error) {
	names := []string{p.replicas[0].name, p.replicas[1].name}
	scores, err := p.indexer.ScoreTokens(p.ctx, tokens, model, names, nil)
	return [2]float64{scores[names[0]], scores[names[1]]}, err
}

// subscribed waits until the indexer receives the events of both replicas. Events before a subscription are
// lost, so each attempt sends a new prompt.
func (p *pair) subscribed() error {
	seed := 100
	for i, r := range p.replicas {
		for deadline := time.Now().Add(patience); ; {
			seed++
			tokens := prompt(seed, blockSize)
			if err := r.send(tokens); err != nil {
				return err
			}
			time.Sleep(100 * time.Millisecond)
			if got, err := p.score(tokens); err != nil {
				return err
			} else if got[i] == 1 {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%v after a prompt was sent to %s, the indexer does not find it there", patience, r.name)
			}
		}
	}
	return nil
}

// compare sends prompts to the replicas, and returns an error if a score is still wrong after some time.
func (p *pair) compare() error {
	first, second, both, none := prompt(1, 100), prompt(2, 70), prompt(3, 50), prompt(4, 80)
	longer := slices.Concat(both[:48], prompt(5, 60)) // the beginning of both: 3 blocks
	for _, sent := range []struct {
		replica int
		tokens  []uint32
	}{{0, first}, {1, second}, {0, both}, {1, both}, {1, longer}} {
		if err := p.replicas[sent.replica].send(sent.tokens); err != nil {
			return err
		}
	}
	wrong := 0
	for _, c := range []struct {
		name   string
		tokens []uint32
		want   [2]float64
	}{
		{"replica0 has it", first, [2]float64{6, 0}},
		{"replica1 has it", second, [2]float64{0, 4}},
		{"both have it", both, [2]float64{3, 3}},
		{"neither has it", none, [2]float64{0, 0}},
		{"replica1 has it, replica0 its beginning", longer, [2]float64{3, 6}},
		{"replica0 has its beginning", slices.Concat(first, none), [2]float64{6, 0}},
		{"replica0 has all but its beginning", slices.Concat(none, first), [2]float64{0, 0}},
	} {
		got, err := p.score(c.tokens)
		for deadline := time.Now().Add(patience); err == nil && got != c.want && time.Now().Before(deadline); {
			time.Sleep(100 * time.Millisecond)
			got, err = p.score(c.tokens)
		}
		if err != nil {
			return err
		}
		fmt.Printf("%-40s %3d tokens: %v blocks, want %v\n", c.name, len(c.tokens), got, c.want)
		if got != c.want {
			wrong++
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d scores are wrong", wrong)
	}
	return nil
}

func newIndexer(ctx context.Context) (*kvcache.Indexer, *kvevents.SubscriberManager, error) {
	blocks := kvblock.DefaultTokenProcessorConfig()
	blocks.BlockSizeTokens = blockSize
	processor, err := kvblock.NewChunkedTokenDatabase(blocks)
	if err != nil {
		return nil, nil, err
	}
	config, err := kvcache.NewDefaultConfig()
	if err != nil {
		return nil, nil, err
	}
	indexer, err := kvcache.NewKVCacheIndexer(ctx, config, processor)
	if err != nil {
		return nil, nil, err
	}
	events := kvevents.DefaultConfig()
	events.DiscoverPods = false
	adapter, err := engineadapter.NewAdapter(events.EngineType)
	if err != nil {
		return nil, nil, err
	}
	pool := kvevents.NewPool(events, indexer.KVBlockIndex(), processor, adapter)
	pool.Start(ctx)
	return indexer, kvevents.NewSubscriberManager(pool), nil
}

// A replica is a running llmserve demo.
type replica struct {
	name, url, events string
	command           *exec.Cmd
}

var address = regexp.MustCompile(`http://127\.0\.0\.1:\d+/v1`)

// start starts a replica and waits until llmserve has printed its address.
func start(llmserve, name string) (*replica, error) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	_, port, err := net.SplitHostPort(free.Addr().String())
	if err := errors.Join(err, free.Close()); err != nil {
		return nil, err
	}
	r := &replica{name: name, events: "tcp://127.0.0.1:" + port}
	r.command = exec.Command(llmserve, "demo", "--port", "0", "--threads", "1", "--kv-cache-gb", "0.05",
		"--served-model-name", model, "--kv-events", "tcp://*:"+port, "--kv-events-arrays",
		"--kv-events-topic", "kv@"+name+"@"+model)
	r.command.Stderr = os.Stderr
	out, err := r.command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.command.Start(); err != nil {
		return nil, err
	}
	buffer := make([]byte, 4096)
	for text := ""; r.url == ""; {
		n, err := out.Read(buffer)
		if err != nil {
			r.stop()
			return nil, errors.New("llmserve ended before it said its address")
		}
		text += string(buffer[:n])
		r.url = address.FindString(text)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	return r, nil
}

func (r *replica) stop() {
	_ = r.command.Process.Kill()
	_ = r.command.Wait()
}

// send makes the replica compute a prompt and waits for the answer. The replica has then cached the prompt's blocks.
func (r *replica) send(tokens []uint32) error {
	body, err := json.Marshal(map[string]any{"model": model, "prompt": tokens, "max_tokens": 1})
	if err != nil {
		return err
	}
	answer, err := http.Post(r.url+"/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, text)
	}
	return err
}

// prompt returns n tokens. The first blocks of two seeds differ.
func prompt(seed, n int) []uint32 {
	tokens := []uint32{uint32(5 + seed%90), uint32(5 + seed/90)}
	for i := len(tokens); i < n; i++ {
		tokens = append(tokens, uint32(5+(i*7+i*i)%90))
	}
	return tokens
}
