// Package anthropic serves Anthropic's interface, POST /v1/messages and /v1/messages/count_tokens, beside
// OpenAI's. It translates a request to a chat of package openai. It translates the answer to a message or, if
// the client wants a stream, to the events of a message.
//
// It refuses requests that a chat cannot express, such as those with documents or with tools that Anthropic's servers
// run. The error names the reason. Blocks have the types text, thinking, tool_use and tool_result, and image if the
// server leaves images out.
package anthropic
