// Package jsonschema compiles JSON Schemas to grammars.
//
// Each place in an answer has a conjunction. It is the list of the schemas that apply to the value there. A schema in
// the list may be negated: then the value must not satisfy it. For each conjunction, the compiler computes a [shape],
// which is the set of JSON values that the conjunction allows. A shape has alternatives for numbers, strings, arrays
// and objects. Keywords such as anyOf, oneOf, not and if produce alternatives. For allOf and references, the compiler
// intersects shapes. Each conjunction with arrays or objects becomes one rule of the grammar, so recursive schemas
// become recursive rules.
//
// Answers are written as follows. Unless they are compact, a space, or one or two line breaks with an indentation, may
// come before each lexeme. Listed properties come in the order of the schema, and other properties after them. Integers
// have neither fraction nor exponent. Where multipleOf or a bound limits a number, its exponent is limited, too
// (digitMachine). Numbers of enum and const that need not be integers may also be written as in the schema, or as Python
// and JavaScript write them. Names have escapes only where JSON requires them. The same holds for strings, but a string
// that may have any characters may have any escapes, too.
//
// A keyword that is not supported causes an [Unsupported] error. Keywords are ignored if JSON Schema does not define
// them or if they only describe. Formats that JSON Schema does not define are ignored, too.
package jsonschema
