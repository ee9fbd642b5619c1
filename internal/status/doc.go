// Package status keeps the last status of each pod and brings it to whoever
// shows it: sinks, such as the API, and subscribers, such as the terminal.
//
// A status is decided in package lifecycle and written by the pod's worker alone.
// This package never changes what a status says, except where saying it would
// take something back: see Merge.
//
// # Promises
//
//   - Versions only grow. An equal status makes no version.
//   - A sink gets only the newest version of a pod, one call at a time for each
//     pod, different pods at once, and changes of Ready before the rest. Errors
//     are retried with a growing wait; what is sent then is what is newest then.
//   - Everything is keyed by uid. A pod made anew under the same name never gets
//     the old one's status.
//   - A deleted pod is removed from the sinks after Finished only, and after its
//     last status was written.
//   - Set, Finished, Get and Subscribe never block; no lock is held across I/O.
//   - A subscriber gets each version in order while it keeps up. One that falls
//     far behind gets the newest version of each pod and the number it missed.
package status
