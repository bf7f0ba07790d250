package openai

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"llmmemory/internal/serving/structured"
	"llmmemory/internal/serving/toolparser"
)

// A shape is what the answers of a job look like: reasoning, then calls or content. The zero value allows everything.
type shape struct {
	content *structured.Form // the form of the content, unless it is nil
	field   string           // the field of the request that gives it
	compact bool             // JSON is compact

	format toolparser.Format
	tools  []tool // that may be called
	mode   choiceMode
	once   bool            // an answer has one call at most
	loose  map[string]bool // the names of tools that take any object, because their schemas cannot be obeyed
}

// anyText is any text.
var anyText = structured.Form{Free: &structured.Free{}}

// form returns the form of an answer to a prompt, or nil if everything is allowed.
func (s *shape) form(p *prompt) *structured.Form {
	var form structured.Form
	switch {
	case len(s.tools) == 0 || s.mode == none:
		if s.content == nil {
			return nil
		}
		form = s.says(*s.content)
	case s.mode == required:
		form = s.calls()
	case s.content != nil:
		form = structured.Form{AnyOf: []structured.Form{s.calls(), s.says(*s.content)}}
	case s.format.Harmony():
		form = structured.Form{AnyOf: []structured.Form{s.calls(), s.says(anyText)}}
	case s.format.Tools.Writing.Marker == "":
		return nil
	default:
		form = s.marked()
	}
	form = s.reasoned(p, form)
	if s.compact {
		form = form.Compacted()
	}
	return &form
}

// says returns the form of an answer with content.
func (s *shape) says(content structured.Form) structured.Form {
	if !s.format.Harmony() {
		return content
	}
	return sequence(structured.Form{Text: toolparser.HarmonyContent}, content)
}

// sequence returns one form after another. Forms of no text are left out.
func sequence(forms ...structured.Form) structured.Form {
	forms = slices.DeleteFunc(forms, func(f structured.Form) bool { return f.Text == "" && isText(&f) })
	return structured.Form{Sequence: forms}
}

// isText reports whether f has no field but Text.
func isText(f *structured.Form) bool {
	rest := *f
	rest.Text = ""
	return reflect.ValueOf(rest).IsZero()
}

// begins returns the texts of a call of a tool before its arguments. They are alternatives.
func (s *shape) begins(t *tool) []string {
	w := &s.format.Tools.Writing
	all := []string{w.Begin + t.name + w.Middle}
	if w.Other[0] != "" {
		all = append(all, w.Other[0]+t.name+w.Other[1])
	}
	return all
}

// tags returns the tags of calls of each tool. Each begins with the text before.
func (s *shape) tags(before string) (tags []structured.Tag) {
	for i := range s.tools {
		t := &s.tools[i]
		arguments := structured.Form{JSONSchema: t.parameters}
		switch {
		case s.format.Tools.Tagged != nil:
			arguments = t.taggedArguments(s.format.Tools.Tagged)
		case s.loose[t.name]:
			arguments = structured.Form{JSONObject: true}
		}
		for _, begin := range s.begins(t) {
			tag := structured.Tag{Begin: before + begin, Content: arguments}
			if end := s.format.Tools.Writing.End; end != "" {
				tag.End = []string{end}
			}
			tags = append(tags, tag)
		}
	}
	return tags
}

// calls returns the form of one or more calls.
func (s *shape) calls() structured.Form {
	w := &s.format.Tools.Writing
	separated := &structured.Separated{Tags: s.tags(""), Separator: w.Between, AtLeastOne: true, StopAfterFirst: s.once || w.Once}
	return sequence(structured.Form{Text: w.Before}, structured.Form{Separated: separated}, structured.Form{Text: w.After})
}

// marked returns the form of text in which a marker begins a call.
func (s *shape) marked() structured.Form {
	w := s.format.Tools.Writing
	tags := &structured.Tags{Triggers: []string{w.Marker}, StopAfterFirst: s.once}
	switch {
	case w.Before != "":
		calls := s.calls()
		calls.Sequence = calls.Sequence[1:]
		tags.Tags = []structured.Tag{{Begin: w.Before, Content: calls}}
	case strings.HasPrefix(w.Begin, w.Marker):
		tags.Tags = s.tags("")
	default:
		tags.Tags = s.tags(w.Marker)
	}
	return structured.Form{Tags: tags}
}

// reasoned returns the form of an answer to a prompt that has form after the reasoning.
func (s *shape) reasoned(p *prompt, form structured.Form) structured.Form {
	r := s.format.Reasoning
	if s.format.Harmony() {
		next := []string{toolparser.HarmonyNext}
		return sequence(structured.Form{Separated: &structured.Separated{Tags: []structured.Tag{
			{Begin: toolparser.HarmonyReasoning, Content: anyText, End: next}, {Begin: toolparser.HarmonyPreamble, Content: anyText, End: next}}}},
			form)
	}
	if r == nil || r.Ends(p.end) {
		return form
	}
	after := sequence(structured.Form{Regex: "\n{0,2}"}, form)
	if r.Opens(p.end) {
		open := structured.After(r.End, after)
		if s.mode == auto && s.content == nil { // nothing must come, so the answer may end within the reasoning
			open = structured.Form{AnyOf: []structured.Form{open, {Free: &structured.Free{Without: []string{r.End}}}}}
		}
		return open
	}
	thought := structured.Form{Tag: &structured.Tag{Begin: r.Begin, Content: anyText, End: []string{r.End}}}
	return structured.Form{AnyOf: []structured.Form{sequence(thought, after), form}}
}

// refused returns the tool whose parameters cannot be compiled, and the reason.
func (s *shape) refused(err error) (*tool, string) {
	if s.mode == none {
		return nil, ""
	}
	for i := range s.tools {
		t := &s.tools[i]
		begin := s.begins(t)[0]
		for _, before := range []string{"", s.format.Tools.Writing.Marker} {
			if _, reason, ok := strings.Cut(err.Error(), fmt.Sprintf("the tag %q: ", before+begin)); ok {
				return t, reason
			}
		}
	}
	return nil, ""
}

// maxLoose is how many tools are loosened one by one, which takes time. Then all are.
const maxLoose = 4

// loosen lets a tool take any object if its schema cannot be obeyed because of err, and the model need not call it. It
// returns false if that does not help.
func (s *shape) loosen(err error) bool {
	t, _ := s.refused(err)
	if t == nil || t.strict || s.mode != auto || s.loose[t.name] {
		return false
	}
	if s.loose == nil {
		s.loose = map[string]bool{}
	}
	s.loose[t.name] = true
	for i := range s.tools {
		if len(s.loose) > maxLoose && !s.tools[i].strict {
			s.loose[s.tools[i].name] = true
		}
	}
	return true
}

// refusal returns the error for a form that cannot be compiled.
func (s *shape) refusal(err error) error {
	if t, reason := s.refused(err); t != nil {
		return invalid("tools", "The schema of the tool %q cannot be obeyed: %s.", t.name, reason)
	}
	field := s.field
	if field == "" {
		field = "tools"
	}
	return invalid(field, "%s cannot be obeyed: %v.", field, err)
}
