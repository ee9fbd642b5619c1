// Package agent wires one node agent from its parts: what is desired, the heart
// that drives pods there, and the runtime that runs them. It decides the order
// in which parts start and stop, and nothing else.
package agent
