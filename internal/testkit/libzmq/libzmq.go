// Package libzmq gives tests sockets of libzmq, through Python.
package libzmq

import (
	"bufio"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// python is Debian's Python, which python3-zmq belongs to.
const python = "/usr/bin/python3"

//go:embed peer.py
var program string

// A Socket is a socket in a process.
type Socket struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

// New starts a process that has a ZeroMQ socket of this type, for example SUB. It skips the test if there is no Python
// with libzmq.
func New(t *testing.T, socketType string) *Socket {
	if exec.Command(python, "-c", "import zmq").Run() != nil {
		t.Skip("no Python with libzmq here (Debian: python3-zmq)")
	}
	s := &Socket{t: t, cmd: exec.Command(python, "-c", program, socketType)}
	s.cmd.Stderr = os.Stderr
	var err error
	s.stdin, err = s.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := s.cmd.StdoutPipe()
	require.NoError(t, err)
	s.stdout = bufio.NewReader(out)
	require.NoError(t, s.cmd.Start())
	t.Cleanup(s.Kill)
	return s
}

// Kill ends the process and with it the socket.
func (s *Socket) Kill() {
	if s.cmd.ProcessState == nil {
		_ = s.cmd.Process.Kill() // it may have ended
		_ = s.cmd.Wait()
	}
}

func (s *Socket) call(result any, call ...any) {
	s.t.Helper()
	line, err := json.Marshal(call)
	require.NoError(s.t, err)
	_, err = s.stdin.Write(append(line, '\n'))
	require.NoError(s.t, err)
	answer, err := s.stdout.ReadBytes('\n')
	require.NoError(s.t, err)
	require.NoError(s.t, json.Unmarshal(answer, result))
}

// Set sets an option of the socket, for example SUBSCRIBE, to an int or a string.
func (s *Socket) Set(option string, value any) { s.call(new(any), "set", option, value) }

// Connect connects the socket.
func (s *Socket) Connect(endpoint string) { s.call(new(any), "connect", endpoint) }

// Bind binds the socket and returns its endpoint. If the port of the given endpoint is *, the result has the port that
// was chosen.
func (s *Socket) Bind(endpoint string) (bound string) {
	s.call(&bound, "bind", endpoint)
	return bound
}

// Send sends a message.
func (s *Socket) Send(frames ...[]byte) {
	texts := make([]string, len(frames))
	for i, f := range frames {
		texts[i] = hex.EncodeToString(f)
	}
	s.call(new(any), "send", texts)
}

// Receive returns the next message, or nil if none arrives within the time wait.
func (s *Socket) Receive(wait time.Duration) (frames [][]byte) {
	var texts []string
	s.call(&texts, "receive", wait.Milliseconds())
	for _, text := range texts {
		f, err := hex.DecodeString(text)
		require.NoError(s.t, err)
		frames = append(frames, f)
	}
	return frames
}
