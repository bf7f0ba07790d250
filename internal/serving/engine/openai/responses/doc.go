// Package responses serves OpenAI's interface POST /v1/responses, without stored state. It translates a
// request to a chat of package openai. It translates the answer to the items of the output or, if the client
// wants a stream, to the events of a response.
//
// It refuses requests that a chat cannot express. Examples are requests with stored responses, conversations, images
// or files. Tools may only be functions. Items may only be messages, reasoning, calls of functions and results of
// calls. The error names the reason.
package responses
