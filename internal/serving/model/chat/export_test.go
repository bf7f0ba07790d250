package chat

import (
	"context"
	"strings"

	"llmmemory/internal/serving/model/marks"
)

// Render is like RenderTo, but returns the prompt as a string.
func (t *Template) Render(messages []Message, answer bool, kwargs map[string]any) (string, error) {
	var text strings.Builder
	_, err := t.RenderTo(context.Background(), func(piece string, _ *marks.Marks) error {
		text.WriteString(piece)
		return nil
	}, messages, Options{Answer: answer, Kwargs: kwargs})
	if err != nil {
		return "", err
	}
	return text.String(), nil
}
