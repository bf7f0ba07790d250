// Package jsonschema makes grammars of JSON Schemas.
//
// A place in an answer has a conjunction: the schemas that hold there, each as it is or negated. A conjunction becomes a
// shape: which null, booleans, numbers, strings, arrays and objects it allows, as alternatives of each ([shape]). anyOf,
// oneOf, not and if become alternatives, allOf and references more schemas of a conjunction. Each conjunction with arrays
// or objects is one rule of the grammar, so recursive schemas are recursive rules.
//
// How answers are written: white space may stand between any two lexemes, up to [lexeme.MaxSpace] characters. Listed
// properties come in the order of the schema, others after them. Integers have neither fraction nor exponent, limited
// numbers no exponent. Names and limited strings have escapes only where JSON needs them.
//
// A keyword that cannot be obeyed is an [Unsupported] error. Keywords that JSON Schema does not define, and those that
// only describe, are ignored. So are formats that it does not define.
package jsonschema
