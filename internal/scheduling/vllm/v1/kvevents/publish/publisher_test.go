package publish

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/vllm/v1/kvevents"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

func cleared(t *testing.T) *pool.Events {
	p, err := pool.New(pool.Config{NumGPUBlocks: 4, EnableCaching: true, HashBlockSize: 2, EnableEvents: true})
	require.NoError(t, err)
	require.True(t, p.Reset())
	var v pool.Events
	p.View.TakeEvents(&v)
	return &v
}

const atOnce = time.Millisecond

func opened(t *testing.T, keep int, linger time.Duration) *Publisher {
	p, err := New(Config{
		Endpoint: "tcp://127.0.0.1:*", ReplayEndpoint: "tcp://127.0.0.1:*", Topic: "kv-events",
		BufferSteps: keep, Linger: linger, Encoder: kvevents.Encoder{DataParallelRank: 1},
	})
	require.NoError(t, err)
	return p
}

func batch(seconds float64, t *testing.T) []byte {
	return (&kvevents.Encoder{DataParallelRank: 1}).AppendBatch(nil, seconds, cleared(t))
}

func check(t *testing.T, frames [][]byte, seq uint64) {
	require.Len(t, frames, 3)
	require.Equal(t, "kv-events", string(frames[0]))
	require.Equal(t, seq, binary.BigEndian.Uint64(frames[1]))
	require.Equal(t, hex.EncodeToString(batch(float64(seq), t)), hex.EncodeToString(frames[2]))
}

func TestSubscribersGetBatchesInOrder(t *testing.T) {
	p := opened(t, 0, atOnce)
	send := publish(t, p, cleared(t))
	s, n := subscribed(t, p, send, 0)
	require.NoError(t, p.Publish(time.Unix(9, 0), &pool.Events{}), "no events, no batch")
	for i := range 50 {
		send(n + i)
	}
	for i := range 50 {
		check(t, s.nextMessage(), uint64(n+i))
	}
	require.NoError(t, p.Close())
	require.ErrorIs(t, p.Close(), ErrClosed)
	require.ErrorIs(t, p.Publish(time.Unix(1, 0), cleared(t)), ErrClosed)
}

func TestPastBatchesAreSentAgain(t *testing.T) {
	p := opened(t, 4, atOnce)
	send := publish(t, p, cleared(t))
	for i := range 10 {
		send(i)
	}
	_, replay := p.Addr()
	dealer := join(t, replay, "DEALER")
	for _, test := range []struct{ requested, firstSent uint64 }{{8, 8}, {0, 6}, {10, 10}, {1 << 63, 10}, {endOfReplay, 10}} {
		t.Run(fmt.Sprint(test.requested), func(t *testing.T) {
			dealer.ask(test.requested)
			for seq := test.firstSent; seq < 10; seq++ {
				m := dealer.nextMessage()
				require.Empty(t, m[0])
				check(t, m[1:], seq)
			}
			require.Equal(t, [][]byte{{}, {}, bytes.Repeat([]byte{0xff}, 8), {}}, dealer.nextMessage())
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
		{"no port", Config{Endpoint: "tcp://*"}, "socket tcp://*"},
		{"another transport", Config{Endpoint: "inproc://*"}, "want tcp://HOST:PORT or ipc://PATH"},
		{"no buffer", Config{Endpoint: "tcp://127.0.0.1:*", BufferSteps: -1}, "want at least 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := New(test.config)
			require.ErrorContains(t, err, test.wantErr)
		})
	}
}

func TestAFileOfAProcessThatIsGoneIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kv")
	gone, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	require.NoError(t, err)
	gone.SetUnlinkOnClose(false)
	config := Config{Endpoint: "ipc://" + path}
	_, err = New(config)
	require.ErrorIs(t, err, syscall.EADDRINUSE, "it listens")
	require.NoError(t, gone.Close())
	p, err := New(config)
	require.NoError(t, err)
	require.NoError(t, p.Close())
	require.NoFileExists(t, path)
}
