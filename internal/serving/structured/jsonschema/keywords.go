package jsonschema

// keyword is the function of a keyword of a schema. It returns the values that the keyword allows, or nil if
// the keyword restricts nothing.
type keyword func(c *compiler, schema *value, name string, v *value) (*shape, error)

// keywordOf returns the function of a keyword, or nil if the keyword is ignored.
func keywordOf(name string) keyword {
	switch name {
	case "type":
		return typeShape
	case "enum":
		return enumShape
	case "const":
		return constShape
	case "$ref":
		return refShape
	case "allOf":
		return allOfShape
	case "anyOf":
		return anyOfShape
	case "oneOf":
		return oneOfShape
	case "not":
		return notShape
	case "if":
		return ifShape
	case "dependencies", "dependentRequired", "dependentSchemas":
		return dependentShape
	case "minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties":
		return lengthShape
	case "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum":
		return boundShape
	case "multipleOf":
		return multipleShape
	case "pattern":
		return patternShape
	case "format":
		return formatShape
	case "properties", "patternProperties", "additionalProperties":
		return propertiesShape
	case "required":
		return requiredShape
	case "propertyNames":
		return propertyNamesShape
	case "items", "prefixItems", "additionalItems":
		return itemsShape
	case "contains":
		return containsShape
	case "uniqueItems":
		return uniqueShape
	case "minContains", "maxContains":
		return nil // read with contains
	case "unevaluatedItems", "unevaluatedProperties", "$dynamicRef", "$recursiveRef", "extends", "disallow", "divisibleBy":
		return refusedShape
	}
	return nil
}

// refusedShape refuses a keyword, unless it allows everything.
func refusedShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	if v.kind == boolTrue || v.kind == object && len(v.names) == 0 {
		return nil, nil
	}
	return nil, refuse(schema, name, "the keyword is not supported")
}
