package structured

import (
	"slices"
	"strings"
)

// A naiveReader compares a text with a form by trying every way to divide the text into the form's parts. The
// letter S is a special token.
type naiveReader struct {
	text           string
	begins, answer bool // whether text is the beginning of an answer, and an answer
}

// readAll reads a text.
func readAll(f *Form, text string) (begins, answer bool) {
	r := &naiveReader{text: text}
	r.read(f, 0, nil, func(pos int) { r.answer = r.answer || pos == len(text); r.begins = r.begins || pos == len(text) })
	return r.begins, r.answer
}

// read finds the texts of the form that begin at the position pos. After such a text, one of the texts in ends must
// follow. If ends is empty, anything may follow. read calls next with the position after the text and its end.
func (r *naiveReader) read(f *Form, pos int, ends []string, next func(int)) {
	switch {
	case f.Free != nil:
		r.free(pos, f.Free.Excluded, ends, func(_ string, pos int) { next(pos) })
	case f.Tags != nil:
		r.tags(f.Tags, pos, f.Tags.AtLeastOne, ends, next)
	case f.Sequence != nil:
		r.sequence(f.Sequence, pos, ends, next)
	case f.AnyOf != nil:
		for i := range f.AnyOf {
			r.read(&f.AnyOf[i], pos, ends, next)
		}
	case f.Repeat != nil:
		copies := 0 // more make no difference, since texts are short and copies of the empty text are left out
		for copies = f.Repeat.Min; copies <= len(r.text)+1+f.Repeat.Min && (f.Repeat.Max < 0 || copies <= f.Repeat.Max); copies++ {
			r.sequence(slices.Repeat([]Form{f.Repeat.Form}, copies), pos, ends, next)
		}
	case f.Tag != nil && f.Tag.End == nil:
		r.literal(f.Tag.Begin, pos, func(pos int) { r.read(&f.Tag.Content, pos, ends, next) })
	case f.Tag != nil:
		r.tag(f.Tag, pos, func(pos int) { r.oneOf(ends, pos, next) })
	case f.Separated != nil:
		if !f.Separated.AtLeastOne {
			r.oneOf(ends, pos, next)
		}
		r.separated(f.Separated, pos, ends, next)
	case f.Choice != nil:
		for _, text := range f.Choice {
			r.literal(text, pos, func(pos int) { r.oneOf(ends, pos, next) })
		}
	default:
		r.literal(f.Text, pos, func(pos int) { r.oneOf(ends, pos, next) })
	}
}

func (r *naiveReader) literal(text string, pos int, next func(int)) {
	switch rest := r.text[pos:]; {
	case strings.HasPrefix(rest, text):
		next(pos + len(text))
	case strings.HasPrefix(text, rest):
		r.begins = true
	}
}

func (r *naiveReader) oneOf(texts []string, pos int, next func(int)) {
	if len(texts) == 0 {
		next(pos)
	}
	for _, text := range texts {
		r.literal(text, pos, next)
	}
}

func (r *naiveReader) tag(t *Tag, pos int, next func(int)) {
	r.literal(t.Begin, pos, func(pos int) { r.read(&t.Content, pos, t.End, next) })
}

func (r *naiveReader) sequence(all []Form, pos int, ends []string, next func(int)) {
	switch len(all) {
	case 0:
		r.oneOf(ends, pos, next)
	case 1:
		r.read(&all[0], pos, ends, next)
	default:
		r.read(&all[0], pos, nil, func(pos int) { r.sequence(all[1:], pos, ends, next) })
	}
}

func (r *naiveReader) separated(s *Separated, pos int, ends []string, next func(int)) {
	for i := range s.Tags {
		r.lastTag(&s.Tags[i], pos, ends, next)
		if !s.StopAfterFirst {
			r.tag(&s.Tags[i], pos, func(pos int) {
				r.literal(s.Separator, pos, func(pos int) { r.separated(s, pos, ends, next) })
			})
		}
	}
}

// lastTag reads a tag that one of ends must follow, or anything if ends is empty.
func (r *naiveReader) lastTag(t *Tag, pos int, ends []string, next func(int)) {
	if len(t.End) > 0 {
		r.tag(t, pos, func(pos int) { r.oneOf(ends, pos, next) })
		return
	}
	r.literal(t.Begin, pos, func(pos int) { r.read(&t.Content, pos, ends, next) })
}

// free reads free text up to the first of ends.
func (r *naiveReader) free(start int, excluded, ends []string, next func(end string, pos int)) {
	for stop := start; stop <= len(r.text); stop++ {
		text := r.text[start:stop]
		if strings.Contains(text, "S") || slices.ContainsFunc(excluded, func(s string) bool { return strings.Contains(text, s) }) {
			return
		}
		if len(ends) == 0 {
			next("", stop)
		}
		for _, end := range ends {
			if firstOf(text+end, ends) != end {
				continue
			}
			r.literal(end, stop, func(pos int) { next(end, pos) })
		}
	}
}

// firstOf finds the first place in text where one of the marks ends. If this place is the end of text, firstOf returns
// the longest mark that ends there. In all other cases it returns "".
func firstOf(text string, marks []string) string {
	for stop := range len(text) + 1 {
		found := ""
		for _, m := range marks {
			if strings.HasSuffix(text[:stop], m) && len(m) > len(found) {
				found = m
			}
		}
		if found != "" {
			if stop < len(text) {
				return ""
			}
			return found
		}
	}
	return ""
}

func (r *naiveReader) tags(t *Tags, pos int, immediate bool, ends []string, next func(int)) {
	read := func(tag *Tag, pos int) {
		if t.StopAfterFirst {
			r.lastTag(tag, pos, ends, next)
		} else {
			r.tag(tag, pos, func(pos int) { r.tags(t, pos, false, ends, next) })
		}
	}
	if immediate {
		for i := range t.Tags {
			read(&t.Tags[i], pos)
		}
		return
	}
	marks := slices.Concat(t.Triggers, ends)
	r.free(pos, t.Excluded, marks, func(mark string, pos int) {
		if slices.Contains(ends, mark) {
			next(pos)
		}
		for i := range t.Tags {
			if !slices.Contains(t.Triggers, mark) {
				continue
			}
			if rest, ok := strings.CutPrefix(t.Tags[i].Begin, mark); ok {
				read(&Tag{rest, t.Tags[i].Content, t.Tags[i].End}, pos)
			}
		}
	})
	if len(ends) == 0 {
		r.free(pos, slices.Concat(t.Excluded, t.Triggers), nil, func(_ string, pos int) { next(pos) })
	}
}
