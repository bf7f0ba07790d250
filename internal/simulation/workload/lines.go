package workload

import (
	"bufio"
	"bytes"
	"compress/flate"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// longestLine is far above Mooncake's longest row, which has 2.7 kB.
const longestLine = 1 << 20

// lines reads the lines of a file that are not blank. It accepts Windows line ends, and skips a byte order mark.
type lines struct {
	name   string
	r      *bufio.Reader
	number int // of the last line read, from 1
	line   []byte
	repeat bool // the next call of nextLine returns the last line again
}

// open decompresses the file if it starts as a gzip file.
func (l *lines) open(r io.Reader, name string) error {
	l.name = name
	l.r = bufio.NewReaderSize(r, longestLine)
	magic, err := l.r.Peek(2)
	if err != nil && err != io.EOF {
		return l.readError(err)
	}
	if bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		unpacked, err := gzip.NewReader(l.r)
		if err != nil {
			return l.readError(err)
		}
		l.r = bufio.NewReaderSize(unpacked, longestLine)
	}
	return nil
}

// nextLine returns the next line that is not blank, without the white space at its ends, or io.EOF. The line is valid
// until the next call of nextLine.
func (l *lines) nextLine() ([]byte, error) {
	if l.repeat {
		l.repeat = false
		return l.line, nil
	}
	for {
		line, err := l.r.ReadSlice('\n')
		if err == io.EOF && len(line) == 0 {
			return nil, io.EOF
		}
		l.number++
		if errors.Is(err, bufio.ErrBufferFull) {
			return nil, l.errorf("the line is longer than %d bytes; wanted one request on each line", longestLine)
		}
		if err != nil && err != io.EOF {
			return nil, l.readError(err)
		}
		if l.number == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			l.line = line
			return line, nil
		}
	}
}

func (l *lines) errorf(text string, args ...any) error {
	return fmt.Errorf("%w: %s:%d: %w", ErrTrace, l.name, max(1, l.number), fmt.Errorf(text, args...))
}

// readError adds the name and line to an error of reading the file. The result wraps ErrTrace if the file is damaged.
func (l *lines) readError(err error) error {
	var corrupt flate.CorruptInputError
	if errors.As(err, &corrupt) || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) ||
		errors.Is(err, io.ErrUnexpectedEOF) {
		return l.errorf("the gzip file is damaged or cut off: %w", err)
	}
	return fmt.Errorf("trace %s, line %d: %w", l.name, max(1, l.number), err)
}
