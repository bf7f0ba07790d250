package structured

import (
	"encoding/json"
	"fmt"
)

// readRepeat reads the formats that repeat another one.
func readRepeat(path, kind string, data json.RawMessage) (Form, error) {
	var f struct {
		Type     string
		Content  json.RawMessage
		Min, Max *int
	}
	if err := fields(data, &f); err != nil {
		return Form{}, fmt.Errorf("%s: %w", path, err)
	}
	r := Repeat{Max: -1}
	switch {
	case kind == "repeat" && f.Min != nil && f.Max != nil:
		r.Min, r.Max = *f.Min, *f.Max
	case kind == "repeat":
		return Form{}, fmt.Errorf("%s: min or max is missing", path)
	case f.Min != nil || f.Max != nil:
		return Form{}, fmt.Errorf("%s: only repeat has min and max", path)
	case kind == "optional":
		r.Max = 1
	case kind == "plus":
		r.Min = 1
	}
	if r.Max < -1 || r.Min < 0 || r.Max >= 0 && r.Max < r.Min {
		return Form{}, fmt.Errorf("%s: min is %d and max is %d; min must be 0 or more, and max at least min, or -1", path, r.Min, r.Max)
	}
	var err error
	r.Form, err = readFormat(path+".content", f.Content)
	return Form{Repeat: &r}, err
}

// readDispatch reads the format of free text in which another format begins after a pattern or a token.
func readDispatch(path, kind string, data json.RawMessage) (Form, error) {
	f := struct {
		Type          string
		Rules         [][2]json.RawMessage
		Loop          bool
		Excludes      []string
		ExcludeTokens names `json:"exclude_tokens"`
	}{Loop: true}
	if err := fields(data, &f); err != nil {
		return Form{}, fmt.Errorf("%s: %w", path, err)
	}
	tags := &Tags{Excluded: append(f.Excludes, f.ExcludeTokens.texts()...), StopAfterFirst: !f.Loop}
	for i, rule := range f.Rules {
		path := fmt.Sprintf("%s.rules[%d]", path, i)
		var begin name
		if err := begin.UnmarshalJSON(rule[0]); err != nil || begin == "" {
			return Form{}, fmt.Errorf("%s: it does not begin with a text", path)
		}
		content, err := readFormat(path+"[1]", rule[1])
		if err != nil {
			return Form{}, err
		}
		tags.Triggers = append(tags.Triggers, string(begin))
		tags.Tags = append(tags.Tags, Tag{Begin: string(begin), Content: content})
	}
	return Form{Tags: tags}, nil
}
