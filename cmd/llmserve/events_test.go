package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-zeromq/zmq4"
	"github.com/stretchr/testify/require"
)

// A subscriber hears which blocks were stored, with their tokens. It is asked again with new prompts
// until the subscription has come through.
func TestSubscribersHearWhatThePrefixCacheStores(t *testing.T) {
	address := "ipc://" + filepath.Join(t.TempDir(), "kv")
	s := serveDemo(t, "--kv-events", address, "--kv-events-topic", "kv")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sub := zmq4.NewSub(ctx)
	defer sub.Close()
	require.NoError(t, sub.Dial(address))
	require.NoError(t, sub.SetOption(zmq4.OptionSubscribe, "kv"))
	heard := make(chan zmq4.Msg, 1000)
	go func() {
		for {
			m, err := sub.Recv()
			if err != nil {
				return
			}
			heard <- m
		}
	}()
	for i := 0; ; i++ {
		prompt := fmt.Sprintf("%06d ABCDEFGHI and more", i)
		text(t, s.post(t, "/completions", fmt.Sprintf(`{"model": "demo", "prompt": %q, "max_tokens": 1}`, prompt)))
		select {
		case m := <-heard:
			require.Len(t, m.Frames, 3)
			require.Equal(t, "kv", string(m.Frames[0]))
			require.Contains(t, string(m.Frames[2]), "BlockStored")
			// The demo's tokens are the bytes of the text, and MessagePack writes them as such.
			require.True(t, bytes.Contains(m.Frames[2], []byte(" ABCDEFGH")), "%q", m.Frames[2])
			require.NoError(t, s.cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, s.cmd.Wait())
			return
		case <-time.After(10 * time.Millisecond):
		}
	}
}
