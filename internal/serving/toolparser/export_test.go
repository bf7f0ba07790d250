package toolparser

// Looked returns the number of bytes of the answer that the parser has looked at so far, each as often as it was
// looked at.
func (p *Parser) Looked() int { return p.out.looked }
