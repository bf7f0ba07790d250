package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Parts says which parts the content of a message may have.
type Parts struct {
	Field  string   // of the body, to which errors refer
	Texts  []string // types of parts with a text
	Images []string // types of images
	Extra  []string // fields of a text that have no effect
}

// Text returns the text of a content, which is a string or a list of parts, or null, which has no text. As in vLLM, the
// texts of the parts are joined by line breaks. The first image is noted in c. The parameter name is what errors call the
// message, for example "message 3".
func (p *Parts) Text(c *Chat, name string, content json.RawMessage) (text string, err error) {
	if IsNull(content) || json.Unmarshal(content, &text) == nil {
		return text, nil
	}
	var parts []json.RawMessage
	if json.Unmarshal(content, &parts) != nil {
		return "", invalid(p.Field, "The content of %s is neither a string nor a list of parts.", name)
	}
	lines := make([]string, len(parts))
	for i, raw := range parts {
		if lines[i], err = p.read(c, fmt.Sprintf("Part %d of %s", i, name), raw); err != nil {
			return "", err
		}
	}
	return strings.Join(lines, "\n"), nil
}

func (p *Parts) read(c *Chat, name string, raw json.RawMessage) (string, error) {
	var part struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if err := Read(p.Field, name, raw, &part); err != nil {
		return "", err
	}
	switch {
	case part.Type == "":
		return "", invalid(p.Field, "%s has no type; %s is possible.", name, strings.Join(p.Texts, " or "))
	case slices.Contains(p.Images, part.Type):
		c.Image = cmp.Or(c.Image, name)
		return ImageLeftOut, nil
	case !slices.Contains(p.Texts, part.Type):
		return "", invalid(p.Field, "%s has the type %q; %s is possible.", name, part.Type, strings.Join(p.Texts, " or "))
	}
	if _, err := Object(p.Field, name, raw, append([]string{"type", "text"}, p.Extra...)...); err != nil {
		return "", err
	}
	if part.Text == nil {
		return "", invalid(p.Field, "%s has no text.", name)
	}
	return *part.Text, nil
}
