// Package publish sends the events of a prefix cache over ZeroMQ, as vLLM's
// ZmqEventPublisher does: a PUB socket with messages of topic, sequence number
// and batch, and a ROUTER socket that sends past batches again.
//
// The encoding belongs to kvevents.
package publish

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-zeromq/zmq4"

	"llmmemory/internal/vllm/v1/kvevents"
	"llmmemory/internal/vllm/v1/pool"
)

// ErrClosed is returned by Publish after Close.
var ErrClosed = errors.New("the publisher is closed")

// Config describes a publisher.
type Config struct {
	Endpoint       string // of the PUB socket; bound if it has a *, :: or ipc, else connected: "tcp://*:5557"
	ReplayEndpoint string // of the ROUTER socket; "": none
	Topic          string
	BufferSteps    int // batches that can be sent again; 0: 10,000
	MaxQueueSize   int // batches that wait to be sent; 0: 100,000
	Encoder        kvevents.Encoder
}

// A Publisher sends batches in the order of Publish. It is safe for concurrent
// use.
type Publisher struct {
	config Config
	pub    zmq4.Socket
	replay zmq4.Socket // nil without
	cancel context.CancelFunc
	queue  chan []byte

	sent, replays sync.WaitGroup

	mu     sync.Mutex // of closed, and the order of the queue
	closed bool

	pastMu sync.Mutex
	past   [][]byte // a ring: batch number seq is at seq mod its length
	next   uint64   // sequence number
}

// endOfReplay is the sequence number after the last batch of a replay: -1.
const endOfReplay = ^uint64(0)

// New opens the sockets.
func New(config Config) (*Publisher, error) {
	if config.BufferSteps == 0 {
		config.BufferSteps = 10_000
	}
	if config.MaxQueueSize == 0 {
		config.MaxQueueSize = 100_000
	}
	if config.BufferSteps < 1 || config.MaxQueueSize < 1 {
		return nil, fmt.Errorf("%d batches kept and %d queued: want at least 1", config.BufferSteps, config.MaxQueueSize)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Publisher{
		config: config, cancel: cancel, pub: zmq4.NewPub(ctx),
		queue: make(chan []byte, config.MaxQueueSize), past: make([][]byte, config.BufferSteps),
	}
	if err := open(p.pub, config.Endpoint, bound(config.Endpoint)); err != nil {
		p.stop()
		return nil, err
	}
	if config.ReplayEndpoint != "" {
		p.replay = zmq4.NewRouter(ctx)
		if err := open(p.replay, config.ReplayEndpoint, true); err != nil {
			p.stop()
			return nil, err
		}
		p.replays.Go(p.serveReplays)
	}
	p.sent.Go(p.send)
	return p, nil
}

// bound is vLLM's rule: stable addresses are bound, others connected.
func bound(endpoint string) bool {
	return strings.Contains(endpoint, "*") || strings.Contains(endpoint, "::") ||
		strings.HasPrefix(endpoint, "ipc://") || strings.HasPrefix(endpoint, "inproc://")
}

// wildcards of libzmq: all interfaces, any free port.
var wildcards = strings.NewReplacer("//*", "//0.0.0.0", ":*", ":0")

func open(s zmq4.Socket, endpoint string, bind bool) error {
	open := s.Dial
	if bind {
		open, endpoint = s.Listen, wildcards.Replace(endpoint)
	}
	if err := open(endpoint); err != nil {
		return fmt.Errorf("socket %s for events: %w", endpoint, err)
	}
	return nil
}

// Addr is where subscribers find the PUB socket, and Replay the other one: useful
// for port 0.
func (p *Publisher) Addr() (pub, replay string) {
	if p.replay != nil {
		replay = p.replay.Addr().String()
	}
	if a := p.pub.Addr(); a != nil {
		pub = a.String()
	}
	return pub, replay
}

// Publish queues a batch of events; it waits if too many are queued. Without
// events it does nothing.
func (p *Publisher) Publish(at time.Time, events *pool.Events) error {
	if len(events.List) == 0 {
		return nil
	}
	batch := p.config.Encoder.AppendBatch(nil, float64(at.UnixNano())/1e9, events)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	p.queue <- batch
	return nil
}

// Close sends what is queued and closes the sockets.
func (p *Publisher) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	p.closed = true
	close(p.queue)
	p.mu.Unlock()
	p.sent.Wait()
	p.stop()
	p.replays.Wait()
	return nil
}

func (p *Publisher) stop() {
	p.cancel()
	p.pub.Close()
	if p.replay != nil {
		p.replay.Close()
	}
}

func (p *Publisher) send() {
	for batch := range p.queue {
		p.pastMu.Lock()
		seq := p.next
		p.past[seq%uint64(len(p.past))] = batch
		p.next++
		p.pastMu.Unlock()
		// An error is a subscriber that is gone: the others have the batch, and
		// it can ask for it again.
		_ = p.pub.SendMulti(zmq4.NewMsgFrom([]byte(p.config.Topic), number(seq), batch))
	}
}

// serveReplays answers each request, a sequence number, with all batches from
// there on that are kept, and an end.
func (p *Publisher) serveReplays() {
	for {
		request, err := p.replay.Recv()
		if err != nil {
			return // closed
		}
		if len(request.Frames) != 3 || len(request.Frames[2]) != 8 {
			continue
		}
		client := request.Frames[0]
		reply := func(topic []byte, seq uint64, batch []byte) error {
			return p.replay.SendMulti(zmq4.NewMsgFrom(client, nil, topic, number(seq), batch))
		}
		for seq := binary.BigEndian.Uint64(request.Frames[2]); ; seq++ {
			batch, at := p.kept(seq)
			if batch == nil {
				break
			}
			if seq = at; reply([]byte(p.config.Topic), seq, batch) != nil {
				break
			}
		}
		_ = reply(nil, endOfReplay, nil) // the client may be gone
	}
}

// kept is the first batch from seq on that is kept, and its number; nil: none is.
func (p *Publisher) kept(seq uint64) ([]byte, uint64) {
	p.pastMu.Lock()
	defer p.pastMu.Unlock()
	if n := uint64(len(p.past)); p.next > n {
		seq = max(seq, p.next-n)
	}
	if seq >= p.next {
		return nil, seq
	}
	return p.past[seq%uint64(len(p.past))], seq
}

func number(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }
