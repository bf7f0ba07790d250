package publish

import (
	"encoding/binary"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/vllm/v1/kvevents"
	"llmmemory/internal/testkit/libzmq"
)

// receives publishes batches from number seq on until the socket s gets one. It checks that s also gets all later
// batches. first is the number of the first received batch. next is the number of the next batch to publish.
func receives(t *testing.T, p *Publisher, s *libzmq.Socket, seq int) (first, next int) {
	for next = seq; ; {
		require.NoError(t, p.Publish(time.Unix(int64(next), 0), cleared(t)))
		next++
		if m := s.Receive(10 * time.Millisecond); m != nil {
			first = int(binary.BigEndian.Uint64(m[1]))
			check(t, m, uint64(first))
			for seq := first + 1; seq < next; seq++ {
				check(t, s.Receive(patience), uint64(seq))
			}
			return first, next
		}
	}
}

func TestLibzmqSubscribes(t *testing.T) {
	for _, test := range []struct{ name, endpoint, scheme string }{
		{"over TCP", "tcp://127.0.0.1:*", "tcp://"},
		{"over a socket of Unix", "ipc://" + filepath.Join(t.TempDir(), "kv"), "ipc://"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, err := New(Config{Endpoint: test.endpoint, Topic: "kv-events", Linger: patience, Encoder: kvevents.Encoder{DataParallelRank: 1}})
			require.NoError(t, err)
			pub, _ := p.Addr()
			all, kv, other := libzmq.New(t, "SUB"), libzmq.New(t, "SUB"), libzmq.New(t, "SUB")
			all.Set("SUBSCRIBE", "")
			all.Set("HEARTBEAT_IVL", 1)
			all.Set("HEARTBEAT_TTL", 60_000)
			all.Set("HEARTBEAT_TIMEOUT", 60_000)
			kv.Set("SUBSCRIBE", "kv-")
			kv.Set("SUBSCRIBE", "kv-events")
			other.Set("SUBSCRIBE", "kv-events-of-others")
			for _, s := range []*libzmq.Socket{all, kv, other} {
				s.Connect(test.scheme + pub)
			}
			_, begin := receives(t, p, kv, 0)
			_, next := receives(t, p, all, begin)
			for seq := begin; seq < next; seq++ {
				check(t, kv.Receive(patience), uint64(seq))
			}

			// One of two subscriptions is left.
			kv.Set("UNSUBSCRIBE", "kv-")
			// This one gets nothing that was published before.
			other.Set("SUBSCRIBE", "kv-events")
			otherFirst, end := receives(t, p, other, next)
			require.GreaterOrEqual(t, otherFirst, next)
			for seq := next; seq < end; seq++ {
				check(t, kv.Receive(patience), uint64(seq))
				check(t, all.Receive(patience), uint64(seq))
			}
			kv.Set("UNSUBSCRIBE", "kv-events")
			kv.Set("SUBSCRIBE", "kv")
			receives(t, p, kv, end)
			require.NoError(t, p.Close())
		})
	}
}

func TestLibzmqAsksForPastBatches(t *testing.T) {
	p := opened(t, 4, patience)
	for i := range 10 {
		require.NoError(t, p.Publish(time.Unix(int64(i), 0), cleared(t)))
	}
	_, replay := p.Addr()
	dealer, req := libzmq.New(t, "DEALER"), libzmq.New(t, "REQ")
	dealer.Set("ROUTING_ID", "an identity")
	dealer.Connect("tcp://" + replay)
	req.Connect("tcp://" + replay)
	for _, from := range []uint64{0, 8} {
		dealer.Send(nil, number(from))
		for seq := max(from, 6); seq < 10; seq++ {
			m := dealer.Receive(patience)
			require.Empty(t, m[0])
			check(t, m[1:], seq)
		}
		m := dealer.Receive(patience)
		require.Len(t, m, 4)
		require.Equal(t, number(endOfReplay), m[2])
		require.Empty(t, m[3])
	}
	req.Send(number(7))
	check(t, req.Receive(patience), 7)
	require.NoError(t, p.Close())
}

func TestAPublisherConnectsAgain(t *testing.T) {
	sub := libzmq.New(t, "SUB")
	sub.Set("SUBSCRIBE", "")
	endpoint := sub.Bind("tcp://127.0.0.1:*")
	p, err := New(Config{Endpoint: endpoint, Topic: "kv-events", Encoder: kvevents.Encoder{DataParallelRank: 1}})
	require.NoError(t, err)
	_, next := receives(t, p, sub, 0)
	sub.Kill()
	sub = libzmq.New(t, "SUB")
	sub.Set("SUBSCRIBE", "")
	require.Equal(t, endpoint, sub.Bind(endpoint))
	receives(t, p, sub, next)
	requireReturn(t, "Close", func() { require.NoError(t, p.Close()) })
}
