// Package anthropic serves Anthropic's interface, POST /v1/messages and /v1/messages/count_tokens, beside
// OpenAI's. It translates a request to a chat of package openai. It translates the answer to a message or, if
// the client wants a stream, to the events of a message.
//
// It refuses requests that a chat cannot express. Examples are requests with documents or tools of Anthropic's
// servers. Blocks may only be text, images, thinking, tool_use and tool_result. The error names the reason.
package anthropic
