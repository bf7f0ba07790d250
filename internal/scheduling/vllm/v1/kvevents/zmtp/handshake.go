package zmtp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
)

const greetingSize = 64

func greeting() []byte {
	g := make([]byte, greetingSize)
	g[0], g[9] = 0xff, 0x7f
	g[10], g[11] = 3, 1
	copy(g[12:32], "NULL")
	return g
}

func (c *Conn) handshake(socketType string, peers []string) error {
	if _, err := c.net.Write(greeting()); err != nil {
		return err
	}
	if err := c.readGreeting(); err != nil {
		return err
	}
	if err := c.sendCommand("READY", property("Socket-Type", socketType)); err != nil {
		return err
	}
	flags, body, err := c.readFrame()
	if err != nil {
		return err
	}
	if flags&flagCommand == 0 {
		return fmt.Errorf("%w: a message before READY", ErrProtocol)
	}
	name, data, err := splitCommand(body)
	if err != nil {
		return err
	}
	if name != "READY" {
		return fmt.Errorf("%w: %q in place of READY", ErrProtocol, name)
	}
	peer, err := socketTypeOf(data)
	if err != nil {
		return err
	}
	if !slices.Contains(peers, peer) {
		reason := fmt.Sprintf("a %.16q socket cannot talk to a %s socket", peer, socketType)
		_ = c.sendCommand("ERROR", append([]byte{byte(len(reason))}, reason...)) // the connection ends anyway
		return fmt.Errorf("%w: %s", ErrProtocol, reason)
	}
	return nil
}

func (c *Conn) readGreeting() error {
	var g [greetingSize]byte
	if _, err := io.ReadFull(c.r, g[:10]); err != nil {
		return err
	}
	if g[0] != 0xff || g[9]&1 == 0 {
		return fmt.Errorf("%w: no signature", ErrProtocol)
	}
	if _, err := io.ReadFull(c.r, g[10:]); err != nil {
		return err
	}
	if g[10] < 3 {
		return fmt.Errorf("%w: version %d.%d: want at least 3.0", ErrProtocol, g[10], g[11])
	}
	if mechanism := string(bytes.TrimRight(g[12:32], "\x00")); mechanism != "NULL" {
		return fmt.Errorf("%w: security mechanism %q: want NULL", ErrProtocol, mechanism)
	}
	return nil
}

func property(name, value string) []byte {
	b := append([]byte{byte(len(name))}, name...)
	return append(binary.BigEndian.AppendUint32(b, uint32(len(value))), value...)
}

func socketTypeOf(data []byte) (socketType string, err error) {
	for len(data) > 0 {
		n := 1 + int(data[0])
		if len(data) < n+4 {
			return "", fmt.Errorf("%w: a property is cut off", ErrProtocol)
		}
		name, size := string(data[1:n]), int(binary.BigEndian.Uint32(data[n:]))
		if data = data[n+4:]; len(data) < size {
			return "", fmt.Errorf("%w: property %q is cut off", ErrProtocol, name)
		}
		if strings.EqualFold(name, "Socket-Type") {
			socketType = string(data[:size])
		}
		data = data[size:]
	}
	return socketType, nil
}
