package structured

import "fmt"

// readRepeat reads the formats that repeat another one.
func readRepeat(path, kind string, v *tagValue) (Form, error) {
	var content *tagValue
	var least, most *int
	if err := v.fields(map[string]any{"type": &kind, "content": &content, "min": &least, "max": &most}); err != nil {
		return Form{}, fmt.Errorf("%s: %w", path, err)
	}
	r := Repeat{Max: -1}
	switch {
	case kind == "repeat" && least != nil && most != nil:
		r.Min, r.Max = *least, *most
	case kind == "repeat":
		return Form{}, fmt.Errorf("%s: min or max is missing", path)
	case least != nil || most != nil:
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
	r.Form, err = readFormat(path+".content", content)
	return Form{Repeat: &r}, err
}

// readDispatch reads the format of free text in which another format begins after a pattern or a token.
func readDispatch(path, kind string, v *tagValue) (Form, error) {
	loop := true
	var rules []*tagValue
	var excluded names
	tags := &Tags{}
	err := v.fields(map[string]any{"type": &kind, "rules": &rules, "loop": &loop, "excludes": &tags.Excluded, "exclude_tokens": &excluded})
	if err != nil {
		return Form{}, fmt.Errorf("%s: %w", path, err)
	}
	tags.Excluded, tags.StopAfterFirst = append(tags.Excluded, excluded.texts()...), !loop
	for i, rule := range rules {
		path := fmt.Sprintf("%s.rules[%d]", path, i)
		var begin name
		if len(rule.elements) != 2 {
			return Form{}, fmt.Errorf("%s: it is not a list of a text and a format", path)
		}
		if err := begin.UnmarshalJSON(rule.elements[0].raw); err != nil || begin == "" {
			return Form{}, fmt.Errorf("%s: it does not begin with a text", path)
		}
		content, err := readFormat(path+"[1]", rule.elements[1])
		if err != nil {
			return Form{}, err
		}
		tags.Triggers = append(tags.Triggers, string(begin))
		tags.Tags = append(tags.Tags, Tag{Begin: string(begin), Content: content})
	}
	return Form{Tags: tags}, nil
}
