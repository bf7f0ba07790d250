package runner

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pipes use blocking system calls: Go's poller would take as long as the rest of a short call.
type pipes struct {
	requests, replies int
}

// The caller starts the process and then closes the process's ends of the pipes.
func newPipes() (ours pipes, requests, replies *os.File, err error) {
	var to, from [2]int
	if err := unix.Pipe2(to[:], unix.O_CLOEXEC); err != nil {
		return pipes{}, nil, nil, err
	}
	if err := unix.Pipe2(from[:], unix.O_CLOEXEC); err != nil {
		return pipes{}, nil, nil, errors.Join(err, unix.Close(to[0]), unix.Close(to[1]))
	}
	// If the process replies without reading, the requests fill the pipe. A write must then not block.
	if err := unix.SetNonblock(to[1], true); err != nil {
		return pipes{}, nil, nil, errors.Join(err, unix.Close(to[0]), unix.Close(to[1]), unix.Close(from[0]), unix.Close(from[1]))
	}
	return pipes{requests: to[1], replies: from[0]}, os.NewFile(uintptr(to[0]), "requests"), os.NewFile(uintptr(from[1]), "replies"), nil
}

func (p pipes) close() {
	_ = unix.Close(p.requests)
	_ = unix.Close(p.replies)
}

// write waits for space for the first byte until the given time, and then returns os.ErrDeadlineExceeded.
func (p pipes) write(bytes []byte, until time.Time) (int, error) {
	for {
		n, err := unix.Write(p.requests, bytes)
		if err == nil || err != unix.EAGAIN && err != unix.EINTR {
			return max(0, n), err
		}
		if err := wait(p.requests, unix.POLLOUT, until); err != nil {
			return 0, err
		}
	}
}

// read waits until the given time for the first byte, and returns os.ErrDeadlineExceeded or, at the end, io.EOF.
func (p pipes) read(bytes []byte, until time.Time) (int, error) {
	if err := wait(p.replies, unix.POLLIN, until); err != nil {
		return 0, err
	}
	for {
		n, err := unix.Read(p.replies, bytes)
		if err == unix.EINTR {
			continue
		}
		if err == nil && n == 0 {
			err = io.EOF
		}
		return max(0, n), err
	}
}

func wait(fd int, event int16, until time.Time) error {
	fds := []unix.PollFd{{Fd: int32(fd), Events: event}}
	for {
		left := time.Until(until)
		if left < 0 {
			return os.ErrDeadlineExceeded
		}
		n, err := unix.Poll(fds, int(left.Milliseconds())+1)
		if n > 0 || err != nil && err != unix.EINTR {
			return err
		}
	}
}
