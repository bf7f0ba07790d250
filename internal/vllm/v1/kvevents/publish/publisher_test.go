package publish

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/stretchr/testify/require"

	"llmmemory/internal/vllm/v1/kvevents"
	"llmmemory/internal/vllm/v1/pool"
)

func cleared(t *testing.T) *pool.Events {
	p, err := pool.New(pool.Config{NumGPUBlocks: 4, EnableCaching: true, HashBlockSize: 2, EnableEvents: true})
	require.NoError(t, err)
	require.True(t, p.Reset())
	var v pool.Events
	p.TakeEvents(&v)
	return &v
}

func opened(t *testing.T, keep int) *Publisher {
	p, err := New(Config{
		Endpoint: "tcp://127.0.0.1:*", ReplayEndpoint: "tcp://127.0.0.1:*", Topic: "kv-events", BufferSteps: keep,
		Encoder: kvevents.Encoder{DataParallelRank: 1},
	})
	require.NoError(t, err)
	return p
}

func batch(seconds float64, t *testing.T) []byte {
	return (&kvevents.Encoder{DataParallelRank: 1}).AppendBatch(nil, seconds, cleared(t))
}

// subscribe returns a subscriber that has heard of at least one batch, and how many
// were published until then: subscribing takes a while.
func subscribe(t *testing.T, p *Publisher) (sub zmq4.Socket, published int) {
	pub, _ := p.Addr()
	sub = zmq4.NewSub(context.Background())
	require.NoError(t, sub.Dial("tcp://"+pub))
	require.NoError(t, sub.SetOption(zmq4.OptionSubscribe, "kv-"))
	heard := make(chan zmq4.Msg)
	go func() {
		m, _ := sub.Recv()
		heard <- m
	}()
	for {
		require.NoError(t, p.Publish(time.Unix(int64(published), 0), cleared(t)))
		published++
		select {
		case m := <-heard:
			check(t, m.Frames, binary.BigEndian.Uint64(m.Frames[1]))
			for next := binary.BigEndian.Uint64(m.Frames[1]) + 1; next < uint64(published); next++ {
				m, err := sub.Recv()
				require.NoError(t, err)
				check(t, m.Frames, next)
			}
			return sub, published
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// check wants batch number seq, which says so by its time.
func check(t *testing.T, frames [][]byte, seq uint64) {
	require.Len(t, frames, 3)
	require.Equal(t, "kv-events", string(frames[0]))
	require.Equal(t, seq, binary.BigEndian.Uint64(frames[1]))
	require.Equal(t, hex.EncodeToString(batch(float64(seq), t)), hex.EncodeToString(frames[2]))
}

func TestSubscribersGetBatchesInOrder(t *testing.T) {
	p := opened(t, 0)
	sub, n := subscribe(t, p)
	defer sub.Close()
	require.NoError(t, p.Publish(time.Unix(9, 0), &pool.Events{}), "no events, no batch")
	for i := range 50 {
		require.NoError(t, p.Publish(time.Unix(int64(n+i), 0), cleared(t)))
	}
	for i := range 50 {
		m, err := sub.Recv()
		require.NoError(t, err)
		check(t, m.Frames, uint64(n+i))
	}
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Close(), ErrClosed)
	require.ErrorIs(t, p.Publish(time.Unix(1, 0), cleared(t)), ErrClosed)
}

func TestPastBatchesAreSentAgain(t *testing.T) {
	p := opened(t, 4)
	for i := range 10 {
		require.NoError(t, p.Publish(time.Unix(int64(i), 0), cleared(t)))
	}
	for {
		if batch, _ := p.kept(9); batch != nil {
			break
		}
		time.Sleep(time.Millisecond) // until the last one was sent
	}
	_, replay := p.Addr()
	dealer := zmq4.NewDealer(context.Background())
	defer dealer.Close()
	require.NoError(t, dealer.Dial("tcp://"+replay))
	for _, test := range []struct{ from, first uint64 }{{8, 8}, {0, 6}, {10, 10}, {1 << 63, 10}} {
		t.Run(fmt.Sprint(test.from), func(t *testing.T) {
			require.NoError(t, dealer.SendMulti(zmq4.NewMsgFrom(nil, number(test.from))))
			for seq := test.first; seq < 10; seq++ {
				m, err := dealer.Recv()
				require.NoError(t, err)
				require.Empty(t, m.Frames[0])
				check(t, m.Frames[1:], seq)
			}
			m, err := dealer.Recv()
			require.NoError(t, err)
			require.Equal(t, [][]byte{{}, {}, bytes.Repeat([]byte{0xff}, 8), {}}, m.Frames)
		})
	}
	require.NoError(t, p.Close())
}

func TestBadEndpointsAreRefused(t *testing.T) {
	for _, test := range []struct {
		name    string
		config  Config
		wantErr string
	}{
		{"an address", Config{Endpoint: "nowhere*"}, "socket nowhere"},
		{"the replay's address", Config{Endpoint: "tcp://127.0.0.1:*", ReplayEndpoint: "nowhere"}, "socket nowhere"},
		{"no buffer", Config{Endpoint: "tcp://127.0.0.1:*", BufferSteps: -1}, "want at least 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := New(test.config)
			require.ErrorContains(t, err, test.wantErr)
		})
	}
}

// subscriber is vLLM's example reduced to what it receives: libzmq by way of
// Python, a SUB socket, and a gap filled over a REQ-like socket.
const subscriber = `
import sys, zmq
c = zmq.Context()
sub = c.socket(zmq.SUB)
sub.connect("tcp://" + sys.argv[1])
sub.setsockopt_string(zmq.SUBSCRIBE, "kv-events")
print("ready", flush=True)
topic, seq, payload = sub.recv_multipart()
print(topic.decode(), int.from_bytes(seq, "big"), payload.hex(), flush=True)
r = c.socket(zmq.DEALER)
r.connect("tcp://" + sys.argv[2])
r.send_multipart([b"", (0).to_bytes(8, "big")])
while True:
    _, topic, seq, payload = r.recv_multipart()
    if not payload:
        print("end", int.from_bytes(seq, "big", signed=True), flush=True)
        break
    print(topic.decode(), int.from_bytes(seq, "big"), payload.hex(), flush=True)
`

func TestLibzmqReadsThePublisher(t *testing.T) {
	const python = "/usr/bin/python3"
	if exec.Command(python, "-c", "import zmq").Run() != nil {
		t.Skip("no Python with libzmq here (Debian: python3-zmq)")
	}
	p := opened(t, 0)
	pub, replay := p.Addr()
	client := exec.Command(python, "-c", subscriber, pub, replay)
	var out bytes.Buffer
	client.Stdout, client.Stderr = &out, &out
	require.NoError(t, client.Start())
	ended := make(chan error, 1)
	go func() { ended <- client.Wait() }()
	published := 0
	for done := false; !done; {
		require.NoError(t, p.Publish(time.Unix(int64(published), 0), cleared(t)))
		published++
		select {
		case err := <-ended:
			require.NoError(t, err, out.String())
			done = true
		case <-time.After(10 * time.Millisecond):
		}
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Equal(t, "ready", lines[0])
	require.Equal(t, "end -1", lines[len(lines)-1])
	for i, line := range lines[2 : len(lines)-1] {
		require.Equal(t, fmt.Sprintf("kv-events %d %x", i, batch(float64(i), t)), line)
	}
	require.Contains(t, lines[2:], lines[1], "what came by subscription comes again")
	require.NoError(t, p.Close())
}
