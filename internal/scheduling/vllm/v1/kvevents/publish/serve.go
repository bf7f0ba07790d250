package publish

import (
	"encoding/binary"
	"net"
	"strings"
	"time"

	"llmmemory/internal/scheduling/vllm/v1/kvevents/zmtp"
)

// ioTimeout is the longest time that a handshake or the sending of one batch may take.
const ioTimeout = 30 * time.Second

// A subscriber is the peer of a connection of the PUB socket. Publisher.mu guards its fields.
type subscriber struct {
	topics map[string]bool // subscriptions that match the topic
	next   uint64          // number of the next batch to send
	gone   bool
}

func (p *Publisher) serveSubscriber(conn net.Conn) {
	c, err := zmtp.Open(conn, "PUB", []string{"SUB", "XSUB"}, ioTimeout)
	if err != nil || !p.setBusy(conn, true) {
		return
	}
	s := &subscriber{topics: map[string]bool{}}
	p.running.Go(func() { p.readSubscriptions(c, s) })
	topic := []byte(p.config.Topic)
	for {
		batch, seq := p.toSend(s)
		if batch == nil {
			break
		}
		if err := c.Send(topic, number(seq), batch); err != nil {
			return
		}
	}
	// If this side closed the connection while the peer sends, the peer would lose the data that it has not read. So
	// the peer must close it first.
	if half, ok := conn.(interface{ CloseWrite() error }); ok && half.CloseWrite() == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		for !s.gone {
			p.changed.Wait()
		}
	}
}

// toSend waits for the next batch to send to s and returns it. It returns nil if there will be no further batch.
func (p *Publisher) toSend(s *subscriber) (batch []byte, seq uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !s.gone {
		if len(s.topics) > 0 {
			if batch, seq = p.batchFrom(s.next); batch != nil {
				s.next = seq + 1
				return batch, seq
			}
		}
		if p.closed {
			break
		}
		p.changed.Wait()
	}
	return nil, 0
}

// readSubscriptions reads the peer's messages until the connection ends.
func (p *Publisher) readSubscriptions(c *zmtp.Conn, s *subscriber) {
	for {
		name, frames, err := c.Receive()
		p.mu.Lock()
		switch {
		case err != nil:
			s.gone = true
		case name == "SUBSCRIBE":
			p.subscribe(s, string(frames[0]), true)
		case name == "CANCEL":
			p.subscribe(s, string(frames[0]), false)
		case len(frames) == 1 && len(frames[0]) > 0 && frames[0][0] < 2:
			// In ZMTP 3.0, subscribing and unsubscribing are messages that begin with 1 and 0.
			p.subscribe(s, string(frames[0][1:]), frames[0][0] == 1)
		}
		p.changed.Broadcast()
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// subscribe begins a subscription if active is true, and otherwise cancels it. It ignores a topic to which no message
// of p belongs. p.mu must be held.
func (p *Publisher) subscribe(s *subscriber, topic string, active bool) {
	switch {
	case !strings.HasPrefix(p.config.Topic, topic):
	case !active:
		delete(s.topics, topic)
	default:
		if len(s.topics) == 0 {
			s.next = p.next
		}
		s.topics[topic] = true
	}
}

// endOfReplay is the sequence number, -1, of the message after the last batch of a replay.
const endOfReplay = ^uint64(0)

// serveReplays serves a connection of the ROUTER socket. A request has a sequence number. The replies are the batches
// in the buffer from this number on, and a final message.
func (p *Publisher) serveReplays(conn net.Conn) {
	c, err := zmtp.Open(conn, "ROUTER", []string{"REQ", "DEALER", "ROUTER"}, ioTimeout)
	if err != nil {
		return
	}
	for {
		name, frames, err := c.Receive()
		if err != nil {
			return
		}
		if name != "" || len(frames) != 2 || len(frames[1]) != 8 {
			continue
		}
		if !p.setBusy(conn, true) || p.sendAgain(c, binary.BigEndian.Uint64(frames[1])) != nil || !p.setBusy(conn, false) {
			return
		}
	}
}

func (p *Publisher) sendAgain(c *zmtp.Conn, seq uint64) error {
	p.mu.Lock()
	end := p.next
	p.mu.Unlock()
	for ; seq < end; seq++ {
		p.mu.Lock()
		batch, first := p.batchFrom(seq)
		p.mu.Unlock()
		if seq = first; seq >= end {
			break
		}
		if err := c.Send(nil, []byte(p.config.Topic), number(seq), batch); err != nil {
			return err
		}
	}
	return c.Send(nil, nil, number(endOfReplay), nil)
}
