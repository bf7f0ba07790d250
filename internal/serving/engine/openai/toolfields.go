package openai

import "encoding/json"

// The fields that tools, calls and parts of messages may have in a request. The fields in the first line of
// each list have an effect. The others have none: clients copy them from answers of other servers, or send
// them for other servers.
var (
	toolFields = []string{"type", "function",
		"cache_control", "eager_input_streaming"} // Anthropic's, also through routers
	functionFields = []string{"name", "description", "parameters", "strict",
		"cache_control", // of proxies to other servers
		"type",          // of open-webui
		"return"}        // what transformers' get_json_schema writes, for templates that show it
	callFields = []string{"id", "type", "function",
		"index",                                                  // of a part of a stream
		"extra_content", "thought_signature", "thoughtSignature", // Gemini
		"provider_specific_fields", "cache_control"} // of proxies to other servers
	calledFields = []string{"name", "arguments",
		"index",            // Ollama
		"parsed_arguments", // OpenAI's Python client
		"provider_specific_fields", "thought_signature"}
	partFields = []string{"type", "text",
		"cache_control", "annotations", "extra_content", "thought_signature", "thoughtSignature", "provider_specific_fields"}
)

// knownFields returns an error if an object has a field that is not in names. The object may have a field named
// function, with another object as its value. The fields of that object must be in the parameter function.
func knownFields(field, name string, value json.RawMessage, names, function []string) error {
	fields, err := Object(field, name, value, names...)
	if err != nil || IsNull(fields["function"]) {
		return err
	}
	_, err = Object(field, "The function of "+lowered(name), fields["function"], function...)
	return err
}

// knownChoice returns an error for a tool_choice with unknown fields.
func knownChoice(text json.RawMessage) error {
	const field = "tool_choice"
	if err := knownFields(field, field, text, []string{"type", "function", "allowed_tools"}, []string{"name"}); err != nil {
		return err
	}
	var given struct {
		Allowed json.RawMessage `json:"allowed_tools"`
	}
	if json.Unmarshal(text, &given) != nil || IsNull(given.Allowed) {
		return nil
	}
	fields, err := Object(field, "allowed_tools", given.Allowed, "mode", "tools")
	if err != nil {
		return err
	}
	var tools []json.RawMessage
	if json.Unmarshal(fields["tools"], &tools) != nil {
		return nil // readChoice reports what is wrong
	}
	for _, t := range tools {
		if err := knownFields(field, "A tool of allowed_tools", t, toolFields, functionFields); err != nil {
			return err
		}
	}
	return nil
}
