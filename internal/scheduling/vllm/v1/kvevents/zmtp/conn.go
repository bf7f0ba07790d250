// Package zmtp implements ZMTP 3.1, the protocol of ZeroMQ, over one connection with the security mechanism NULL
// (https://rfc.zeromq.org/spec/37). It accepts peers of ZMTP 3.0 and refuses older peers.
//
// The caller implements what is specific to a type of socket, for example which messages are dropped. A peer cannot
// make this package allocate more than twice maxMessage bytes for a message, or make a write last longer than the
// caller's timeout. (github.com/go-zeromq/zmq4 allocates the size in the header of a frame, and its sockets send to one
// peer after the other.)
package zmtp

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// ErrProtocol is wrapped if the peer violates the protocol or a limit of this package. The connection must not be used
// afterwards.
var ErrProtocol = errors.New("not as ZMTP 3.1 says")

// The bits of a frame's flags.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

const (
	maxMessage = 1 << 16 // bytes of a received message or command
	maxFrames  = 16      // frames of a received message
	maxContext = 16      // bytes of a PING that a PONG returns
)

// A Conn is a connection after the handshake. One goroutine may call Receive while
// others call Send.
type Conn struct {
	net net.Conn
	r   *bufio.Reader
	ttl time.Duration // the peer counts as gone if nothing arrives for this long; 0: never

	mu      sync.Mutex // held while writing
	timeout time.Duration
}

// Open performs the handshake for a socket of the given type, for example PUB, with a socket of one of the types in
// peers. The handshake, and later each write, fails after timeout.
func Open(conn net.Conn, socketType string, peers []string, timeout time.Duration) (*Conn, error) {
	c := &Conn{net: conn, r: bufio.NewReader(conn), timeout: timeout}
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	if err := c.handshake(socketType, peers); err != nil {
		return nil, fmt.Errorf("handshake: %w", err)
	}
	return c, conn.SetDeadline(time.Time{})
}

// Send writes one message. After an error the connection must not be used.
func (c *Conn) Send(frames ...[]byte) error {
	buffers := make(net.Buffers, 0, 2*len(frames))
	for i, f := range frames {
		var flags byte
		if i < len(frames)-1 {
			flags = flagMore
		}
		buffers = append(buffers, header(flags, len(f)), f)
	}
	return c.write(buffers)
}

func (c *Conn) sendCommand(name string, data []byte) error {
	body := append([]byte{byte(len(name))}, name...)
	body = append(body, data...)
	return c.write(net.Buffers{header(flagCommand, len(body)), body})
}

func (c *Conn) write(b net.Buffers) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.net.SetWriteDeadline(time.Now().Add(c.timeout)); err != nil {
		return err
	}
	_, err := b.WriteTo(c.net)
	return err
}

func header(flags byte, size int) []byte {
	if size < 1<<8 {
		return []byte{flags, byte(size)}
	}
	return binary.BigEndian.AppendUint64([]byte{flags | flagLong}, uint64(size))
}

// Receive returns the next message: its frames, and an empty name. If a SUBSCRIBE or CANCEL command comes first, name
// is the command and frames has its data. Receive answers PING and ignores other commands.
func (c *Conn) Receive() (name string, frames [][]byte, err error) {
	size := 0
	for {
		flags, body, err := c.readFrame()
		if err != nil {
			return "", nil, err
		}
		if flags&flagCommand == 0 {
			frames, size = append(frames, body), size+len(body)
			switch {
			case len(frames) > maxFrames || size > maxMessage:
				return "", nil, fmt.Errorf("%w: a message of more than %d frames or %d bytes", ErrProtocol, maxFrames, maxMessage)
			case flags&flagMore == 0:
				return "", frames, nil
			}
			continue
		}
		if len(frames) > 0 {
			return "", nil, fmt.Errorf("%w: a command inside a message", ErrProtocol)
		}
		name, data, err := splitCommand(body)
		if err != nil {
			return "", nil, err
		}
		switch name {
		case "SUBSCRIBE", "CANCEL":
			return name, [][]byte{data}, nil
		case "PING":
			if err := c.pong(data); err != nil {
				return "", nil, err
			}
		}
	}
}

// pong answers a PING. The data of a PING are a time to live, in tenths of a second, and a context. After a silence of
// that time the peer counts as gone. The PONG returns the context.
func (c *Conn) pong(data []byte) error {
	if len(data) < 2 {
		return fmt.Errorf("%w: a PING of %d bytes", ErrProtocol, len(data))
	}
	c.ttl = time.Duration(binary.BigEndian.Uint16(data)) * time.Second / 10
	if c.ttl == 0 {
		if err := c.net.SetReadDeadline(time.Time{}); err != nil {
			return err
		}
	}
	data = data[2:]
	return c.sendCommand("PONG", data[:min(len(data), maxContext)])
}

func (c *Conn) readFrame() (flags byte, body []byte, err error) {
	if c.ttl > 0 {
		if err := c.net.SetReadDeadline(time.Now().Add(c.ttl)); err != nil {
			return 0, nil, err
		}
	}
	if flags, err = c.r.ReadByte(); err != nil {
		return 0, nil, err
	}
	if flags&^(flagMore|flagLong|flagCommand) != 0 || flags&flagCommand != 0 && flags&flagMore != 0 {
		return 0, nil, fmt.Errorf("%w: a frame with flags %#x", ErrProtocol, flags)
	}
	var size [8]byte
	if flags&flagLong != 0 {
		_, err = io.ReadFull(c.r, size[:])
	} else {
		size[7], err = c.r.ReadByte()
	}
	if err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint64(size[:])
	if n > maxMessage {
		return 0, nil, fmt.Errorf("%w: a frame of %d bytes: want at most %d", ErrProtocol, n, maxMessage)
	}
	body = make([]byte, n)
	_, err = io.ReadFull(c.r, body)
	return flags, body, err
}

func splitCommand(body []byte) (name string, data []byte, err error) {
	if len(body) == 0 || len(body) < 1+int(body[0]) {
		return "", nil, fmt.Errorf("%w: a command of %d bytes", ErrProtocol, len(body))
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:], nil
}
