// Package publish sends the events of a prefix cache over ZeroMQ, as vLLM's ZmqEventPublisher does. A PUB socket sends
// messages of topic, sequence number and batch. A ROUTER socket sends buffered batches again, on request.
//
// All connections share one buffer of the last batches. Each connection has a goroutine that sends from the buffer as
// fast as its peer reads. So a slow peer takes no memory and does not delay other peers. A peer that is too slow for
// the size of the buffer misses the oldest batches that it has not read, and recognizes this by the sequence numbers.
package publish

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"llmmemory/internal/scheduling/vllm/v1/kvcache"
	"llmmemory/internal/scheduling/vllm/v1/kvevents"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

// ErrClosed is returned by Publish after Close.
var ErrClosed = errors.New("the publisher is closed")

// Config describes a publisher.
type Config struct {
	Endpoint       string // PUB socket, such as "tcp://*:5557"; bound if it contains * or :: or begins with ipc://, else connected
	ReplayEndpoint string // ROUTER socket; if "", there is none
	Topic          string
	BufferSteps    int           // number of batches kept for subscribers and replays; if 0, 10,000
	Linger         time.Duration // maximum time that Close takes; if 0, 5 seconds
	Encoder        kvevents.Encoder
}

// A Publisher sends batches in the order of the calls of Publish. It is safe for concurrent use.
type Publisher struct {
	config      Config
	pub, replay net.Listener // nil if there is no such socket or it was connected
	running     sync.WaitGroup
	ctx         context.Context // canceled by Close
	cancel      context.CancelFunc

	mu      sync.Mutex // guards the fields below
	changed *sync.Cond // signalled after a batch, a subscription, the end of a connection, and Close
	closed  bool
	conns   map[net.Conn]bool // whether Close waits for the connection
	buffer  [][]byte          // ring buffer: batch number seq is at seq mod len(buffer)
	next    uint64            // sequence number of the next batch
}

// New opens the sockets.
func New(config Config) (*Publisher, error) {
	config.BufferSteps = cmp.Or(config.BufferSteps, 10_000)
	config.Linger = cmp.Or(config.Linger, 5*time.Second)
	if config.BufferSteps < 1 {
		return nil, fmt.Errorf("%d batches kept: want at least 1", config.BufferSteps)
	}
	p := &Publisher{config: config, buffer: make([][]byte, config.BufferSteps), conns: map[net.Conn]bool{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.changed = sync.NewCond(&p.mu)
	if err := p.open(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

func (p *Publisher) open() (err error) {
	if bound(p.config.Endpoint) {
		p.pub, err = p.listen(p.config.Endpoint, p.serveSubscriber)
	} else {
		err = p.connect(p.config.Endpoint, p.serveSubscriber)
	}
	if err == nil && p.config.ReplayEndpoint != "" {
		p.replay, err = p.listen(p.config.ReplayEndpoint, p.serveReplays)
	}
	return err
}

// Addr returns the addresses of the PUB socket and of the ROUTER socket, with the port that the system chose if the
// configured port is 0. The address of a socket that does not listen is "".
func (p *Publisher) Addr() (pub, replay string) {
	if p.replay != nil {
		replay = p.replay.Addr().String()
	}
	if p.pub != nil {
		pub = p.pub.Addr().String()
	}
	return pub, replay
}

// SetGroups sets Config.Encoder.Groups. It must be called before Publish.
func (p *Publisher) SetGroups(groups []kvcache.Group) { p.config.Encoder.Groups = groups }

// Publish adds a batch of events to the buffer, for the connections to send. If there are no events, it does nothing.
func (p *Publisher) Publish(timestamp time.Time, events *pool.Events) error {
	if len(events.List) == 0 {
		return nil
	}
	batch := p.config.Encoder.AppendBatch(nil, float64(timestamp.UnixNano())/1e9, events)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return ErrClosed
	}
	p.buffer[p.next%uint64(len(p.buffer))] = batch
	p.next++
	p.changed.Broadcast()
	return nil
}

// Close sends the batches that subscribers have not received yet, finishes replays, and closes the sockets. It takes
// at most Config.Linger.
func (p *Publisher) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return ErrClosed
	}
	p.closed = true
	p.cancel()
	p.changed.Broadcast()
	for c, busy := range p.conns {
		if !busy {
			c.Close()
		}
	}
	p.mu.Unlock()
	for _, l := range []net.Listener{p.pub, p.replay} {
		if l != nil {
			l.Close()
		}
	}
	end := time.AfterFunc(p.config.Linger, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for c := range p.conns {
			c.Close()
		}
	})
	p.running.Wait()
	end.Stop()
	return nil
}

// batchFrom returns the first batch in the buffer whose number is seq or higher, and its number. The batch is nil if
// there is none. The caller must hold p.mu.
func (p *Publisher) batchFrom(seq uint64) ([]byte, uint64) {
	if n := uint64(len(p.buffer)); p.next > n {
		seq = max(seq, p.next-n)
	}
	if seq >= p.next {
		return nil, seq
	}
	return p.buffer[seq%uint64(len(p.buffer))], seq
}

func number(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }
