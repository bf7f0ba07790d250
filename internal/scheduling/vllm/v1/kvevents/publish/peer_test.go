package publish

import (
	"bufio"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const patience = 2 * time.Minute

const (
	flagMore = 1
	long     = 2
	command  = 4
)

// A peer is the other end of a connection. It sends and reads only when the test calls its methods.
type peer struct {
	t    *testing.T
	conn net.Conn
	r    *bufio.Reader
}

func greeting() []byte {
	g := make([]byte, 64)
	g[0], g[9], g[10], g[11] = 0xff, 0x7f, 3, 1
	copy(g[12:], "NULL")
	return g
}

func ready(socketType string) []byte {
	body := append([]byte("\x05READY\x0bSocket-Type"), binary.BigEndian.AppendUint32(nil, uint32(len(socketType)))...)
	body = append(body, socketType...)
	return append([]byte{command, byte(len(body))}, body...)
}

func connect(t *testing.T, address string) *peer {
	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	t.Cleanup(func() { c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return &peer{t: t, conn: c, r: bufio.NewReader(c)}
}

func join(t *testing.T, address, socketType string) *peer {
	p := connect(t, address)
	p.write(append(greeting(), ready(socketType)...))
	theirs := make([]byte, 64)
	_, err := io.ReadFull(p.r, theirs)
	require.NoError(t, err)
	flags, body, err := p.frame()
	require.NoError(t, err)
	require.EqualValues(t, command, flags)
	require.Equal(t, "\x05READY", string(body[:6]))
	return p
}

func (p *peer) write(b []byte) {
	_, err := p.conn.Write(b)
	require.NoError(p.t, err)
}

func (p *peer) frame() (flags byte, body []byte, err error) {
	if flags, err = p.r.ReadByte(); err != nil {
		return 0, nil, err
	}
	size := make([]byte, 8)
	if flags&long != 0 {
		_, err = io.ReadFull(p.r, size)
	} else {
		size[7], err = p.r.ReadByte()
	}
	if err != nil {
		return 0, nil, err
	}
	body = make([]byte, binary.BigEndian.Uint64(size))
	_, err = io.ReadFull(p.r, body)
	return flags, body, err
}

func (p *peer) receive() (frames [][]byte, err error) {
	for {
		flags, body, err := p.frame()
		if err != nil {
			return frames, err
		}
		if frames = append(frames, body); flags&flagMore == 0 {
			return frames, nil
		}
	}
}

func (p *peer) nextMessage() [][]byte {
	m, err := p.receive()
	require.NoError(p.t, err)
	return m
}

func (p *peer) batch() uint64 { return binary.BigEndian.Uint64(p.nextMessage()[1]) }

// subscribed publishes batches from number seq on until a new peer receives one, so that the peer will receive every
// later batch. It returns the peer and the number of the next batch.
func subscribed(t *testing.T, p *Publisher, publish func(seq int), seq int) (s *peer, next int) {
	pub, _ := p.Addr()
	s = join(t, pub, "SUB")
	s.write([]byte{0, 4, 1, 'k', 'v', '-'})
	heard := make(chan uint64, 1)
	go func() {
		if m, err := s.receive(); err == nil {
			heard <- binary.BigEndian.Uint64(m[1])
		}
		close(heard)
	}()
	for next = seq; ; {
		publish(next)
		next++
		select {
		case first, ok := <-heard:
			require.True(t, ok, "the subscriber heard nothing")
			for seq := first + 1; seq < uint64(next); seq++ {
				require.Equal(t, seq, s.batch())
			}
			return s, next
		case <-time.After(time.Millisecond):
		}
	}
}

func (p *peer) ask(seq uint64) {
	p.write(append([]byte{flagMore, 0, 0, 8}, binary.BigEndian.AppendUint64(nil, seq)...))
}
