package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// foreignMessageFields are fields of messages that would change the answer and are not supported.
var foreignMessageFields = slices.Concat(
	[]foreignField{
		{"prefix", "false", "use continue_final_message"},
		{"partial", "false", "use continue_final_message"},
	},
	unserved("use reasoning", "thinking", "thinking_blocks", "reasoning_details"),
	unserved("use content", "refusal", "text"),
	unserved("use name", "tool_name"),
	unserved("", "audio", "images"),
)

// harmlessMessageFields are fields that clients return from earlier answers or use for themselves.
var harmlessMessageFields = []string{
	"annotations", "cache_control", "created", "createdAt", "created_at", "finish_reason", "id", "index", "metadata", "parsed",
	"provider_specific_fields", "status", "stop_reason", "timestamp", "type",
}

// checkMessages returns an error for a field of a message that would be ignored although it changes the answer.
func checkMessages(raw json.RawMessage) error {
	known := jsonNames(reflect.TypeFor[chatMessage]())
	d := json.NewDecoder(bytes.NewReader(raw))
	if begin, err := d.Token(); err != nil || begin != json.Delim('[') {
		return nil // decoding reports what is wrong
	}
	for i := 0; d.More(); i++ {
		var fields map[string]json.RawMessage
		if d.Decode(&fields) != nil {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			if _, served := known[name]; served {
				continue
			}
			if err := checkMessageField(i, name, fields[name], known); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkTypes returns an error for the first message with a value of a wrong type.
func checkTypes(raw json.RawMessage) error {
	var messages []json.RawMessage
	if json.Unmarshal(raw, &messages) != nil {
		return nil
	}
	for i, m := range messages {
		if err := Read("messages", fmt.Sprintf("Message %d", i), m, &chatMessage{}); err != nil {
			return err
		}
	}
	return nil
}

// checkMessageField checks a field of message i that is not supported.
func checkMessageField(i int, name string, value json.RawMessage, known map[string]reflect.Type) error {
	if slices.Contains(harmlessMessageFields, name) {
		return nil
	}
	f := foreignField{neutral: "{}"}
	at := slices.IndexFunc(foreignMessageFields, func(f foreignField) bool { return f.name == name })
	if at >= 0 {
		f = foreignMessageFields[at]
	}
	switch {
	case f.changesNothing(value):
		return nil
	case at >= 0 && f.instead == "":
		return invalid("messages", "Message %d has the field %q, which is not supported by this server.", i, name)
	case at >= 0:
		return invalid("messages", "Message %d has the field %q, which is not supported by this server: %s.", i, name, f.instead)
	}
	for k := range known {
		if strings.EqualFold(k, name) {
			return invalid("messages", "Message %d has the field %q, which is not known; %q is.", i, name, k)
		}
	}
	return invalid("messages", "Message %d has the field %q, which is not known; check its name, or leave it out.", i, name)
}
