package zmtp

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const forever = time.Hour

func frame(flags byte, body string) string {
	return string(header(flags, len(body))) + body
}

func ready(properties ...string) string {
	body := "\x05READY"
	for i := 0; i < len(properties); i += 2 {
		body += string(property(properties[i], properties[i+1]))
	}
	return frame(flagCommand, body)
}

var (
	hello = string(greeting())
	sub   = ready("Socket-Type", "SUB")
)

func patchedHello(pos int, b string) string { return hello[:pos] + b + hello[pos+len(b):] }

// script is a connection whose peer sends fixed bytes and then closes its end.
type script struct {
	net.Conn
	io.Reader
	wrote bytes.Buffer
}

func (s *script) Read(b []byte) (int, error)       { return s.Reader.Read(b) }
func (s *script) Write(b []byte) (int, error)      { return s.wrote.Write(b) }
func (s *script) SetDeadline(time.Time) error      { return nil }
func (s *script) SetReadDeadline(time.Time) error  { return nil }
func (s *script) SetWriteDeadline(time.Time) error { return nil }

type received struct {
	names  []string
	frames [][][]byte
	err    error
	wrote  string
}

func receive(peer string) (r received) {
	s := &script{Reader: strings.NewReader(peer)}
	c, err := Open(s, "PUB", []string{"SUB", "XSUB"}, forever)
	for err == nil {
		var name string
		var frames [][]byte
		if name, frames, err = c.Receive(); err == nil {
			r.names, r.frames = append(r.names, name), append(r.frames, frames)
		}
	}
	r.err, r.wrote = err, s.wrote.String()
	return r
}

func TestHandshakes(t *testing.T) {
	for _, test := range []struct{ name, bytes string }{
		{"of a SUB socket", hello + sub},
		{"of version 3.0", patchedHello(11, "\x00") + sub},
		{"of a later version", patchedHello(10, "\x04\x02") + sub},
		{"with an identity", hello + ready("Identity", "x", "Socket-Type", "XSUB", "X-Key", strings.Repeat("x", 300))},
		{"with another case", hello + ready("SOCKET-type", "SUB")},
		{"with a signature of ZMTP 2", patchedHello(1, "\x00\x00\x00\x00\x00\x00\x00\x01") + sub},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := receive(test.bytes + frame(0, "\x01kv"))
			require.ErrorIs(t, r.err, io.EOF)
			require.Equal(t, [][][]byte{{[]byte("\x01kv")}}, r.frames)
			require.Equal(t, hello+ready("Socket-Type", "PUB"), r.wrote)
		})
	}
}

func TestPeersThatViolateTheProtocolAreRefused(t *testing.T) {
	for _, test := range []struct{ name, bytes, want string }{
		{"a request of HTTP", "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "no signature"},
		{"no end of the signature", patchedHello(9, "\x00"), "no signature"},
		{"version 2.0", patchedHello(10, "\x02\x00"), "version 2.0: want at least 3.0"},
		{"a password", patchedHello(12, "PLAIN"), `security mechanism "PLAIN": want NULL`},
		{"a message before READY", hello + frame(0, "\x01kv"), "a message before READY"},
		{"a subscription before READY", hello + frame(flagCommand, "\x09SUBSCRIBEkv"), `"SUBSCRIBE" in place of READY`},
		{"a socket of another type", hello + ready("Socket-Type", "PULL"), `a "PULL" socket cannot talk to a PUB socket`},
		{"a socket of a long type", hello + ready("Socket-Type", strings.Repeat("\n", 1000)), "socket cannot talk to a PUB socket"},
		{"no type of a socket", hello + ready(), `a "" socket cannot talk to a PUB socket`},
		{"no name", hello + frame(flagCommand, "\x05READY\x00"), "a property is cut off"},
		{"no value", hello + frame(flagCommand, "\x05READY\x0bSocket-Type"), "a property is cut off"},
		{"a short value", hello + frame(flagCommand, "\x05READY\x01x\x00\x00\x00\x02x"), `property "x" is cut off`},
		{"a long value", hello + frame(flagCommand, "\x05READY\x01x\xff\xff\xff\xff"), `property "x" is cut off`},
		{"an empty command", hello + sub + frame(flagCommand, ""), "a command of 0 bytes"},
		{"a short command", hello + sub + frame(flagCommand, "\x09SUB"), "a command of 4 bytes"},
		{"a short PING", hello + sub + frame(flagCommand, "\x04PING\x00"), "a PING of 1 bytes"},
		{"unknown flags", hello + sub + frame(8, "\x01kv"), "a frame with flags 0x8"},
		{"a command in two frames", hello + sub + frame(flagCommand|flagMore, "\x09SUBSCRIBE"), "a frame with flags 0x5"},
		{"a command inside a message", hello + sub + frame(flagMore, "\x01") + frame(flagCommand, "\x09SUBSCRIBEkv"), "a command inside a message"},
		{"a frame of 64 KiB and a byte", hello + sub + "\x02\x00\x00\x00\x00\x00\x01\x00\x01", "a frame of 65537 bytes"},
		{"a frame of 1 TiB", hello + sub + "\x02\x00\x00\x01\x00\x00\x00\x00\x00", "a frame of 1099511627776 bytes"},
		{"a frame of 2^63 bytes", hello + sub + "\x02\x80\x00\x00\x00\x00\x00\x00\x00", "a frame of 9223372036854775808 bytes"},
		{"a large command", hello + "\x06\x00\x00\x00\x00\x00\x02\x00\x00", "a frame of 131072 bytes"},
		{"many frames", hello + sub + strings.Repeat(frame(flagMore, ""), maxFrames) + frame(0, ""), "a message of more than 16 frames"},
		{"large frames", hello + sub + frame(flagMore, strings.Repeat("x", 40_000)) + frame(0, strings.Repeat("x", 40_000)), "or 65536 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := receive(test.bytes)
			require.ErrorIs(t, r.err, ErrProtocol)
			require.ErrorContains(t, r.err, test.want)
			require.Empty(t, r.frames)
			require.LessOrEqual(t, len(r.wrote), 64+len(sub)+256)
		})
	}
}

