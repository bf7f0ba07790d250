package structured

import (
	"errors"
	"fmt"

	"llmmemory/internal/serving/meter"
)

// triggers finds the trigger with which a tag begins. It is a tree of the bytes of the triggers.
type triggers struct {
	children map[branch]int32
	texts    []string // the trigger that ends at each node, or ""
	meter    *meter.Meter
}

type branch struct {
	node int32
	b    byte
}

func newTriggers(texts []string, m *meter.Meter) (*triggers, error) {
	t := &triggers{map[branch]int32{}, make([]string, 1), m}
	for _, text := range texts {
		if text == "" {
			return nil, errors.New("tags: a trigger is empty")
		}
		node := int32(0)
		for i := range len(text) {
			child, ok := t.children[branch{node, text[i]}]
			if !ok {
				child = int32(len(t.texts))
				if err := m.Keep(branchBytes); err != nil {
					return nil, fmt.Errorf("tags: the trigger %.100q: %w", text, err)
				}
				t.children[branch{node, text[i]}] = child
				t.texts = append(t.texts, "")
			}
			node = child
		}
		t.texts[node] = text
	}
	return t, nil
}

const branchBytes = 64 // about what a branch takes, with its node

// find returns the trigger that is a prefix of begin, which is the Begin of a tag. It returns an error if no trigger
// is a prefix, or if two different ones are.
func (t *triggers) find(begin string) (string, error) {
	found := ""
	node, ok := int32(0), true
	for i := 0; i < len(begin); i++ {
		if err := t.meter.Spend(1); err != nil {
			return "", fmt.Errorf("tags: the tag %.100q: %w", begin, err)
		}
		if node, ok = t.children[branch{node, begin[i]}]; !ok {
			break
		}
		if text := t.texts[node]; text != "" {
			if found != "" {
				return "", fmt.Errorf("tags: the tag %.100q begins with two triggers, %.100q and %.100q", begin, found, text)
			}
			found = text
		}
	}
	if found == "" {
		return "", fmt.Errorf("tags: the tag %.100q begins with none of the triggers", begin)
	}
	return found, nil
}
