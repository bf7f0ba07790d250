package openai

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"llmmemory/internal/serving/structured"
	"llmmemory/internal/serving/toolparser"
)

// A shape describes which answers to a job are allowed: reasoning, then calls or content. The zero value allows any
// answer.
type shape struct {
	content     *structured.Form // the form of the content, unless it is nil
	field       string           // the field of the request that gives it
	compactJSON bool             // JSON is compact

	format  toolparser.Format
	tools   []tool // that may be called
	mode    choiceMode
	oneCall bool            // an answer has one call at most
	loose   map[string]bool // the names of tools that take any object, because their schemas cannot be obeyed
}

// anyText is any text.
var anyText = structured.Form{Free: &structured.Free{}}

// form returns the form of an answer to a prompt, or nil if any answer is allowed.
func (s *shape) form(p *prompt) *structured.Form {
	var form structured.Form
	switch {
	case len(s.tools) == 0 || s.mode == none:
		if s.content == nil {
			return nil
		}
		form = s.contentForm(*s.content)
	case s.mode == required:
		form = s.calls()
	case s.content != nil:
		form = structured.Form{AnyOf: []structured.Form{s.calls(), s.contentForm(*s.content)}}
	case s.format.Harmony():
		form = structured.Form{AnyOf: []structured.Form{s.calls(), s.contentForm(anyText)}}
	case s.format.Tools.Writing.Marker == "":
		return nil
	default:
		form = s.marked("")
	}
	form = s.afterReasoning(p, form)
	if s.compactJSON {
		form = form.Compacted()
	}
	return &form
}

// contentForm returns the form of an answer without reasoning and calls. The parameter content is the form of the
// answer's content.
func (s *shape) contentForm(content structured.Form) structured.Form {
	if !s.format.Harmony() {
		return content
	}
	return sequence(structured.Form{Text: toolparser.HarmonyContent}, content)
}

// sequence returns the form of texts that consist of several parts, one after another. Part i is a text of
// forms[i]. Forms with no field set are left out.
func sequence(forms ...structured.Form) structured.Form {
	return structured.Form{Sequence: slices.DeleteFunc(forms, func(f structured.Form) bool { return reflect.ValueOf(f).IsZero() })}
}

// callBegins returns the possible texts of a call before its arguments.
func (s *shape) callBegins(t *tool) []string {
	w := &s.format.Tools.Writing
	all := []string{w.Begin + t.name + w.Middle}
	if w.Other[0] != "" {
		all = append(all, w.Other[0]+t.name+w.Other[1])
	}
	return all
}

