// Package simulate runs the core of berth in a model world: a runtime that
// starts, fails, hangs and forgets, probes that flap, an agent that is killed,
// and a clock that is nobody's. It holds what the core decides against the
// properties that must hold always.
//
// A run is a function of its seed and its faults, bit for bit: the same pods,
// the same story, the same end. What goes wrong is in the words of package
// fault, so that a failing run can be printed and run again.
//
// The world of each pod is its own: pods share nothing in the core.
package simulate
