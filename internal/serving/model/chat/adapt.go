package chat

import (
	"crypto/sha256"
	"slices"
	"strings"

	"llmmemory/internal/serving/model/chat/jinja"
)

// adapted returns messages that the template shows to the model. It changes only what the template would refuse or
// leave out:
//
//   - A developer message whose role the template does not show becomes a system message.
//   - Instructions at the beginning join the first one. If the template shows none, they join the first user message.
//   - A later instruction becomes a user message between <system> and </system>, or joins the user message beside it.
//     It does not join the first instruction: this would change the first tokens of the prompt, and the whole
//     conversation would have to be computed again.
//   - A message with several calls becomes several messages, each followed by its result.
//   - Ids of calls become nine letters and digits.
//
// What the first messages become does not depend on the later ones, except that a later instruction or user message can
// be joined to the last of them. So the cached prefix of a conversation remains valid.
func (t *Template) adapted(messages []Message) []Message {
	c := &t.capable
	if slices.ContainsFunc(messages, func(m Message) bool { return isInstruction(&m) && !c.anywhere[m.Role] }) {
		messages = c.withInstructions(messages)
	}
	if c.oneCall && slices.ContainsFunc(messages, func(m Message) bool { return len(m.ToolCalls) > 1 }) {
		messages = withOneCall(messages)
	}
	if c.nineIDs {
		messages = withNineIDs(messages)
	}
	return messages
}

// A draft is a message whose texts are not joined yet.
type draft struct {
	Message
	texts []string
}

// withInstructions returns messages whose instructions the template shows.
func (c *capabilities) withInstructions(messages []Message) []Message {
	var all []draft
	add := func(m Message, text string) { all = append(all, draft{m, []string{text}}) }
	join := func(text string) { all[len(all)-1].texts = append(all[len(all)-1].texts, text) }
	leading, joins := true, false // joins: the last message can join a user message that follows
	for _, m := range messages {
		last := len(all) - 1
		if !isInstruction(&m) {
			if leading = false; joins && m.Role == "user" {
				join(m.Content)
			} else {
				add(m, m.Content)
			}
			joins = false
			continue
		}
		if m.Role == "developer" && !c.shows(m.Role, last) && c.shows("system", last) {
			m.Role = "system"
		}
		switch {
		case c.shows(m.Role, last):
			add(m, m.Content)
		case leading && last >= 0:
			join(m.Content)
		case leading:
			add(Message{Role: "user"}, m.Content)
			joins = true
		case all[last].Role == "user":
			join(marked(m.Content))
			joins = true
		default:
			add(Message{Role: "user"}, marked(m.Content))
			joins = true
		}
	}
	joined := make([]Message, len(all))
	for i, d := range all {
		joined[i] = d.Message
		joined[i].Content = strings.Join(d.texts, "\n\n")
	}
	return joined
}

// shows reports whether the template shows an instruction of the role after the message with index last.
func (c *capabilities) shows(role string, last int) bool {
	return c.anywhere[role] || last < 0 && c.first[role]
}

// marked returns an instruction as it is written in a message of a user.
func marked(instruction string) string { return "<system>\n" + instruction + "\n</system>" }

// withOneCall returns messages of which each has at most one call. Results follow their call. Results without an id
// belong to the calls in their order.
func withOneCall(messages []Message) (all []Message) {
	for i := 0; i < len(messages); i++ {
		m := messages[i]
		if len(m.ToolCalls) < 2 {
			all = append(all, m)
			continue
		}
		n := i + 1
		for n < len(messages) && messages[n].Role == "tool" {
			n++
		}
		all = append(all, oneByOne(m, messages[i+1:n])...)
		i = n - 1
	}
	return all
}

// oneByOne returns a message with several calls, and their results, as messages with one call each.
func oneByOne(m Message, results []Message) (all []Message) {
	byID := map[string][]Message{}
	for _, r := range results {
		byID[r.ToolCallID] = append(byID[r.ToolCallID], r)
	}
	take := func(id string) bool {
		list := byID[id]
		if len(list) > 0 {
			all, byID[id] = append(all, list[0]), list[1:]
		}
		return len(list) > 0
	}
	for k, call := range m.ToolCalls {
		one := Message{Role: m.Role, Name: m.Name, ToolCalls: []any{call}}
		if k == 0 {
			one.Content, one.Reasoning = m.Content, m.Reasoning
		}
		all = append(all, one)
		if !take(CallID(call)) {
			take("")
		}
	}
	for _, r := range results { // those of other calls
		take(r.ToolCallID)
	}
	return all
}

// withNineIDs returns messages whose calls have ids of nine letters and digits. An id that has another form is replaced
// by one that depends on nothing else, so a call and its result keep the same id in later requests.
func withNineIDs(messages []Message) []Message {
	all := slices.Clone(messages)
	for i := range all {
		all[i].ToolCallID = nineID(all[i].ToolCallID)
		all[i].ToolCalls = slices.Clone(all[i].ToolCalls)
		for k, call := range all[i].ToolCalls {
			if id := CallID(call); id != nineID(id) {
				renamed := jinja.EachText(call, func(text string) string { return text }).(*jinja.Dict)
				renamed.Set("id", nineID(id))
				all[i].ToolCalls[k] = renamed
			}
		}
	}
	return all
}

// nineID returns an id of nine letters and digits for an id: the id itself if it has this form or is "".
func nineID(id string) string {
	const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	fits := len(id) == 9
	for i := range len(id) {
		b := id[i]
		fits = fits && (b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z')
	}
	if fits || id == "" {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	short := make([]byte, 9)
	for i := range short {
		short[i] = alphabet[int(sum[i])%len(alphabet)]
	}
	return string(short)
}