// tags returns the tags of the calls of all tools. A call of a tool can begin with one of several texts (callBegins),
// and each of these texts has its own tag. In the tag, the text prefix is added before this text.
func (s *shape) tags(prefix string) (tags []structured.Tag) {
	for i := range s.tools {
		t := &s.tools[i]
		arguments := structured.Form{JSONSchema: t.parameters}
		switch {
		case s.format.Tools.Tagged != nil:
			arguments = t.taggedArguments(s.format.Tools.Tagged, s.loose[t.name])
		case s.loose[t.name]:
			arguments = structured.Form{JSONObject: true}
		}
		for _, begin := range s.callBegins(t) {
			tag := structured.Tag{Begin: prefix + begin, Content: arguments}
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
	separated := &structured.Separated{Tags: s.tags(""), Separator: w.Separator, AtLeastOne: true, StopAfterFirst: s.oneCall || w.Once}
	return sequence(structured.Form{Text: w.Before}, structured.Form{Separated: separated}, structured.Form{Text: w.After})
}

// marked returns the form of an answer with any text and any number of calls of tools. Each call begins after a
// marker. If excluded is not "", the text does not contain it.
func (s *shape) marked(excluded string) structured.Form {
	w := s.format.Tools.Writing
	tags := &structured.Tags{Triggers: []string{w.Marker}, StopAfterFirst: s.oneCall}
	if excluded != "" {
		tags.Excluded = []string{excluded}
	}
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

// afterReasoning returns the form of an answer to the prompt p. The answer has any reasoning, between the marks of
// the model's format, and then text of the given form.
//
// The answer may begin with the text of the given form at once, unless the answer begins inside the reasoning (see
// ReasoningParser.Opens). If the prompt has already ended the reasoning, or the model's format has no reasoning, the
// result is the given form. If neither a call nor a form of the content is required, the answer may also end inside the
// reasoning, or the marker of a call may end the reasoning; otherwise the reasoning cannot contain this marker. In the
// format Harmony, the answer may have several texts of reasoning, whatever the prompt is. It may also have preambles,
// which are free text of the content, unless there is a form of the content.
func (s *shape) afterReasoning(p *prompt, form structured.Form) structured.Form {
	r := s.format.Reasoning
	if s.format.Harmony() {
		next := []string{toolparser.HarmonyNext}
		tags := []structured.Tag{{Begin: toolparser.HarmonyReasoning, Content: anyText, End: next}}
		if s.content == nil {
			tags = append(tags, structured.Tag{Begin: toolparser.HarmonyPreamble, Content: anyText, End: next})
		}
		return sequence(structured.Form{Separated: &structured.Separated{Tags: tags}}, form)
	}
	if r == nil || r.Ends(p.end) {
		return form
	}
	begin, marker := r.Begin, ""
	if r.Opens(p.end) {
		begin = ""
	}
	if len(s.tools) > 0 && s.mode != none {
		marker = s.format.Tools.Writing.Marker
	}
	thought := structured.Tag{Begin: begin, Content: anyText, End: []string{r.End}}
	if marker != "" {
		thought.Content = structured.Form{Free: &structured.Free{Excluded: []string{marker}}}
	}
	all := []structured.Form{sequence(structured.Form{Tag: &thought}, structured.Form{Regex: "\n{0,2}"}, form)}
	if begin != "" {
		all = append(all, form)
	}
	switch {
	case s.mode != auto || s.content != nil: // a call or a form of the content must come
	case marker != "":
		unclosed := s.marked(r.End)
		if begin != "" {
			unclosed = sequence(structured.Form{Text: begin}, unclosed)
		}
		all = append(all, unclosed)
	case begin == "":
		all = append(all, structured.Form{Free: &structured.Free{Excluded: []string{r.End}}})
	}
	if len(all) == 1 {
		return all[0]
	}
	return structured.Form{AnyOf: all}
}

// refusedTool returns the tool whose parameters cannot be compiled because of err, and the reason. It finds the tool by
// the text of err.
func (s *shape) refusedTool(err error) (*tool, string) {
	if s.mode == none {
		return nil, ""
	}
	for i := range s.tools {
		t := &s.tools[i]
		begin := s.callBegins(t)[0]
		for _, before := range []string{"", s.format.Tools.Writing.Marker} {
			if _, reason, ok := strings.Cut(err.Error(), fmt.Sprintf("the tag %q: ", before+begin)); ok {
				return t, reason
			}
		}
	}
	return nil, ""
}

// maxLoose is the number of tools that loosen changes one by one, so that each accepts any object as its arguments.
// If the schema of a further tool cannot be obeyed, loosen changes all tools that are not strict. The limit exists
// because the form is compiled again after each call of loosen, which takes time.
const maxLoose = 4

// loosen makes a tool accept any object as its arguments, instead of objects that fit its schema. The tool is the one
// whose schema cannot be obeyed, as err says. loosen returns false and changes nothing if err concerns no tool, if the
// tool is strict or already accepts any object, or if the model must call a tool. After maxLoose such changes, the next
// call changes all tools that are not strict.
func (s *shape) loosen(err error) bool {
	t, _ := s.refusedTool(err)
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
	if t, reason := s.refusedTool(err); t != nil {
		return invalid("tools", "The schema of the tool %q cannot be obeyed: %s.", t.name, reason)
	}
	field := s.field
	if field == "" {
		field = "tools"
	}
	return invalid(field, "%s cannot be obeyed: %v.", field, err)
}
