package workload

import (
	"bytes"
	"fmt"
	"strings"
)

// A csvParser splits rows at commas. Fields may be in double quotes, but must not contain
// commas.
type csvParser struct {
	count int
	index [3]int // of the format's columns
}

func newCSV(f format, names []string) (*csvParser, error) {
	p := &csvParser{count: len(names)}
	for i, column := range f.columns {
		p.index[i] = -1
		for j, name := range names {
			if !strings.EqualFold(name, column) {
				continue
			}
			if p.index[i] >= 0 {
				return nil, fmt.Errorf("the header has the column %q twice", column)
			}
			p.index[i] = j
		}
		if p.index[i] < 0 {
			return nil, fmt.Errorf("the header has no column %q; %s needs %s", column, f.name, strings.Join(f.columns[:], ", "))
		}
	}
	return p, nil
}

func (p *csvParser) split(line []byte) (fields, error) {
	var found [3][]byte
	n := 0
	for rest, more := line, true; more; n++ {
		var field []byte
		field, rest, more = bytes.Cut(rest, []byte{','})
		for i, at := range p.index {
			if at == n {
				found[i] = unquote(field)
			}
		}
	}
	if n != p.count {
		return fields{}, fmt.Errorf("the row has %d fields; wanted %d, as the header has", n, p.count)
	}
	return fields{found[0], found[1], found[2]}, nil
}

func (p *csvParser) hashes(int) ([]int64, error) { return nil, nil }

// unquote returns a field without spaces and quotes around it.
func unquote(field []byte) []byte {
	field = bytes.TrimSpace(field)
	if n := len(field); n >= 2 && field[0] == '"' && field[n-1] == '"' {
		return field[1 : n-1]
	}
	return field
}
