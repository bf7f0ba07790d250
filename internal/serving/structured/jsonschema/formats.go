package jsonschema

import (
	"context"
	"sync"

	"llmmemory/internal/serving/meter"
	"llmmemory/internal/serving/structured/automaton"
	"llmmemory/internal/serving/structured/regex"
)

// The formats of JSON Schema follow these RFCs: 3339 for dates and times, 5321 for email, 3986 for URIs, 2673 and
// 4291 for addresses, 1123 for hosts, 4122 for UUIDs, and 6901 for pointers.
const (
	monthDay = `(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))`
	leapYear = `(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)`
	date     = `(?:[0-9]{4}-` + monthDay + `|` + leapYear + `-02-29)`
	zone     = `(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])`
	clock    = `(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?` + zone
	label    = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?`
	atom     = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
	octet    = `(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
	ipv4     = octet + `(?:\.` + octet + `){3}`
	h16      = `[0-9A-Fa-f]{1,4}`
	pchar    = `(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})`
	reg      = `(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*`
	userinfo = `(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?`
	ending   = `(?:\?(?:` + pchar + `|[/?])*)?(?:#(?:` + pchar + `|[/?])*)?`
	rooted   = `//` + userinfo + `(?:` + reg + `|\[` + ipv6 + `\])(?::[0-9]*)?(?:/` + pchar + `*)*`
	absolute = `/(?:` + pchar + `+(?:/` + pchar + `*)*)?`
	rootless = pchar + `+(?:/` + pchar + `*)*`
	noScheme = `(?:[A-Za-z0-9._~!$&'()*+,;=@-]|%[0-9A-Fa-f]{2})+(?:/` + pchar + `*)*`
	uri      = `[A-Za-z][A-Za-z0-9+.-]*:(?:` + rooted + `|` + absolute + `|` + rootless + `|)` + ending
	relative = `(?:` + rooted + `|` + absolute + `|` + noScheme + `|)` + ending
	seconds  = `(?:[0-9]+S)`
	minutes  = `(?:[0-9]+M` + seconds + `?)`
	times    = `T(?:[0-9]+H` + minutes + `?|` + minutes + `|` + seconds + `)`
	days     = `[0-9]+D`
	months   = `[0-9]+M(?:` + days + `)?`
	years    = `[0-9]+Y(?:` + months + `)?`
)

const ipv6 = `(?:(?:` + h16 + `:){6}` + low32 +
	`|::(?:` + h16 + `:){5}` + low32 +
	`|(?:` + h16 + `)?::(?:` + h16 + `:){4}` + low32 +
	`|(?:(?:` + h16 + `:){0,1}` + h16 + `)?::(?:` + h16 + `:){3}` + low32 +
	`|(?:(?:` + h16 + `:){0,2}` + h16 + `)?::(?:` + h16 + `:){2}` + low32 +
	`|(?:(?:` + h16 + `:){0,3}` + h16 + `)?::` + h16 + `:` + low32 +
	`|(?:(?:` + h16 + `:){0,4}` + h16 + `)?::` + low32 +
	`|(?:(?:` + h16 + `:){0,5}` + h16 + `)?::` + h16 +
	`|(?:(?:` + h16 + `:){0,6}` + h16 + `)?::)`

const low32 = `(?:` + h16 + `:` + h16 + `|` + ipv4 + `)`

var formats = map[string]string{
	"date":                  date,
	"time":                  clock,
	"date-time":             date + `[Tt]` + clock,
	"duration":              `P(?:[0-9]+W|(?:` + years + `|` + months + `|` + days + `)(?:` + times + `)?|` + times + `)`,
	"email":                 `(?=[^@]{1,64}@)` + atom + `(?:\.` + atom + `)*@` + label + `(?:\.` + label + `)*`,
	"hostname":              label + `(?:\.` + label + `)*`,
	"ipv4":                  ipv4,
	"ipv6":                  ipv6,
	"uuid":                  `[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}`,
	"uri":                   uri,
	"uri-reference":         `(?:` + uri + `|` + relative + `)`,
	"json-pointer":          `(?:/(?:[^/~]|~[01])*)*`,
	"relative-json-pointer": `(?:0|[1-9][0-9]*)(?:#|(?:/(?:[^/~]|~[01])*)*)`,
}

// The formats that JSON Schema defines and that are refused.
var refusedFormats = set("idn-email", "idn-hostname", "iri", "iri-reference", "uri-template", "regex")

func formatShape(c *compiler, schema *value, name string, v *value) (*shape, error) {
	if refusedFormats[v.text] {
		return nil, refuse(schema, name, "the format %q is not supported", v.text)
	}
	pattern, ok := formats[v.text]
	if !ok {
		return nil, nil
	}
	d, err := formatAutomaton(v.text, pattern)
	if err != nil {
		return nil, refuse(schema, name, "%v", err)
	}
	s := everything()
	if longest, ok := maxLengths[v.text]; ok {
		s.strings[0].max = longest
	}
	s.strings[0].dfas = []form{{d, "format " + v.text}}
	return s, nil
}

// maxLengths has the largest number of characters that a text of a format may have.
var maxLengths = map[string]int{"email": 254, "hostname": 253}

// formatsBuilt caches the automaton of each format that has been used, by the format's name. All compilations share it.
var formatsBuilt sync.Map

const (
	formatWork  = 4_000_000
	formatBytes = 1 << 30
)

func formatAutomaton(name, pattern string) (*automaton.DFA, error) {
	if d, ok := formatsBuilt.Load(name); ok {
		return d.(*automaton.DFA), nil
	}
	d, err := regex.Full(pattern, meter.New(context.Background(), meter.Limits{Work: formatWork, Bytes: formatBytes, Depth: 100}))
	if err == nil {
		formatsBuilt.Store(name, d)
	}
	return d, err
}
