// Package anthropic serves Anthropic's interface, POST /v1/messages and /v1/messages/count_tokens, beside OpenAI's. It
// translates requests to chats of package openai, and answers to messages and their streamed events.
//
// What a chat cannot express is refused by name: images, documents, tools of Anthropic's servers, and other blocks than
// text, thinking, tool_use and tool_result.
package anthropic
