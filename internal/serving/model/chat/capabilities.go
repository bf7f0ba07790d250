package chat

import (
	"context"
	"slices"
	"strings"

	"llmmemory/internal/serving/model/marks"
)

// capabilities says which messages a template shows to the model. probe finds out by rendering short chats. A template
// that does not show even a single message of a user is taken to show every message as it is.
type capabilities struct {
	first    map[string]bool // the roles of instructions that can be the first message's
	anywhere map[string]bool // those that can also be a later message's
	oneCall  bool            // a message can have only one call
	nineIDs  bool            // ids of calls must have nine letters and digits
}

// instructions are the roles of messages that instruct the model.
var instructions = []string{"system", "developer"}

func isInstruction(m *Message) bool { return slices.Contains(instructions, m.Role) }

// asTheyAre are the capabilities of a template whose messages are not changed.
func asTheyAre() capabilities {
	all := map[string]bool{"system": true, "developer": true}
	return capabilities{first: all, anywhere: all}
}

func (t *Template) probe() capabilities {
	user, answer := Message{Role: "user", Content: "probeu"}, Message{Role: "assistant", Content: "probea"}
	if !t.shows([]Message{user}, "probeu") {
		return asTheyAre()
	}
	c := capabilities{first: map[string]bool{}, anywhere: map[string]bool{}}
	for _, role := range instructions {
		c.first[role] = t.shows([]Message{{Role: role, Content: "probei"}, user}, "probei", "probeu")
	}
	before := []Message{}
	if c.first["system"] {
		before = append(before, Message{Role: "system", Content: "probes"})
	}
	for _, role := range instructions {
		later := Message{Role: role, Content: "probei"}
		c.anywhere[role] = c.first[role]
		for _, order := range [][]Message{{later, user}, {user, later}, {user, answer, later, user}} {
			c.anywhere[role] = c.anywhere[role] && t.shows(slices.Concat(before, order), "probei", "probeu")
		}
	}
	c.probeCalls(t, user, answer)
	return c
}

// probeCalls sets oneCall and nineIDs. It leaves them false if the template shows no calls at all.
func (c *capabilities) probeCalls(t *Template, user, answer Message) {
	shows := func(ids []string, names ...string) bool {
		calls, results := []any{}, []Message{}
		for i, name := range names {
			call, err := ToolCall([]byte(`{"id": "` + ids[i] + `", "type": "function", "function": {"name": "` + name + `", "arguments": {}}}`))
			if err != nil {
				return false
			}
			calls, results = append(calls, call), append(results, Message{Role: "tool", ToolCallID: ids[i], Content: "prober"})
		}
		messages := slices.Concat([]Message{user, {Role: "assistant", ToolCalls: calls}}, results, []Message{answer, user})
		if t.shows(messages, names...) {
			return true
		}
		messages, changed, err := WithTextArguments(messages)
		return err == nil && changed && t.shows(messages, names...)
	}
	long, nine := []string{"call_probe0123456789abcdef", "call_probe0123456789ghijkl"}, []string{"probe0001", "probe0002"}
	ids := long
	if !shows(long, "probef") {
		if !shows(nine, "probef") {
			return
		}
		c.nineIDs, ids = true, nine
	}
	c.oneCall = !shows(ids, "probef", "probeg")
}

// shows reports whether the template renders the messages to a prompt that contains all texts.
func (t *Template) shows(messages []Message, texts ...string) bool {
	var prompt strings.Builder
	_, err := t.render(context.Background(), func(piece string, _ *marks.Marks) error {
		prompt.WriteString(piece)
		return nil
	}, messages, Options{Answer: true})
	return err == nil && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(prompt.String(), text) })
}

// OneCall reports whether the template shows at most one call of a message, as Llama 3.1's does.
func (t *Template) OneCall() bool { return t.capable.oneCall }
