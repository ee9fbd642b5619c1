// Package integration runs pods in real containers on a real agent, on good and
// on bad days, and checks that nothing stays behind. It has only tests.
package integration
