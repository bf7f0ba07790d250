package workload

import (
	"encoding/json"
	"fmt"
	"strings"
)

// A jsonParser reads one object a row. Its memory is used again.
type jsonParser struct {
	format format
	row    jsonRow
	ids    []int64
}

// jsonRow keeps values as they are written, so that the same rules and
// complaints hold for them as for CSV.
type jsonRow struct {
	At, Prompt, Output, Hashes json.RawMessage
}

type ownRow struct {
	At     json.RawMessage `json:"arrival"`
	Prompt json.RawMessage `json:"prompt"`
	Output json.RawMessage `json:"output"`
	Hashes json.RawMessage `json:"-"`
}

type mooncakeRow struct {
	At     json.RawMessage `json:"timestamp"`
	Prompt json.RawMessage `json:"input_length"`
	Output json.RawMessage `json:"output_length"`
	Hashes json.RawMessage `json:"hash_ids"`
}

func (p *jsonParser) split(line []byte) (fields, error) {
	row := &p.row
	row.At, row.Prompt, row.Output, row.Hashes = row.At[:0], row.Prompt[:0], row.Output[:0], row.Hashes[:0]
	var err error
	if p.format.log {
		err = json.Unmarshal(line, (*mooncakeRow)(row))
	} else {
		err = json.Unmarshal(line, (*ownRow)(row))
	}
	if err != nil {
		return fields{}, fmt.Errorf("not a JSON object: %w", err)
	}
	for i, value := range [][]byte{row.At, row.Prompt, row.Output} {
		if len(value) == 0 {
			return fields{}, fmt.Errorf("column %q is missing; a row of %s has %s",
				p.format.columns[i], p.format.name, strings.Join(p.format.columns[:], ", "))
		}
	}
	return fields{row.At, row.Prompt, row.Output}, nil
}

func (p *jsonParser) hashes(prompt int) ([]int64, error) {
	if len(p.row.Hashes) == 0 {
		return nil, nil
	}
	p.ids = p.ids[:0]
	if err := json.Unmarshal(p.row.Hashes, &p.ids); err != nil {
		return nil, bad("hash_ids", p.row.Hashes, "is not a list of ids", "whole numbers")
	}
	if want := (prompt + hashTokens - 1) / hashTokens; len(p.ids) != want {
		return nil, fmt.Errorf("column %q has %d ids; wanted %d, one for each %d of the %d tokens of the prompt",
			"hash_ids", len(p.ids), want, hashTokens, prompt)
	}
	return p.ids, nil
}