func TestAPeerHearsWhyItIsRefused(t *testing.T) {
	r := receive(hello + ready("Socket-Type", "PULL"))
	require.Equal(t, hello+ready("Socket-Type", "PUB")+frame(flagCommand, "\x05ERROR\x2ba \"PULL\" socket cannot talk to a PUB socket"), r.wrote)
}

func TestMessagesAndCommandsAreReceived(t *testing.T) {
	text := strings.Repeat("x", 300)
	r := receive(hello + sub +
		frame(flagCommand, "\x09SUBSCRIBEkv") +
		frame(flagCommand, "\x04PONG") +
		frame(flagCommand, "\x07UNKNOWN of another version") +
		frame(flagMore, "") + frame(flagMore, "a") + frame(0, text) +
		"\x02\x00\x00\x00\x00\x00\x00\x00\x01b" +
		frame(flagCommand, "\x06CANCELkv"))
	require.ErrorIs(t, r.err, io.EOF)
	require.Equal(t, []string{"SUBSCRIBE", "", "", "CANCEL"}, r.names)
	require.Equal(t, [][][]byte{{[]byte("kv")}, {{}, []byte("a"), []byte(text)}, {[]byte("b")}, {[]byte("kv")}}, r.frames)
}

func TestPingsAreAnswered(t *testing.T) {
	for _, test := range []struct{ name, context, want string }{
		{"without a context", "", ""},
		{"with a context", "context", "context"},
		{"with a long context", strings.Repeat("0123456789abcdef", 20), "0123456789abcdef"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := receive(hello + sub + frame(flagCommand, "\x04PING\x00\x00"+test.context))
			require.ErrorIs(t, r.err, io.EOF)
			require.Equal(t, hello+ready("Socket-Type", "PUB")+frame(flagCommand, "\x04PONG"+test.want), r.wrote)
		})
	}
}

func open(t *testing.T) (c *Conn, theirs net.Conn) {
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	go func() { _, _ = theirs.Write([]byte(hello + sub)) }()
	opened := make(chan error)
	go func() {
		var err error
		c, err = Open(ours, "PUB", []string{"SUB"}, forever)
		opened <- err
	}()
	_, err := io.ReadFull(theirs, make([]byte, len(hello+sub)))
	require.NoError(t, err)
	require.NoError(t, <-opened)
	return c, theirs
}

func TestAPeerIsGoneWhenItIsSilentForLongerThanItSaid(t *testing.T) {
	c, theirs := open(t)
	go func() {
		_, _ = theirs.Write([]byte(frame(flagCommand, "\x04PING\x00\x01"))) // a tenth of a second
		_, _ = io.Copy(io.Discard, theirs)
	}()
	_, _, err := c.Receive()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

func TestAWriteHasADeadline(t *testing.T) {
	c, _ := open(t)
	c.timeout = time.Millisecond
	require.ErrorIs(t, c.Send([]byte("the peer does not read this")), os.ErrDeadlineExceeded)
}

func TestAHandshakeHasADeadline(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() { _, _ = io.Copy(io.Discard, theirs) }()
	_, err := Open(ours, "PUB", nil, time.Millisecond)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}

// FuzzPeer checks that no received message exceeds the limits, whatever a peer sends.
func FuzzPeer(f *testing.F) {
	for _, seed := range []string{
		"", hello, hello + sub, hello + sub + frame(flagCommand, "\x09SUBSCRIBEkv") + frame(0, "\x01kv"),
		hello + sub + frame(flagCommand, "\x04PING\x00\x01context") + frame(flagMore, "") + frame(0, "12345678"),
		hello + sub + "\x02\x00\x00\x01\x00\x00\x00\x00\x00",
	} {
		f.Add([]byte(seed))
		f.Add([]byte(strings.TrimPrefix(seed, hello)))
	}
	f.Fuzz(func(t *testing.T, input []byte) {
		for _, prefix := range []string{"", hello, hello + sub} {
			r := receive(prefix + string(input))
			require.Error(t, r.err)
			for i, frames := range r.frames {
				size := 0
				for _, b := range frames {
					size += len(b)
				}
				require.LessOrEqual(t, size, min(maxMessage, len(prefix)+len(input)))
				require.LessOrEqual(t, len(frames), maxFrames)
				require.Contains(t, []string{"", "SUBSCRIBE", "CANCEL"}, r.names[i])
			}
		}
	})
}

func TestFramesOfEverySizeAreSent(t *testing.T) {
	for _, n := range []int{0, 1, 255, 256, 1 << 17} {
		c, theirs := open(t)
		body := bytes.Repeat([]byte("x"), n)
		go func() { _ = c.Send(nil, body) }()
		want := frame(flagMore, "") + "\x02" + string(binary.BigEndian.AppendUint64(nil, uint64(n))) + string(body)
		if n < 256 {
			want = frame(flagMore, "") + "\x00" + string([]byte{byte(n)}) + string(body)
		}
		got := make([]byte, len(want))
		_, err := io.ReadFull(theirs, got)
		require.NoError(t, err)
		require.True(t, want == string(got), "%d bytes", n)
	}
}
