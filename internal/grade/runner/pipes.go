package runner

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pipes are the grader's ends of what it talks to a process by. They are read and
// written by blocking system calls: thousands of short calls go back and forth, and
// the Go runtime's poller would cost as much as the rest of them.
type pipes struct {
	requests, replies int
}

// newPipes are both ends of both pipes. Whoever starts the process closes theirs.
func newPipes() (ours pipes, requests, replies *os.File, err error) {
	var to, from [2]int
	if err := unix.Pipe2(to[:], unix.O_CLOEXEC); err != nil {
		return pipes{}, nil, nil, err
	}
	if err := unix.Pipe2(from[:], unix.O_CLOEXEC); err != nil {
		return pipes{}, nil, nil, errors.Join(err, unix.Close(to[0]), unix.Close(to[1]))
	}
	// A process that replies without being asked leaves the requests where they are,
	// until no more fit.
	if err := unix.SetNonblock(to[1], true); err != nil {
		return pipes{}, nil, nil, errors.Join(err, unix.Close(to[0]), unix.Close(to[1]), unix.Close(from[0]), unix.Close(from[1]))
	}
	return pipes{requests: to[1], replies: from[0]}, os.NewFile(uintptr(to[0]), "requests"), os.NewFile(uintptr(from[1]), "replies"), nil
}

func (p pipes) close() {
	_ = unix.Close(p.requests)
	_ = unix.Close(p.replies)
}

// write writes what fits until then. The error is os.ErrDeadlineExceeded where
// nothing does.
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

// read reads what has come until then. The error is os.ErrDeadlineExceeded where
// nothing has, and io.EOF where nobody can write any more.
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

// wait waits for an event of a pipe.
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
