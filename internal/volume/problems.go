package volume

import "strings"

// problems is a list of errors that are reported together, in one line: they
// end up in a pod's status.
type problems []error

func (p *problems) add(err error) {
	if err != nil {
		*p = append(*p, err)
	}
}

func (p problems) err() error {
	if len(p) == 0 {
		return nil
	}
	return p
}

func (p problems) Error() string {
	texts := make([]string, len(p))
	for i, err := range p {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap lets errors.Is and errors.As look at each.
func (p problems) Unwrap() []error { return p }
