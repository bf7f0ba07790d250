package jsonschema

import (
	"cmp"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// decimal is a number: ±0.digits·10^exponent. The digits neither begin nor end with 0, so equal numbers are equal
// decimals. The digits of zero are "", and its exponent is 0.
type decimal struct {
	negative bool
	digits   string
	exponent int
}

const (
	maxDigits   = 400
	maxExponent = 400
)

// parseDecimal parses a JSON number. It returns an error if the number has more than maxDigits characters
// before its exponent, or if its exponent is above maxExponent or below -maxExponent.
func parseDecimal(text string) (decimal, error) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	e, err := strconv.Atoi(exponent)
	if exponent != "" && (err != nil || e > maxExponent || e < -maxExponent) || len(mantissa) > maxDigits {
		return decimal{}, fmt.Errorf("the number %.20s has more than %d digits or an exponent above %d", text, maxDigits, maxExponent)
	}
	unsigned, negative := strings.CutPrefix(mantissa, "-")
	whole, fraction, _ := strings.Cut(unsigned, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	e += len(whole) - (len(whole) + len(fraction) - len(digits))
	if digits = strings.TrimRight(digits, "0"); digits == "" {
		return decimal{}, nil
	}
	return decimal{negative, digits, e}, nil
}

func (d decimal) sign() int {
	switch {
	case d.digits == "":
		return 0
	case d.negative:
		return -1
	}
	return 1
}

func (d decimal) cmp(other decimal) int {
	sign := d.sign()
	if sign != other.sign() || sign == 0 {
		return cmp.Compare(sign, other.sign())
	}
	return sign * cmp.Or(cmp.Compare(d.exponent, other.exponent), strings.Compare(d.digits, other.digits))
}

// isInteger reports whether d has no digit after the point.
func (d decimal) isInteger() bool { return d.exponent >= len(d.digits) }

// isMultiple reports whether d is an integer times step, which is not zero.
func (d decimal) isMultiple(step decimal) bool {
	return new(big.Rat).Quo(d.rational(), step.rational()).IsInt()
}

func (d decimal) rational() *big.Rat {
	r, _ := new(big.Rat).SetString(d.String())
	return r
}

// parts returns the digits of d before and after the point, without its sign.
func (d decimal) parts() (whole, fraction string) {
	switch n := len(d.digits); {
	case d.exponent <= 0 && n > 0:
		return "0", strings.Repeat("0", -d.exponent) + d.digits
	case d.exponent >= n:
		whole = d.digits + strings.Repeat("0", d.exponent-n)
	default:
		whole, fraction = d.digits[:d.exponent], d.digits[d.exponent:]
	}
	return cmp.Or(whole, "0"), fraction
}

// String returns the shortest form of d without exponent.
func (d decimal) String() string {
	whole, fraction := d.parts()
	if fraction != "" {
		whole += "." + fraction
	}
	if d.negative {
		return "-" + whole
	}
	return whole
}

// scientific returns d as Python and JavaScript write it with an exponent, which has at least two digits in Python. It
// returns nothing if both of them write d without exponent.
func (d decimal) scientific() []string {
	exponent := d.exponent - 1 // of a mantissa with one digit before the point
	if d.digits == "" || exponent >= -4 && exponent < 16 {
		return nil
	}
	mantissa := d.digits[:1]
	if len(d.digits) > 1 {
		mantissa += "." + d.digits[1:]
	}
	if d.negative {
		mantissa = "-" + mantissa
	}
	return []string{fmt.Sprintf("%se%+d", mantissa, exponent), fmt.Sprintf("%se%+03d", mantissa, exponent)}
}
