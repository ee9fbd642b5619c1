package lifecycle

// Decide says what should hold for the pod, given what is known now.
// It is pure: no clock, no I/O, no goroutine, no log. Equal input, equal answer.
func Decide(in Input) Decision {
	return Decision{}
}

// Apply folds one event into the history and returns the new one. It changes
// nothing in h.
func (h History) Apply(e Event) History {
	return h
}
