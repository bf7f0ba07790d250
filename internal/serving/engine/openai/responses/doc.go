// Package responses serves OpenAI's interface POST /v1/responses, without stored state. It translates a
// request to a chat of package openai. It translates the answer to the items of the output or, if the client
// wants a stream, to the events of a response.
//
// It refuses requests that a chat cannot express: with stored responses or conversations, images, files, tools
// other than functions, or items other than messages, reasoning, calls of functions and their results. The
// error names the reason.
package responses
