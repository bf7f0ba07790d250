package runner

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pipes are the grader's ends of the two pipes to a process. They do not use Go's poller, because a trace may have
// thousands of short calls, and the poller would make each of them slower.
type pipes struct {
	requests, replies int
}

// newPipes returns both ends of both pipes: ours are the grader's, and requests and replies are the process's. The
// caller must close requests and replies after it has started the process.
func newPipes() (ours pipes, requests, replies *os.File, err error) {
	var requestPipe, replyPipe [2]int
	if err := unix.Pipe2(requestPipe[:], unix.O_CLOEXEC); err != nil {
		return pipes{}, nil, nil, err
	}
	if err := unix.Pipe2(replyPipe[:], unix.O_CLOEXEC); err != nil {
		return pipes{}, nil, nil, errors.Join(err, unix.Close(requestPipe[0]), unix.Close(requestPipe[1]))
	}
	// The pipe for requests becomes full if the process replies without reading requests. A write must then not
	// block.
	if err := unix.SetNonblock(requestPipe[1], true); err != nil {
		return pipes{}, nil, nil, errors.Join(err, unix.Close(requestPipe[0]), unix.Close(requestPipe[1]), unix.Close(replyPipe[0]), unix.Close(replyPipe[1]))
	}
	return pipes{requests: requestPipe[1], replies: replyPipe[0]}, os.NewFile(uintptr(requestPipe[0]), "requests"), os.NewFile(uintptr(replyPipe[1]), "replies"), nil
}

func (p pipes) close() {
	_ = unix.Close(p.requests)
	_ = unix.Close(p.replies)
}

// write writes as many bytes as fit into the pipe. If none fits before the deadline, it returns os.ErrDeadlineExceeded.
func (p pipes) write(bytes []byte, deadline time.Time) (int, error) {
	for {
		n, err := unix.Write(p.requests, bytes)
		if err == nil || err != unix.EAGAIN && err != unix.EINTR {
			return max(0, n), err
		}
		if err := wait(p.requests, unix.POLLOUT, deadline); err != nil {
			return 0, err
		}
	}
}

// read reads the bytes that are in the pipe. If none arrives before the deadline, it returns os.ErrDeadlineExceeded. If
// the process has closed its end, read returns io.EOF.
func (p pipes) read(bytes []byte, deadline time.Time) (int, error) {
	if err := wait(p.replies, unix.POLLIN, deadline); err != nil {
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

func wait(fd int, event int16, deadline time.Time) error {
	fds := []unix.PollFd{{Fd: int32(fd), Events: event}}
	for {
		left := time.Until(deadline)
		if left < 0 {
			return os.ErrDeadlineExceeded
		}
		n, err := unix.Poll(fds, int(left.Milliseconds())+1)
		if n > 0 || err != nil && err != unix.EINTR {
			return err
		}
	}
}
