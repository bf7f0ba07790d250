package publish

import (
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/scheduling/blockhash"
	"llmmemory/internal/scheduling/vllm/v1/pool"
)

func large(t *testing.T, n int) *pool.Events {
	p, err := pool.New(pool.Config{NumGPUBlocks: 2, EnableCaching: true, HashBlockSize: n, EnableEvents: true})
	require.NoError(t, err)
	content := &pool.Content{Tokens: make([]int32, n)}
	for i := range content.Tokens {
		content.Tokens[i] = 1 << 20
	}
	content.Extend(blockhash.LE{}, n)
	ids, err := p.Get(nil, 1)
	require.NoError(t, err)
	p.Register(content, ids, 0, 1, n, 0, nil)
	var v pool.Events
	p.View.TakeEvents(&v)
	return &v
}

func publish(t *testing.T, p *Publisher, v *pool.Events) func(int) {
	return func(seq int) { require.NoError(t, p.Publish(time.Unix(int64(seq), 0), v)) }
}

func requireReturn(t *testing.T, call string, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		require.FailNow(t, "this hangs", call)
	}
}

func TestCloseSendsWhatWaits(t *testing.T) {
	p := opened(t, 0, patience)
	send := publish(t, p, cleared(t))
	s, n := subscribed(t, p, send, 0)
	const count = 3001
	for i := range count {
		send(n + i)
	}
	got := make(chan int)
	go func() {
		for i := 0; ; i++ {
			if m, err := s.receive(); err != nil || binary.BigEndian.Uint64(m[1]) != uint64(n+i) {
				s.conn.Close()
				got <- i
				return
			}
		}
	}()
	requireReturn(t, "Close", func() { require.NoError(t, p.Close()) })
	require.Equal(t, count, <-got)
}

func TestASubscriberThatDoesNotReadDisturbsNobody(t *testing.T) {
	const keep, window, count = 100, 50, 2000
	p := opened(t, keep, atOnce)
	send := publish(t, p, large(t, 10_000)) // 50 KB
	stalled, first := subscribed(t, p, send, 0)
	s, n := subscribed(t, p, send, first)
	defer stalled.conn.Close()
	for i := range count {
		send(n + i)
		if behind := i + 1 - window; behind >= 0 {
			require.EqualValues(t, n+behind, s.batch())
		}
	}
	runtime.GC()
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	require.Less(t, memory.HeapAlloc, uint64(40<<20), "the batches that are kept are 5 MB")
	requireReturn(t, "Close", func() { require.NoError(t, p.Close()) })
}

func TestASubscriberThatFallsBehindMissesTheOldestBatches(t *testing.T) {
	const keep, count = 10, 2000
	p := opened(t, keep, atOnce)
	send := publish(t, p, large(t, 10_000))
	s, n := subscribed(t, p, send, 0)
	for i := range count {
		send(n + i)
	}
	// The subscriber first gets the batches that are in the connection's buffers, then those in the publisher's buffer.
	last, missed, got := uint64(n-1), uint64(0), 0
	for last != uint64(n+count-1) {
		seq := s.batch()
		require.Greater(t, seq, last)
		missed += seq - last - 1
		last, got = seq, got+1
	}
	require.EqualValues(t, count, int(missed)+got)
	require.NotZero(t, missed)
	requireReturn(t, "Close", func() { require.NoError(t, p.Close()) })
}

func TestAReplayClientThatDoesNotReadDisturbsNobody(t *testing.T) {
	const keep = 500
	p := opened(t, keep, atOnce)
	send := publish(t, p, large(t, 10_000))
	for i := range keep {
		send(i)
	}
	_, replay := p.Addr()
	stalled := join(t, replay, "DEALER")
	for range 10 {
		stalled.ask(0) // 250 MB in all
	}
	require.Len(t, stalled.nextMessage(), 4)

	s, n := subscribed(t, p, send, keep)
	other := join(t, replay, "REQ")
	other.ask(uint64(n - 1))
	require.Equal(t, number(uint64(n-1)), other.nextMessage()[2])
	send(n)
	require.EqualValues(t, n, s.batch())
	requireReturn(t, "Close", func() { require.NoError(t, p.Close()) })
	_, err := s.receive()
	require.ErrorIs(t, err, io.EOF)
}

func (p *peer) ping() {
	p.write([]byte("\x04\x08\x04PING\x00\x00x"))
	flags, body, err := p.frame()
	require.NoError(p.t, err)
	require.EqualValues(p.t, command, flags)
	require.Equal(p.t, "\x04PONGx", string(body))
}

func TestSubscriptionsAreCanceled(t *testing.T) {
	for _, test := range []struct{ name, subscribe, cancel string }{
		{"by commands", "\x04\x0d\x09SUBSCRIBEkv-", "\x04\x0a\x06CANCELkv-"},
		{"by messages of ZMTP 3.0", "\x00\x04\x01kv-", "\x00\x04\x00kv-"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := opened(t, 0, atOnce)
			send := publish(t, p, cleared(t))
			pub, _ := p.Addr()
			s := join(t, pub, "SUB")
			want := func(seq uint64) { check(t, s.nextMessage(), seq) }
			say := func(message string) {
				s.write([]byte(message))
				s.ping()
			}
			send(0)
			say(test.subscribe)
			send(1)
			want(1)
			say(test.cancel)
			send(2)
			say(test.subscribe)
			say(test.subscribe)
			send(3)
			want(3)
			say(test.cancel) // of both
			send(4)
			say("\x00\x06\x01other")
			send(5)
			say("\x00\x01\x01") // of everything
			say("\x00\x06\x00other")
			send(6)
			want(6)
			require.NoError(t, p.Close())
		})
	}
}

func TestPeersThatViolateTheProtocolDisturbNobody(t *testing.T) {
	p := opened(t, 0, atOnce)
	send := publish(t, p, cleared(t))
	s, n := subscribed(t, p, send, 0)
	pub, replay := p.Addr()
	for _, address := range []string{pub, replay} {
		for _, bytes := range []string{
			"GET / HTTP/1.1\r\n\r\n",
			string(greeting()) + string(ready("PULL")),
			string(greeting()) + "\x06\x00\x00\x01\x00\x00\x00\x00\x00",
		} {
			bad := connect(t, address)
			bad.write([]byte(bytes))
			_, err := io.Copy(io.Discard, bad.r)
			if !errors.Is(err, syscall.ECONNRESET) {
				require.NoError(t, err, "until the publisher closes the connection")
			}
		}
		connect(t, address) // a handshake that does not end
	}
	client := join(t, replay, "DEALER")
	client.write([]byte("\x01\x00\x00\x01x")) // no sequence number: it is not answered
	client.write([]byte("\x00\x081234567x"))
	client.ask(uint64(n))
	require.Equal(t, number(endOfReplay), client.nextMessage()[2])
	send(n)
	check(t, s.nextMessage(), uint64(n))
	requireReturn(t, "Close", func() { require.NoError(t, p.Close()) })
}
